// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands for cells of a service that docker has: stop, rm, inspect, attach, logs with a number of lines, exec in the background.

use crate::case::{as_shell, text};
use crate::fixture::{Fixture, ProgramOutput, assert_output, wait_until};
use pando_testing::{host_program, needs_kvm};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

/// A program that ends when SIGTERM comes, with status 7.
const OBEDIENT: &str = "trap 'echo asked; exit 7' TERM; echo begun; while :; do sleep 1000 & wait; done";
/// A program that does not.
const STUBBORN: &str = "trap '' TERM; echo begun; while :; do sleep 1000; done";

fn start(fixture: &Fixture, options: &[&str], script: &str) -> String {
    let started = fixture.pando(&[&["run", "-d"], options, &["busybox", "sh", "-c", script]].concat());
    assert_eq!((started.status, &started.errors[..]), (0, ""));
    started.output.trim_end().to_owned()
}

#[track_caller]
fn fails(said: &ProgramOutput, status: i32, output: &str, error: &str) {
    assert_eq!((said.status, &said.output[..]), (status, output), "{}", said.errors);
    assert!(said.errors.contains(error), "{}", said.errors);
}

#[test]
fn cells_are_stopped_and_removed_as_containers_are() {
    needs_kvm!();
    let fixture = Fixture::new();
    let service = fixture.serve(&[]);
    let number = start(&fixture, &["--name", "obedient"], OBEDIENT);
    start(&fixture, &["--name", "stubborn"], STUBBORN);
    for name in ["obedient", "stubborn"] {
        service.wait_for_output(&format!("/v1/cells/{name}"), "begun");
    }
    fails(&fixture.pando(&["rm", "obedient"]), 1, "", "it is running: stop it first (`pando stop obedient`), or use -f");
    fails(&fixture.pando(&["stop", "-t", "1", "stubborn", "nobody", "obedient"]), 1, "stubborn\nobedient\n", "there is no cell nobody");
    let outcome = |name: &str| service.json("GET", &format!("/v1/cells/{name}"), json!(null))["outcome"].clone();
    assert_eq!((&outcome("obedient")["exit_code"], &outcome("stubborn")["reason"]), (&json!(7), &json!("killed")));
    // One that has ended may be stopped again.
    assert_output(&fixture.pando(&["stop", &number]), &format!("{number}\n"));
    assert_output(&fixture.pando(&["rm", &number]), &format!("{number}\n"));
    fails(&fixture.pando(&["logs", "obedient"]), 125, "", "there is no cell");
    start(&fixture, &["--name", "running"], STUBBORN);
    fails(&fixture.pando(&["kill", "nobody", "running"]), 1, "", "there is no cell nobody");
    assert_eq!(service.json("GET", "/v1/cells/running/wait", json!(null))["outcome"]["reason"], "killed");
    assert_output(&fixture.pando(&["rm", "-f", "running", "stubborn"]), "running\nstubborn\n");
    assert_output(&fixture.pando(&["ps", "-aq"]), "");
    // A stopped cell is not started again.
    start(&fixture, &["--name", "again", "--restart", "always"], OBEDIENT);
    service.wait_for_output("/v1/cells/again", "begun");
    assert_output(&fixture.pando(&["stop", "again"]), "again\n");
    start(&fixture, &["--name", "other", "--restart", "on-failure:1"], "exit 1");
    wait_until(|| outcome("other")["exit_code"] == 1 && service.json("GET", "/v1/cells/other", json!(null))["restarts"] == 1);
    assert_eq!(outcome("again")["exit_code"], 7);
}

#[test]
fn a_restarted_cell_keeps_its_number_and_its_output() {
    needs_kvm!();
    let fixture = Fixture::new();
    let service = fixture.serve(&[]);
    let number = start(&fixture, &["--name", "twice", "--restart", "on-failure:2"], "echo run; sleep 0.1; exit 3");
    // A reader of the output goes on with each restart.
    assert_output(&fixture.pando(&["logs", "-f", &number]), "run\nrun\nrun\n");
    let cell = service.json("GET", &format!("/v1/cells/{number}"), json!(null));
    assert_eq!((&cell["restarts"], &cell["outcome"]["exit_code"], &cell["name"]), (&json!(2), &json!(3), &json!("twice")));
    assert_output(&fixture.pando(&["ps", "-aq"]), &format!("{number}\n"));
    assert_output(&fixture.pando(&["logs", "--tail", "2", "twice"]), "run\nrun\n");
    // An output limit counts each run for itself.
    let script = "busybox head -c 3000 /dev/zero; exit 1";
    start(&fixture, &["--name", "limited", "--restart", "on-failure:2", "--output-limit", "4000"], script);
    wait_until(|| {
        let cell = service.json("GET", "/v1/cells/limited", json!(null));
        cell["restarts"] == 2 && cell["outcome"]["reason"] == "exited"
    });
}

