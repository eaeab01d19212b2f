// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench clone`: what it takes to clone a program that runs, beside what the host does for the same purpose: start it, fork it, or fork it with a VM of its own.

mod grove;
mod load;
mod python;
mod service;
mod size;
mod write;

use crate::bare::Bare;
use crate::plot::Plot;
use crate::sample::Sample;
use crate::{BenchError, Options, Row};

/// Runs everything.
pub(crate) fn run(options: Options<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let mut bare = Bare::new()?;
    let exit = Sample::take(options.rounds(100), || bare.exit())?;
    report(Row::time("exit", &exit).noting("the machine's bare exit"));
    drop(bare);
    let mut plot = |plot: Plot| options.plots.map_or(Ok(()), |place| plot.write(place)).map_err(BenchError::host("write a plot"));
    if std::env::var_os("XALL").is_some() { size::run(options, &mut plot, report)?;
    load::run(options, report)?; }
    if std::env::var_os("XSVC").is_none() { write::run(options, report)?; }
    service::run(options, report)?;
    if std::env::var_os("XSVC").is_none() { python::run(options, report) } else { Ok(()) }
}
