// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench kernel`: the cost of the isolation kernel, compared with the host and with the machine's bare exit.

mod clone;
mod costs;
mod cpu;
mod idle;
mod touch;

use crate::bare::Bare;
use crate::{BenchError, BenchOptions, Row};

/// The name of the reference that shows the kernel's overhead.
const BARE_EXIT: &str = "the machine's bare exit";

/// Runs all benchmarks.
pub(crate) fn run(options: BenchOptions<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    // Clones first: the reference processes are forked from this one while it is small.
    clone::run(options, report)?;
    let mut bare = Bare::new()?;
    cpu::run(options, report)?;
    touch::run(options, report)?;
    costs::run(options, &mut bare, report)?;
    idle::run(options, report)
}