#[test]
fn a_cell_that_waits_for_its_restart_keeps_its_name() {
    needs_kvm!();
    let fixture = Fixture::new();
    let service = fixture.serve(&[]);
    let number = start(&fixture, &["--name", "web", "--restart", "always"], "exit 1");
    // Each delay is longer.
    wait_until(|| service.json("GET", "/v1/cells/web", json!(null))["restarts"].as_u64() >= Some(3));
    wait_until(|| !service.json("GET", "/v1/cells/web", json!(null))["outcome"].is_null());
    fails(&fixture.pando(&["run", "-d", "--name", "Web", "busybox", "true"]), 125, "", "has this name");
    assert_output(&fixture.pando(&["rm", "-f", &number]), &format!("{number}\n"));
    start(&fixture, &["--name", "Web"], "exit 0");
}

#[test]
fn a_cell_waits_for_a_reader_of_all_output_after_its_restart_too() {
    needs_kvm!();
    let fixture = Fixture::new();
    let service = fixture.serve(&[]);
    // The restarted one has no input.
    let script = "echo begun; read -r word && exit 1; busybox head -c 6000000 /dev/zero";
    start(&fixture, &["-i", "--name", "box", "--restart", "on-failure:1"], script);
    let pieces = |query: &str| {
        let answer = BufReader::new(service.send("GET", &format!("/v1/cells/box/output?follow=true{query}"), b""));
        let values = answer.lines().map_while(Result::ok).filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        values.filter(|piece| piece["data"].is_string() || piece["data"].is_object())
    };
    let mut all = pieces("&whole=true");
    assert_eq!(all.next().expect("it has begun")["data"], "begun\n");
    assert_eq!(service.ask("POST", "/v1/cells/box/input", "word\n").0, 204);
    // The restarted cell has filled its log when another reader has read so much.
    let last = |piece: Value| piece["next"].as_u64().expect("a position");
    assert!(pieces("").any(|piece| last(piece) > 1 << 20));
    let mut next = 6;
    for piece in all {
        assert_eq!((piece["number"].as_u64(), &piece["dropped_bytes"]), (Some(next), &Value::Null));
        next = last(piece);
    }
    assert_eq!(next, 6_000_000 + 2 * 6);
}

#[test]
fn the_last_lines_of_logs_are_printed() {
    needs_kvm!();
    let fixture = Fixture::new();
    let service = fixture.serve(&[]);
    start(&fixture, &["--name", "counter"], "for i in 1 2 3 4 5; do echo line $i; done; read -r x; echo $x");
    service.json("GET", "/v1/cells/counter/wait", json!(null));
    assert_output(&fixture.pando(&["logs", "-n", "2", "counter"]), "line 5\n\n");
    assert_output(&fixture.pando(&["logs", "--tail", "3", "-f", "counter"]), "line 4\nline 5\n\n");
    assert_output(&fixture.pando(&["logs", "--tail", "0", "counter"]), "");
    let all = fixture.pando(&["logs", "--tail", "all", "counter"]);
    assert_eq!((all.output.lines().count(), all.output), (6, fixture.pando(&["logs", "--tail", "99", "counter"]).output));
    fails(&fixture.pando(&["logs", "--tail", "x", "counter"]), 125, "", "give a number, or all");
}

#[test]
fn cells_are_described_as_json() {
    needs_kvm!();
    let fixture = Fixture::new();
    let _service = fixture.serve(&[]);
    start(&fixture, &["--name", "one", "-l", "user=ann"], STUBBORN);
    let number = start(&fixture, &["--name", "two"], STUBBORN);
    let found = fixture.pando(&["inspect", "one", &number]);
    let described: Value = serde_json::from_str(&found.output).expect("it is JSON");
    assert_eq!((&described[0]["labels"], &described[1]["name"]), (&json!({ "user": "ann" }), &json!("two")));
    assert!(described[1]["exits"].as_u64() > Some(0), "{described}");
    fails(&fixture.pando(&["inspect", "three"]), 125, "", "there is no cell three");
    // Exits are counted while the cell runs.
    let exits = |stats: &str| {
        stats.lines().find_map(|line| line.split_once("exits")).map(|(_, count)| count.trim().trim_start_matches(':').trim().to_owned())
    };
    let stats = fixture.pando(&["stats", "one"]).output;
    assert!(exits(&stats).is_some_and(|count| count.chars().next().is_some_and(|digit| digit.is_ascii_digit())), "{stats}");
}

/// A command that ends with this guard.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a process has a handler of SIGINT.
fn catches_interrupts(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
    u64::from_str_radix(caught.trim(), 16).expect("a number") & 2 != 0
}

