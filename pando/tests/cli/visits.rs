// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando clone` where `pando serve` runs behaves as where none does.

use crate::case::as_shell;
use crate::grove::{Grove, Service, says};
use pando_testing::host_program;
use pando_testing::lab::kvm_is_there;
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A clone in the service that has said that it is ready.
struct Visit {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Visit {
    fn new(grove: &Grove, script: &str) -> Visit {
        let script = format!("{script} echo ready; while :; do read line; done");
        let mut command = grove.command(&["clone", "sh", &script]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pando starts");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("the clone writes");
        assert_eq!(line, "ready\n");
        Visit { child, output }
    }

    fn send(&self, signal: &str) {
        let status = Command::new(host_program("kill")).args(["-s", signal, &self.child.id().to_string()]).status().expect("kill starts");
        assert!(status.success());
    }

    /// Its status, and what it said besides.
    fn end(mut self) -> (i32, String, String) {
        let (mut output, mut errors) = (String::new(), String::new());
        self.output.read_to_string(&mut output).expect("it is text");
        self.child.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("it is text");
        (as_shell(self.child.wait().expect("it is ours")), output, errors)
    }
}

fn served() -> (Grove, Service) {
    let grove = Grove::new();
    grove.plant("sh", r#"eval "$(pando-ready -s)"; eval "$1""#);
    let service = grove.serve(&[]);
    (grove, service)
}

fn cells(service: &Service) -> Option<usize> {
    service.json("GET", "/v1/cells", json!(null)).as_array().map(Vec::len)
}

/// The number of the cell that was made last.
fn newest(service: &Service) -> String {
    let cells = service.json("GET", "/v1/cells", json!(null));
    cells.as_array().and_then(|cells| cells.last()).expect("there is one")["id"].to_string()
}

/// Waits until a cell has ended and is forgotten, which come one after the other.
fn forgotten(service: &Service, cell: &str) {
    while service.ask("GET", &format!("/v1/cells/{cell}/wait"), "").0 != 404 {}
}

#[test]
fn the_host_may_ask_for_the_end_of_a_visit() {
    if !kvm_is_there() {
        return;
    }
    let (grove, service) = served();
    for (signal, status, word) in [("TERM", 143, "SIGTERM"), ("HUP", 129, "SIGHUP"), ("QUIT", 131, "SIGQUIT")] {
        let visit = Visit::new(&grove, "");
        visit.send(signal);
        let (ended, _, errors) = visit.end();
        assert!(ended == status && errors.contains(word), "{signal}: {ended} {errors}");
    }
    let visit = Visit::new(&grove, "trap 'echo asked; exit 7' TERM;");
    visit.send("HUP");
    assert_eq!(visit.end(), (7, "asked\n".into(), String::new()));
    assert_eq!(cells(&service), Some(0));
}

#[test]
fn a_visit_that_ignores_interrupts_is_ended_by_two() {
    if !kvm_is_there() {
        return;
    }
    let (grove, service) = served();
    let mut visit = Visit::new(&grove, "trap '' INT;");
    while visit.child.try_wait().expect("it is ours").is_none() {
        visit.send("INT");
    }
    let (status, _, errors) = visit.end();
    assert!(status == 130 && errors.contains("SIGINT"), "{status} {errors}");
    assert_eq!(cells(&service), Some(0));
}

#[test]
fn a_visit_ends_with_its_visitor() {
    if !kvm_is_there() {
        return;
    }
    let (grove, service) = served();
    let mut visit = Visit::new(&grove, "");
    let cell = newest(&service);
    visit.child.kill().expect("it runs");
    assert_eq!(visit.end().0, 137);
    forgotten(&service, &cell);
    // Nor does it write for ever where nobody reads.
    let mut yes = grove.command(&["clone", "sh", "yes"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pando starts");
    let mut line = String::new();
    BufReader::new(yes.stdout.take().expect("a pipe")).read_line(&mut line).expect("the clone writes");
    let ended = yes.wait_with_output().expect("it is ours");
    assert_eq!((&line[..], as_shell(ended.status), &ended.stderr[..]), ("y\n", 141, &b""[..]));
    assert_eq!(cells(&service), Some(0));
}

#[test]
fn who_does_not_read_keeps_no_visitor() {
    if !kvm_is_there() {
        return;
    }
    let (grove, service) = served();
    // More than all pipes on the way hold, so that it is written as long as it is read.
    let script = "trap '' TERM; echo ready; while :; do busybox head -c 1000000 /dev/zero; done";
    let mut command = grove.command(&["clone", "sh", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pando starts");
    let mut first = [0; 6];
    let mut output = child.stdout.take().expect("a pipe");
    output.read_exact(&mut first).expect("the clone writes");
    assert_eq!(&first, b"ready\n");
    while child.try_wait().expect("it is ours").is_none() {
        let status = Command::new(host_program("kill")).args(["-s", "TERM", &child.id().to_string()]).status().expect("kill starts");
        assert!(status.success());
    }
    assert_eq!(as_shell(child.wait().expect("it is ours")), 143);
    drop((output, service));
}

#[test]
fn one_output_that_nobody_reads_hangs_up_that_one_only() {
    if !kvm_is_there() {
        return;
    }
    let (grove, _service) = served();
    let script = "trap '' PIPE; echo ready; read line; while echo lost >&2; do :; done; echo still";
    let mut command = grove.command(&["clone", "sh", script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pando starts");
    drop(child.stderr.take());
    writeln!(child.stdin.take().expect("a pipe")).expect("it reads");
    let ended = child.wait_with_output().expect("it is ours");
    assert_eq!((as_shell(ended.status), &ended.stdout[..]), (0, &b"ready\nstill\n"[..]));
}

#[test]
fn what_comes_first_is_read_first() {
    if !kvm_is_there() {
        return;
    }
    let (_grove, service) = served();
    // More than the console holds: it waits for the program to read.
    let first = "a".repeat(3 << 20);
    let cell = service.json("POST", "/v1/cells", json!({ "template": "sh", "arguments": ["tr -s a; echo"], "input": first }));
    let id = cell["id"].to_string();
    assert_eq!(service.ask("POST", &format!("/v1/cells/{id}/input?end=true"), "b").0, 204);
    service.json("GET", &format!("/v1/cells/{id}/wait"), json!(null));
    let (_, said) = service.ask("GET", &format!("/v1/cells/{id}/output"), "");
    assert!(said.contains(r#""ab\n""#), "{said}");
    // Of one whose request breaks off, nobody takes what came for all.
    let mut begun = service.begin("POST", "/v1/attach", 1000);
    begun.write_all(b"{\"template\":\"sh\",\"arguments\":[\"cat; echo all > /dev/pando\"]}\nsome").expect("it reads");
    let mut head = String::new();
    BufReader::new(&begun).read_line(&mut head).expect("an answer has a head");
    assert!(head.contains("201"), "{head}");
    let cell = newest(&service);
    drop(begun);
    forgotten(&service, &cell);
    assert_eq!(cells(&service), Some(1));
}

/// A server of the host's that says hello to everybody, at this port.
fn greeter() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it listens").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("somebody knocks"));
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|count| count > 2) {}
            // Who asked may have gone.
            let _ = stream.get_mut().write_all(b"HTTP/1.0 200 OK\r\n\r\nhello\n");
        }
    });
    port
}

#[test]
fn clones_of_a_service_are_led_to_what_is_opened() {
    if !kvm_is_there() {
        return;
    }
    let (grove, service) = served();
    let port = greeter();
    let (rule, fetch) = (format!("host:{port}"), format!("busybox wget -q -O - http://10.77.0.1:{port}/"));
    let run = |service: &Service, allow: &[&str]| {
        let asked = json!({ "template": "sh", "arguments": [fetch], "allow": allow });
        service.ask("POST", "/v1/run", &asked.to_string())
    };
    // A service that leads nobody out says so, and the command line does it itself.
    let (status, answer) = run(&service, &[&rule]);
    assert!(status == 503 && answer.contains("--gateways"), "{status} {answer}");
    says(&grove.pando(&["clone", "--allow", &rule, "sh", &fetch]), "hello\n");
    drop(service);
    let service = grove.serve(&["--gateways", "1"]);
    for _ in 0..3 {
        let (status, answer) = run(&service, &[&rule]);
        assert!(status == 200 && answer.contains(r#""stdout":"hello\n""#), "{status} {answer}");
        says(&grove.pando(&["clone", "sh", "echo still"]), "still\n");
    }
    let (status, answer) = run(&service, &["host:nothing"]);
    assert!(status == 400 && answer.contains("allow"), "{status} {answer}");
    let asked = json!({ "template": "sh", "allow": [rule], "network": "inner" }).to_string();
    assert_eq!(service.ask("POST", "/v1/run", &asked).0, 400);
    // The only gateway leads somebody else, until that has ended.
    let asked = json!({ "template": "sh", "arguments": [format!("{fetch}; sleep 1000")], "allow": [rule] });
    let held = service.json("POST", "/v1/cells", asked)["id"].to_string();
    service.hear(&format!("/v1/cells/{held}"), "hello");
    let (status, answer) = run(&service, &[&rule]);
    assert!(status == 503 && answer.contains("no-gateway"), "{status} {answer}");
    assert_eq!(service.ask("DELETE", &format!("/v1/cells/{held}"), "").0, 204);
    // What is not opened is not reached. The gateway may still have to hear that nobody needs it.
    let (status, answer) = loop {
        let (status, answer) = run(&service, &["public:1"]);
        if status != 503 {
            break (status, answer);
        }
    };
    assert!(status == 200 && answer.contains(r#""exit_code":1"#), "{status} {answer}");
}
