// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando clone` behaves the same with and without a running `pando serve`.

use crate::case::as_shell;
use crate::fixture::{Fixture, Service, assert_output, wait_until};
use pando_testing::{host_program, needs_kvm};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A clone in the service that has reported that it is ready.
struct AttachedClone {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl AttachedClone {
    fn new(fixture: &Fixture, script: &str) -> AttachedClone {
        let script = format!("{script} echo ready; while :; do read line; done");
        let mut command = fixture.command(&["clone", "sh", &script]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pando starts");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("the clone writes");
        assert_eq!(line, "ready\n");
        AttachedClone { child, output }
    }

    fn send(&self, signal: &str) {
        let status = Command::new(host_program("kill")).args(["-s", signal, &self.child.id().to_string()]).status().expect("kill starts");
        assert!(status.success());
    }

    /// Its status, and its further output.
    fn end(mut self) -> (i32, String, String) {
        let (mut output, mut errors) = (String::new(), String::new());
        self.output.read_to_string(&mut output).expect("it is text");
        self.child.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("it is text");
        (as_shell(self.child.wait().expect("it is ours")), output, errors)
    }
}

fn served() -> (Fixture, Service) {
    let fixture = Fixture::new();
    fixture.plant("sh", r#"eval "$(pando-ready -s)"; eval "$1""#);
    let service = fixture.serve(&[]);
    (fixture, service)
}

fn cells(service: &Service) -> Option<usize> {
    service.json("GET", "/v1/cells", json!(null)).as_array().map(Vec::len)
}

/// The number of the newest cell.
fn newest(service: &Service) -> String {
    let cells = service.json("GET", "/v1/cells", json!(null));
    cells.as_array().and_then(|cells| cells.last()).expect("there is one")["id"].to_string()
}

/// Waits until a cell has ended and was removed, which happen one after the other.
fn forgotten(service: &Service, cell: &str) {
    wait_until(|| service.ask("GET", &format!("/v1/cells/{cell}/wait"), "").0 == 404);
}

#[test]
fn the_host_can_interrupt_an_attached_program() {
    needs_kvm!();
    let (fixture, service) = served();
    for (signal, status, word) in [("TERM", 143, "SIGTERM"), ("HUP", 129, "SIGHUP"), ("QUIT", 131, "SIGQUIT")] {
        let attached = AttachedClone::new(&fixture, "");
        attached.send(signal);
        let (ended, _, errors) = attached.end();
        assert!(ended == status && errors.contains(word), "{signal}: {ended} {errors}");
    }
    let attached = AttachedClone::new(&fixture, "trap 'echo asked; exit 7' TERM;");
    attached.send("HUP");
    assert_eq!(attached.end(), (7, "asked\n".into(), String::new()));
    assert_eq!(cells(&service), Some(0));
}

#[test]
fn two_interrupts_end_an_attached_program_that_ignores_one() {
    needs_kvm!();
    let (fixture, service) = served();
    let mut attached = AttachedClone::new(&fixture, "trap '' INT;");
    while attached.child.try_wait().expect("it is ours").is_none() {
        attached.send("INT");
    }
    let (status, _, errors) = attached.end();
    assert!(status == 130 && errors.contains("SIGINT"), "{status} {errors}");
    assert_eq!(cells(&service), Some(0));
}

#[test]
fn an_attached_program_ends_with_its_client() {
    needs_kvm!();
    let (fixture, service) = served();
    let mut attached = AttachedClone::new(&fixture, "");
    let cell = newest(&service);
    attached.child.kill().expect("it runs");
    assert_eq!(attached.end().0, 137);
    forgotten(&service, &cell);
    // It does not keep writing after its reader has closed the pipe.
    let mut yes = fixture.command(&["clone", "sh", "yes"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pando starts");
    let mut line = String::new();
    BufReader::new(yes.stdout.take().expect("a pipe")).read_line(&mut line).expect("the clone writes");
    let ended = yes.wait_with_output().expect("it is ours");
    assert_eq!((&line[..], as_shell(ended.status), &ended.stderr[..]), ("y\n", 141, &b""[..]));
    assert_eq!(cells(&service), Some(0));
}

#[test]
fn a_client_that_does_not_read_can_be_terminated() {
    needs_kvm!();
    let (fixture, service) = served();
    // More than all pipes in between hold, so that it writes only as long as the output is read.
    let script = "trap '' TERM; echo ready; while :; do busybox head -c 1000000 /dev/zero; done";
    let mut command = fixture.command(&["clone", "sh", script]);
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
fn an_unread_output_closes_only_its_own_stream() {
    needs_kvm!();
    let (fixture, _service) = served();
    let script = "trap '' PIPE; echo ready; read line; while echo lost >&2; do :; done; echo still";
    let mut command = fixture.command(&["clone", "sh", script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pando starts");
    drop(child.stderr.take());
    writeln!(child.stdin.take().expect("a pipe")).expect("it reads");
    let ended = child.wait_with_output().expect("it is ours");
    assert_eq!((as_shell(ended.status), &ended.stdout[..]), (0, &b"ready\nstill\n"[..]));
}

#[test]
fn input_is_read_in_the_order_it_was_sent() {
    needs_kvm!();
    let (_fixture, service) = served();
    // More than the console holds: the rest waits until the program reads.
    let first = "a".repeat(3 << 20);
    let cell = service.json("POST", "/v1/cells", json!({ "template": "sh", "arguments": ["tr -s a; echo"], "input": first }));
    let id = cell["id"].to_string();
    assert_eq!(service.ask("POST", &format!("/v1/cells/{id}/input?end=true"), "b").0, 204);
    service.json("GET", &format!("/v1/cells/{id}/wait"), json!(null));
    let (_, said) = service.ask("GET", &format!("/v1/cells/{id}/output"), "");
    assert!(said.contains(r#""ab\n""#), "{said}");
    // If the request breaks off, the data received so far is not passed on as complete input.
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

/// Starts a server on the host that answers every client with hello; returns its port.
fn greeter() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it listens").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("somebody knocks"));
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|count| count > 2) {}
            // The client may have gone.
            let _ = stream.get_mut().write_all(b"HTTP/1.0 200 OK\r\n\r\nhello\n");
        }
    });
    port
}

#[test]
fn clones_of_a_service_reach_allowed_destinations() {
    needs_kvm!();
    let (fixture, service) = served();
    let port = greeter();
    let (rule, fetch) = (format!("host:{port}"), format!("busybox wget -q -O - http://10.77.0.1:{port}/"));
    let run = |service: &Service, allow: &[&str]| {
        let asked = json!({ "template": "sh", "arguments": [fetch], "allow": allow });
        service.ask("POST", "/v1/run", &asked.to_string())
    };
    // A service without gateways refuses, and the command line runs the cell itself.
    let (status, answer) = run(&service, &[&rule]);
    assert!(status == 503 && answer.contains("--gateways"), "{status} {answer}");
    assert_output(&fixture.pando(&["clone", "--allow", &rule, "sh", &fetch]), "hello\n");
    drop(service);
    let service = fixture.serve(&["--gateways", "1"]);
    for _ in 0..3 {
        let (status, answer) = run(&service, &[&rule]);
        assert!(status == 200 && answer.contains(r#""stdout":"hello\n""#), "{status} {answer}");
        assert_output(&fixture.pando(&["clone", "sh", "echo still"]), "still\n");
    }
    let (status, answer) = run(&service, &["host:nothing"]);
    assert!(status == 400 && answer.contains("allow"), "{status} {answer}");
    let asked = json!({ "template": "sh", "allow": [rule], "network": "inner" }).to_string();
    assert_eq!(service.ask("POST", "/v1/run", &asked).0, 400);
    // The only gateway is taken by another cell, until that has ended.
    let asked = json!({ "template": "sh", "arguments": [format!("{fetch}; sleep 1000")], "allow": [rule] });
    let held = service.json("POST", "/v1/cells", asked)["id"].to_string();
    service.wait_for_output(&format!("/v1/cells/{held}"), "hello");
    let (status, answer) = run(&service, &[&rule]);
    assert!(status == 503 && answer.contains("no-gateway"), "{status} {answer}");
    assert_eq!(service.ask("DELETE", &format!("/v1/cells/{held}"), "").0, 204);
    // A destination that is not allowed is not reachable. The gateway may still have to notice that it is free.
    let (status, answer) = loop {
        let (status, answer) = run(&service, &["public:1"]);
        if status != 503 {
            break (status, answer);
        }
    };
    assert!(status == 200 && answer.contains(r#""exit_code":1"#), "{status} {answer}");
}

#[test]
fn copies_reach_the_destinations_of_their_cell() {
    needs_kvm!();
    let (fixture, service) = served();
    drop(service);
    let service = fixture.serve(&["--gateways", "2"]);
    let port = greeter();
    let script = format!("echo begun; read line; busybox wget -q -O - http://10.77.0.1:{port}/; sleep 1000");
    let asked = json!({ "template": "sh", "arguments": [script], "allow": [format!("host:{port}")] });
    let place = format!("/v1/cells/{}", service.json("POST", "/v1/cells", asked)["id"]);
    service.wait_for_output(&place, "begun");
    let copies = service.json("POST", &format!("{place}/fork"), json!({ "count": 1 }));
    let copy = format!("/v1/cells/{}", copies[0]["id"]);
    assert_eq!(service.ask("POST", &format!("{copy}/input"), "go\n").0, 204);
    service.wait_for_output(&copy, "hello");
}
