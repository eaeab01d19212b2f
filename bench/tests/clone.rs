// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench clone`, briefly: every figure is reported, with its reference. The values are not tested.

use pando_bench::{BenchError, BenchOptions, Row};
use pando_machine::HostError;
use std::collections::HashSet;
use std::path::Path;

/// Figures with a reference. Those of the largest sizes are left to the long run.
const COMPARED: &[&str] =
    &["fork-1m", "hyperfork-1m", "fork-64m", "hyperfork-64m", "flat-1m-4g", "flat-line", "cow-unforeseen", "cow-penalty"];
/// Those of Python with numpy.
const OF_NUMPY: &[&str] = &["python-cold"];
/// Those of Python with Pillow.
const OF_PILLOW: &[&str] = &["pillow"];
/// Figures without a reference, of C programs and of Python.
const OF_C: &[&str] = &["exit", "load-1g-ms", "service-clone-pages-bytes", "service-clone-tables-bytes"];
const ALONE: &[&str] =
    &["clones-per-second", "clones-per-second-at-once", "python-clone-exits", "python-clone-pages-bytes", "python-clone-tables-bytes"];

#[test]
fn every_figure_of_clones_comes() {
    let mut rows: Vec<Row> = Vec::new();
    let plots = tempfile::tempdir().expect("there is room");
    let options = BenchOptions { brief: true, plots: Some(plots.path()), ..BenchOptions::default() };
    let mut absent: Vec<String> = Vec::new();
    match pando_bench::run("clone", options, Path::new("pando"), &mut |row| rows.push(row), &mut |what| absent.push(what.into())) {
        Err(BenchError::Machine(HostError::NoKvm | HostError::KvmForbidden)) if std::env::var_os("PANDO_TESTS_WITHOUT_KVM").is_some() => {
            println!("left out: this test needs KVM");
            return;
        }
        // The service's figures come last, and need the `pando` program, which is not built for this test.
        Err(BenchError::Host { action: "start pando", .. }) => (),
        outcome => outcome.expect("the benchmark runs"),
    }
    for row in &rows {
        println!("{}", pando_bench::Table::line(row));
    }
    let find = |name: &str| rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no figure {name}"));
    let has = |module: &str| !absent.iter().any(|what| what.starts_with(module));
    let of_numpy = if has("numpy") { OF_NUMPY } else { &[] };
    let of_pillow = if has("Pillow") { OF_PILLOW } else { &[] };
    for name in COMPARED.iter().chain(of_numpy).chain(of_pillow) {
        let row = find(name);
        let (reference, ratio) = (row.reference_value.expect("a reference"), row.ratio.expect("a ratio"));
        assert!(row.value > 0.0 && reference > 0.0 && ratio > 0.0 && row.spread.is_some(), "{row:?}");
    }
    for name in OF_C.iter().chain(if has("numpy") { ALONE } else { &[] }) {
        assert!(find(name).value > 0.0, "{name}");
    }
    let names: HashSet<&str> = rows.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), rows.len(), "a name is given once");
    let plot = std::fs::read_to_string(plots.path().join("clone-size.svg")).expect("it was drawn");
    assert!(plot.contains("fork and a new VM"));
}
