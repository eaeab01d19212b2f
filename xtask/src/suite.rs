// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask test`: the whole suite, from a bare machine to a final line of counts.
//!
//! Without KVM the suite still runs all tests that do not need it, and lists at the end, test by test, what it left out.

use anyhow::{Context, Result, ensure};
use std::env;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, ErrorKind};
use std::process::{ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::hardware::{self, HardwareReport, Kind, Options};
use crate::leftovers;
use crate::packages;
use crate::sources;
use crate::tally::{OutputParser, Tally};
use crate::workspace;

/// The target that guest programs are built for.
const GUEST_TARGET: &str = "x86_64-unknown-none";
/// The variable for tests that this machine has no KVM: tests that need it are left out.
const WITHOUT_KVM: &str = "PANDO_TESTS_WITHOUT_KVM";
/// The variable for the size of tests: `all` for the long runs, `hardware` (in emulated machines) for small ones.
const SIZE: &str = "PANDO_TESTS";
/// The variable for the number of tests that run at a time in a test program.
const THREADS: &str = "RUST_TEST_THREADS";
/// Tests at a time for each CPU: many wait for a service, a timer or the network.
const TESTS_PER_CPU: usize = 2;
/// The time limit for building and running the tests on this machine, so that a hanging test does not block the CI: twice
/// what they need.
const LIMIT: Duration = Duration::from_secs(30 * 60);
/// The time limit with the long runs.
const LONG_LIMIT: Duration = Duration::from_secs(8 * 60 * 60);

/// The report of a finished stage of the suite.
#[derive(Debug)]
struct StageReport {
    name: &'static str,
    report: HardwareReport,
    took: Duration,
}

/// Runs the suite; `true` if nothing failed.
///
/// # Errors
/// If the system lacks a package that the tests need. Later failures are counted, and the rest still runs.
pub(crate) fn run(all: bool) -> Result<bool> {
    let started = Instant::now();
    packages::ensure_installed()?;
    ensure_guest_target()?;
    let without = [packages::install_optional(), sources::fetch(), sources::build()].concat();
    let kvm = check_kvm();
    if let Err(advice) = &kvm {
        println!("no KVM: {advice}");
    }
    let mut cargo = workspace::cargo_within(if all { LONG_LIMIT } else { LIMIT });
    cargo.args(["test", "--workspace", "--no-fail-fast", "--", "--show-output"]);
    if all {
        cargo.env(SIZE, "all");
    }
    if env::var_os(THREADS).is_none() {
        cargo.env(THREADS, (TESTS_PER_CPU * thread::available_parallelism().map_or(1, usize::from)).to_string());
    }
    if kvm.is_err() {
        cargo.env(WITHOUT_KVM, "1");
    }
    let mut stages = vec![stage("workspace", || {
        leftovers::adopt()?;
        cargo_test(cargo, || leftovers::end(leftovers::GRACE))
    })];
    stages.extend(on_hardware(all));
    if !all {
        let long = HardwareReport { left_out: vec!["the long runs: cargo xtask test --all".into()], ..HardwareReport::default() };
        stages.push(StageReport { name: "", report: long, took: Duration::ZERO });
    }
    let without = HardwareReport { left_out: without, ..HardwareReport::default() };
    stages.push(StageReport { name: "", report: without, took: Duration::ZERO });
    Ok(summarize(stages, kvm.err().as_deref(), started.elapsed()))
}

/// Runs the tests in both emulated machines, side by side: each keeps about one CPU busy.
fn on_hardware(all: bool) -> [StageReport; 2] {
    let kinds = [("hardware svm", Kind::Svm), ("hardware vmx", Kind::Vmx)];
    // The common kernel is fetched once; if that fails, each stage reports it.
    let _ = hardware::fetch_kernel();
    thread::scope(|scope| {
        let runs = kinds.map(|(name, kind)| scope.spawn(move || stage(name, || hardware::run(&Options::ordinary(kind, all)))));
        runs.map(|run| run.join().expect("a stage does not panic"))
    })
}

/// Runs one stage; an error counts as a failure, and the next stage still runs.
fn stage(name: &'static str, run: impl FnOnce() -> Result<HardwareReport>) -> StageReport {
    println!("\n== {name}");
    let started = Instant::now();
    let report = run().unwrap_or_else(|error| {
        println!("{name}: {error:#}");
        HardwareReport { tally: Tally { failed: 1, ..Tally::default() }, left_out: vec![format!("{name}: {error:#}")] }
    });
    StageReport { name, report, took: started.elapsed() }
}

/// Runs `cargo test`, passing its output on as it comes. `end_leftovers` ends processes that tests leave running, and returns their command
/// lines: each counts as a failure.
fn cargo_test(mut cargo: Command, end_leftovers: impl FnOnce() -> Vec<String>) -> Result<HardwareReport> {
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("starting cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let (listener, status, left_running) = thread::scope(|scope| {
        let listener = scope.spawn(move || print_tests(output));
        let status = child.wait();
        // They may hold the pipe open.
        let left_running = end_leftovers();
        (listener.join().expect("it does not panic"), status, left_running)
    });
    let (mut listener, status) = (listener?, status.context("waiting for cargo")?);
    for command in left_running {
        println!("left running by a test, and ended: {command}");
        listener.fail();
    }
    // `timeout` kills a command that ignores its first signal.
    if status.code().is_some_and(|code| [workspace::TIMED_OUT, 128 + 9].contains(&code)) {
        println!("timeout; still running: {}", listener.unfinished().join(", "));
        listener.fail();
    } else if !status.success() && listener.failed() == 0 {
        println!("cargo test failed without a failed test: a build failed, or a test program crashed");
        listener.fail();
    }
    Ok(HardwareReport { tally: listener.finish(), left_out: Vec::new() })
}

