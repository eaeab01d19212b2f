// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches: frames arrive whole, in order, only at their destinations, and many at once.

use pando_abi::Event;
use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::limits::NETWORK_DESCRIPTORS;
use pando_abi::virtual_registers::{Card, offset};
use pando_kernel::RunState;
use pando_kernel::{End, OperatorError};
use pando_testing::network_lab::{NetworkLab, RECEIVED, SENT, TestRing, batch, packet};

#[test]
fn frames_arrive_whole_in_order_and_only_where_they_go() {
    for mut bench in NetworkLab::both(3).into_iter().chain(NetworkLab::sleep_when_idle(3)) {
        let [a, b] = [0, 1].map(|cell| bench.addresses(cell));
        let frames: Vec<Vec<u8>> =
            [34, 60, 61, 1514, 65_549, 100].iter().zip(1..).map(|(length, mark)| packet(&a, &b, *length, mark)).collect();
        bench.listen(1, 1);
        bench.listen(2, 1);
        bench.send(0, &frames);
        assert_eq!(bench.received(1), std::slice::from_ref(&frames));
        assert_eq!(bench.taken(2, TestRing::Receive), 0);
        let (sent, got) = (bench.traffic(0).sent, bench.traffic(1).received);
        assert_eq!((sent, got.frames), (got, frames.len() as u64));
        assert_eq!(sent.bytes, frames.iter().map(Vec::len).sum::<usize>() as u64);
        bench.close();
    }
}

#[test]
fn a_cell_knows_its_card_and_a_clone_has_none() {
    for bench in NetworkLab::both(2) {
        let card = |cell: usize| {
            let at = VIRTUAL_REGISTERS + offset::CARD as u64;
            (0..Card::WORDS).map(|word| bench.word(cell, at + 8 * word as u64)).collect::<Vec<_>>()
        };
        let own = bench.addresses(1);
        assert_eq!(card(1)[0], 65_535);
        assert_eq!(card(1)[1].to_le_bytes()[..6], own.mac.0);
        assert_eq!(card(1)[2], u64::from(own.v4.to_bits()) | 16 << 32);
        assert_ne!(card(0)[1..3], card(1)[1..3]);
        let id = bench.cells[0].0;
        // The content of its rings stays.
        bench.post(0, TestRing::Receive, RECEIVED, 1000);
        assert_eq!(bench.lab.kernel.plug(id, bench.network, Default::default()), Err(OperatorError::PluggedIn(id)));
        assert_eq!(bench.word(0, TestRing::Receive.address()), 1);
        let clone = bench.lab.kernel.clone_cell(id, pando_testing::lab::QUOTA).expect("it idles");
        assert_eq!(bench.lab.kernel.traffic(clone), Ok(None));
        bench.lab.kernel.end(clone, End::Killed).expect("it lives");
        bench.close();
    }
}

#[test]
fn frames_that_arrive_without_room_wait_and_come_as_one_batch() {
    for mut bench in NetworkLab::both(2) {
        let [a, b] = [0, 1].map(|cell| bench.addresses(cell));
        let frames: Vec<Vec<u8>> = (0..50).map(|mark| packet(&a, &b, 1000, mark)).collect();
        for frame in &frames {
            bench.send(0, std::slice::from_ref(frame));
        }
        assert_eq!((bench.taken(1, TestRing::Receive), bench.traffic(1).waiting.frames), (0, 50));
        bench.listen(1, 1);
        bench.kick(1);
        assert_eq!(bench.received(1), [frames]);
        assert_eq!(bench.traffic(1).waiting.frames, 0);
        bench.close();
    }
}

#[test]
fn room_in_a_full_transmit_ring_raises_an_event() {
    for mut bench in NetworkLab::both(2).into_iter().chain(NetworkLab::sleep_when_idle(2)) {
        let [a, b] = [0, 1].map(|cell| bench.addresses(cell));
        let bytes = batch(&[packet(&a, &b, 100, 1)]);
        bench.write(0, SENT, &bytes);
        for (descriptors, is_news) in [(1, false), (NETWORK_DESCRIPTORS as u64 - 1, false), (NETWORK_DESCRIPTORS as u64, true)] {
            for _ in 0..descriptors {
                bench.post(0, TestRing::Transmit, SENT, bytes.len() as u32);
            }
            bench.kick(0);
            assert_eq!(bench.wake_events(0).contains(Event::Network), is_news, "{descriptors}");
        }
        bench.close();
    }
}

