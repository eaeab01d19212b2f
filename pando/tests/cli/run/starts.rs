// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts that are remembered: a program's second start finds what the first one read. A cache that does not help does not harm.

use crate::fixture::Fixture;
use pando_testing::needs_kvm;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Runs a copy of busybox in an otherwise empty root, with a cache of its own. Returns its output and its exits by cause.
fn run(fixture: &Fixture, words: &[&str]) -> (String, Value) {
    let program = fixture.path("busybox").display().to_string();
    let mut command = fixture.command(&["run", "--bare", "--stats=json", "--", &program]);
    let outcome = command.args(words).env("XDG_CACHE_HOME", fixture.path("cache")).output().expect("pando starts");
    let errors = String::from_utf8(outcome.stderr).expect("it is text");
    let stats = errors.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no statistics: {errors}"));
    assert_eq!(errors.lines().count(), 1, "nothing else is reported: {errors}");
    let stats: Value = serde_json::from_str(stats).expect("statistics are JSON");
    (String::from_utf8(outcome.stdout).expect("it is text"), stats["exit_causes"].clone())
}

/// Faults and reads of a start.
fn faults(causes: &Value) -> u64 {
    causes["block_fault"].as_u64().unwrap_or(0)
}

/// A fixture with a copy of busybox.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    copy(&fixture, "/bin/busybox");
    fixture
}

fn copy(fixture: &Fixture, program: &str) {
    fs::copy(program, fixture.path("new")).expect("it is there");
    fs::rename(fixture.path("new"), fixture.path("busybox")).expect("the directory is ours");
}

fn records(fixture: &Fixture) -> Vec<PathBuf> {
    let directory = fs::read_dir(fixture.path("cache/pando/starts")).expect("it was made");
    directory.map(|entry| entry.expect("it can be read").path()).collect()
}

#[test]
fn a_second_start_does_not_fault_on_files() {
    needs_kvm!();
    let fixture = fixture();
    let (output, first) = run(&fixture, &["echo", "hello"]);
    assert!(output == "hello\n" && faults(&first) >= 4, "{first}");
    let (output, second) = run(&fixture, &["echo", "hello"]);
    assert!(output == "hello\n" && faults(&second) == 0, "{second}");
    let mode = |path: &PathBuf| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert!(records(&fixture).iter().all(|record| mode(record) == 0o600), "nobody else may write records");
    assert_eq!(mode(&fixture.path("cache/pando/starts")), 0o700);
}

#[test]
fn a_record_of_another_version_of_the_file_is_not_used() {
    needs_kvm!();
    let fixture = fixture();
    run(&fixture, &["echo", "hello"]);
    run(&fixture, &["echo", "hello"]);
    copy(&fixture, "/bin/busybox");
    let (output, changed) = run(&fixture, &["echo", "hello"]);
    assert!(output == "hello\n" && faults(&changed) > 0, "another file has the name now: {changed}");
    assert_eq!(faults(&run(&fixture, &["echo", "hello"]).1), 0, "its start is learned");
}

#[test]
fn damaged_records_and_unusable_caches_change_nothing() {
    needs_kvm!();
    let fixture = fixture();
    run(&fixture, &["echo", "hello"]);
    for record in records(&fixture) {
        fs::write(record, b"Pando start   1\nand nothing").expect("it is ours");
    }
    let (output, damaged) = run(&fixture, &["echo", "hello"]);
    assert!(output == "hello\n" && faults(&damaged) > 0, "{damaged}");
    assert_eq!(faults(&run(&fixture, &["echo", "hello"]).1), 0, "the records were replaced");
    // A file where the directory should be.
    fs::remove_dir_all(fixture.path("cache/pando/starts")).expect("it is ours");
    fs::write(fixture.path("cache/pando/starts"), b"").expect("its directory is ours");
    for _ in 0..2 {
        let (output, causes) = run(&fixture, &["echo", "hello"]);
        assert!(output == "hello\n" && faults(&causes) > 0, "{causes}");
    }
    let mut command = fixture.command(&["run", "--bare", "busybox", "echo", "hello"]);
    let outcome = command.env_remove("XDG_CACHE_HOME").env_remove("HOME").output().expect("pando starts");
    assert_eq!((&outcome.stdout[..], &outcome.stderr[..]), (&b"hello\n"[..], &b""[..]), "there is no cache");
}

#[test]
fn starts_at_the_same_time_share_a_record() {
    needs_kvm!();
    let fixture = fixture();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert_eq!(run(&fixture, &["echo", "hello"]).0, "hello\n"));
        }
    });
    assert_eq!(faults(&run(&fixture, &["echo", "hello"]).1), 0);
}
