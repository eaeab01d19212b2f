// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams longer than memory, readers slower than writers, and readers that close early.

use crate::case::{Case, Input, PANDO, as_shell, finish};
use crate::data::Numbers;
use pando_testing::{host_program, needs_kvm};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const MEGABYTE: usize = 1 << 20;
/// The limit of the whole process when its cell's limit is 64 MB: the program and its libraries come on top.
const MOST_RESIDENT: u64 = 128 << 20;
/// The maximum amount of data between a writer and a reader: two pipes, two rings, and the buffers in between.
const MOST_UNDERWAY: u64 = 4 << 20;

/// `pando run` with pipes at both ends, killed when dropped.
struct Running(Child);

impl Running {
    fn new(words: &[&str]) -> Running {
        let mut command = Command::new(PANDO);
        command.arg("run").args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Running(command.spawn().expect("pando starts"))
    }

    fn input(&mut self) -> ChildStdin {
        self.0.stdin.take().expect("a pipe")
    }

    fn output(&mut self) -> ChildStdout {
        self.0.stdout.take().expect("a pipe")
    }

    /// Waits for its end; returns the status as a shell shows it.
    fn status(&mut self) -> i32 {
        as_shell(self.0.wait().expect("it is ours"))
    }

    /// The peak of its resident memory, in bytes.
    fn peak(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("it is running");
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says so");
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kilobytes * 1024
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A unique megabyte: its number, repeated.
fn megabyte(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().repeat(MEGABYTE / 8)
}

#[test]
fn a_gigabyte_streams_through_64_megabytes() {
    needs_kvm!();
    const COUNT: u64 = 1024;
    let mut run = Running::new(&["--memory", "64M", "busybox", "cat"]);
    let (mut input, mut output) = (run.input(), run.output());
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            (0..COUNT).for_each(|number| input.write_all(&megabyte(number)).expect("the cell reads"));
            input
        });
        let mut found = vec![0; MEGABYTE];
        for number in 0..COUNT {
            output.read_exact(&mut found).expect("the cell writes");
            assert!(found == megabyte(number), "megabyte {number} is another");
        }
        // The program still waits for more input, so its process still exists.
        let input = writer.join().expect("all was written");
        let peak = run.peak();
        assert!(peak < MOST_RESIDENT, "{peak} bytes were resident");
        drop(input);
    });
    assert_eq!(output.read(&mut [0]).expect("the end can be read"), 0);
    assert_eq!(run.status(), 0);
}

#[test]
fn a_slow_reader_holds_the_writer_back() {
    needs_kvm!();
    let mut run = Running::new(&["--memory", "64M", "busybox", "cat"]);
    let (mut input, mut output) = (run.input(), run.output());
    let written = AtomicU64::new(0);
    thread::scope(|scope| {
        let written = &written;
        scope.spawn(move || {
            for number in 0..1024 {
                for piece in megabyte(number).chunks(64 << 10) {
                    match input.write_all(piece) {
                        Ok(()) => written.fetch_add(piece.len() as u64, Ordering::Relaxed),
                        Err(error) if error.kind() == ErrorKind::BrokenPipe => return,
                        Err(error) => panic!("{error}"),
                    };
                }
            }
        });
        let (mut read, mut piece) = (0, [0; 512]);
        while read < 24 * MEGABYTE as u64 {
            output.read_exact(&mut piece).expect("the cell writes");
            read += piece.len() as u64;
            let underway = written.load(Ordering::Relaxed).saturating_sub(read);
            assert!(underway < MOST_UNDERWAY, "{underway} bytes are in flight after {read}");
        }
        let peak = run.peak();
        assert!(peak < MOST_RESIDENT, "{peak} bytes were resident");
        // The output is closed: the program gets the same signal as a native one, and the writer gets an error.
        drop(output);
        assert_eq!(run.status(), 141);
    });
}

#[test]
fn a_closed_output_pipe_ends_the_program() {
    needs_kvm!();
    let mut run = Running::new(&["busybox", "yes"]);
    let mut line = String::new();
    BufReader::new(run.output()).read_line(&mut line).expect("the cell writes");
    assert_eq!((&line[..], run.status()), ("y\n", 141));
}

#[test]
fn a_program_that_reads_no_further_leaves_its_input_alone() {
    needs_kvm!();
    // The writer never closes its end, and has more data than any pipe holds.
    let mut run = Running::new(&["busybox", "head", "-c", "10"]);
    let (mut input, mut output) = (run.input(), run.output());
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let fate = (0..64).try_for_each(|number| input.write_all(&megabyte(number)));
            (fate, input)
        });
        let mut found = Vec::new();
        output.read_to_end(&mut found).expect("the cell writes");
        assert_eq!((&found[..], run.status()), (&megabyte(0)[..10], 0));
        let (fate, _input) = writer.join().expect("the writer ends");
        assert_eq!(fate.map_err(|error| error.kind()), Err(ErrorKind::BrokenPipe));
    });
}

