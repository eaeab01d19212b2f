// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench linux`: the cost of system calls, processes and programs in a cell, compared with the same program on the host.
//!
//! Programs that answer lines measure the time themselves, by the same clock on both sides. Only `python-start` and `make`,
//! which are whole processes, include the start of a cell.

mod calls;
mod python;
mod tools;

use crate::bare::Bare;
use crate::process_runs::WorkDirectory;
use crate::program::{CompiledProgram, Process};
use crate::sample::{Pairs, Sample, Side, alternate};
use crate::{BenchError, BenchOptions, Row, unless_absent};
use std::ffi::OsStr;
use std::path::Path;

/// The reference of all rows.
const REFERENCE: &str = "the same program on the host";
/// A program of many parts, each of which it repeats as often as requested.
pub(crate) const PARTS: &str =
    concat!(include_str!("common.c"), include_str!("calls.c"), include_str!("processes.c"), include_str!("main.c"));

/// Runs all benchmarks. `pando` is the program that creates cells.
pub(crate) fn run(
    options: BenchOptions<'_>,
    pando: &Path,
    report: &mut dyn FnMut(Row),
    absent: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    let mut bare = Bare::new()?;
    let exit = Sample::take(options.rounds(100), || bare.exit())?;
    report(Row::time("exit", &exit).noting("the machine's bare exit"));
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).map_err(BenchError::host("make a temporary directory"))?;
    let place = WorkDirectory::new(pando, &empty);
    let parts = CompiledProgram::new(PARTS)?;
    calls::run(options, &place, &parts, report)?;
    unless_absent(python::run(options, &place, report), absent)?;
    unless_absent(tools::run(options, &place, &parts, directory.path(), report), absent)
}

/// A program that reports the duration of its work, in a cell and on the host.
struct LineServer {
    ours: Process,
    theirs: Process,
}

impl LineServer {
    /// Starts it in a cell with these options, and on the host.
    fn start(
        place: &WorkDirectory<'_>,
        options: &[&str],
        program: impl AsRef<OsStr>,
        arguments: &[&str],
    ) -> Result<LineServer, BenchError> {
        let ours = Process::start(place.cell(options, program.as_ref(), arguments))?;
        let theirs = Process::start(place.native(program, arguments))?;
        Ok(LineServer { ours, theirs })
    }

    /// Nanoseconds of one repetition, measured over `count` repetitions.
    fn compare(&mut self, rounds: usize, count: u32) -> Result<Pairs, BenchError> {
        let line = format!("{count}\n");
        alternate(rounds, |side| {
            let asked = if side == Side::Ours { &mut self.ours } else { &mut self.theirs };
            Ok(asked.ask(&line)? / f64::from(count))
        })
    }
}
