// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control channel: opened by the operator, empty for whoever opens it, and nobody's in a clone.

use crate::bench::{Bench, FAULTED, MEMORY, Ring};
use pando_abi::ring::OUTPUT;
use pando_kernel::{End, Heard, OperatorError, Stream};
use pando_testing::lab::QUOTA;

#[test]
fn orders_come_in_and_reports_go_out_once_it_is_open() {
    for mut bench in Bench::both() {
        // What stands there before is nobody's, however much it claims.
        bench.post(Ring::Reports, MEMORY, 4, OUTPUT);
        bench.set_posted(Ring::Orders, u64::MAX);
        bench.kick();
        assert_eq!(bench.taken(Ring::Reports), 0);
        let control = bench.lab.kernel.control(bench.id).expect("it lives");
        bench.lab.run_all();
        assert_eq!((bench.posted(Ring::Reports), bench.posted(Ring::Orders), control.hear()), (0, 0, Heard::Nothing));
        bench.write(MEMORY, b"done");
        bench.post(Ring::Reports, MEMORY, 4, OUTPUT);
        bench.post(Ring::Orders, MEMORY + 0x1000, 100, 0);
        bench.post(Ring::Orders, 0x7000_0000, 100, 0);
        assert!(control.send(b"do"));
        bench.lab.run_all();
        assert_eq!(control.receive(), Some((Stream::Output, b"done".to_vec())));
        assert_eq!((bench.taken(Ring::Orders), bench.descriptor(Ring::Orders, 0).length), (1, 2));
        assert_eq!(bench.read(MEMORY + 0x1000, 2), b"do");
        assert!(control.send(b"lost?"));
        bench.lab.run_all();
        assert_eq!(bench.descriptor(Ring::Orders, 1).length, FAULTED);
        // It is the same for whoever asks again.
        let again = bench.lab.kernel.control(bench.id).expect("it lives");
        bench.lab.run_all();
        assert_eq!(bench.posted(Ring::Orders), 2);
        bench.close();
        assert_eq!((control.hear(), again.receive()), (Heard::End, None));
    }
}

#[test]
fn a_clone_has_none_until_somebody_opens_its_own() {
    for mut bench in Bench::both() {
        let control = bench.lab.kernel.control(bench.id).expect("it lives");
        bench.lab.run_all();
        bench.post(Ring::Orders, MEMORY, 100, 0);
        bench.kick();
        let source = bench.id;
        bench.id = bench.lab.kernel.clone_cell(source, QUOTA).expect("it idles");
        bench.lab.kernel.start(bench.id).expect("a clone was not started");
        bench.lab.run_all();
        assert!(control.send(b"not yours"));
        bench.kick();
        assert_eq!((bench.posted(Ring::Orders), bench.taken(Ring::Orders)), (1, 0));
        let own = bench.lab.kernel.control(bench.id).expect("it lives");
        bench.lab.run_all();
        bench.post(Ring::Orders, MEMORY, 100, 0);
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
        bench.lab.kernel.freeze_as_it_stands(bench.id).expect("it was started");
        bench.lab.run_all();
        assert_eq!(control.receive(), None);
        assert!(matches!(bench.lab.kernel.control(bench.id), Err(OperatorError::Busy(_))));
        bench.lab.kernel.end(bench.id, End::Killed).expect("it is there");
        assert_eq!(bench.lab.kernel.control(bench.id).err(), Some(OperatorError::NoSuchCell));
    }
}
