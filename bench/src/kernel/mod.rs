// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench kernel`: what the isolation kernel costs, beside the host and beside the machine's bare exit.

mod clone;
mod costs;
mod cpu;
mod idle;
mod touch;

use crate::bare::Bare;
use crate::{BenchError, Options, Row};

/// The name of the reference that shows what the kernel adds.
const BARE_EXIT: &str = "the machine's bare exit";

/// Runs everything.
pub(crate) fn run(options: Options<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    // Clones first: the processes that fork for comparison start from this one, while it is small.
    clone::run(options, report)?;
    let mut bare = Bare::new()?;
    cpu::run(options, report)?;
    touch::run(options, report)?;
    costs::run(options, &mut bare, report)?;
    idle::run(options, report)
}
