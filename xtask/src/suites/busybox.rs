// SPDX-License-Identifier: MIT OR Apache-2.0
//! busybox's own tests, from Debian's source package, with the installed busybox: the tests of its applets, and of its shell.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use super::{Outcome, Runner, Unit, Verdict};
use crate::{sources, workspace};

/// The script that runs the tests of an applet.
const SCRIPT: &str = include_str!("../../../conformance/tests/linux/suites/busybox.sh");
/// Programs that the tests of the shell start, in addition to applets.
const COMPILED: [&str; 3] = ["printenv", "recho", "zecho"];
const SHELL: &str = "shell/ash_test";

/// The subject of the document.
pub(super) fn title() -> Result<String> {
    let output = workspace::run(Command::new("busybox").arg("--help"))?;
    let version = output.split(' ').nth(1).context("busybox says its version")?;
    Ok(format!("busybox's own tests, of the applets and of the shell of Debian's busybox-static (busybox {version})"))
}

/// Runs the tests of the named applets, or all.
pub(super) fn run(runner: &Runner, names: &[String]) -> Result<Vec<Unit>> {
    let source = sources::source("busybox")?;
    let compiled = runner.scratch.path().join("compiled");
    compile(&source.join(SHELL), &compiled)?;
    let parts = if names.is_empty() { tested(&source)? } else { names.to_vec() };
    runner.each(&parts, thread::available_parallelism()?.get(), |_, part| units(runner, &source, &compiled, part))
}

fn compile(source: &Path, into: &Path) -> Result<()> {
    fs::create_dir(into).context("making a directory")?;
    for name in COMPILED {
        workspace::run(Command::new("gcc").arg("-w").arg(source.join(name).with_extension("c")).arg("-o").arg(into.join(name)))?;
    }
    Ok(())
}

/// The applets that exist and have tests, and the folders with tests of the shell.
fn tested(source: &Path) -> Result<Vec<String>> {
    let names = |folder: &str| -> Result<BTreeSet<String>> {
        let files = fs::read_dir(source.join(folder)).context("reading busybox's tests")?;
        Ok(files.flatten().map(|file| file.file_name().to_string_lossy().into_owned()).collect())
    };
    let files = names("testsuite")?;
    let applets = workspace::run(Command::new("busybox").arg("--list"))?;
    let has_tests = |name: &&str| files.contains(*name) || files.contains(&format!("{name}.tests"));
    let of_shell = names(SHELL)?.into_iter().filter(|name| name.starts_with("ash-"));
    Ok(applets.lines().filter(has_tests).map(str::to_owned).chain(of_shell).collect())
}

/// Runs the tests of an applet.
fn units(runner: &Runner, source: &Path, compiled: &Path, part: &str) -> Result<Vec<Unit>> {
    let [source, compiled] = [source, compiled].map(Path::to_string_lossy);
    let words = ["/bin/sh", "-c", SCRIPT, "sh", &source, part, &compiled];
    let native = runner.native(part, &words, None)?;
    if native.is_late() {
        println!("{part}: takes too long natively");
        return Ok(vec![Unit { name: part.into(), native: Verdict::Late, cell: Verdict::Skipped }]);
    }
    let cell = runner.cell(part, &["-v", &source, "-v", &compiled], &words)?;
    let units = compared(part, &native, &cell);
    let passed = |verdict: fn(&Unit) -> &Verdict| units.iter().filter(|unit| *verdict(unit) == Verdict::Passed).count();
    println!("{part}: {} tests pass natively, {} of them in a cell", passed(|unit| &unit.native), passed(|unit| &unit.cell));
    Ok(units)
}

/// Compares each test by its name, natively and in a cell.
fn compared(part: &str, native: &Outcome, cell: &Outcome) -> Vec<Unit> {
    let missing = if cell.is_late() { Verdict::Late } else { Verdict::Failed("it was not run".into()) };
    let in_cell = verdicts(&cell.output);
    let unit = |(name, native): (&str, Verdict)| {
        let cell = match native {
            Verdict::Passed => match in_cell.get(name) {
                Some(Verdict::Skipped) => Verdict::Failed("it was skipped".into()),
                other => other.unwrap_or(&missing).clone(),
            },
            _ => Verdict::Skipped,
        };
        Unit { name: format!("{part}: {name}"), native, cell }
    };
    verdicts(&native.output).into_iter().map(unit).collect()
}

/// The results of tests, from lines such as `PASS: NAME`; of several with one name, the worst counts.
fn verdicts(output: &str) -> BTreeMap<&str, Verdict> {
    let mut all = BTreeMap::new();
    for (word, name) in output.lines().filter_map(|line| line.split_once(": ")) {
        let verdict = match word {
            "PASS" => Verdict::Passed,
            "FAIL" => Verdict::Failed(word.into()),
            "SKIPPED" | "UNTESTED" => Verdict::Skipped,
            _ => continue,
        };
        let known = all.entry(name).or_insert(Verdict::Passed);
        if !matches!(known, Verdict::Failed(_)) && verdict != Verdict::Passed {
            *known = verdict;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_read() {
        let native = "PASS: a b\nFAIL: c\nSKIPPED: d\nPASS: e\nPASS: e\nPASS: f\nPASS: g: h\nelse: i\n";
        let cell = "PASS: a b\nPASS: c\nPASS: d\nPASS: e\nFAIL: e\nSKIPPED: f\n";
        let [native, cell] = [native, cell].map(|output| Outcome { status: 0, output: output.into() });
        let units = compared("x", &native, &cell);
        let failed = |why: &str| Verdict::Failed(why.into());
        let wanted = [
            ("x: a b", Verdict::Passed, Verdict::Passed),
            ("x: c", failed("FAIL"), Verdict::Skipped),
            ("x: d", Verdict::Skipped, Verdict::Skipped),
            ("x: e", Verdict::Passed, failed("FAIL")),
            ("x: f", Verdict::Passed, failed("it was skipped")),
            ("x: g: h", Verdict::Passed, failed("it was not run")),
        ];
        let found: Vec<_> = units.into_iter().map(|unit| (unit.name, unit.native, unit.cell)).collect();
        assert_eq!(found, wanted.map(|(name, native, cell)| (name.to_owned(), native, cell)));
    }
}
