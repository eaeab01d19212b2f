// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames that are copied from memory to memory, and frames that must not be: the receiver gets the same in both cases.

use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::{Event, MapFlags, Permissions};
use pando_kernel::cell::traffic::TrafficCount;
use pando_kernel::network::link::Link;
use pando_kernel::{End, NetworkConfig};
use pando_machine::PageCount;
use pando_testing::lab::{QUOTA, repetitions};
use pando_testing::network_lab::{NetworkLab, RECEIVED, SENT, TestRing, packet};
use std::num::NonZeroU64;

/// Masks the network event, so that the cell sleeps on and the frames can be observed.
fn ignore_frames(bench: &NetworkLab, cell: usize) {
    bench.write(cell, VIRTUAL_REGISTERS + 8, &(1_u64 << Event::Network as u8).to_le_bytes());
}

/// How many frames are in a cell's memory, and how many are queued.
fn whereabouts(bench: &NetworkLab, cell: usize) -> [u64; 2] {
    let traffic = bench.traffic(cell);
    [traffic.received.frames, traffic.waiting.frames]
}

#[test]
fn both_ways_give_the_same() {
    for seed in 0..repetitions(3, 10, 200) {
        let run = |listens: bool| {
            let benches = NetworkLab::both(2).into_iter().map(|mut bench| {
                let mut random = fastrand::Rng::with_seed(seed as u64);
                let capture = listens.then(|| bench.lab.kernel.capture_packets(bench.network, || {}).expect("there is room"));
                let [a, b] = [0, 1].map(|cell| bench.addresses(cell));
                ignore_frames(&bench, 1);
                let (mut sent, mut arrived) = (Vec::new(), Vec::new());
                for round in 0..6 {
                    let posted = bench.word(1, TestRing::Receive.address());
                    for index in posted..(posted + random.u64(1..4)).min(bench.taken(1, TestRing::Receive) + 8) {
                        let length = if round == 0 || random.bool() { 1 << 18 } else { random.u32(8..1 << 17) };
                        bench.post(1, TestRing::Receive, RECEIVED + index % 8 * 0x10_0000 + random.u64(0..5000), length);
                    }
                    for _ in 0..random.usize(1..4) {
                        let length = |random: &mut fastrand::Rng| if random.bool() { 65_549 } else { random.usize(34..3000) };
                        let frames: Vec<_> = (0..random.usize(1..4)).map(|_| packet(&a, &b, length(&mut random), random.u8(..))).collect();
                        bench.send(0, &frames);
                        sent.extend(frames);
                    }
                    let direct = whereabouts(&bench, 1)[0] > arrived.len() as u64;
                    assert!(!(listens && direct) && (listens || direct || round > 0), "seed {seed}, round {round}");
                    bench.kick(1);
                    arrived.extend(bench.received(1).concat());
                }
                while bench.traffic(1).waiting.frames > 0 {
                    bench.post(1, TestRing::Receive, RECEIVED, 1 << 18);
                    bench.kick(1);
                    arrived.extend(bench.received(1).concat());
                }
                let overrun = bench.traffic(1).overrun;
                assert_eq!(arrived.len() as u64 + overrun, sent.len() as u64);
                let mut all = sent.iter();
                assert!(arrived.iter().all(|frame| all.any(|sent| sent == frame)), "they come in their order");
                let counted = (bench.traffic(0).sent, bench.traffic(1).received, overrun);
                drop(capture);
                bench.close();
                (arrived, counted)
            });
            benches.collect::<Vec<_>>()
        };
        let [direct, queued] = [false, true].map(run);
        assert!(direct == queued, "seed {seed}");
    }
}

#[test]
fn a_frame_is_copied_directly_into_an_idle_cell() {
    for mut bench in NetworkLab::both(2) {
        let [a, b] = [0, 1].map(|cell| bench.addresses(cell));
        ignore_frames(&bench, 1);
        bench.listen(1, 1);
        let frame = packet(&a, &b, 65_000, 1);
        bench.send(0, std::slice::from_ref(&frame));
        assert_eq!(whereabouts(&bench, 1), [1, 0]);
        assert_eq!((bench.taken(1, TestRing::Receive), bench.read(1, RECEIVED + 8, 65_000)), (0, frame.clone()));
        bench.send(0, std::slice::from_ref(&frame));
        bench.kick(1);
        assert_eq!(bench.received(1), [[frame.clone(), frame]], "as one batch, when it wakes");
        bench.close();
    }
}