/// Prints and counts the results of tests until the output's end.
fn print_tests(output: ChildStdout) -> Result<OutputParser> {
    let mut listener = OutputParser::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("reading cargo's output")?;
        let line = String::from_utf8_lossy(&line);
        if listener.take_line(&line) {
            println!("{line}");
        }
    }
    Ok(listener)
}

/// Prints the tests that ran and those left out, and the final line; `true` if nothing failed.
fn summarize(stages: Vec<StageReport>, without_kvm: Option<&str>, took: Duration) -> bool {
    let mut total = Tally::default();
    println!("\n== summary");
    for stage in stages.iter().filter(|stage| !stage.name.is_empty()) {
        let tally = &stage.report.tally;
        println!("ran: {}: {} passed, {} failed, {}", stage.name, tally.passed, tally.failed, human(stage.took));
    }
    for stage in stages {
        stage.report.left_out.iter().for_each(|what| println!("left out: {what}"));
        for (reason, tests) in &stage.report.tally.left_out {
            println!("left out: {}: {} tests: {reason}", stage.name, tests.len());
            tests.iter().for_each(|test| println!("    {test}"));
        }
        total.add(stage.report.tally);
    }
    if let Some(advice) = without_kvm {
        println!("left out: all tests that need KVM on this machine: {advice}");
    }
    total.failures.iter().for_each(|line| println!("failed: {line}"));
    println!("took {}", human(took));
    println!("{} passed, {} failed", total.passed, total.failed);
    total.failed == 0
}

fn human(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 { format!("{seconds} s") } else { format!("{} min {} s", seconds / 60, seconds % 60) }
}

/// Checks whether KVM can be used; the error says what to do.
fn check_kvm() -> Result<(), String> {
    if env::var_os(WITHOUT_KVM).is_some() {
        return Err(format!("{WITHOUT_KVM} is set; unset it to run the tests that need KVM"));
    }
    match OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Err("no permission for /dev/kvm: add yourself to the group kvm (`sudo usermod -aG kvm $USER`), then log in again".into())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err("/dev/kvm is missing: switch virtualisation on in the firmware and load kvm-intel or kvm-amd; \
            in a VM, ask for nested virtualisation; in a container, pass --device /dev/kvm"
                .into())
        }
        Err(error) => Err(format!("/dev/kvm cannot be opened: {error}")),
    }
}

/// Ensures that Rust can build for the guest.
fn ensure_guest_target() -> Result<()> {
    let libraries = workspace::run(Command::new("rustc").args(["--print", "target-libdir", "--target", GUEST_TARGET]));
    if libraries.is_ok_and(|folder| std::path::Path::new(folder.trim()).is_dir()) {
        return Ok(());
    }
    ensure!(
        pando_packages::find("rustup").is_some(),
        "Rust cannot build for {GUEST_TARGET}: install rustup, or your distribution's package of that target"
    );
    let status = Command::new("rustup").args(["target", "add", GUEST_TARGET]).current_dir(workspace::root()).status()?;
    ensure!(status.success(), "rustup target add {GUEST_TARGET} failed ({status})");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_packages::host_program;

    fn script(text: &str) -> Tally {
        let mut shell = Command::new(host_program("sh"));
        shell.args(["-c", text]);
        cargo_test(shell, Vec::new).expect("sh runs").tally
    }

    #[test]
    fn a_build_that_fails_is_a_failure() {
        assert_eq!(script("exit 101").failed, 1);
        let result = "echo 'test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s'; exit 101";
        assert_eq!((script(result).passed, script(result).failed), (2, 3));
    }

    #[test]
    fn a_test_that_hangs_is_a_failure_even_where_nothing_else_failed() {
        let ended = script("echo 'test a has been running for over 60 seconds'; exit 124");
        assert_eq!((ended.passed, ended.failed), (0, 1));
    }

    #[test]
    fn a_stage_that_stops_counts_and_does_not_stop_the_suite() {
        let stopped = stage("a stage", || anyhow::bail!("no disk"));
        assert_eq!(stopped.report.tally.failed, 1);
        assert!(!summarize(vec![stopped], None, Duration::ZERO));
    }

    #[test]
    fn times_are_for_people() {
        assert_eq!(human(Duration::from_secs(59)), "59 s");
        assert_eq!(human(Duration::from_secs(125)), "2 min 5 s");
    }
}
