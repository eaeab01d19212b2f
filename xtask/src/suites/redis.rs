// SPDX-License-Identifier: MIT OR Apache-2.0
//! redis's own tests: the units of `./runtest` from Debian's source package, each in a run of its own, with the installed redis.
//!
//! They are programs in Tcl that start servers and query them over loopback.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Outcome, Runner, Unit, Verdict};
use crate::{sources, workspace};

pub(super) const TCL: &str = "/usr/bin/tclsh";
pub(super) const RUN: &str = "tests/test_helper.tcl";
/// The programs that the tests start, as Debian installs them.
const PROGRAMS: [&str; 5] = ["redis-server", "redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb"];
/// The native port ranges of units, distinct within a run and apart from other listeners; cluster members also listen 10,000 above.
const FIRST_PORT: usize = 11_000;
const PORTS: usize = 100;
/// The number of units in parallel: mostly they wait.
pub(super) const AT_ONCE: usize = 4;

/// The results of tests, by name.
pub(super) type Verdicts = BTreeMap<String, Verdict>;

/// The subject of the document.
pub(super) fn title() -> Result<String> {
    let version = workspace::run(Command::new("redis-server").arg("--version"))?;
    let version = version.split(' ').find_map(|word| word.strip_prefix("v=")).unwrap_or("?").to_owned();
    Ok(format!("redis's own tests, units of `./runtest` with Debian's redis-server (redis {version})"))
}

/// Runs the named units, or all.
pub(super) fn run(runner: &Runner, names: &[String]) -> Result<Vec<Unit>> {
    let place = assemble(runner)?;
    runner.each(&chosen(&place, names)?, AT_ONCE, |index, name| unit(runner, &place, index, name))
}

/// Combines the tests with the installed programs; returns their folder.
pub(super) fn assemble(runner: &Runner) -> Result<PathBuf> {
    let place = runner.scratch.path().join("redis");
    workspace::run(Command::new("cp").arg("-r").args([&sources::source("redis")?, &place]))?;
    for program in PROGRAMS {
        symlink(Path::new("/usr/bin").join(program), place.join("src").join(program)).context("naming a program")?;
    }
    Ok(place)
}

/// The named units, or all.
pub(super) fn chosen(place: &Path, names: &[String]) -> Result<Vec<String>> {
    let all = workspace::run(Command::new(TCL).args([RUN, "--list-tests"]).current_dir(place))?;
    Ok(if names.is_empty() { all.lines().map(Into::into).collect() } else { names.to_vec() })
}

/// Runs the tests of a unit. Each run has its own copy of the test tree, because tests leave files there.
fn unit(runner: &Runner, place: &Path, index: usize, name: &str) -> Result<Vec<Unit>> {
    let (port, ports) = ((FIRST_PORT + index * PORTS).to_string(), PORTS.to_string());
    let words = [TCL, RUN, "--durable", "--clients", "1", "--baseport", &port, "--portcount", &ports, "--single", name];
    let own = runner.scratch.path().join(format!("redis-{index}"));
    workspace::run(Command::new("cp").arg("-r").args([place, &own]))?;
    let native = runner.native(name, &words, Some(&own))?;
    fs::remove_dir_all(&own).context("removing files of tests")?;
    let here = place.to_string_lossy();
    let whole = runner.cell(name, &["-v", &here, "-w", &here], &words)?;
    let units = compare(verdicts(name, &native), &verdicts(name, &whole), &whole);
    println!("{name}: {}", counts(&units));
    Ok(units)
}

/// Compares results: each test that natively passed or failed, with its result in a cell.
pub(super) fn compare(native: Verdicts, cell: &Verdicts, whole: &Outcome) -> Vec<Unit> {
    let missing = if whole.is_late() { Verdict::Late } else { Verdict::Failed("it was not run".into()) };
    let unit = |(name, native): (String, Verdict)| {
        let cell = match native {
            Verdict::Passed => cell.get(&name).unwrap_or(&missing).clone(),
            _ => Verdict::Skipped,
        };
        Unit { name, native, cell }
    };
    native.into_iter().map(unit).collect()
}

/// A description of how many units pass, natively and in a cell.
pub(super) fn counts(units: &[Unit]) -> String {
    let passed = |verdict: fn(&Unit) -> &Verdict| units.iter().filter(|unit| *verdict(unit) == Verdict::Passed).count();
    format!("{} tests pass natively, {} of them in a cell", passed(|unit| &unit.native), passed(|unit| &unit.cell))
}

/// The result of each test, from lines such as `[ok]: NAME (3 ms)`; a repeated test passes if it passes each time.
pub(super) fn verdicts(unit: &str, outcome: &Outcome) -> Verdicts {
    let mut all = Verdicts::new();
    let output = plain(&outcome.output);
    let mut lines = output.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((word, rest)) = line.strip_prefix('[').and_then(|line| line.split_once("]: ")) else { continue };
        let (text, verdict) = match word {
            "ok" => (rest.rsplit_once(" (").map_or(rest, |(name, _)| name), Verdict::Passed),
            "err" => {
                (rest.split_once(" in tests/").map_or(rest, |(name, _)| name), Verdict::Failed(lines.peek().unwrap_or(&"").trim().into()))
            }
            _ => continue,
        };
        let name = format!("{unit}: {}", without_numbers(text));
        if !matches!(all.get(&name), Some(Verdict::Failed(_))) {
            all.insert(name, verdict);
        }
    }
    all
}

/// Removes colour escape sequences.
fn plain(output: &str) -> String {
    let mut pieces = output.split('\x1b');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| text + piece.split_once('m').map_or("", |(_, rest)| rest))
}

/// A name without the numbers of servers, rounds and writes, which are random.
fn without_numbers(name: &str) -> String {
    let mut short = String::new();
    for letter in name.chars() {
        let is_number = letter.is_ascii_digit() && ["#", "CYCLE ", "x = "].iter().any(|before| short.ends_with(before));
        if !is_number {
            short.push(letter);
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_read() {
        let output = "\x1b[0;1mTesting\x1b[0m unit/a\n[\x1b[0;32;49mok\x1b[0m]: Set #12 (a) (3 ms)\n[\x1b[0;31;49merr\x1b[0m]: Get (b) in tests/unit/a.tcl\nwhy\n\
                    [ok]: Get (b) (1 ms)\n[skip]: Not this\n[1/1 \x1b[0;33;49mdone\x1b[0m]: unit/a (0 seconds)\n*** [err]: Get (b) in tests/unit/a.tcl\n";
        let all = verdicts("unit/a", &Outcome { status: 1, output: output.into() });
        let wanted = [("unit/a: Get (b)", Verdict::Failed("why".into())), ("unit/a: Set # (a)", Verdict::Passed)];
        assert_eq!(all, wanted.map(|(name, verdict)| (name.into(), verdict)).into());
    }
}
