// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clones do not receive the input, signals and jobs that were sent to their source, however little of them was processed
//! at the freeze.

use crate::{APPLETS, ARENA, QUOTA, common};
use pando_abi::Event;
use pando_kernel::{CellId, Config, ConsoleOutput, ConsolePort, Stream};
use pando_launch::{Calls, Command, Job, JobEnd, Jobs, Multiplexer, Program, Root};
use pando_machine::kvm::Omit;
use pando_testing::lab::{Lab, is_kvm_available};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A script in a cell that is to be cloned.
pub struct TemplateSource {
    pub lab: Lab,
    root: Root,
    program: Program,
    pub cell: CellId,
    port: Arc<ConsolePort>,
}

impl TemplateSource {
    /// Starts one and runs it until it waits. `None`: this machine has no KVM.
    pub fn start(script: &str, is_template: bool, files: &[PathBuf]) -> Option<TemplateSource> {
        if !is_kvm_available() {
            return None;
        }
        let mut lab = Lab::kvm(ARENA, 1, Config::default(), Omit::NOTHING);
        let root = common::root(&mut lab, &APPLETS, files);
        let program = Program { is_template, ..common::script(script, QUOTA, Calls::default()) };
        let cell = program.prepare(&lab.kernel, &root).expect("room for a cell");
        let port = lab.kernel.console(cell).expect("it has a console");
        lab.kernel.start(cell).expect("it was not started before");
        lab.run_all();
        Some(TemplateSource { lab, root, program, cell, port })
    }

    /// Sends input, and runs until the cell is idle.
    pub fn give(&mut self, input: &[u8]) {
        assert!(self.port.send(input));
        self.lab.run_all();
    }

    /// Receives all its output.
    fn receive_all(&mut self) {
        while let ConsoleOutput::Bytes(..) = self.port.try_receive() {
            self.lab.run_all();
        }
    }

    fn is_frozen(&self) -> bool {
        self.lab.kernel.wait_frozen_for(self.cell, Duration::ZERO).expect("it does not end")
    }

    fn ask(&mut self) {
        self.lab.kernel.request_freeze(self.cell).expect("it lives");
        self.lab.run_all();
    }

    fn stop(&mut self) {
        self.lab.kernel.force_freeze(self.cell).expect("it was started");
        self.lab.run_all();
    }

    /// Returns the output of a clone with this input.
    fn said_by_clone(&mut self, input: &[u8]) -> String {
        assert!(self.is_frozen());
        let template = self.root.frozen(self.cell);
        let program = Program { is_template: false, ..self.program.clone() };
        let cell = program.prepare(&self.lab.kernel, &template).expect("room for a cell");
        let port = self.lab.kernel.console(cell).expect("it has a console");
        assert!(port.send(input));
        port.close_input();
        self.lab.kernel.start(cell).expect("it was not started before");
        common::output_until_end(&mut self.lab, cell, &port)
    }

    pub fn jobs(&self) -> (Jobs, Multiplexer) {
        Jobs::with_multiplexer(&self.lab.kernel, self.cell, || ()).expect("it lives")
    }

    /// Drives a job until no event is pending.
    pub fn carry(&mut self, carrier: &mut Multiplexer) {
        for _ in 0..10 {
            carrier.turn();
            self.lab.run_all();
        }
    }
}

/// A command that runs a script in the shell as a job.
pub fn script(text: &str) -> Command {
    let arguments = ["sh", "-c", text].map(|word| word.into()).to_vec();
    Command { path: b"/bin/sh".to_vec(), directory: b"/tmp".to_vec(), arguments, ..Command::default() }
}

/// All output of a job so far.
pub fn output_of(job: &Job) -> Vec<(Stream, String)> {
    let heard = std::iter::from_fn(|| match job.port().try_receive() {
        ConsoleOutput::Bytes(stream, bytes) => Some((stream, String::from_utf8_lossy(&bytes).into_owned())),
        _ => None,
    });
    heard.collect()
}

/// Prints more than the console buffers: the rest stays in the cell until the output is received, and until then the cell
/// does not freeze.
const LOUD: &str = "read line; head -c 1056768 /dev/zero; read line; sleep 0.1; echo; echo $line /tmp/*";