#[test]
fn a_frame_is_copied_into_a_page_that_a_clone_shares() {
    for mut bench in NetworkLab::both(2) {
        let [a, b] = [0, 1].map(|cell| bench.addresses(cell));
        bench.listen(1, 1);
        bench.send(0, &[packet(&a, &b, 9000, 1)]);
        let clone = bench.lab.kernel.clone_cell(bench.cells[1].0, QUOTA).expect("it idles");
        ignore_frames(&bench, 1);
        bench.post(1, TestRing::Receive, RECEIVED, 1 << 18);
        bench.send(0, &[packet(&a, &b, 9000, 2)]);
        assert_eq!(whereabouts(&bench, 1), [2, 0]);
        let mut seen = vec![0; 9000];
        bench.lab.kernel.read(clone, RECEIVED + 8, &mut seen).expect("it has the same memory");
        assert_eq!(seen, packet(&a, &b, 9000, 1));
        assert_eq!(bench.read(1, RECEIVED + 8, 9000), packet(&a, &b, 9000, 2));
        bench.lab.kernel.end(clone, End::Killed).expect("it lives");
        bench.close();
    }
}

#[test]
fn a_frame_that_cannot_be_copied_directly_waits_at_its_port() {
    // A case, its links, and a function that prepares the bench and returns the frame to send.
    type Case = (&'static str, Link, fn(&mut NetworkLab) -> Vec<u8>);
    fn frame(bench: &NetworkLab) -> Vec<u8> {
        packet(&bench.addresses(0), &bench.addresses(1), 5000, 1)
    }
    let perfect = Link::default();
    let slow = Link { rate: NonZeroU64::new(1 << 30), ..perfect };
    let cases: [Case; 5] = [
        ("its sender's link takes time", slow, |bench| {
            bench.listen(1, 1);
            frame(bench)
        }),
        ("nobody has posted room", perfect, |bench| frame(bench)),
        ("there is room for less", perfect, |bench| {
            bench.post(1, TestRing::Receive, RECEIVED, 4999);
            frame(bench)
        }),
        ("it is for everybody", perfect, |bench| {
            bench.listen(1, 1);
            let mut frame = frame(bench);
            frame[..6].fill(0xff);
            frame
        }),
        ("its first bytes do not say all", perfect, |bench| {
            bench.listen(1, 1);
            let (a, b) = (bench.addresses(0), bench.addresses(1));
            [&b.mac.0[..], &a.mac.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &a.mac.0, &a.v4.octets(), &b.mac.0, &b.v4.octets()].concat()
        }),
    ];
    for (why, link, prepare) in cases {
        for mut bench in NetworkLab::with(2, NetworkConfig::default(), link) {
            ignore_frames(&bench, 1);
            let frame = prepare(&mut bench);
            bench.send(0, &[frame]);
            assert_eq!(whereabouts(&bench, 1), [0, 1], "{why}");
            bench.close();
        }
    }
}

#[test]
fn a_cell_that_is_not_idle_or_has_queued_frames_gets_no_direct_copy() {
    for mut bench in NetworkLab::both(2) {
        let [a, b] = [0, 1].map(|cell| bench.addresses(cell));
        ignore_frames(&bench, 1);
        bench.send(0, &[packet(&a, &b, 100, 1)]);
        bench.listen(1, 1);
        bench.send(0, &[packet(&a, &b, 100, 2)]);
        assert_eq!(whereabouts(&bench, 1), [0, 2], "nothing overtakes");
        // A cell that was never started.
        let id = bench.lab.cell(&[0]);
        bench.lab.kernel.map(id, RECEIVED, PageCount(64), MapFlags::lazy(Permissions::READ_WRITE)).expect("room for its memory");
        let addresses = bench.lab.kernel.plug(id, bench.network, Link::default()).expect("it is not running");
        bench.cells.push((id, addresses));
        bench.listen(2, 1);
        bench.send(0, &[packet(&a, &addresses, 100, 3)]);
        assert_eq!(whereabouts(&bench, 2), [0, 1]);
        bench.close();
    }
}

#[test]
fn a_spoofed_or_partly_readable_frame_reaches_no_cell() {
    for mut bench in NetworkLab::both(2) {
        let [a, b] = [0, 1].map(|cell| bench.addresses(cell));
        ignore_frames(&bench, 1);
        bench.listen(1, 1);
        bench.send(0, &[packet(&b, &b, 5000, 1)]);
        assert_eq!((bench.traffic(0).spoofed, whereabouts(&bench, 1)), (1, [0, 0]));
        // The sender may not read the end of the frame.
        let end = SENT + 0x80_0000;
        let begin = end - 4096;
        bench.write(0, begin, &[&pando_abi::frame::header(5000)[..], &packet(&a, &b, 4000, 2)].concat());
        bench.post(0, TestRing::Transmit, begin, 6000);
        bench.kick(0);
        assert_eq!((bench.traffic(0).sent, whereabouts(&bench, 1)), (TrafficCount { frames: 1, bytes: 5000 }, [0, 0]));
        // The next frame arrives as usual.
        bench.send(0, &[packet(&a, &b, 5000, 3)]);
        bench.kick(1);
        assert_eq!(bench.received(1), [[packet(&a, &b, 5000, 3)]]);
        bench.close();
    }
}
