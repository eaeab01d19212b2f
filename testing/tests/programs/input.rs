// SPDX-License-Identifier: MIT OR Apache-2.0
//! Input reaches the process that waits for it, whatever other processes of the cell do on the console meanwhile.

use crate::ARENA;
use pando_image::{Attributes, Builder, HostFile};
use pando_kernel::RunState;
use pando_kernel::{Config, ConsolePort, End};
use pando_launch::{Program, Root, Template, Volume};
use pando_machine::kvm::Omit;
use pando_machine::{Nanos, PageCount};
use pando_testing::compile::compiled;
use pando_testing::lab::Lab;
use pando_testing::needs_kvm;
use std::path::Path;
use std::time::Duration;

/// As the program has them.
const ROUNDS: usize = 40;
const WRITTEN: usize = 100 << 10;
/// A cell that waits for so long after all input was sent waits for ever.
const LIMIT: Duration = Duration::from_secs(20);

/// Sends a byte for each round as soon as the output of the round before has come: while the parent computes.
fn converse(port: &ConsolePort) -> usize {
    let mut heard = 0;
    for round in 0..ROUNDS {
        while heard < round * WRITTEN {
            let Some((_, bytes)) = port.receive() else { return heard };
            heard += bytes.len();
        }
        port.send(b"x");
    }
    heard + std::iter::from_fn(|| port.receive()).map(|(_, bytes)| bytes.len()).sum::<usize>()
}

#[test]
fn a_reader_is_woken_while_another_process_writes() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/programs/answering.c");
    needs_kvm!();
    let Some(program) = compiled(&source, Path::new(env!("CARGO_TARGET_TMPDIR"))) else { return };
    let mut lab = Lab::kvm(ARENA, 1, Config::default(), Omit::NOTHING);
    let template = Template::boot(&lab.kernel).expect("the libOS boots");
    while !matches!(lab.kernel.inspect(template.cell()), Ok((RunState::Frozen, ..))) {
        assert!(lab.turn(0), "the libOS waits for ever");
    }
    let mut files = Builder::new();
    let file = HostFile::new(program).expect("it was made just now");
    files.file("/answering", file.attributes(), file).expect("a fresh name");
    files.directory("/tmp", Attributes::root(0o1777)).expect("a fresh name");
    let volume = Volume::new("/", files.image().expect("a file makes an image"));
    let root = Root::new(&lab.kernel, &template, vec![volume]).expect("room for a root");
    let answering = Program {
        path: b"/answering".to_vec(),
        directory: b"/tmp".to_vec(),
        arguments: vec![b"answering".to_vec()],
        memory: PageCount(1 << 14),
        ..Program::default()
    };
    let cell = answering.prepare(&lab.kernel, &root).expect("room for a cell");
    let port = lab.kernel.console(cell).expect("it has a console");
    lab.kernel.start(cell).expect("it was not started before");
    let conversation = std::thread::spawn(move || converse(&port));
    let mut waits_since = None;
    let outcome = loop {
        if let Some(outcome) = lab.kernel.collect(cell) {
            break outcome;
        }
        let ran = lab.turn(0);
        let waits = !ran && matches!(lab.kernel.inspect(cell), Ok((RunState::Idle { until: Nanos::NEVER }, ..)));
        let since = *waits_since.get_or_insert(lab.kernel.now());
        if !waits {
            waits_since = None;
            continue;
        }
        if lab.kernel.now() >= since + LIMIT {
            // The other thread hears of it, and says how far it came.
            lab.kernel.end(cell, End::Killed).expect("it lives");
        }
        std::thread::yield_now();
    };
    let heard = conversation.join().expect("it panics nowhere");
    assert_eq!((outcome.end, heard), (End::Exited { status: 0 }, ROUNDS * WRITTEN));
}