#[test]
fn streams_are_attached_to_a_running_cell() {
    needs_kvm!();
    let fixture = Fixture::new();
    let service = fixture.serve(&[]);
    let attach = |options: &[&str]| {
        let mut command = fixture.command(&[&["attach"], options].concat());
        let mut child = Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pando starts"));
        let (input, output) = (child.0.stdin.take().expect("a pipe"), child.0.stdout.take().expect("a pipe"));
        (child, input, BufReader::new(output))
    };
    let script = "trap 'echo signal' INT; echo early; while read -r line; do echo got $line; done; exit 5";
    start(&fixture, &["-i", "--name", "echo"], script);
    service.wait_for_output("/v1/cells/echo", "early");
    // One client reads and leaves, and its input is not the last.
    let (first, mut input, mut output) = attach(&["echo"]);
    let mut line = String::new();
    input.write_all(b"one\n").expect("it reads");
    output.read_line(&mut line).expect("it writes");
    assert_eq!(line, "got one\n");
    drop((first, input));
    let (mut second, mut input, mut output) = attach(&["echo"]);
    input.write_all(b"two\n").expect("it reads");
    line.clear();
    output.read_line(&mut line).expect("it writes");
    assert_eq!(line, "got two\n");
    assert_eq!(service.ask("POST", "/v1/cells/echo/input?end=true", "").0, 204);
    assert_eq!(as_shell(second.0.wait().expect("it is ours")), 5);
    fails(&fixture.pando(&["attach", "echo"]), 125, "", "it has ended: `pando logs echo`");
    // Signals reach the program.
    start(&fixture, &["--name", "signals"], "trap 'echo signal; exit 6' INT; echo begun; while :; do sleep 1000 & wait; done");
    service.wait_for_output("/v1/cells/signals", "begun");
    let (mut third, _input, mut output) = attach(&["signals"]);
    // Until it is attached, a signal would end it alone.
    wait_until(|| catches_interrupts(third.0.id()));
    let signalled = Command::new(host_program("kill")).args(["-s", "INT", &third.0.id().to_string()]).status().expect("kill starts");
    assert!(signalled.success());
    line.clear();
    output.read_line(&mut line).expect("it writes");
    assert_eq!((&line[..], as_shell(third.0.wait().expect("it is ours"))), ("signal\n", 6));
    // Without -i the input has ended.
    start(&fixture, &["--name", "closed"], "sleep 1000");
    let (mut last, mut input, _) = attach(&["closed"]);
    input.write_all(b"x").expect("it reads");
    let mut errors = BufReader::new(last.0.stderr.take().expect("a pipe"));
    line.clear();
    errors.read_line(&mut line).expect("it writes");
    assert!(line.contains("`pando run -d -i` keeps it open"), "{line}");
    assert_eq!(fixture.pando(&["kill", "closed"]).status, 0);
    assert_eq!(as_shell(last.0.wait().expect("it is ours")), 137);
}

#[test]
fn programs_run_in_the_background_of_a_cell_and_as_its_users() {
    needs_kvm!();
    let fixture = Fixture::new();
    let _service = fixture.serve(&[]);
    let script =
        "mkdir /home/carl; echo carl:x:1234:50::/home/carl:/bin/sh >> /etc/passwd; echo team:x:77: >> /etc/group; echo begun; sleep 1000";
    start(&fixture, &["--name", "box"], script);
    assert_output(&fixture.pando(&["exec", "box", "busybox", "sh", "-c", "until grep -q team /etc/group; do :; done"]), "");
    // It neither ends with its client nor has a reader.
    let script = "busybox head -c 1000000 /dev/zero; sleep 0.1; busybox id -u > /tmp/done";
    assert_output(&fixture.pando(&["exec", "-d", "-u", "carl", "box", "busybox", "sh", "-c", script]), "");
    assert_output(&fixture.pando(&["exec", "box", "busybox", "sh", "-c", "until grep . /tmp/done 2>/dev/null; do :; done"]), "1234\n");
    let script = "echo $(busybox id -u) $(busybox id -g) $HOME $USER";
    for (user, wanted) in [
        ("carl", "1234 50 /home/carl carl\n"),
        ("carl:team", "1234 77 /home/carl carl\n"),
        ("1234", "1234 50 /home/carl carl\n"),
        ("4321:team", "4321 77 /home/4321\n"),
        ("4321", "4321 4321 /home/4321\n"),
    ] {
        assert_output(&fixture.pando(&["exec", "-u", user, "box", "busybox", "sh", "-c", script]), wanted);
    }
    fails(&fixture.pando(&["exec", "-u", "nobody-here", "box", "busybox", "true"]), 125, "", "there is no user `nobody-here`");
}

#[test]
fn unused_volumes_are_pruned_and_missing_directories_are_not_shown() {
    needs_kvm!();
    let fixture = Fixture::new();
    for name in ["used", "unused"] {
        assert_eq!(fixture.pando(&["volume", "create", name]).status, 0);
    }
    let mut command = fixture.command(&["run", "-v", "used:/data", "busybox", "sh", "-c", "echo begun; cat"]);
    let mut child = Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("pando starts"));
    let mut line = [0; 6];
    child.0.stdout.as_mut().expect("a pipe").read_exact(&mut line).expect("it writes");
    assert_eq!(text(&line), "begun\n");
    fails(&fixture.pando(&["volume", "prune"]), 125, "", "volume prune -f");
    assert_output(&fixture.pando(&["volume", "prune", "-f"]), "unused\n");
    assert_output(&fixture.pando(&["volume", "ls", "-q"]), "used\n");
    fails(&fixture.pando(&["serve", "--show", "/no/such/directory"]), 125, "", "no such file or directory");
}
