// SPDX-License-Identifier: MIT OR Apache-2.0
//! `run-python-bytes`, `run-c-bytes`: the host memory of `pando run` with an idle program.
//!
//! It is the private resident memory of the processes in the run's group: pages that no other process maps, by
//! `/proc/PID/smaps_rollup`. A second run of the same program is idle meanwhile. So pages of files that all runs share do not
//! count, such as the code of `pando`; the cell's memory and all other memory of the process count. Memory of the host's
//! kernel does not count: its page tables, and KVM's objects.

use super::Fixture;
use crate::native::usage::{self, GroupMemory};
use crate::process_runs::{PYTHON, StatsRun, WorkDirectory, needs, run_with_stats};
use crate::program::{CompiledProgram, Process};
use crate::sample::Sample;
use crate::{BenchError, Row, exit_causes};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

const IDLE_C: &str = include_str!("sources/idle.c");
const IDLE_PYTHON: &str = include_str!("sources/idle.py");
/// Seconds that the programs sleep: longer than the benchmark, or just some time.
const LONG: &str = "3600";
const SHORT: &str = "1";
/// The time from a program's line to the measurement: housekeeping is done then.
const SETTLING: Duration = Duration::from_secs(1);
const BRIEF_SETTLING: Duration = Duration::from_millis(100);

/// `run-python-bytes`.
pub(super) fn python(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs(PYTHON, "/usr/bin/python3 (Debian: python3)")?;
    measure(fixture, "run-python-bytes", &[PYTHON, "-c", IDLE_PYTHON], "Python", report)
}

/// `run-c-bytes`.
pub(super) fn c(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let compiled = CompiledProgram::new(IDLE_C)?;
    measure(fixture, "run-c-bytes", &[&compiled.path().display().to_string()], "a static C program", report)
}

fn measure(fixture: &Fixture<'_>, name: &'static str, argv: &[&str], program: &str, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let directory = WorkDirectory::new(fixture.pando, &fixture.empty);
    let arguments = |seconds| [&argv[1..], &[seconds]].concat();
    let StatsRun { output, stats, .. } = run_with_stats(directory.cell(&["--stats=json"], argv[0], &arguments(SHORT)))?;
    if output != b"ready\n" {
        return Err(BenchError::Failed(format!("{program} printed {:?}, not \"ready\"", String::from_utf8_lossy(&output))));
    }
    let settling = if fixture.options.brief { BRIEF_SETTLING } else { SETTLING };
    let rounds = fixture.rounds(5);
    let ours = idle(rounds, settling, || directory.cell(&[], argv[0], &arguments(LONG)))?;
    let theirs = idle(rounds, settling, || directory.native(argv[0], &arguments(LONG)))?;
    let median = |runs: &[GroupMemory], figure: fn(&GroupMemory) -> f64| Sample::of(runs.iter().map(figure).collect());
    let private = median(&ours, |run| run.private);
    let reference = median(&theirs, |run| run.private).median();
    let [anonymous, proportional] =
        [|run: &GroupMemory| run.anonymous, |run: &GroupMemory| run.proportional].map(|figure| median(&ours, figure).median() as u64);
    let note = format!(
        "private resident memory of pando run with {program} that sleeps, beside another such run; {anonymous} bytes of it are anonymous; \
         its proportional set size is {proportional} bytes; {}",
        exit_causes::of_stats(&stats)
    );
    report(
        Row {
            reference: Some("the same program on the host"),
            reference_value: Some(reference),
            ratio: Some(private.median() / reference),
            spread: Some(private.spread()),
            ..Row::of(name, private.median(), "bytes")
        }
        .noting(note),
    );
    Ok(())
}

/// The memory of idle runs, one after the other, each beside another one.
fn idle(rounds: usize, settling: Duration, command: impl Fn() -> Command) -> Result<Vec<GroupMemory>, BenchError> {
    let start = || {
        let mut command = command();
        command.process_group(0);
        let mut process = Process::start(command)?;
        match process.line()?.as_str() {
            "ready\n" => Ok(process),
            line => Err(BenchError::Failed(format!("the program printed {line:?}, not \"ready\""))),
        }
    };
    let _other = start()?;
    let measure_one = || {
        let process = start()?;
        thread::sleep(settling);
        usage::of_group(process.id()).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => BenchError::Absent("root, which may read the memory of a confined process"),
            _ => BenchError::Host { action: "read the memory of a process", source: error },
        })
    };
    (0..rounds).map(|_| measure_one()).collect()
}
