// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs whose standard streams are a terminal, which `script` makes for them.

use crate::case::{Input, Outcome, PANDO, finish};
use crate::compile::{Linked, program};
use pando_testing::lab::kvm_is_there;
use std::process::Command;

/// Runs a command line with a terminal of its own, into which `typed` is typed.
fn in_terminal(line: &str, typed: &[u8]) -> Outcome {
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", line, "/dev/null"]).env("SHELL", "/bin/sh");
    finish(command, Input::Pipe(typed))
}

#[test]
fn a_terminal_is_seen_as_one() {
    if !kvm_is_there() {
        return;
    }
    for linked in [Linked::Glibc, Linked::Musl] {
        let system = program("system", linked);
        let native = in_terminal(&format!("{} terminal", system.display()), b"");
        let cell = in_terminal(&format!("{PANDO} run {} terminal", system.display()), b"");
        assert_eq!(native, cell);
        assert_eq!(String::from_utf8_lossy(&cell.output).matches("a terminal").count(), 3, "{cell:?}");
    }
}

#[test]
fn what_is_typed_arrives_and_what_is_redirected_is_no_terminal() {
    if !kvm_is_there() {
        return;
    }
    let line = |runner: &str| {
        format!("{runner}busybox head -n 1; {runner}{} terminal 2>/dev/null </dev/null", program("system", Linked::Glibc).display())
    };
    let native = in_terminal(&line(""), b"typed\n");
    let cell = in_terminal(&line(&format!("{PANDO} run ")), b"typed\n");
    assert_eq!(native, cell);
    assert!(String::from_utf8_lossy(&cell.output).contains("1: a terminal"), "{cell:?}");
}
