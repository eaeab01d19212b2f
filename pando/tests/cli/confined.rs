// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that runs a cell has given up what it does not need. What that means is tested where it is done, in `confine`.

use crate::case::PANDO;
use pando_testing::lab::kvm_is_there;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

/// Who is neither root nor whoever runs the tests.
const OTHER: u32 = 12345;

/// What Linux says of every thread of the process, and of its limits, while the program waits in a cell.
struct Confined {
    /// What the program has written by then.
    line: String,
    statuses: Vec<String>,
    limits: String,
}

impl Confined {
    /// Runs a script in a cell, in a directory, to its end; it says `ready` and waits.
    fn run(directory: &Path, options: &[&str], script: &str) -> Confined {
        let mut command = Command::new(PANDO);
        let script = format!("{script}; echo ready; read line");
        command.arg("run").args(options).args(["busybox", "sh", "-c", &script]).current_dir(directory);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("pando starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("the cell writes");
        let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).expect("it is running");
        let statuses =
            tasks.map(|task| fs::read_to_string(task.expect("it is ours").path().join("status")).expect("it is running")).collect();
        let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).expect("it is running");
        child.stdin.take().expect("a pipe").write_all(b"\n").expect("it reads");
        assert!(child.wait().expect("it is ours").success());
        Confined { line, statuses, limits }
    }

    /// Checks that every thread says these lines of itself.
    fn all_say(&self, lines: &[&str]) {
        assert!(self.statuses.len() > 3, "{} threads", self.statuses.len());
        for status in &self.statuses {
            for wanted in lines {
                assert!(status.lines().any(|line| line.trim_end() == *wanted), "no {wanted:?} in {status}");
            }
        }
    }
}

fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !is_root {
        println!("left out: only root has capabilities to drop");
    }
    is_root
}

#[test]
fn every_thread_is_confined_before_the_program_says_a_word() {
    if !kvm_is_there() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let confined = Confined::run(directory.path(), &[], "true");
    assert_eq!(confined.line, "ready\n");
    confined.all_say(&[
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "CapInh:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
    ]);
    confined.all_say(&["CapAmb:\t0000000000000000"]);
    if is_root() {
        confined.all_say(&["CapBnd:\t0000000000000000", "Groups:"]);
    }
    let cores = confined.limits.lines().find(|line| line.starts_with("Max core file size")).expect("Linux says so");
    assert_eq!(cores.split_whitespace().filter(|word| *word == "0").count(), 2, "{cores}");
}

#[test]
fn root_shows_and_changes_files_of_others_with_no_more_than_it_takes() {
    if !kvm_is_there() || !is_root() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("file");
    fs::write(&file, "theirs\n").expect("the directory is ours");
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("it is ours");
    chown(&file, Some(OTHER), Some(OTHER)).expect("root may");

    let reading = Confined::run(directory.path(), &[], "cat file");
    assert_eq!(reading.line, "theirs\n");
    // CAP_DAC_READ_SEARCH.
    reading.all_say(&["CapEff:\t0000000000000004", "CapPrm:\t0000000000000004", "CapBnd:\t0000000000000000"]);

    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    let volume = format!("{}:/x", directory.path().display());
    let changing = Confined::run(elsewhere.path(), &["-v", &volume], "echo changed > /x/file; sync; cat /x/file");
    assert_eq!(changing.line, "changed\n");
    // With CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER and CAP_FSETID.
    changing.all_say(&["CapEff:\t000000000000001f", "CapBnd:\t0000000000000000"]);
    let metadata = file.metadata().expect("it is there");
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), (OTHER, OTHER, 0o600));
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "changed\n");
}