#[test]
fn input_arrives_as_it_comes() {
    needs_kvm!();
    // Each response is read before the next request is sent.
    let mut run = Running::new(&["busybox", "cat"]);
    let (mut input, mut output) = (run.input(), BufReader::new(run.output()));
    for number in 0..200 {
        writeln!(input, "question {number}").expect("the cell reads");
        let mut line = String::new();
        output.read_line(&mut line).expect("the cell writes");
        assert_eq!(line, format!("question {number}\n"));
    }
    drop(input);
    assert_eq!(run.status(), 0);
}

#[test]
fn output_and_errors_stay_apart_and_in_order() {
    needs_kvm!();
    let script = "i=0; while [ $i -lt 2000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    Case::new("busybox", &["sh", "-c", script]).check();
    let mut command = Command::new(host_program("sh"));
    command.args(["-c", "\"$0\" run busybox sh -c 'echo one; echo two >&2; echo three; echo four >&2' 2>&1", PANDO]);
    let outcome = crate::case::finish(command, crate::case::Input::Nothing);
    assert_eq!(String::from_utf8_lossy(&outcome.output), "one\ntwo\nthree\nfour\n");
}

#[test]
fn standard_input_is_a_file() {
    needs_kvm!();
    let directory = tempfile::tempdir().expect("there is room");
    let file = directory.path().join("input");
    std::fs::write(&file, "a line\n".repeat(100_000)).expect("the directory is ours");
    Case::new("busybox", &["wc"]).input(Input::File(&file)).check();
}

#[test]
fn unread_input_is_left_for_the_next_program() {
    needs_kvm!();
    let script = format!("{PANDO} run busybox true; {PANDO} run busybox cat");
    let mut shell = Command::new(host_program("sh"));
    let mut child = shell.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh starts");
    child.stdin.take().expect("a pipe").write_all(b"for the second\n").expect("room in the pipe");
    let output = child.wait_with_output().expect("it is ours");
    assert_eq!(output.stdout, b"for the second\n");
}

/// Runs a shell command line with `$0` for `pando`.
fn in_shell(line: &str) -> crate::case::CaseOutcome {
    let mut command = Command::new(host_program("sh"));
    command.args(["-c", line, PANDO]);
    finish(command, Input::Nothing)
}

#[test]
fn streams_that_do_not_wait_are_waited_for() {
    needs_kvm!();
    let (input, mut writer) = std::io::pipe().expect("the host has pipes");
    let (mut reader, output) = std::io::pipe().expect("the host has pipes");
    rustix::io::ioctl_fionbio(&input, true).expect("a pipe can be made so");
    rustix::io::ioctl_fionbio(&output, true).expect("a pipe can be made so");
    let mut command = Command::new(PANDO);
    let mut child = command.args(["run", "busybox", "cat"]).stdin(input).stdout(output).spawn().expect("pando starts");
    drop(command);
    writer.write_all(b"ready\n").expect("the cell reads");
    let mut line = [0; 6];
    reader.read_exact(&mut line).expect("the cell writes");
    assert_eq!(&line, b"ready\n");
    let mut numbers = Numbers::new(3);
    let given: Vec<u8> = (0..MEGABYTE).map(|_| numbers.next() as u8).collect();
    let found = thread::scope(|scope| {
        scope.spawn(|| {
            given.chunks(MEGABYTE / 8).for_each(|piece| writer.write_all(piece).expect("the cell reads"));
            drop(writer);
        });
        let mut found = Vec::new();
        reader.read_to_end(&mut found).expect("the cell writes");
        found
    });
    assert!(found == given, "{} bytes of {}", found.len(), given.len());
    assert!(child.wait().expect("it is ours").success());
}

#[test]
fn errors_of_input_and_output_are_reported() {
    needs_kvm!();
    for (line, told) in [
        ("\"$0\" run busybox cat < /", "pando: cannot read standard input: is a directory\n"),
        ("\"$0\" run busybox cat 0> /dev/null", "pando: cannot read standard input: bad file descriptor\n"),
        ("\"$0\" run busybox echo hello > /dev/full", "pando: cannot write the program's output: no space left on device\n"),
        ("\"$0\" run busybox yes > /dev/full", "pando: cannot write the program's output: no space left on device\n"),
        ("\"$0\" run busybox echo hello 1< /dev/null", "pando: cannot write the program's output: bad file descriptor\n"),
    ] {
        let outcome = in_shell(line);
        assert_eq!((outcome.status, &outcome.output[..], &outcome.errors[..]), (125, &b""[..], told), "{line}");
    }
    // A program that does not read its input ignores that it is unreadable.
    assert_eq!(in_shell("\"$0\" run busybox echo hello < /").output, b"hello\n");
    // A closed stream behaves like /dev/null.
    let closed = in_shell("\"$0\" run busybox cat <&-; \"$0\" run busybox echo hello >&-");
    assert_eq!((closed.status, &closed.errors[..]), (0, ""));
}
