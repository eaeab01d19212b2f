// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando trace`: the system calls of a program in a nested cell, and rules that refuse some.

use crate::PANDO;
use crate::case::{as_shell, text};
use pando_testing::needs_kvm;
use std::process::{Command, Stdio};

/// Status, output and errors of a command.
fn pando(words: &[&str]) -> (i32, String, String) {
    let outcome = Command::new(PANDO).args(words).stdin(Stdio::null()).output().expect("pando starts");
    (as_shell(outcome.status), text(&outcome.stdout).into(), text(&outcome.stderr).into())
}

#[test]
fn calls_are_printed_as_by_strace_of_a_cell() {
    needs_kvm!();
    let words = ["--", "busybox", "cat", "/etc/passwd", "/no-such-file"];
    let traced = pando(&[&["trace"], &words[..]].concat());
    let direct = pando(&[&["run", "--strace"], &words[..]].concat());
    assert_eq!((traced.0, &traced.1), (1, &direct.1));
    // Addresses are random, and a call that is not patched may be made at another time.
    let opened = |errors: &str| errors.lines().filter(|line| line.starts_with("open")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(opened(&traced.2), opened(&direct.2));
    assert!(opened(&traced.2).len() == 2 && traced.2.contains("+++ exited with 1 +++"), "{}", traced.2);
}

#[test]
fn rules_refuse_calls_always_or_for_a_path() {
    needs_kvm!();
    let script = "mkdir /tmp/one; mkdir /tmp/two && echo made; exit 4";
    let rules = ["trace", "-q", "--deny", "mkdir:/tmp/one", "--deny", "connect", "--", "busybox", "sh", "-c", script];
    let (status, output, errors) = pando(&rules);
    assert_eq!((status, &output[..]), (4, "made\n"));
    assert_eq!(errors.matches("pando: mkdir was refused: --deny mkdir:/tmp/one\n").count(), 1, "{errors}");
    assert!(errors.contains("Operation not permitted"), "{errors}");
    // Bits of the number that Linux ignores do not help.
    let code = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); libc.syscall.restype = ctypes.c_long
print(libc.syscall(ctypes.c_long(39 | 1 << 40)), ctypes.get_errno())";
    let (_, output, errors) = pando(&["trace", "-q", "--deny", "getpid", "--", "/usr/bin/python3", "-c", code]);
    assert_eq!(output, "-1 1\n", "{errors}");
}

#[test]
fn threads_and_child_processes_obey_the_rules() {
    needs_kvm!();
    let code = "import os, threading
def attempt(kind):
    try: os.mkdir('/tmp/' + kind); print(kind, 'made')
    except PermissionError: print(kind, 'refused', flush=True)
thread = threading.Thread(target=attempt, args=('thread',)); thread.start(); thread.join()
child = os.fork()
if child == 0: attempt('child'); os._exit(0)
os.waitpid(child, 0)";
    let (status, output, errors) = pando(&["trace", "-q", "--deny", "mkdir", "--", "/usr/bin/python3", "-c", code]);
    assert_eq!((status, &output[..]), (0, "thread refused\nchild refused\n"), "{errors}");
}

#[test]
fn rules_that_mean_nothing_are_named() {
    for (rule, part) in [("connekt", "`connekt` is not a system call"), ("connect:/etc", "omit `:PATH`")] {
        let (status, _, errors) = pando(&["trace", "--deny", rule, "--", "true"]);
        assert!(status == 125 && errors.contains(part), "{status} {errors}");
    }
}
