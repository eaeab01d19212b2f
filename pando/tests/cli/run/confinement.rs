// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that runs a cell has dropped the privileges that it does not need. The tests of `confine` check their effects.

use crate::case::PANDO;
use crate::fixture::Fixture;
use pando_testing::lab::is_kvm_available;
use pando_testing::{host_program, needs_kvm};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A user that is neither root nor the one who runs the tests.
const OTHER: u32 = 12345;

/// Linux's report on every thread of the process, and on its limits, while the program waits in a cell.
struct Confined {
    /// The program's output up to then.
    line: String,
    statuses: Vec<String>,
    limits: String,
}

impl Confined {
    /// Runs a script in a cell, with this working directory, to its end; it prints `ready` and waits.
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

    /// Checks that the status of every thread has these lines.
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
    needs_kvm!();
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
    if !is_kvm_available() || !is_root() {
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

/// The namespaces of a kind that the threads of a process are in.
fn namespaces(process: &str, kind: &str) -> BTreeSet<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("it is running");
    tasks.map(|task| fs::read_link(task.expect("it is running").path().join("ns").join(kind)).expect("root may look")).collect()
}

#[test]
fn a_service_leaves_the_namespaces_of_the_host() {
    if !is_kvm_available() || !is_root() {
        return;
    }
    let mut unshare = Command::new(host_program("unshare"));
    if !unshare.args(["--mount", "--ipc", "--net", "true"]).output().is_ok_and(|output| output.status.success()) {
        println!("left out: this host gives no namespaces");
        return;
    }
    let fixture = Fixture::new();
    // Gateways make connections in the host's network, in processes of their own.
    for options in [&[][..], &["--gateways", "1"]] {
        let (own, shared) = (["mnt", "ipc", "net"], ["user"]);
        let service = fixture.serve(options);
        let process = service.child.id().to_string();
        for kind in own {
            let (found, hosts) = (namespaces(&process, kind), namespaces("self", kind));
            assert!(found.len() == 1 && found.is_disjoint(&hosts), "{options:?}: {kind}: {found:?} and {hosts:?}");
        }
        for kind in shared {
            assert_eq!(namespaces(&process, kind), namespaces("self", kind), "{options:?}: {kind}");
        }
        assert_eq!(service.ask("GET", "/v1", "").0, 200);
    }
}
