// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench run`: what unmodified Linux programs take in a cell, beside the same on the host.

mod busybox;
mod cold;
mod syscall;

use crate::whole::Place;
use crate::{BenchError, Options, Row};
use std::path::Path;

/// Runs everything. `pando` is the program that makes cells.
pub(crate) fn run(options: Options<'_>, pando: &Path, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    syscall::run(options, report)?;
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).map_err(BenchError::host("make a temporary directory"))?;
    let place = Place::new(pando, &empty);
    cold::run(options, &place, report)?;
    busybox::compute(options, &place, directory.path(), report)?;
    busybox::search(options, &place, directory.path(), report)
}
