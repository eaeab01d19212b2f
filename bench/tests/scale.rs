// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench scale`, briefly: every figure is reported. The values are not tested. `PANDO_BENCH_CELLS` chooses another number of cells.

use pando_bench::{BenchError, BenchOptions, Row};
use pando_machine::HostError;
use std::path::Path;

/// Figures with a reference, under the names that other programs look for.
const COMPARED: &[&str] = &["wake-flat", "wake-to-resident", "wake-to-clone", "swap-read", "swap-write"];
/// Figures without a reference.
const ALONE: &[&str] = &["sleeping-bytes", "sleeping-file-bytes", "resident-bytes", "sleep"];

#[test]
fn every_figure_of_sleeping_cells_comes() {
    let mut rows: Vec<Row> = Vec::new();
    let cells = std::env::var("PANDO_BENCH_CELLS").ok().and_then(|number| number.parse().ok());
    // The rows of `zipf` start services: a test of the command line runs them.
    let only: Vec<String> = COMPARED.iter().chain(ALONE).chain(&["idle-million-percent"]).map(|name| (*name).to_owned()).collect();
    let options = BenchOptions { brief: true, cells, only: &only, ..BenchOptions::default() };
    match pando_bench::run("scale", options, Path::new("pando"), &mut |row| rows.push(row), &mut |_| ()) {
        Err(BenchError::Machine(HostError::NoKvm | HostError::KvmForbidden)) if std::env::var_os("PANDO_TESTS_WITHOUT_KVM").is_some() => {
            println!("left out: this test needs KVM");
            return;
        }
        outcome => outcome.expect("the benchmark runs"),
    }
    for row in &rows {
        println!("{}", pando_bench::Table::line(row));
    }
    let find = |name: &str| rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no figure {name}"));
    for name in COMPARED {
        let row = find(name);
        let (reference, ratio) = (row.reference_value.expect("a reference"), row.ratio.expect("a ratio"));
        assert!(row.value > 0.0 && reference > 0.0 && ratio > 0.0 && row.spread.is_some(), "{row:?}");
    }
    for name in ALONE {
        assert!(find(name).value > 0.0, "{name}");
    }
    assert!(find("idle-million-percent").value >= 0.0);
}
