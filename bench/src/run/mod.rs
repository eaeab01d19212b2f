// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench run`: what unmodified Linux programs take in a cell, beside the same on the host.

mod busybox;
mod cold;
mod syscall;

use crate::whole::{BUSYBOX, Place, needs};
use crate::{BenchError, Options, Row, unless_absent};
use std::path::Path;

/// Runs everything. `pando` is the program that makes cells.
pub(crate) fn run(options: Options<'_>, pando: &Path, report: &mut dyn FnMut(Row), absent: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    syscall::run(options, report)?;
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).map_err(BenchError::host("make a temporary directory"))?;
    let place = Place::new(pando, &empty);
    match needs(BUSYBOX, "busybox (Debian: busybox-static)") {
        Ok(()) => programs(options, &place, directory.path(), report, absent),
        lacking => unless_absent(lacking, absent),
    }
}

/// What busybox does, from its start to its end.
fn programs(
    options: Options<'_>,
    place: &Place<'_>,
    directory: &Path,
    report: &mut dyn FnMut(Row),
    absent: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    unless_absent(needs(cold::SANDBOX, "bwrap (Debian: bubblewrap)").and_then(|()| cold::run(options, place, report)), absent)?;
    busybox::compute(options, place, directory, report)?;
    busybox::search(options, place, directory, report)
}
