// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench kernel`, briefly: every figure is reported, with its reference. The values are not tested.

use pando_bench::{BenchError, BenchOptions, Row};
use pando_machine::HostError;
use std::path::Path;

/// Figures with a reference, under the names that other programs look for. Those at 1 GB are left to the long run.
const COMPARED: &[&str] = &[
    "clone-1m",
    "clone-64m",
    "clone-flat",
    "clone-to-exit",
    "clone-1m-huge",
    "clone-64m-huge",
    "cpu",
    "touch",
    "touch-reused",
    "hypercall",
    "relinquish",
    "switch",
    "event",
    "fault",
    "cow",
    "shadow-flush",
];
/// Figures without a reference.
const ALONE: &[&str] = &[
    "exit",
    "shadow-refill",
    "clone-metadata-bytes",
    "idle-bare-clone-pages-bytes",
    "idle-clone-tables-bytes",
    "idle-asked-clone-pages-bytes",
];

#[test]
fn every_figure_of_the_kernel_comes() {
    let mut rows: Vec<Row> = Vec::new();
    match pando_bench::run(
        "kernel",
        BenchOptions { brief: true, ..BenchOptions::default() },
        Path::new("pando"),
        &mut |row| rows.push(row),
        &mut |_| (),
    ) {
        Err(BenchError::Machine(HostError::NoKvm | HostError::KvmForbidden)) if std::env::var_os("PANDO_TESTS_WITHOUT_KVM").is_some() => {
            println!("left out: this test needs KVM");
            return;
        }
        outcome => outcome.expect("the benchmark runs"),
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
    let mut names: Vec<&str> = rows.iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rows.len(), "a name is given once");
}

#[test]
fn a_benchmark_that_is_not_there_is_named_with_those_that_are() {
    let error =
        pando_bench::run("kernal", BenchOptions::default(), Path::new("pando"), &mut |_| {}, &mut |_| {}).expect_err("there is none");
    assert_eq!(
        error.to_string(),
        r#"there is no benchmark "kernal"; there are: kernel, run, linux, net, clone, programs, nest, scale, product"#
    );
}
