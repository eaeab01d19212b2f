// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that runs a cell has given up what it does not need. What that means is tested where it is done, in `confine`.

use crate::case::PANDO;
use pando_testing::lab::kvm_is_there;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn every_thread_is_confined_before_the_program_says_a_word() {
    if !kvm_is_there() {
        return;
    }
    let mut command = Command::new(PANDO);
    command.args(["run", "busybox", "sh", "-c", "echo ready; read line; exit 0"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("pando starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("the cell writes");
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).expect("it is running");
    let statuses: Vec<String> =
        tasks.map(|task| fs::read_to_string(task.expect("it is ours").path().join("status")).expect("it is running")).collect();
    let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).expect("it is running");
    drop(child.stdin.take());
    assert!(child.wait().expect("it is ours").success());
    assert_eq!(line, "ready\n");
    assert!(statuses.len() > 3, "{} threads", statuses.len());
    for status in statuses {
        for wanted in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(status.contains(wanted), "no {wanted:?} in {status}");
        }
    }
    let cores = limits.lines().find(|line| line.starts_with("Max core file size")).expect("Linux says so");
    assert_eq!(cores.split_whitespace().filter(|word| *word == "0").count(), 2, "{cores}");
}
