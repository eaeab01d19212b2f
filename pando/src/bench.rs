// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench`.

use crate::cli::Bench;
use crate::failure::Failure;
use pando_bench::{About, NAMES, Options, Row, Table};
use std::io::Write;

/// Runs a benchmark and prints its rows as they come; without a name, says which there are.
pub(crate) fn bench(options: &Bench) -> Result<u8, Failure> {
    let mut output = std::io::stdout();
    let Some(name) = &options.name else {
        writeln!(output, "{}", NAMES.join("\n"))?;
        return Ok(0);
    };
    if !options.json {
        writeln!(output, "{}\n\n{}", About::host()?, Table::head())?;
    }
    let mut written = Ok(());
    let mut report = |row: Row| {
        // Of several failures the first says why.
        let result = writeln!(output, "{}", if options.json { row.to_json() } else { Table::line(&row) });
        written = std::mem::replace(&mut written, Ok(())).and(result);
    };
    let pando = std::env::current_exe()?;
    pando_bench::run(name, Options { brief: options.brief, plots: options.plots.as_deref() }, &pando, &mut report, &mut |what| {
        eprintln!("left out: figures that need {what}, which is not installed");
    })?;
    Ok(written.map(|()| 0)?)
}
