// SPDX-License-Identifier: MIT OR Apache-2.0
//! Go's standard library: the tests of some packages as static programs, with `-test.short`, where their sources lie.

use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::{Outcome, Runner, Unit, Verdict};
use crate::workspace;

/// The packages whose tests ask most of the system.
const PACKAGES: [&str; 8] = ["os", "time", "syscall", "os/exec", "sync", "io", "path/filepath", "context"];

/// What the document is about.
pub(super) fn title() -> Result<String> {
    Ok(format!("Go's standard library, tests of {} ({})", PACKAGES.join(", "), workspace::run(Command::new("go").arg("version"))?.trim()))
}

/// Runs packages, or all of them.
pub(super) fn run(runner: &Runner, names: &[String]) -> Result<Vec<Unit>> {
    let root = workspace::run(Command::new("go").args(["env", "GOROOT"]))?;
    let packages = PACKAGES.into_iter().filter(|name| names.is_empty() || names.iter().any(|wanted| wanted == name));
    let units = packages.map(|package| units(runner, Path::new(root.trim()), package));
    Ok(units.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// The tests of a package.
fn units(runner: &Runner, root: &Path, package: &str) -> Result<Vec<Unit>> {
    let source = root.join("src").join(package);
    let program = runner.scratch.path().join("bin").join(package.replace('/', "-"));
    let mut compile = Command::new("go");
    compile.args(["test", "-c", "-o"]).arg(&program).arg(".").current_dir(&source).env("CGO_ENABLED", "0");
    workspace::run(&mut compile)?;
    let (root, program, here) = (root.to_string_lossy(), program.to_string_lossy(), source.to_string_lossy());
    let words = [&*program, "-test.short", "-test.v"];
    let native = verdicts(&runner.native(&words, Some(&source))?);
    let cell = verdicts(&runner.cell(&["-v", &root, "-v", &program, "-w", &here], &words)?);
    let unit = |(name, native): (String, Verdict)| {
        let cell = match native {
            Verdict::Passed => cell.get(&name).cloned().unwrap_or(Verdict::Late),
            _ => Verdict::Skipped,
        };
        Unit { name: format!("{package}.{name}"), native, cell }
    };
    let units: Vec<Unit> = native.into_iter().map(unit).collect();
    let passed = |verdict: fn(&Unit) -> &Verdict| units.iter().filter(|unit| *verdict(unit) == Verdict::Passed).count();
    println!("{package}: {} tests pass natively, {} of them in a cell", passed(|unit| &unit.native), passed(|unit| &unit.cell));
    Ok(units)
}

/// How each test went; those that only hold others, or that chose not to run, are not counted.
fn verdicts(outcome: &Outcome) -> BTreeMap<String, Verdict> {
    let told = outcome.said.lines().filter_map(|line| {
        let (word, rest) = line.strip_prefix("--- ")?.split_once(": ")?;
        let name = rest.split(' ').next()?.to_owned();
        match word {
            "PASS" => Some((name, Verdict::Passed)),
            "FAIL" => Some((name, Verdict::Failed("FAIL".into()))),
            _ => None,
        }
    });
    told.collect()
}
