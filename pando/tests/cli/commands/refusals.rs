// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invalid input: one clear line on standard error, the matching exit status, and no other output.

use crate::case::{Case, CaseOutcome, Input, PANDO, finish};
use crate::compile::{Linkage, program};
use crate::data::Numbers;
use pando_testing::lab::is_kvm_available;
use pando_testing::{host_program, needs_kvm};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const FAILURE: i32 = 125;
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

/// Checks that standard output is empty and that standard error is one line with these words.
fn assert_refused(what: &str, outcome: &CaseOutcome, status: i32, wanted: &[&str]) {
    let CaseOutcome { status: found, output, errors } = outcome;
    assert_eq!(*found, status, "{what}: {errors}");
    assert!(output.is_empty(), "{what}: {output:?}");
    assert!(errors.starts_with("pando: ") && errors.ends_with('\n') && errors.lines().count() == 1, "{what}: {errors:?}");
    assert!(wanted.iter().all(|word| errors.contains(word)), "{what}: {errors:?} lacks one of {wanted:?}");
}

/// Checks a program that is refused before or while it is loaded.
fn check_program(program: &str, status: i32, wanted: &[&str]) {
    let outcome = Case::new(program, &["argument"]).cell();
    assert_refused(program, &outcome, status, wanted);
}

/// Checks options that are refused because of their values.
fn check_options(options: &[&str], wanted: &[&str]) {
    let outcome = Case::new("busybox", &["echo", "never seen"]).options(options).cell();
    assert_refused(&options.join(" "), &outcome, FAILURE, wanted);
}

/// Checks an invalid command line: the message names the mistake and the help.
fn check_usage(words: &[&str], wanted: &[&str]) {
    let mut command = Command::new(PANDO);
    command.args(words);
    let CaseOutcome { status, output, errors } = finish(command, Input::Nothing);
    assert!(status == FAILURE && output.is_empty(), "{words:?}: {status} {errors}");
    assert!(errors.starts_with("error: ") && wanted.iter().chain(&["--help"]).all(|word| errors.contains(word)), "{words:?}: {errors}");
}

/// A directory for files, and the programs written to it.
struct ProgramDirectory(TempDir);

