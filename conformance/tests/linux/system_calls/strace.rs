// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando run --strace` compared with strace: the same calls of the same program, in the same format.

use crate::case::{Case, CaseOutcome, PANDO};
use crate::compile::{Linkage, program};
use crate::data;
use pando_testing::needs_kvm;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Calls whose results depend on the host or the moment: numbers in them are ignored.
const OF_THE_MOMENT: [&str; 20] = [
    "getrusage",
    "sysinfo",
    "times",
    "clock_gettime",
    "gettimeofday",
    "sched_getaffinity",
    "getrandom",
    "prlimit64",
    "shmget",
    "shmat",
    "shmctl",
    "shmdt",
    "semget",
    "semop",
    "semtimedop",
    "semctl",
    "msgget",
    "msgsnd",
    "msgrcv",
    "msgctl",
];

/// Lines that differ for a reason. strace sees how the program starts. The C library makes calls that cells do not need,
/// and asks the host's clock where no call is needed. Host and cell have different names.
const OF_ONE_SIDE: [&str; 6] = ["execve(", "rseq(", "clock_getres(", "pando: ", "prlimit64(0, RLIMIT_STACK", "uname("];

/// A trace without the parts that must differ: addresses, process numbers, times, spaces.
fn normal(trace: &str) -> Vec<String> {
    let own = trace.lines().find_map(|line| line.strip_prefix("set_tid_address(")).and_then(|line| line.split("= ").nth(1)).unwrap_or("1");
    let lines = trace.lines().filter(|line| !OF_ONE_SIDE.iter().any(|start| line.starts_with(start)));
    lines.map(|line| normal_line(line, own)).collect()
}

fn normal_line(line: &str, own: &str) -> String {
    let is_of_the_moment = OF_THE_MOMENT.iter().any(|call| line.strip_prefix(call).is_some_and(|rest| rest.starts_with('(')));
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let mut text = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let end = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
        let (word, later) = rest.split_at(end.max(1));
        rest = later;
        let is_number = word.starts_with(|character: char| character.is_ascii_digit());
        match word {
            // strace formats some times as dates, and pads the line where a call was interrupted.
            " " if rest.starts_with("/* ") && rest.as_bytes()[3].is_ascii_digit() => {
                rest = rest.split_once(" */").map_or("", |(_, rest)| rest)
            }
            " " if text.ends_with([' ', ')']) && rest.trim_start().starts_with('=') => {}
            _ if word.len() >= 8 && word.starts_with("0x") => text += "ADDRESS",
            _ if is_of_the_moment && (is_number || word.starts_with('x') || word == "RLIM64_INFINITY") => text.push('N'),
            _ if word == own => text.push('1'),
            _ => text += word,
        }
    }
    for (same, other) in [("\\N", ""), ("N N", "N"), ("N*N", "N"), ("STATX_BASIC_STATS|STATX_MNT_ID,", "STATX_ALL,")] {
        text = text.replace(same, other);
    }
    text
}

/// Traces a part of the test program both ways, in a writable directory.
fn trace(part: &str) -> (String, CaseOutcome) {
    let traced = program("traced", Linkage::GLIBC);
    let directory = tempfile::tempdir_in(data::directory()).expect("a directory");
    let file = directory.path().join("trace");
    let case = |words: &[&str]| Case::new(words[0], &words[1..]).directory(directory.path());
    let words = [traced.to_str().expect("a plain path"), part];
    let native = case(&["strace", "-o", file.to_str().expect("a plain path"), words[0], words[1]]).native();
    let cell = case(&words).options(&["--strace"]).cell();
    assert_eq!((native.status, text(&native)), (cell.status, text(&cell)), "{part}");
    (fs::read_to_string(file).expect("strace has written it (`cargo xtask test` installs it)"), cell)
}

fn text(outcome: &CaseOutcome) -> String {
    String::from_utf8_lossy(&outcome.output).into_owned()
}

fn check(part: &str) {
    needs_kvm!();
    let (native, cell) = trace(part);
    let (native, found) = (normal(&native), normal(&cell.errors));
    assert!(!text(&cell).contains("DOES NOT HOLD") && native.len() > 20, "{part}: {}", text(&cell));
    for (wanted, found) in native.iter().zip(&found) {
        assert_eq!(wanted, found, "{part}");
    }
    assert_eq!(native.len(), found.len(), "{part}: {native:#?} {found:#?}");
}

#[test]
fn file_calls_are_printed_as_by_strace() {
    check("files");
}

#[test]
fn memory_calls_are_printed_as_by_strace() {
    check("memory");
}

#[test]
fn signal_calls_are_printed_as_by_strace() {
    check("signals");
}

#[test]
fn process_calls_are_printed_as_by_strace() {
    check("processes");
}

#[test]
fn calls_of_system_v_objects_are_printed_as_by_strace() {
    check("objects");
}

#[test]
fn unimplemented_calls_are_reported_at_the_end() {
    needs_kvm!();
    let traced = program("traced", Linkage::GLIBC);
    let outcome = Case::new(&traced, &["unknown"]).options(&["--strace", "--stats=json"]).cell();
    assert!(!text(&outcome).contains("DOES NOT HOLD"), "{}", text(&outcome));
    for line in [
        "quotactl(0x1, 0x2, 0x3, 0x4, 0x5, 0x6)  = -1 ENOSYS (Function not implemented)",
        "pando: calls that are not implemented: quotactl (2), init_module (1), syscall_0x1fe (1), syscall_0x1e240 (1)",
    ] {
        assert!(outcome.errors.lines().any(|found| found == line), "{line}: {}", outcome.errors);
    }
    let stats: serde_json::Value = serde_json::from_str(outcome.errors.lines().last().expect("the last line")).expect("one object");
    assert_eq!(stats["calls_missing"], 5);
    assert_eq!(stats["missing"][0], serde_json::json!({"number": 179, "name": "quotactl", "count": 2}));
    let table = Case::new(&traced, &["unknown"]).options(&["--stats"]).cell().errors;
    assert!(table.lines().any(|line| line.split_whitespace().eq(["quotactl", "2"])), "{table}");
}

#[test]
fn tracing_survives_any_address() {
    needs_kvm!();
    let traced = program("traced", Linkage::GLIBC);
    let cell = Case::new(&traced, &["hostile"]).options(&["--strace"]).cell();
    assert_eq!(cell.status, 0, "{}", cell.errors.lines().rev().take(5).collect::<Vec<_>>().join("\n"));
    assert_eq!(text(&cell).lines().last(), Some("still here"));
    assert!(cell.errors.contains("\n+++ exited with 0 +++\n"));
}

#[test]
fn unimplemented_calls_are_not_reported_without_a_request() {
    needs_kvm!();
    let traced = program("traced", Linkage::GLIBC);
    assert_eq!(Case::new(traced, &["memory"]).cell().errors, "");
}

#[test]
fn an_unread_trace_stops_no_cell() {
    needs_kvm!();
    let mut command = Command::new(PANDO);
    command.args(["run", "--strace", "busybox", "echo", "said"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.current_dir(Path::new("/")).spawn().expect("pando starts");
    drop(child.stderr.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"said\n"[..]));
}
