// SPDX-License-Identifier: MIT OR Apache-2.0
//! Busybox's own tests, from Debian's source package: the applet under test, the testing shell and all its children run
//! natively or in a cell.
//!
//! Tests that pass on the host must pass in a cell. `cargo xtask suites busybox` runs all of them.

use crate::case::{Case, CaseOutcome, succeed};
use crate::data;
use crate::suites::ripgrep_and_sqlite::fetched;
use pando_testing::{host_program, needs_kvm};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

/// Tests that take little time.
const QUICK: [&str; 44] = [
    "ar",
    "ash-heredoc",
    "ash-redir",
    "ash-vars",
    "basename",
    "bzcat",
    "cal",
    "cat",
    "cmp",
    "cp",
    "cpio",
    "cut",
    "dd",
    "du",
    "expand",
    "find",
    "fold",
    "gunzip",
    "gzip",
    "head",
    "hexdump",
    "ln",
    "mkdir",
    "mv",
    "nl",
    "od",
    "paste",
    "patch",
    "pidof",
    "readlink",
    "rm",
    "rmdir",
    "start-stop-daemon",
    "tail",
    "tar",
    "tee",
    "touch",
    "tr",
    "uncompress",
    "uniq",
    "unlzma",
    "unzip",
    "wc",
    "xargs",
];
/// The number of applets tested in parallel.
const WORKERS: usize = 3;

/// Runs the tests of an applet, or a folder with tests of the shell.
const SCRIPT: &str = include_str!("busybox.sh");

/// The result of each test by its name: `PASS`, `FAIL`, `SKIPPED` or `UNTESTED`.
fn results(outcome: &CaseOutcome) -> Vec<(String, String)> {
    let said = String::from_utf8_lossy(&outcome.output);
    let said = said.lines().filter_map(|line| line.split_once(": "));
    said.filter(|(word, _)| ["PASS", "FAIL", "SKIPPED", "UNTESTED"].contains(word)).map(|(word, name)| (name.into(), word.into())).collect()
}

/// A folder with the compiled helpers of the shell's tests.
fn compiled(source: &Path) -> PathBuf {
    let directory = data::directory().join("ash");
    fs::create_dir_all(&directory).expect("the target directory can be written");
    for name in ["printenv", "recho", "zecho"] {
        let mut compile = Command::new(host_program("gcc"));
        compile.arg("-w").arg(source.join("shell/ash_test").join(name).with_extension("c")).arg("-o").arg(directory.join(name));
        succeed(compile);
    }
    directory
}

/// Tests that pass on the host and not in a cell, and the number of tests that passed in a cell.
fn check(source: &Path, compiled: &Path, applet: &str) -> (Vec<String>, usize) {
    let words = [OsStr::new("-c"), OsStr::new(SCRIPT), OsStr::new("sh"), source.as_os_str(), OsStr::new(applet), compiled.as_os_str()];
    let case = Case::new("sh", &words).file(source).file(compiled);
    let outcome = case.cell();
    let (native, cell) = (results(&case.native()), results(&outcome));
    let names = |results: &[(String, String)]| results.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if names(&native) != names(&cell) {
        let problem = format!("{applet}: other tests ran: {native:?}, in a cell {cell:?} (status {}, {})", outcome.status, outcome.errors);
        return (vec![problem], 0);
    }
    // A test that fails on the host because of its environment may pass in a cell.
    let fails = |((_, on_host), (_, in_cell)): &(&(String, String), &(String, String))| on_host == "PASS" && in_cell != "PASS";
    let problem = |((name, _), (_, in_cell)): (&(String, String), &(String, String))| format!("{applet}: `{name}`: {in_cell} in a cell");
    let passed = cell.iter().filter(|(_, word)| word == "PASS").count();
    (native.iter().zip(&cell).filter(fails).map(problem).collect(), passed)
}

#[test]
fn the_tests_of_busybox_say_the_same_in_a_cell() {
    needs_kvm!();
    let Some(source) = fetched("sources/busybox") else { return };
    let compiled = compiled(&source);
    let (count, queue) = (QUICK.len(), Mutex::new(QUICK.into_iter()));
    let next = || queue.lock().expect("nobody panics with it").next();
    let work = || std::iter::from_fn(next).map(|applet| check(&source, &compiled, applet)).collect::<Vec<_>>();
    let checked: Vec<(Vec<String>, usize)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("its tests can be run")).collect()
    });
    let passed: usize = checked.iter().map(|(_, passed)| passed).sum();
    let problems: Vec<String> = checked.into_iter().flat_map(|(problems, _)| problems).collect();
    println!("{passed} tests of {count} applets pass in a cell");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(passed > 5 * count, "{passed} tests of {count} applets passed");
}
