// SPDX-License-Identifier: MIT OR Apache-2.0
//! perl's core tests: files of `t/` and `lib/` from Debian's source package, with the installed perl and its libraries at
//! the paths of a build tree.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Outcome, Runner, Unit, Verdict};
use crate::{sources, workspace};

const PERL: &str = "/usr/bin/perl";
/// The folders of tests, relative to `t/`.
const FOLDERS: [&str; 13] = ["base", "cmd", "comp", "io", "lib", "mro", "op", "opbasic", "perf", "re", "run", "uni", "../lib"];
/// Skips terminal tests, as perl's own documents recommend without a terminal. Otherwise some skip themselves natively,
/// depending on the machine.
const ENVIRONMENT: [&str; 2] = ["/usr/bin/env", "PERL_SKIP_TTY_TEST=1"];
/// In a cell another program is the first process too: some tests fail when their own process ID is 1.
const FIRST: [&str; 2] = ["/usr/bin/timeout", "0"];
/// The folders for which perl's own driver loads nothing before a test.
const BARE: [&str; 3] = ["base/", "comp/", "run/"];

/// The subject of the document.
pub(super) fn title() -> Result<String> {
    let version = workspace::run(Command::new(PERL).args(["-e", "print substr($^V, 1)"]))?;
    Ok(format!("perl's core tests, files of `t/` and `lib/` with Debian's perl (perl {version})"))
}

/// Runs the named files, relative to `t/`, or all.
pub(super) fn run(runner: &Runner, names: &[String]) -> Result<Vec<Unit>> {
    // Native tests leave files behind, which those in cells must not see.
    let [native, cell] = ["native", "cell"].map(|name| runner.scratch.path().join(name));
    assemble(&native)?;
    assemble(&cell)?;
    let files = if names.is_empty() { files(&native.join("t"))? } else { names.to_vec() };
    let at_once = std::thread::available_parallelism()?.get();
    runner.each(&files, at_once, |_, file| unit(runner, &native, &cell, file))
}

/// Combines the tests and the installed libraries, in the layout of a build tree.
fn assemble(place: &Path) -> Result<()> {
    let source = sources::source("perl")?;
    fs::create_dir(place).context("making a directory")?;
    let copied = ["t", "lib", "regen", "TestInit.pm", "MANIFEST"].map(|name| source.join(name));
    workspace::run(Command::new("cp").arg("-r").args(copied).arg(place))?;
    let installed = workspace::run(Command::new(PERL).args(["-MConfig", "-e", "print join qq(\\n), @Config{qw(privlibexp archlibexp)}"]))?;
    for folder in installed.lines() {
        workspace::run(Command::new("cp").arg("-rL").arg(format!("{folder}/.")).arg(place.join("lib")))?;
    }
    std::os::unix::fs::symlink(PERL, place.join("t/perl")).context("naming perl")
}

/// All test files, relative to `t/`.
fn files(place: &Path) -> Result<Vec<String>> {
    let found = workspace::run(Command::new("find").args(FOLDERS).args(["-name", "*.t"]).current_dir(place))?;
    let mut files: Vec<String> = found.lines().map(Into::into).collect();
    files.sort_unstable();
    Ok(files)
}

fn unit(runner: &Runner, native: &Path, cell: &Path, file: &str) -> Result<Vec<Unit>> {
    let text = fs::read(native.join("t").join(file)).with_context(|| format!("reading {file}"))?;
    let words = [&ENVIRONMENT[..], &[PERL], &switches(file, &String::from_utf8_lossy(&text)), &[file]].concat();
    // A natively skipped file gives no information about cells.
    let Some(native) = verdict(&runner.native(file, &words, Some(&native.join("t")))?) else { return Ok(Vec::new()) };
    let place = cell.to_string_lossy();
    let cell = match native {
        Verdict::Passed => {
            let outcome = runner.cell(file, &["-v", &place, "-w", &format!("{place}/t")], &[&FIRST[..], &words].concat())?;
            verdict(&outcome).unwrap_or_else(|| Verdict::Failed("it was skipped".into()))
        }
        _ => Verdict::Skipped,
    };
    println!("{file}: natively {native:?}, in a cell {cell:?}");
    Ok(vec![Unit { name: file.into(), native, cell }])
}

/// The switches of perl for a file, as perl's own driver chooses them.
fn switches<'a>(file: &str, text: &str) -> Vec<&'a str> {
    let mut switches = match file {
        _ if BARE.iter().any(|folder| file.starts_with(folder)) => Vec::new(),
        _ if file.starts_with("../lib/") => vec!["-I..", "-MTestInit=U1"],
        _ => vec!["-I..", "-MTestInit"],
    };
    let first = text.lines().next().filter(|line| line.starts_with("#!")).unwrap_or_default();
    let given = |switch| first.split(' ').skip(1).any(|word| word.starts_with('-') && word.contains(switch));
    switches.extend(if given('T') { Some("-T") } else { given('t').then_some("-t") });
    switches
}

/// The result of a file from its TAP output: each planned test must be there and pass, or be expected to fail. `None`: the
/// file was skipped.
pub(super) fn verdict(outcome: &Outcome) -> Option<Verdict> {
    if outcome.is_late() {
        return Some(Verdict::Late);
    }
    let (mut planned, mut made, mut failed) = (None, 0, BTreeSet::new());
    for line in outcome.output.lines() {
        if let Some(plan) = line.strip_prefix("1..") {
            planned = plan.split(' ').next().and_then(|count| count.parse::<u64>().ok());
        }
        let (passed, rest) = match line.strip_prefix("not ") {
            Some(rest) => (false, rest),
            None => (true, line),
        };
        if rest == "ok" || rest.starts_with("ok ") {
            made += 1;
            if !passed && !rest.to_lowercase().contains("# todo") {
                failed.insert(made);
            }
        }
    }
    match planned {
        Some(0) => None,
        _ if !failed.is_empty() => {
            let failed: Vec<String> = failed.iter().map(u64::to_string).collect();
            Some(Verdict::Failed(format!("tests {}", failed.join(", "))))
        }
        _ if outcome.status != 0 => Some(Verdict::Failed(format!("exit status {} after test {made}", outcome.status))),
        Some(planned) if planned == made => Some(Verdict::Passed),
        _ => Some(Verdict::Failed(format!("{made} tests were run"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_read() {
        let verdict = |status, output: &str| verdict(&Outcome { status, output: output.into() });
        assert_eq!(verdict(0, "1..3\nok 1 - a\n# why\nnot ok 2 # todo later\nok 3 # skip\n"), Some(Verdict::Passed));
        assert_eq!(verdict(0, "ok 1\nnot ok\nok\nnot ok 4\n1..4\n"), Some(Verdict::Failed("tests 2, 4".into())));
        assert_eq!(verdict(0, "1..2\nok 1\nokay 2\n"), Some(Verdict::Failed("1 tests were run".into())));
        assert_eq!(verdict(9, "1..2\nok 1\n"), Some(Verdict::Failed("exit status 9 after test 1".into())));
        assert_eq!(verdict(0, "1..0 # SKIP not here\n"), None);
        assert_eq!(verdict(124, "1..2\nok 1\n"), Some(Verdict::Late));
    }

    #[test]
    fn switches_are_those_of_perls_driver() {
        assert_eq!(switches("op/taint.t", "#!./perl -T\n"), ["-I..", "-MTestInit", "-T"]);
        assert_eq!(switches("../lib/a.t", "#!/usr/bin/perl -tw"), ["-I..", "-MTestInit=U1", "-t"]);
        assert!(switches("base/if.t", "#!./perl\n").is_empty());
    }
}
