// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench run`: what unmodified Linux programs take in a cell, beside the same on the host.

mod syscall;

use crate::{BenchError, Options, Row};

/// Runs everything.
pub(crate) fn run(options: Options, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    syscall::run(options, report)
}
