// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench`.

use crate::cli::Bench;
use crate::failure::Failure;
use pando_bench::{About, NAMES, Options, Row, Table};

/// Runs a benchmark and prints its rows as they come; without a name, says which there are.
pub(crate) fn bench(options: &Bench) -> Result<u8, Failure> {
    let Some(name) = &options.name else {
        println!("{}", NAMES.join("\n"));
        return Ok(0);
    };
    if !options.json && NAMES.contains(&name.as_str()) {
        println!("{}\n\n{}", About::host()?, Table::head());
    }
    let mut report = |row: Row| println!("{}", if options.json { row.to_json() } else { Table::line(&row) });
    pando_bench::run(name, Options { brief: options.brief }, &mut report)?;
    Ok(0)
}
