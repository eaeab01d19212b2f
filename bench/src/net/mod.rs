// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench net`: the cost of the network, between cells and to the outside.

mod load;
mod networked_cells;
mod nginx;
mod pair;
mod servers;

use crate::bare::Bare;
use crate::native::cpu::PinnedThread;
use crate::plot::Plot;
use crate::process_runs::WorkDirectory;
use crate::sample::Sample;
use crate::{BenchError, BenchOptions, Row, unless_absent};
use std::path::Path;

/// Runs all benchmarks. `pando` is the program that creates cells. The thread is `pinned` while single-threaded things are measured.
pub(crate) fn run(
    options: BenchOptions<'_>,
    pando: &Path,
    pinned: PinnedThread,
    report: &mut dyn FnMut(Row),
    absent: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    let mut bare = Bare::new()?;
    let exit = Sample::take(options.rounds(100), || bare.exit())?;
    report(Row::time("exit", &exit).noting("the machine's bare exit"));
    pair::run(options, report)?;
    drop(pinned);
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).map_err(BenchError::host("make a temporary directory"))?;
    unless_absent(nginx::run(options, &WorkDirectory::new(pando, &empty), directory.path(), report), absent)?;
    let mut plot = |plot: Plot| options.plots.map_or(Ok(()), |place| plot.write(place)).map_err(BenchError::host("write a plot"));
    servers::run(options, &mut plot, report)
}
