// SPDX-License-Identifier: MIT OR Apache-2.0
//! The channel between a cell and its operator: independent of the console, and served only once it is opened.

use crate::bench::{Bench, FAULTED, MEMORY, TestRing};
use pando_abi::ring::OUTPUT;
use pando_kernel::{OperatorError, Stream};
use pando_testing::lab::QUOTA;

#[test]
fn requests_go_out_and_answers_come_in() {
    for mut bench in Bench::both() {
        let channel = bench.lab.kernel.channel(bench.id).expect("it lives");
        bench.write(MEMORY, b"please");
        bench.post(TestRing::Requests, MEMORY, 6, OUTPUT);
        bench.post(TestRing::Answers, MEMORY + 0x1000, 100, 0);
        bench.kick();
        assert_eq!(channel.receive(), Some((Stream::Stdout, b"please".to_vec())));
        assert_eq!((bench.taken(TestRing::Requests), bench.taken(TestRing::Answers)), (1, 0));
        assert!(channel.send(b"thanks"));
        bench.lab.run_all();
        assert_eq!((bench.taken(TestRing::Answers), bench.descriptor(TestRing::Answers, 0).length), (1, 6));
        assert_eq!(bench.read(MEMORY + 0x1000, 6), b"thanks");
        bench.close();
        assert_eq!(channel.receive(), None);
    }
}

#[test]
fn a_console_that_waits_holds_no_channel_up() {
    for mut bench in Bench::both() {
        let channel = bench.lab.kernel.channel(bench.id).expect("it lives");
        // Input that never comes, and more output than the buffer holds.
        bench.post(TestRing::Receive, MEMORY, 100, 0);
        for _ in 0..8 {
            bench.post(TestRing::Transmit, MEMORY, 1 << 18, OUTPUT);
        }
        bench.post(TestRing::Requests, MEMORY + 0x1000, 3, OUTPUT);
        bench.post(TestRing::Answers, MEMORY + 0x1000, 3, 0);
        assert!(channel.send(b"yes"));
        bench.kick();
        assert_eq!(channel.receive(), Some((Stream::Stdout, vec![0; 3])));
        assert_eq!((bench.taken(TestRing::Answers), bench.taken(TestRing::Receive)), (1, 0));
        assert_eq!(bench.receive_from(Stream::Stdout, bench.taken(TestRing::Transmit) as usize * (1 << 18)).len(), 1 << 20);
        drop(bench);
    }
}

#[test]
fn without_an_open_channel_the_kernel_reads_no_ring() {
    for mut bench in Bench::both() {
        bench.post(TestRing::Requests, MEMORY, 4, OUTPUT);
        bench.kick();
        assert_eq!(bench.taken(TestRing::Requests), 0);
        // Earlier requests are received once the channel is open.
        let channel = bench.lab.kernel.channel(bench.id).expect("it lives");
        bench.kick();
        assert_eq!((bench.taken(TestRing::Requests), channel.receive()), (1, Some((Stream::Stdout, vec![0; 4]))));
        bench.close();
    }
}

#[test]
fn a_clone_goes_on_where_its_source_stood_with_a_channel_of_its_own() {
    for mut bench in Bench::both() {
        let channel = bench.lab.kernel.channel(bench.id).expect("it lives");
        bench.post(TestRing::Requests, MEMORY, 4, OUTPUT);
        bench.kick();
        assert!(channel.receive().is_some());
        let source = bench.id;
        bench.id = bench.lab.kernel.clone_cell(source, QUOTA).expect("it idles");
        let own = bench.lab.kernel.channel(bench.id).expect("it lives");
        bench.lab.kernel.start(bench.id).expect("a clone was not started");
        bench.lab.run_all();
        bench.write(MEMORY, b"mine");
        bench.post(TestRing::Requests, MEMORY, 4, OUTPUT);
        bench.kick();
        assert_eq!(own.receive(), Some((Stream::Stdout, b"mine".to_vec())));
        bench.lab.kernel.end(bench.id, pando_kernel::End::Killed).expect("it idles");
        bench.id = source;
        bench.close();
        assert_eq!(channel.receive(), None);
    }
}

#[test]
fn nonsense_in_the_rings_of_a_channel_is_refused() {
    for mut bench in Bench::both() {
        let channel = bench.lab.kernel.channel(bench.id).expect("it lives");
        let unmapped = 0x7000_0000;
        bench.post(TestRing::Requests, unmapped, 4, OUTPUT);
        bench.post(TestRing::Requests, MEMORY, 4, 77);
        bench.post(TestRing::Answers, unmapped, 4, 0);
        assert!(channel.send(b"lost?"));
        bench.kick();
        let lengths =
            [(TestRing::Requests, 0), (TestRing::Requests, 1), (TestRing::Answers, 0)].map(|(ring, at)| bench.descriptor(ring, at).length);
        assert_eq!(lengths, [FAULTED; 3]);
        bench.post(TestRing::Answers, MEMORY, 5, 0);
        bench.kick();
        assert_eq!(bench.read(MEMORY, 5), b"lost?");
        let stale = bench.id;
        drop(bench.lab.kernel.end(stale, pando_kernel::End::Killed));
        assert_eq!(bench.lab.kernel.channel(stale).err(), Some(OperatorError::Ended { cell: stale, end: pando_kernel::End::Killed }));
    }
}