impl ProgramDirectory {
    fn new() -> ProgramDirectory {
        ProgramDirectory(tempfile::tempdir().expect("a temporary directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn program(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        fs::write(&path, bytes).expect("a temporary file can be written");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("the file is ours");
        path.to_str().expect("a plain name").into()
    }
}

#[test]
fn missing_programs_are_refused() {
    check_program("no-such-program-anywhere", NOT_FOUND, &["no-such-program-anywhere", "not found"]);
    check_program("/no/such/program", NOT_FOUND, &["/no/such/program", "not found"]);
    check_program("/etc/passwd/program", NOT_FOUND, &["not found"]);
    check_program("", NOT_FOUND, &["not found"]);
}

#[test]
fn files_without_execute_permission_are_refused() {
    let programs = ProgramDirectory::new();
    fs::write(programs.path("plain"), "text").expect("a temporary file can be written");
    check_program("/usr", NOT_EXECUTABLE, &["/usr", "directory"]);
    check_program("/dev/null", NOT_EXECUTABLE, &["/dev/null", "not a regular file"]);
    check_program(programs.path("plain").to_str().expect("a plain name"), NOT_EXECUTABLE, &["plain", "not executable"]);
}

#[test]
fn files_of_unknown_format_are_refused() {
    needs_kvm!();
    let programs = ProgramDirectory::new();
    for (name, bytes) in [("empty", &b""[..]), ("text", b"just some words\n"), ("zeros", &[0; 100_000])] {
        check_program(&programs.program(name, bytes), NOT_EXECUTABLE, &[name, "neither an ELF program nor a script"]);
    }
    check_program(&programs.program("magic", b"\x7fELF"), NOT_EXECUTABLE, &["magic"]);
}

#[test]
fn interpreters_that_are_missing_are_named() {
    needs_kvm!();
    let programs = ProgramDirectory::new();
    let scripts: [(&[u8], &[&str]); 4] = [
        (b"#!\n", &["names no interpreter"]),
        (b"#!/no/such/shell -e\n", &["interpreter /no/such/shell", "no such file"]),
        (b"#!/usr\n", &["interpreter /usr", "permission denied"]),
        (b"#!/etc/passwd\n", &["interpreter /etc/passwd", "permission denied"]),
    ];
    for (text, words) in scripts {
        check_program(&programs.program("script", text), NOT_EXECUTABLE, words);
    }
    let mut linkage = fs::read("/bin/ls").expect("everybody may read it");
    let at = linkage.windows(4).position(|bytes| bytes == b"/lib").expect("its linker's path comes first");
    linkage[at..at + 4].copy_from_slice(b"/nil");
    check_program(&programs.program("linkage", &linkage), NOT_EXECUTABLE, &["linkage", "dynamic linker /nil", "no such file"]);
}

/// A valid program, small.
fn good() -> Vec<u8> {
    fs::read(program("die", Linkage::MUSL)).expect("it was just compiled")
}

/// Replacement bytes, each with its offset.
type Changes<'a> = &'a [(usize, &'a [u8])];

/// The bytes of a valid program, some of them replaced.
fn changed(changes: Changes<'_>) -> Vec<u8> {
    let mut bytes = good();
    for &(at, new) in changes {
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    bytes
}

/// A little-endian number in an ELF file.
fn number(bytes: &[u8], at: usize, size: usize) -> usize {
    bytes[at..at + size].iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte))
}

/// The offsets of the program headers of loadable segments.
fn loadable(bytes: &[u8]) -> Vec<usize> {
    let (table, count) = (number(bytes, 32, 8), number(bytes, 56, 2));
    (0..count).map(|index| table + index * 56).filter(|&at| number(bytes, at, 4) == 1).collect()
}

#[test]
fn programs_for_other_machines() {
    needs_kvm!();
    let programs = ProgramDirectory::new();
    for (name, changes) in [
        ("aarch64", &[(18, &[183, 0][..])][..]),
        ("riscv", &[(18, &[243, 0])]),
        ("i386", &[(4, &[1]), (18, &[3, 0])]),
        ("x32", &[(4, &[1])]),
        ("big-endian", &[(5, &[2])]),
    ] {
        check_program(&programs.program(name, &changed(changes)), NOT_EXECUTABLE, &[name, "another machine"]);
    }
}

#[test]
fn elf_files_that_make_no_sense() {
    needs_kvm!();
    let programs = ProgramDirectory::new();
    let first = loadable(&good())[0];
    let cases: [(&str, Changes<'_>); 12] = [
        ("object", &[(16, &[1, 0])]),
        ("core", &[(16, &[4, 0])]),
        ("no-headers", &[(56, &[0, 0])]),
        ("odd-headers", &[(54, &[55, 0])]),
        ("far-headers", &[(32, &[0xff; 8])]),
        ("many-headers", &[(56, &[0xff; 2])]),
        ("beyond-the-file", &[(first + 8, &[0, 0, 0, 0, 1, 0, 0, 0])]),
        ("offset-wraps", &[(first + 8, &[0xff; 8])]),
        ("larger-in-the-file", &[(first + 32, &[0xff, 0xff, 0, 0, 0, 0, 0, 0]), (first + 40, &[1, 0, 0, 0, 0, 0, 0, 0])]),
        ("in-the-kernels-half", &[(first + 16, &[0, 0, 0, 0, 0, 0x80, 0xff, 0xff])]),
        ("on-the-libos", &[(first + 16, &[0, 0, 4, 0, 0, 0x7f, 0, 0])]),
        ("larger-than-all", &[(first + 40, &[0, 0, 0, 0, 0, 0, 0, 0x10])]),
    ];
    for (name, changes) in cases {
        check_program(&programs.program(name, &changed(changes)), NOT_EXECUTABLE, &[name]);
    }
}

/// The number of seeded cases.
fn tries() -> usize {
    if std::env::var("PANDO_TESTS").as_deref() == Ok("all") { 1000 } else { 40 }
}

#[test]
fn programs_cut_short_at_any_length() {
    needs_kvm!();
    let programs = ProgramDirectory::new();
    let whole = good();
    let end = loadable(&whole).iter().map(|&at| number(&whole, at + 8, 8) + number(&whole, at + 32, 8)).max().expect("it has segments");
    let mut numbers = Numbers::new(4);
    let lengths =
        [1, 3, 4, 5, 15, 16, 17, 63, 64, 65, 119, 120, end - 1].into_iter().chain((0..tries()).map(|_| 1 + numbers.below(end - 1)));
    for length in lengths {
        let path = programs.program(&format!("cut-at-{length}"), &whole[..length]);
        check_program(&path, NOT_EXECUTABLE, &["cut-at-"]);
    }
    // Nothing needs the bytes behind the segments.
    let outcome = Case::new(programs.program("cut-behind", &whole[..end]), &["leave", "7"]).cell();
    assert_eq!((outcome.status, &outcome.output[..]), (7, &b"before the end\n"[..]));
}

#[test]
fn programs_with_any_damage_end_with_a_clear_word() {
    needs_kvm!();
    let programs = ProgramDirectory::new();
    let whole = good();
    let headers = number(&whole, 32, 8) + number(&whole, 56, 2) * 56;
    let mut numbers = Numbers::new(5);
    for seed in 0..tries() {
        let mut bytes = whole.clone();
        for _ in 0..1 + numbers.below(4) {
            let at = 4 + numbers.below(headers - 4);
            bytes[at] = if numbers.below(2) == 0 { bytes[at] ^ (1 << numbers.below(8)) } else { numbers.next() as u8 };
        }
        let path = programs.program("damaged", &bytes);
        let outcome = Case::new(&path, &["leave", "7"]).options(&["--timeout", "20s", "--memory", "256M"]).cell();
        let known = [7, 2, 124, FAILURE, NOT_EXECUTABLE, 132, 133, 136, 137, 139].contains(&outcome.status);
        assert!(known && !outcome.errors.contains("panicked"), "damage {seed}: {outcome:?}");
        // Up to 7 it is the program's own status, with any output.
        let explained = outcome.errors.lines().last().is_some_and(|line| line.starts_with("pando: "));
        assert!(outcome.status <= 7 || explained, "damage {seed}: {outcome:?}");
    }
}

#[test]
fn memory_that_is_no_use() {
    for (size, bytes) in
        [("1", "1 byte is too little"), ("1K", "1024 bytes"), ("0", "0 bytes"), ("500K", "512000 bytes"), ("1000K", "1024000 bytes")]
    {
        check_usage(&["run", "--memory", size, "busybox"], &[bytes, "too little memory", "at least 1.0 MiB", "64M"]);
    }
}

#[test]
fn arguments_that_do_not_fit() {
    if is_kvm_available() {
        let outcome = Case::new("busybox", &["echo".to_string(), "x".repeat(100_000), "y".repeat(100_000), "z".repeat(120_000)]).cell();
        assert_eq!((outcome.status, outcome.output.len()), (0, 320_003));
        let many: Vec<String> = (0..6).map(|_| "x".repeat(100_000)).collect();
        let outcome = Case::new("busybox", &many).cell();
        assert_refused("long arguments", &outcome, FAILURE, &["arguments", "bytes"]);
    }
}

#[test]
fn volumes_that_cannot_be_shown() {
    let programs = ProgramDirectory::new();
    let missing = programs.path("missing");
    check_options(&["-v", missing.to_str().expect("a plain name")], &["-v", "missing", "cannot read"]);
    check_options(&["-v", &format!("{}:/data", missing.display())], &["-v", "missing", "no such file"]);
    check_options(&["-v", "/etc/hosts:/data", "-v", "/etc/hostname:/data"], &["-v", "/etc/hostname", "hide /etc/hosts"]);
    check_options(&["-v", "/etc/hosts:/data/hosts:ro", "-v", "/usr/share:/data:ro"], &["-v", "/usr/share", "hide /etc/hosts"]);
    check_options(&["-v", "/proc/version"], &["-v", "/proc/version", "kernel", "copy"]);
    check_options(&["-v", "/proc/self:/data:ro"], &["-v", "/proc/", "kernel", "copy"]);
    check_options(&["-v", "/sys/kernel:/data:ro"], &["-v", "/sys/kernel", "kernel", "copy"]);
    check_options(&["-v", "/dev/null"], &["-v", "/dev/null", "not a regular file"]);
}

/// A file that nobody may read, not even root.
#[test]
fn a_volume_that_may_not_be_read() {
    const WRITE_ONLY: &str = "/sys/bus/platform/drivers_probe";
    needs_kvm!();
    if Path::new(WRITE_ONLY).exists() {
        check_options(&["-v", WRITE_ONLY], &["cannot read", WRITE_ONLY]);
    } else {
        println!("left out: this host has no file that even root cannot read");
    }
}

#[test]
fn an_unknown_option_comes_with_advice_that_works() {
    let wanted = "tip: options of the program follow its name: write '--bogus' there";
    for (words, tips) in [
        (&["run", "--bogus", "busybox"][..], 1),
        (&["exec", "--bogus", "1", "busybox"], 1),
        (&["clone", "--bogus", "python"], 1),
        (&["kill", "--bogus", "1"], 0),
        (&["logs", "--bogus", "1"], 0),
    ] {
        let mut command = Command::new(PANDO);
        command.args(words);
        let errors = finish(command, Input::Nothing).errors;
        assert_eq!((errors.matches(wanted).count(), errors.contains("-- --bogus")), (tips, false), "{words:?}: {errors}");
    }
    // A similar option is still named.
    check_usage(&["run", "--memry", "1G", "busybox"], &["--memory"]);
}

#[test]
fn command_lines_that_mean_nothing() {
    check_usage(&["run"], &["PROGRAM"]);
    check_usage(&["kill", "a b"], &["`a b` is not a valid cell's number or name", "pando ps"]);
    check_usage(&["run", "--no-such-option", "busybox"], &["--no-such-option"]);
    check_usage(&["run", "--memory", "1X", "busybox"], &["1X", "64M"]);
    check_usage(&["run", "-m", "900T", "busybox"], &["900T", "more memory than this machine has"]);
    check_usage(&["run", "--memory", "99999T", "busybox"], &["99999T", "more memory than any machine has"]);
    check_usage(&["run", "--memory=-1", "busybox"], &["-1", "64M"]);
    check_usage(&["run", "--memory"], &["--memory"]);
    for time in ["soon", "", "1x", "1e400s", "-3"] {
        check_usage(&["run", &format!("--timeout={time}"), "busybox"], &["not a time", "1.5s"]);
    }
    check_usage(&["run", "--timeout", "-3", "busybox"], &["not a time", "1.5s"]);
    check_usage(&["run", "--timeout", "0", "busybox"], &["not a time", "omit the option"]);
    check_usage(&["run", "--cpus", "1e-9", "busybox"], &["not a share", "0.001"]);
    check_usage(&["run", "-v", "/a:/", "busybox"], &["`/`", "--root"]);
    check_usage(&["run", "-w", "tmp", "busybox"], &["`tmp`", "absolute path"]);
    for volume in ["", "/a:", ":/a"] {
        check_usage(&["run", "-v", volume, "busybox"], &["--volume", "path is missing", "HOST:CELL"]);
    }
    check_usage(&["run", "-v", "/a:b", "busybox"], &["`b`", "absolute path", "/data"]);
    check_usage(&["run", "-v", "/a:/b:wr", "busybox"], &["may follow the second colon", "not `wr`"]);
    check_usage(&["run", "-v", "/a:/b:ro:x", "busybox"], &["too many colons"]);
    check_usage(&["run", "-e", "=x", "busybox"], &["name is missing", "NAME=VALUE"]);
    for user in ["", ":", "0:", "0:0:0"] {
        check_usage(&["run", &format!("--user={user}"), "busybox"], &["is not a user", "1000:1000"]);
    }
    for user in ["nobody here", "-1", "4294967295", "0:no group"] {
        check_options(&[&format!("--user={user}")], &["this host: there is no", "in its /etc/"]);
    }
    for share in ["0", "1.5", "-1", "half"] {
        check_usage(&["run", &format!("--cpus={share}"), "busybox"], &["not a share of a core", "0.5"]);
    }
    check_usage(&["run", "--stats=xml", "busybox"], &["xml", "table", "json"]);
    check_usage(&["run", "-w"], &["--workdir"]);
    check_usage(&["no-such-command"], &["no-such-command"]);
    check_usage(&["doctor", "everything"], &["everything"]);
}

#[test]
fn output_that_cannot_be_written() {
    needs_kvm!();
    let mut command = Command::new(host_program("sh"));
    command.args(["-c", "\"$0\" run busybox echo hello >/dev/full", PANDO]);
    assert_refused("a full device", &finish(command, Input::Nothing), FAILURE, &["output", "no space left"]);
}

#[test]
fn a_terminal_that_is_not_there() {
    check_options(&["-t"], &["-t", "not a terminal"]);
}

#[test]
fn a_directory_that_the_cell_does_not_have() {
    if is_kvm_available() {
        check_options(&["-w", "/no/such/directory"], &["/no/such/directory", "no such file or directory"]);
    }
}
