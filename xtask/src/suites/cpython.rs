// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPython's own tests, module by module: `python3 -m test MODULE`, without anything that needs a network.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use super::{Outcome, Runner, Unit, Verdict};
use crate::workspace;

const PYTHON: &str = "/usr/bin/python3";
/// Where Debian puts them.
const FOLDER: &str = "/usr/lib/python3.11/test";
/// Tests of sockets that wait for another machine, on hosts where there can be one.
const LEFT_OUT: [&str; 2] = ["--ignore", "ThreadedVSOCKSocketStreamTest"];

/// What the document is about.
pub(super) fn title() -> Result<String> {
    Ok(format!("CPython's own tests, modules of `python3 -m test` ({})", workspace::run(Command::new(PYTHON).arg("--version"))?.trim()))
}

/// Runs modules, or all of them.
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
    let words = [&[PYTHON, "-m", "test"][..], &LEFT_OUT, &[module]].concat();
    let native = verdict(&runner.native(&words, None)?);
    let cell = if native == Verdict::Passed { verdict(&runner.cell(&["-w", "/tmp"], &words)?) } else { Verdict::Skipped };
    println!("{module}: natively {native:?}, in a cell {cell:?}");
    Ok(Unit { name: module.into(), native, cell })
}

fn verdict(outcome: &Outcome) -> Verdict {
    if outcome.is_late() {
        return Verdict::Late;
    }
    if outcome.status == 0 {
        return Verdict::Passed;
    }
    let named = |line: &str| Some(line.strip_prefix("FAIL: ").or_else(|| line.strip_prefix("ERROR: "))?.split(' ').next()?.to_owned());
    let named: BTreeSet<String> = outcome.said.lines().filter_map(named).collect();
    let named: Vec<String> = named.into_iter().collect();
    Verdict::Failed(if named.is_empty() { format!("exit status {}", outcome.status) } else { named.join(", ") })
}