#[test]
fn orders_and_signals_of_the_operator_are_not_for_clones() {
    for is_asked in [true, false] {
        let Some(mut source) = TemplateSource::start(LOUD, false, &[]) else { return };
        let (jobs, mut carrier) = source.jobs();
        let first = jobs.start(&script("echo here")).expect("it is the first");
        source.carry(&mut carrier);
        assert_eq!((first.end(), output_of(&first)), (Some(JobEnd::Exited(0)), vec![(Stream::Stdout, "here\n".into())]));
        source.give(b"\n");
        source.ask();
        // It has received all this, and is in the middle of freezing.
        let second = jobs.start(&script("echo made > /tmp/made")).expect("there is room");
        source.carry(&mut carrier);
        source.lab.kernel.interrupt(source.cell).expect("it lives");
        source.lab.kernel.raise(source.cell, Event::Terminate);
        source.lab.run_all();
        assert_eq!((source.is_frozen(), second.end()), (false, None));
        if is_asked {
            source.receive_all()
        } else {
            source.stop()
        }
        for _ in 0..2 {
            let said = source.said_by_clone(b"word\n");
            assert!(said.ends_with("\nword /tmp/*\n"), "{said:?}");
        }
        assert!(!carrier.turn());
        assert_eq!(second.end(), Some(JobEnd::Lost));
    }
}

#[test]
fn a_cell_that_need_not_freeze_any_more_goes_on() {
    let Some(mut source) = TemplateSource::start(LOUD, false, &[]) else { return };
    source.give(b"\n");
    source.ask();
    assert_eq!(source.lab.kernel.withdraw_freeze(source.cell), Ok(true));
    source.receive_all();
    assert!(!source.is_frozen());
    // It can be requested again.
    source.ask();
    assert!(source.said_by_clone(b"word\n").ends_with("\nword /tmp/*\n"));
}

#[test]
fn unread_output_of_a_template_is_read_from_its_clones() {
    for is_asked in [true, false] {
        let Some(mut source) = TemplateSource::start("read line; echo gone; read line; echo $line", false, &[]) else { return };
        source.port.close_stream(Stream::Stdout);
        source.give(b"\n");
        if is_asked {
            source.ask()
        } else {
            source.stop()
        }
        assert_eq!(source.said_by_clone(b"word\n"), "word\n");
    }
}

#[test]
fn the_end_of_the_sources_input_is_not_that_of_clones() {
    const SCRIPT: &str = "read line; echo ready > /dev/pando; read line; echo $line; read line || echo end";
    let Some(mut source) = TemplateSource::start(SCRIPT, true, &[]) else { return };
    assert!(source.port.send(b"first\n"));
    source.port.close_input();
    source.lab.run_all();
    for _ in 0..2 {
        assert_eq!(source.said_by_clone(b"word\n"), "word\nend\n");
    }
}

#[test]
fn processes_of_jobs_go_on_in_clones_without_their_operator() {
    for is_asked in [true, false] {
        let script_of_first = "read line; until [ -e /tmp/read ] && [ -e /tmp/unread ]; do sleep 0.01; done; cat /tmp/read /tmp/unread";
        let Some(mut source) = TemplateSource::start(script_of_first, false, &[]) else { return };
        let (jobs, mut carrier) = source.jobs();
        // One waits for more input, the other for its output to be received. Their files appear with their content.
        let reader = jobs.start(&script("(cat; echo) > part; exec mv part read")).expect("there is room");
        assert!(reader.port().send(b"some"));
        let writer = jobs
            .start(&script("trap '' PIPE; while echo; do :; done 2> /dev/null; echo none > last; exec mv last unread"))
            .expect("there is room");
        source.carry(&mut carrier);
        assert_eq!((reader.end(), writer.end()), (None, None));
        if is_asked {
            source.ask()
        } else {
            source.stop()
        }
        for _ in 0..2 {
            assert_eq!(source.said_by_clone(b"word\n"), "some\nnone\n");
        }
    }
}
