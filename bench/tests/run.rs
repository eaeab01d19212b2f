// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench run`, briefly: every figure comes, with what it is compared with. What the figures say is not a test's business.

use pando_bench::{BenchError, Options, Row};
use pando_machine::HostError;

/// Figures, as others look for them by name.
const COMPARED: &[&str] = &["syscall"];

#[test]
fn every_figure_of_running_programs_comes() {
    let mut rows: Vec<Row> = Vec::new();
    match pando_bench::run("run", Options { brief: true }, &mut |row| rows.push(row)) {
        Err(BenchError::Machine(HostError::NoKvm | HostError::KvmForbidden)) if std::env::var_os("PANDO_TESTS_WITHOUT_KVM").is_some() => {
            println!("left out: this test needs KVM");
            return;
        }
        outcome => outcome.expect("the benchmark runs"),
    }
    for name in COMPARED {
        let row = rows.iter().find(|row| row.name == *name).unwrap_or_else(|| panic!("no figure {name}"));
        let (reference, ratio) = (row.reference_value.expect("a reference"), row.ratio.expect("a ratio"));
        assert!(row.value > 0.0 && reference > 0.0 && ratio > 0.0 && row.spread.is_some(), "{row:?}");
    }
}
