// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench clone`: the cost of cloning a running program. The references are the host's alternatives: starting it,
//! forking it, or forking it with a VM of its own.

mod first_output;
mod fixture;
mod load;
mod python;
mod serve;
mod service;
mod size;
mod write;

use crate::bare::Bare;
use crate::native::cpu::PinnedThread;
use crate::plot::Plot;
use crate::sample::Sample;
use crate::{BenchError, BenchOptions, Row, unless_absent};
use std::path::Path;

/// Measures `numpy-clone-first-ms`, a figure of `pando bench programs`.
pub(crate) use first_output::run as first_output;

/// Checks that Python and numpy are installed.
pub(crate) fn needs_numpy() -> Result<(), BenchError> {
    python::needs(python::NUMPY)
}

/// Runs all benchmarks, except the service's on the core that this thread is pinned to. `pando` is the program that serves.
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
    drop(bare);
    let mut plot = |plot: Plot| options.plots.map_or(Ok(()), |place| plot.write(place)).map_err(BenchError::host("write a plot"));
    size::run(options, &mut plot, report)?;
    load::run(options, report)?;
    write::run(options, &mut plot, report)?;
    service::run(options, report)?;
    unless_absent(python::run(options, report, absent), absent)?;
    drop(pinned);
    // The missing package has been reported already.
    unless_absent(serve::run(options, pando, report), &mut |_| ())
}
