// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control channel: opened by the operator, initially empty, and not inherited by clones.

use crate::bench::{Bench, FAULTED, MEMORY, TestRing};
use pando_abi::ring::OUTPUT;
use pando_kernel::{ConsoleOutput, End, OperatorError, Stream};
use pando_testing::lab::QUOTA;

#[test]
fn orders_come_in_and_reports_go_out_once_it_is_open() {
    for mut bench in Bench::both() {
        // Ring content from before is ignored, whatever its counts.
        bench.post(TestRing::Reports, MEMORY, 4, OUTPUT);
        bench.set_posted(TestRing::Orders, u64::MAX);
        bench.kick();
        assert_eq!(bench.taken(TestRing::Reports), 0);
        let control = bench.lab.kernel.control(bench.id).expect("it lives");
        bench.lab.run_all();
        assert_eq!(
            (bench.posted(TestRing::Reports), bench.posted(TestRing::Orders), control.try_receive()),
            (0, 0, ConsoleOutput::Nothing)
        );
        bench.write(MEMORY, b"done");
        bench.post(TestRing::Reports, MEMORY, 4, OUTPUT);
        bench.post(TestRing::Orders, MEMORY + 0x1000, 100, 0);
        bench.post(TestRing::Orders, 0x7000_0000, 100, 0);
        assert!(control.send(b"do"));
        bench.lab.run_all();
        assert_eq!(control.receive(), Some((Stream::Stdout, b"done".to_vec())));
        assert_eq!((bench.taken(TestRing::Orders), bench.descriptor(TestRing::Orders, 0).length), (1, 2));
        assert_eq!(bench.read(MEMORY + 0x1000, 2), b"do");
        assert!(control.send(b"lost?"));
        bench.lab.run_all();
        assert_eq!(bench.descriptor(TestRing::Orders, 1).length, FAULTED);
        // A second open returns the same channel.
        let again = bench.lab.kernel.control(bench.id).expect("it lives");
        bench.lab.run_all();
        assert_eq!(bench.posted(TestRing::Orders), 2);
        bench.close();
        assert_eq!((control.try_receive(), again.receive()), (ConsoleOutput::End, None));
    }
}

#[test]
fn a_clone_has_none_until_its_own_is_opened() {
    for mut bench in Bench::both() {
        let control = bench.lab.kernel.control(bench.id).expect("it lives");
        bench.lab.run_all();
        bench.post(TestRing::Orders, MEMORY, 100, 0);
        bench.kick();
        let source = bench.id;
        bench.id = bench.lab.kernel.clone_cell(source, QUOTA).expect("it idles");
        bench.lab.kernel.start(bench.id).expect("a clone was not started");
        bench.lab.run_all();
        assert!(control.send(b"not yours"));
        bench.kick();
        assert_eq!((bench.posted(TestRing::Orders), bench.taken(TestRing::Orders)), (1, 0));
        let own = bench.lab.kernel.control(bench.id).expect("it lives");
        bench.lab.run_all();
        bench.post(TestRing::Orders, MEMORY, 100, 0);
        assert!(own.send(b"yours"));
        bench.lab.run_all();
        assert_eq!(bench.read(MEMORY, 5), b"yours");
        bench.lab.kernel.end(bench.id, End::Killed).expect("it idles");
        bench.id = source;
        bench.close();
    }
}

#[test]
fn a_template_has_no_control_channel() {
    for mut bench in Bench::both() {
        let control = bench.lab.kernel.control(bench.id).expect("it lives");
        bench.lab.kernel.force_freeze(bench.id).expect("it was started");
        bench.lab.run_all();
        assert_eq!(control.receive(), None);
        assert!(matches!(bench.lab.kernel.control(bench.id), Err(OperatorError::WrongState(_))));
        bench.lab.kernel.end(bench.id, End::Killed).expect("it is there");
        assert_eq!(bench.lab.kernel.control(bench.id).err(), Some(OperatorError::Ended { cell: bench.id, end: End::Killed }));
    }
}
