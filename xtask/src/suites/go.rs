// SPDX-License-Identifier: MIT OR Apache-2.0
//! Go's standard library: the tests of some packages as static programs, with `-test.short`, in their source folders.

use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::{Runner, Unit, Verdict};
use crate::workspace;

/// The packages whose tests make the most use of the system.
const PACKAGES: [&str; 8] = ["os", "time", "syscall", "os/exec", "sync", "io", "path/filepath", "context"];

/// The subject of the document.
pub(super) fn title() -> Result<String> {
    Ok(format!("Go's standard library, tests of {} ({})", PACKAGES.join(", "), workspace::run(Command::new("go").arg("version"))?.trim()))
}

/// Runs the named packages, or all.
pub(super) fn run(runner: &Runner, names: &[String]) -> Result<Vec<Unit>> {
    let root = workspace::run(Command::new("go").args(["env", "GOROOT"]))?;
    let packages = PACKAGES.into_iter().filter(|name| names.is_empty() || names.iter().any(|wanted| wanted == name));
    let units = packages.map(|package| units(runner, Path::new(root.trim()), package));
    Ok(units.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Runs the tests of a package.
fn units(runner: &Runner, root: &Path, package: &str) -> Result<Vec<Unit>> {
    let source = root.join("src").join(package);
    // Some tests build programs: with the build cache of the tests themselves.
    let cache = runner.scratch.path().join("cache");
    let program = runner.scratch.path().join("bin").join(package.replace('/', "-"));
    let mut compile = Command::new("go");
    compile.args(["test", "-c", "-o"]).arg(&program).arg(".").current_dir(&source).env("CGO_ENABLED", "0").env("GOCACHE", &cache);
    workspace::run(&mut compile)?;
    let (program, here, path) = (program.to_string_lossy(), source.to_string_lossy(), format!("PATH={}/bin:/usr/bin:/bin", root.display()));
    let (root, cache) = (root.to_string_lossy(), cache.to_string_lossy());
    let shown = format!("GOCACHE={cache}");
    let words = ["/usr/bin/env", &path, &shown, "HOME=/tmp", &program, "-test.short", "-test.v"];
    let native = runner.native(package, &words, Some(&source))?;
    if native.is_late() {
        println!("{package}: takes too long natively");
        return Ok(vec![Unit { name: package.into(), native: Verdict::Late, cell: Verdict::Skipped }]);
    }
    let cell = runner.cell(package, &["-v", &root, "-v", &program, "-v", &cache, "-w", &here], &words)?;
    let missing =
        if cell.is_late() { Verdict::Late } else { Verdict::Failed(format!("the run ended before it, with status {}", cell.status)) };
    let units = compared(package, &reports(&native.output), &reports(&cell.output), &missing);
    for unit in units.iter().filter(|unit| ![&unit.native, &unit.cell].into_iter().all(|verdict| *verdict == Verdict::Passed)) {
        println!("{}: natively {:?}, in a cell {:?}", unit.name, unit.native, unit.cell);
    }
    let passed = |verdict: fn(&Unit) -> &Verdict| units.iter().filter(|unit| *verdict(unit) == Verdict::Passed).count();
    println!("{package}: {} tests pass natively, {} of them in a cell", passed(|unit| &unit.native), passed(|unit| &unit.cell));
    Ok(units)
}

/// The reported result of a test or subtest.
#[derive(Debug, Default, PartialEq, Eq)]
struct TestReport<'a> {
    /// `PASS`, `FAIL`, or `SKIP` of one that skipped itself.
    word: &'a str,
    /// Its last line of output.
    output: &'a str,
}

/// The reported result of each test and subtest (`TEST/PART`).
fn reports(output: &str) -> BTreeMap<&str, TestReport<'_>> {
    let mut all: BTreeMap<&str, TestReport<'_>> = BTreeMap::new();
    let mut current = "";
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["===", _, name] => current = name,
            ["---", word, name, ..] => all.entry(name).or_default().word = word.trim_end_matches(':'),
            _ if !current.is_empty() => all.entry(current).or_default().output = line.trim(),
            _ => {}
        }
    }
    all.retain(|_, told| !told.word.is_empty());
    all
}

/// The tests that ran natively. A test passes in a cell if all its subtests that pass natively also pass there; one without
/// a result there is `missing`.
fn compared(package: &str, native: &BTreeMap<&str, TestReport<'_>>, cell: &BTreeMap<&str, TestReport<'_>>, missing: &Verdict) -> Vec<Unit> {
    let in_cell = |name: &str| match cell.get(name) {
        None => missing.clone(),
        Some(TestReport { word: "PASS", .. }) => Verdict::Passed,
        Some(TestReport { output, .. }) => Verdict::Failed((*output).into()),
    };
    let whole_in_cell = |test: &str| {
        let is_part = |name: &str| name.split_once('/').is_some_and(|(whole, _)| whole == test);
        let parts = native.iter().filter(|(name, told)| is_part(name) && told.word == "PASS");
        parts.map(|(name, _)| in_cell(name)).chain([in_cell(test)]).find(|verdict| *verdict != Verdict::Passed).unwrap_or(Verdict::Passed)
    };
    let tests = native.iter().filter(|(name, told)| !name.contains('/') && told.word != "SKIP");
    let unit = |(name, told): (&&str, &TestReport<'_>)| {
        let passes = told.word == "PASS";
        Unit {
            name: format!("{package}.{name}"),
            native: if passes { Verdict::Passed } else { Verdict::Failed(told.output.into()) },
            cell: if passes { whole_in_cell(name) } else { Verdict::Skipped },
        }
    };
    tests.map(unit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_passes_in_a_cell_with_all_its_parts() {
        let native = reports(
            "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n=== RUN   TestB/x\n--- PASS: TestB (0.10s)\n    --- PASS: TestB/x (0.05s)\n\
             === RUN   TestC\n    c.go:1: not today\n--- SKIP: TestC (0.00s)\n=== RUN   TestD\n    d.go:2: wrong\n--- FAIL: TestD (0.00s)\n\
             === RUN   TestE\n--- PASS: TestE (0.00s)\n",
        );
        let cell = reports(
            "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n=== RUN   TestB/x\n    b.go:3: not here\n--- PASS: TestB (0.10s)\n    --- SKIP: TestB/x (0.05s)\n\
             === RUN   TestE\n",
        );
        let units = compared("p", &native, &cell, &Verdict::Late);
        let found: Vec<_> = units.iter().map(|unit| (&unit.name[..], &unit.native, &unit.cell)).collect();
        let failed = |output: &str| Verdict::Failed(output.into());
        let expected = [
            ("p.TestA", &Verdict::Passed, &Verdict::Passed),
            ("p.TestB", &Verdict::Passed, &failed("b.go:3: not here")),
            ("p.TestD", &failed("d.go:2: wrong"), &Verdict::Skipped),
            ("p.TestE", &Verdict::Passed, &Verdict::Late),
        ];
        assert_eq!(found, expected);
    }
}
