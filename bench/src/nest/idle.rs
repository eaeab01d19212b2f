// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nester-idle-bytes`: the host memory of the right to have nested cells, in `pando run` of an idle program.
//!
//! As in [`crate::programs`], it is the private resident memory of the process, beside another such run. The kernel of a program that may
//! have nested cells has a vCPU for each CPU; one that may have none has one vCPU.

use crate::native::usage;
use crate::program::{CompiledProgram, Process};
use crate::sample::Sample;
use crate::{BenchError, BenchOptions, Row};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

const IDLE: &str = include_str!("../programs/sources/idle.c");
/// Seconds that the program sleeps: longer than the benchmark.
const LONG: &str = "3600";
/// The time from a program's line to the measurement: housekeeping is done then.
const SETTLING: Duration = Duration::from_secs(1);
/// Descendants that the program may have.
const CELLS: &str = "64";

/// Measures the row.
pub(super) fn run(options: BenchOptions<'_>, pando: &Path, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let program = CompiledProgram::new(IDLE)?;
    let command = |nests: bool| {
        let mut command = Command::new(pando);
        command.args(["run", "-v"]).arg(program.path());
        if nests {
            command.args(["--nest", CELLS]);
        }
        command.arg("--").arg(program.path()).arg(LONG).process_group(0);
        command
    };
    let _others = [start(command(false))?, start(command(true))?];
    let (mut differences, mut references) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds(7) {
        let (without, with) = (private(command(false))?, private(command(true))?);
        differences.push(with - without);
        references.push(without);
    }
    let (sample, reference) = (Sample::of(differences), Sample::of(references).median());
    let note = format!("private resident memory of pando run --nest {CELLS} with an idle static C program, beyond that of pando run");
    report(
        Row {
            reference: Some("all memory of the run without --nest; the ratio is that of both runs"),
            reference_value: Some(reference),
            ratio: Some((reference + sample.median()) / reference),
            spread: Some(sample.spread()),
            ..Row::of("nester-idle-bytes", sample.median(), "bytes")
        }
        .noting(note),
    );
    Ok(())
}

fn start(command: Command) -> Result<Process, BenchError> {
    let mut process = Process::start(command)?;
    match process.line()?.as_str() {
        "ready\n" => Ok(process),
        line => Err(BenchError::Failed(format!("the program printed {line:?}, not \"ready\""))),
    }
}

/// The private memory of a run that is idle.
fn private(command: Command) -> Result<f64, BenchError> {
    let process = start(command)?;
    thread::sleep(SETTLING);
    let memory = usage::of_group(process.id()).map_err(BenchError::host("read the memory of a process"))?;
    Ok(memory.private)
}
