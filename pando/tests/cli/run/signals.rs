// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that the host sends to `pando run`.

use crate::case::{PANDO, as_shell};
use pando_testing::{host_program, needs_kvm};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A shell in a cell that has reported that it is ready, and waits for input that never comes.
struct Waiting(Child);

impl Waiting {
    fn new(preparation: &str) -> Waiting {
        let mut command = Command::new(PANDO);
        command.args(["run", "busybox", "sh", "-c", &format!("{preparation} echo ready; while :; do read line; done")]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("pando starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("the cell writes");
        assert_eq!(line, "ready\n");
        Waiting(child)
    }

    fn send(&self, signal: &str) {
        let status = Command::new(host_program("kill")).args(["-s", signal, &self.0.id().to_string()]).status().expect("kill starts");
        assert!(status.success());
    }

    fn status(&mut self) -> i32 {
        as_shell(self.0.wait().expect("it is ours"))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_host_may_ask_for_the_end() {
    needs_kvm!();
    for (signal, status) in [("TERM", 143), ("HUP", 129), ("QUIT", 131)] {
        let mut waiting = Waiting::new("");
        waiting.send(signal);
        assert_eq!((signal, waiting.status()), (signal, status));
    }
}

#[test]
fn a_program_that_ignores_interrupts_is_ended_by_two() {
    needs_kvm!();
    let mut waiting = Waiting::new("trap '' INT;");
    while waiting.0.try_wait().expect("it is ours").is_none() {
        waiting.send("INT");
    }
    assert_eq!(waiting.status(), 130);
}
