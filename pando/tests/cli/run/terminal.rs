// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs whose standard streams are a terminal, which `script` provides.

use crate::case::{CaseOutcome, Input, PANDO, finish};
use crate::compile::{Linkage, program};
use pando_testing::{host_program, needs_kvm};
use std::process::Command;

/// Runs a command line with a terminal of its own, and types `typed`.
fn in_terminal(line: &str, typed: &[u8]) -> CaseOutcome {
    let mut command = Command::new(host_program("script"));
    command.args(["--quiet", "--return", "--command", line, "/dev/null"]).env("SHELL", "/bin/sh");
    finish(command, Input::Pipe(typed))
}

#[test]
fn a_terminal_is_seen_as_one() {
    needs_kvm!();
    for linkage in [Linkage::GLIBC, Linkage::MUSL] {
        let system = program("system", linkage);
        let native = in_terminal(&format!("{} terminal", system.display()), b"");
        let cell = in_terminal(&format!("{PANDO} run {} terminal", system.display()), b"");
        assert_eq!(native, cell);
        assert_eq!(String::from_utf8_lossy(&cell.output).matches("a terminal").count(), 3, "{cell:?}");
    }
}

#[test]
fn typed_input_arrives_and_redirected_streams_are_no_terminals() {
    needs_kvm!();
    let line = |runner: &str| {
        format!("{runner}busybox head -n 1; {runner}{} terminal 2>/dev/null </dev/null", program("system", Linkage::GLIBC).display())
    };
    let native = in_terminal(&line(""), b"typed\n");
    let cell = in_terminal(&line(&format!("{PANDO} run ")), b"typed\n");
    assert_eq!(native, cell);
    assert!(String::from_utf8_lossy(&cell.output).contains("1: a terminal"), "{cell:?}");
}

/// Takes the terminal, ends as the arguments say, and prints whether the terminal's settings are unchanged.
const TAKE_AND_RETURN: &str = r#"
cd "$(mktemp -d)" && mkfifo said || exit
before=$(stty -g)
"$1" run -t busybox sh -c "$2" </dev/tty >said &
read ready <said
while=$(stty -g)
[ -n "$3" ] && { [ "$while" != "$before" ] && echo "it is raw"; kill -s "$3" $!; }
wait $!
status=$?
[ "$(stty -g)" = "$before" ] && echo "it is as before"
echo "status $status"
rm -r "$PWD"
"#;

#[test]
fn the_terminal_is_as_it_was_after_any_end() {
    needs_kvm!();
    let waiting = "echo ready; while :; do :; done";
    for (program, signal, status) in [
        ("echo ready; read line; exit 3", "", 3),
        ("echo ready; read line; kill -SEGV $$", "", 139),
        (waiting, "TERM", 143),
        (waiting, "HUP", 129),
    ] {
        let words = ["bash", "-c", TAKE_AND_RETURN, "bash", PANDO, program, signal];
        let outcome = in_terminal(&words.map(quoted).join(" "), b"\n");
        let found = String::from_utf8_lossy(&outcome.output).replace('\r', "");
        let raw = if signal.is_empty() { "" } else { "it is raw\n" };
        let wanted = format!("{raw}it is as before\nstatus {status}\n");
        // Pando's report on the end comes in between.
        let lines: String = found.split_inclusive('\n').filter(|line| line.starts_with("it is") || line.starts_with("status")).collect();
        assert_eq!(lines, wanted, "{program} {signal}: {found}");
    }
}

/// Quotes a word for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
