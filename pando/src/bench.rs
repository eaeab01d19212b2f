// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench`.

use crate::cli::Bench;
use crate::run::Failure;

/// Runs a benchmark and prints its rows as they come.
pub(crate) fn bench(options: &Bench) -> Result<u8, Failure> {
    let _ = options;
    Err(Failure::Bench("no benchmark is built in".into()))
}
