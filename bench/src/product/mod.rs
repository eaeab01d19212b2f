// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench product`: what users of sandboxes, images and shared directories wait for, by the commands and requests that they use.
//!
//! Nothing is pinned: the service, file servers and the other side have all cores, as at users.

mod image;
mod mount;
mod restart;
mod session;

use crate::native::cpu::PinnedThread;
use crate::sample::Sample;
use crate::{BenchError, BenchOptions, Row, unless_absent};
use std::path::Path;

/// A benchmark: measures and reports its rows.
type Benchmark = fn(&Fixture<'_>, &mut dyn FnMut(Row)) -> Result<(), BenchError>;

/// The benchmarks, each after the names of its rows.
const BENCHMARKS: &[(&[&str], Benchmark)] = &[
    (&["session-first-ms", "resume-ms", "idle-session-bytes", "fork-10-ms"], session::run),
    (&["run-image"], image::run),
    (&["bind-read"], mount::read),
    (&["bind-write"], mount::write),
    (&["start-after-change-ms"], restart::run),
];

/// The options and files that all benchmarks share.
struct Fixture<'a> {
    options: BenchOptions<'a>,
    /// The program that creates cells.
    pando: &'a Path,
    /// A temporary directory: stores, and files that programs work on.
    directory: &'a Path,
}

/// Runs all benchmarks. `pando` is the program that creates cells.
pub(crate) fn run(
    options: BenchOptions<'_>,
    pando: &Path,
    pinned: PinnedThread,
    report: &mut dyn FnMut(Row),
    absent: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    drop(pinned);
    for (_, benchmark) in BENCHMARKS.iter().filter(|(rows, _)| rows.iter().any(|row| options.includes(row))) {
        // Each has a store of its own, so that none finds what another has left.
        let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
        unless_absent(benchmark(&Fixture { options, pando, directory: directory.path() }, report), absent)?;
    }
    Ok(())
}

impl Fixture<'_> {
    /// A size, or in a brief run a small one.
    fn size(&self, full: usize, brief: usize) -> usize {
        if self.options.brief { brief } else { full }
    }
}

/// A row of a sample of nanoseconds, in milliseconds.
fn milliseconds(name: &'static str, sample: &Sample) -> Row {
    Row { spread: Some(sample.spread()), ..Row::of(name, sample.median() / 1e6, "ms") }
}
