// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench linux`: what system calls, processes and programs cost in a cell, beside the same program on the host.
//!
//! Programs that answer lines take the time themselves, by the same clock on both sides, so that the start of a cell is only in `python-start` and `make`, which are whole processes.

mod calls;
mod python;
mod tools;

use crate::bare::Bare;
use crate::program::{Compiled, Process};
use crate::sample::{Pairs, Sample, Side, alternate};
use crate::whole::Place;
use crate::{BenchError, Options, Row, unless_absent};
use std::ffi::OsStr;
use std::path::Path;

/// What all rows are compared with.
const REFERENCE: &str = "the same program on the host";
/// A program of parts, each of which it does as often as it is asked to.
const PARTS: &str = concat!(include_str!("common.c"), include_str!("calls.c"), include_str!("processes.c"), include_str!("main.c"));

/// Runs everything. `pando` is the program that makes cells.
pub(crate) fn run(options: Options<'_>, pando: &Path, report: &mut dyn FnMut(Row), absent: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    let mut bare = Bare::new()?;
    let exit = Sample::take(options.rounds(100), || bare.exit())?;
    report(Row::time("exit", &exit).noting("the machine's bare exit"));
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).map_err(BenchError::host("make a temporary directory"))?;
    let place = Place::new(pando, &empty);
    let parts = Compiled::new(PARTS)?;
    calls::run(options, &place, &parts, report)?;
    unless_absent(python::run(options, &place, report), absent)?;
    unless_absent(tools::run(options, &place, &parts, directory.path(), report), absent)
}

/// A program that answers how long it took to do something so often.
struct Asked {
    ours: Process,
    theirs: Process,
}

impl Asked {
    /// Starts it in a cell with these options, and on the host.
    fn start(place: &Place<'_>, options: &[&str], program: impl AsRef<OsStr>, words: &[&str]) -> Result<Asked, BenchError> {
        let ours = Process::start(place.cell(options, program.as_ref(), words))?;
        let theirs = Process::start(place.native(program, words))?;
        Ok(Asked { ours, theirs })
    }

    /// Nanoseconds for doing it once, measured over `count` times.
    fn compare(&mut self, rounds: usize, count: u32) -> Result<Pairs, BenchError> {
        let line = format!("{count}\n");
        alternate(rounds, |side| {
            let asked = if side == Side::Ours { &mut self.ours } else { &mut self.theirs };
            Ok(asked.ask(&line)? / f64::from(count))
        })
    }
}
