// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPython's own tests, module by module: `python3 -m test MODULE`, without tests that need a network.
//!
//! A module passes in a cell if it does not fail there and skips no test that ran natively.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use super::{Outcome, Runner, Unit, Verdict};
use crate::workspace;

const PYTHON: &str = "/usr/bin/python3";
/// Debian's folder of the tests.
const FOLDER: &str = "/usr/lib/python3.11/test";
/// Socket tests that wait for another machine, on hosts that may have one.
const LEFT_OUT: [&str; 2] = ["--ignore", "ThreadedVSOCKSocketStreamTest"];

/// The subject of the document.
pub(super) fn title() -> Result<String> {
    Ok(format!("CPython's own tests, modules of `python3 -m test` ({})", workspace::run(Command::new(PYTHON).arg("--version"))?.trim()))
}

/// Runs the named modules, or all.
pub(super) fn run(runner: &Runner, names: &[String]) -> Result<Vec<Unit>> {
    let modules = if names.is_empty() { modules()? } else { names.to_vec() };
    modules.iter().map(|module| unit(runner, module)).collect()
}

fn modules() -> Result<Vec<String>> {
    let files = fs::read_dir(FOLDER).with_context(|| format!("{FOLDER}: apt-get install libpython3.11-testsuite"))?;
    let names = files.flatten().filter_map(|file| {
        let name = file.file_name().to_string_lossy().into_owned();
        let module = if file.path().is_dir() { &name } else { name.strip_suffix(".py")? };
        module.starts_with("test_").then(|| module.to_owned())
    });
    Ok(names.collect::<BTreeSet<_>>().into_iter().collect())
}

fn unit(runner: &Runner, module: &str) -> Result<Unit> {
    let words = [&[PYTHON, "-m", "test", "-v"][..], &LEFT_OUT, &[module]].concat();
    let outcome = runner.native(module, &words, None)?;
    let native = verdict(module, &outcome);
    let cell = match native {
        Verdict::Passed => compared(module, &outcome, &runner.cell(module, &["-w", "/tmp"], &words)?),
        _ => Verdict::Skipped,
    };
    println!("{module}: natively {native:?}, in a cell {cell:?}");
    Ok(Unit { name: module.into(), native, cell })
}

/// The result in a cell of a module that passes natively.
fn compared(module: &str, native: &Outcome, cell: &Outcome) -> Verdict {
    let skipped: Vec<String> = skipped(module, &cell.output).difference(&skipped(module, &native.output)).cloned().collect();
    match verdict(module, cell) {
        Verdict::Skipped => Verdict::Failed("it was skipped".into()),
        Verdict::Passed if !skipped.is_empty() => Verdict::Failed(format!("skipped: {}", skipped.join(", "))),
        verdict => verdict,
    }
}

/// The skipped tests of a module: `NAME (test.MODULE.CLASS.NAME) ... skipped 'WHY'`; a line of the test's description may come between.
fn skipped(module: &str, output: &str) -> BTreeSet<String> {
    let mut last = "";
    let mut skipped = BTreeSet::new();
    for line in output.lines() {
        if let Some((_, name)) = line.split_once(" (test.") {
            last = name.split_once(')').map_or(name, |(name, _)| name);
        }
        if line.contains("... skipped ") {
            skipped.insert(last.strip_prefix(module).map_or(last, |name| name.trim_start_matches('.')).to_owned());
        }
    }
    skipped
}

fn verdict(module: &str, outcome: &Outcome) -> Verdict {
    if outcome.is_late() {
        return Verdict::Late;
    }
    if outcome.status == 0 {
        let whole = format!("{module} skipped");
        return if outcome.output.lines().any(|line| line == whole) { Verdict::Skipped } else { Verdict::Passed };
    }
    let named = |line: &str| Some(line.strip_prefix("FAIL: ").or_else(|| line.strip_prefix("ERROR: "))?.split(' ').next()?.to_owned());
    let named: BTreeSet<String> = outcome.output.lines().filter_map(named).collect();
    let named: Vec<String> = named.into_iter().collect();
    Verdict::Failed(if named.is_empty() { format!("exit status {}", outcome.status) } else { named.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: i32, output: &str) -> Outcome {
        Outcome { status, output: output.into() }
    }

    #[test]
    fn tests_skipped_only_in_a_cell_do_not_pass() {
        let native = outcome(0, "test_a (test.test_m.C.test_a) ... ok\ntest_b (test.test_m.C.test_b)\nWhat it is for ... ok\n");
        let some = outcome(0, "test_a (test.test_m.C.test_a) ... ok\ntest_b (test.test_m.C.test_b)\nWhat it is for ... skipped 'why'\n");
        assert_eq!(compared("test_m", &native, &native), Verdict::Passed);
        assert_eq!(compared("test_m", &some, &some), Verdict::Passed);
        assert_eq!(compared("test_m", &native, &some), Verdict::Failed("skipped: C.test_b".into()));
        let whole = outcome(0, "test_m skipped -- why\ntest_m skipped\n");
        assert_eq!(
            (verdict("test_m", &whole), compared("test_m", &native, &whole)),
            (Verdict::Skipped, Verdict::Failed("it was skipped".into()))
        );
    }

    #[test]
    fn failed_tests_are_named() {
        let failed = outcome(2, "FAIL: test_a (test.test_m.C.test_a)\nERROR: test_b (x)\n");
        assert_eq!(verdict("test_m", &failed), Verdict::Failed("test_a, test_b".into()));
        assert_eq!(verdict("test_m", &outcome(1, "")), Verdict::Failed("exit status 1".into()));
        assert_eq!(verdict("test_m", &outcome(124, "")), Verdict::Late);
    }
}
