// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench`.

use crate::failure::Failure;
use clap::Args;
use pando_bench::{BenchOptions, HostInfo, NAMES, Row, Table};
use pando_manager::output_file;
use std::io::Write;
use std::path::PathBuf;

/// Options of `pando bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// The benchmark [default: list all]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(pando_bench::NAMES))]
    pub(crate) name: Option<String>,

    /// Run for seconds instead of minutes, at small sizes: checks that everything works; the figures mean little
    #[arg(long)]
    pub(crate) brief: bool,

    /// Report these rows only; `programs` and `product` measure no others
    #[arg(long, value_name = "ROW", value_delimiter = ',')]
    pub(crate) only: Vec<String>,

    /// Number of sleeping cells for `scale`: 1000000 needs about an hour [default: 20000]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) cells: Option<usize>,

    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the plots (of net) into this directory, as SVG
    #[arg(long, value_name = "DIR")]
    pub(crate) plots: Option<PathBuf>,
}

/// Runs a benchmark and prints its rows as they come. Without a name, lists the benchmarks.
pub(crate) fn bench(options: &BenchArguments) -> Result<u8, Failure> {
    let mut output = std::io::stdout();
    let Some(name) = &options.name else {
        writeln!(output, "{}", NAMES.join("\n"))?;
        return Ok(0);
    };
    // Writing a plot into a FIFO would wait for its reader, after minutes of measuring.
    for entry in options.plots.iter().filter_map(|directory| directory.read_dir().ok()).flatten().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "svg") {
            output_file::refuse_special(&entry.path())?;
        }
    }
    if !options.json {
        writeln!(output, "{}\n\n{}", HostInfo::host()?, Table::head())?;
    }
    let mut written = Ok(());
    let mut report = |row: Row| {
        // Of several failures the first is returned.
        let result = writeln!(output, "{}", if options.json { row.to_json() } else { Table::line(&row) });
        written = std::mem::replace(&mut written, Ok(())).and(result);
    };
    let pando = std::env::current_exe()?;
    let how = BenchOptions { brief: options.brief, plots: options.plots.as_deref(), only: &options.only, cells: options.cells };
    pando_bench::run(name, how, &pando, &mut report, &mut |what| {
        eprintln!("left out: figures that need {what}, which this host lacks");
    })?;
    Ok(written.map(|()| 0)?)
}
