// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench run`: the cost of unmodified Linux programs in a cell, compared with the host.

mod busybox;
mod cold;
mod syscall;

use crate::process_runs::{BUSYBOX, WorkDirectory, needs};
use crate::{BenchError, BenchOptions, Row, unless_absent};
use std::path::Path;

/// Runs all benchmarks. `pando` is the program that creates cells.
pub(crate) fn run(
    options: BenchOptions<'_>,
    pando: &Path,
    report: &mut dyn FnMut(Row),
    absent: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    syscall::run(options, report)?;
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).map_err(BenchError::host("make a temporary directory"))?;
    let place = WorkDirectory::new(pando, &empty);
    match needs(BUSYBOX, "busybox (Debian: busybox-static)") {
        Ok(()) => programs(options, &place, directory.path(), report, absent),
        lacking => unless_absent(lacking, absent),
    }
}

/// Measures busybox, from its start to its exit.
fn programs(
    options: BenchOptions<'_>,
    place: &WorkDirectory<'_>,
    directory: &Path,
    report: &mut dyn FnMut(Row),
    absent: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    unless_absent(needs(cold::SANDBOX, "bwrap (Debian: bubblewrap)").and_then(|()| cold::run(options, place, report)), absent)?;
    busybox::compute(options, place, directory, report)?;
    busybox::search(options, place, directory, report)
}