#[test]
fn a_batch_that_is_larger_than_the_room_fills_the_next_descriptor() {
    for mut bench in NetworkLab::both(2) {
        let [a, b] = [0, 1].map(|cell| bench.addresses(cell));
        let frames: Vec<Vec<u8>> = (0..3).map(|mark| packet(&a, &b, 60_000, mark)).collect();
        // Too little for any of them, then room for one, then for all.
        bench.post(1, TestRing::Receive, RECEIVED, 65_000);
        bench.post(1, TestRing::Receive, RECEIVED + 0x10_0000, 1 << 18);
        bench.send(0, &frames);
        assert_eq!(bench.received(1), [frames[..1].to_vec(), frames[1..].to_vec()]);
        // A frame that would never fit is dropped and counted.
        bench.post(1, TestRing::Receive, RECEIVED, 100);
        bench.send(0, &[frames[0].clone(), packet(&a, &b, 80, 9)]);
        assert_eq!((bench.received(1).concat().len(), bench.traffic(1).overrun), (1, 1));
        bench.close();
    }
}

#[test]
fn a_broadcast_reaches_all_ports_but_its_sender() {
    for mut bench in NetworkLab::both(4) {
        let a = bench.addresses(0);
        let mut frame = packet(&a, &a, 100, 1);
        frame[..6].fill(0xff);
        (0..4).for_each(|cell| bench.listen(cell, 1));
        bench.send(0, &[frame.clone()]);
        assert_eq!(bench.taken(0, TestRing::Receive), 0);
        (1..4).for_each(|cell| assert_eq!(bench.received(cell), [[frame.clone()]]));
        bench.close();
    }
}

#[test]
fn a_question_for_one_address_disturbs_no_other_cell() {
    for mut bench in NetworkLab::both(3) {
        let [a, c] = [0, 2].map(|cell| bench.addresses(cell));
        let arp = [&[0xff; 6][..], &a.mac.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &a.mac.0, &a.v4.octets(), &[0; 6], &c.v4.octets()].concat();
        (0..3).for_each(|cell| bench.listen(cell, 1));
        bench.send(0, std::slice::from_ref(&arp));
        assert_eq!((bench.taken(1, TestRing::Receive), bench.received(2)), (0, vec![vec![arp]]));
        bench.close();
    }
}

#[test]
fn frames_wake_a_cell_that_idles_unless_it_masks_the_event() {
    for mut bench in NetworkLab::both(2).into_iter().chain(NetworkLab::sleep_when_idle(2)) {
        let [a, b] = [0, 1].map(|cell| bench.addresses(cell));
        let exits = |bench: &NetworkLab| bench.lab.kernel.inspect(bench.cells[1].0).expect("it lives").1.exits;
        let before = exits(&bench);
        bench.send(0, &[packet(&a, &b, 60, 1)]);
        assert!(exits(&bench) > before, "it ran");
        bench.write(1, VIRTUAL_REGISTERS + 8, &(1_u64 << Event::Network as u8).to_le_bytes());
        let before = exits(&bench);
        bench.send(0, &[packet(&a, &b, 60, 1)]);
        assert_eq!(exits(&bench), before, "it sleeps on");
        assert!(matches!(bench.lab.kernel.inspect(bench.cells[1].0).expect("it lives").0, RunState::Idle { .. }));
        bench.close();
    }
}

#[test]
fn an_ended_cell_has_left_the_network() {
    for mut bench in NetworkLab::both(3).into_iter().chain(NetworkLab::sleep_when_idle(3)) {
        let [a, b] = [0, 1].map(|cell| bench.addresses(cell));
        bench.send(0, &[packet(&a, &b, 60, 1)]);
        let (id, _) = bench.remove(1);
        bench.lab.kernel.end(id, End::Killed).expect("it idles");
        let outcome = bench.lab.kernel.wait(id).expect("it has ended");
        assert_eq!(outcome.traffic.expect("it had a card").waiting.frames, 1);
        bench.listen(1, 1);
        bench.send(0, &[packet(&a, &b, 60, 2), packet(&a, &bench.addresses(1), 60, 3)]);
        assert_eq!(bench.received(1)[0].len(), 1);
        bench.close();
    }
}
