// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleeping cells: real servers, sessions and timers across sleep.

use crate::fixture::{Fixture, Service, says, wait_until};
use pando_testing::needs_kvm;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

const REQUEST: &[u8] = b"GET /page HTTP/1.0\r\n\r\n";

fn state(service: &Service, cell: &str) -> Value {
    service.json("GET", &format!("/v1/cells/{cell}"), Value::Null)["state"].clone()
}

/// Sends a request on an open connection, and returns the answer.
fn fetch(mut connection: TcpStream) -> String {
    let mut answer = String::new();
    connection.write_all(REQUEST).expect("it is open");
    connection.read_to_string(&mut answer).expect("it is answered");
    answer
}

#[test]
fn a_sleeping_server_answers_old_and_new_connections() {
    needs_kvm!();
    let fixture = Fixture::new();
    let service = fixture.serve(&["--gateways", "1", "--swap", &format!("{}:64M", std::env::temp_dir().display())]);
    let script = "echo hello > /tmp/page; exec busybox httpd -f -p 80 -h /tmp";
    let started = fixture.pando(&["run", "-d", "-p", "0:80", "--name", "web", "busybox", "sh", "-c", script]);
    let announced = started.errors.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once(' ')).expect("an address");
    let port: u16 = announced.0.parse().expect("a port");
    let connect = || TcpStream::connect(("127.0.0.1", port)).expect("the gateway listens");
    wait_until(|| TcpStream::connect(("127.0.0.1", port)).is_ok_and(|connection| fetch(connection).ends_with("\nhello\n")));
    // A process of the cell waits for its request.
    let old = connect();
    let sleep = || {
        // The cell may be busy with the connection.
        wait_until(|| fixture.pando(&["sleep", "web"]).status == 0 && state(&service, "web") == "asleep");
    };
    wait_until(|| fixture.pando(&["sleep", "web"]).status == 0 && fixture.pando(&["ps"]).output.contains(" asleep "));
    assert!(fetch(connect()).ends_with("\nhello\n"));
    assert_eq!(state(&service, "web"), "running");
    sleep();
    assert!(fetch(old).ends_with("\nhello\n"));
    sleep();
    says(&fixture.pando(&["wake", "web"]), "");
    assert_eq!(state(&service, "web"), "running");
    sleep();
    let told = fixture.pando(&["exec", "web", "busybox", "cat", "/tmp/page"]);
    assert_eq!((told.output.as_str(), told.status), ("hello\n", 0), "{}", told.errors);
    sleep();
    says(&fixture.pando(&["kill", "web"]), "");
    let refused = fixture.pando(&["sleep", "web"]);
    assert!(refused.status == 125 && refused.errors.contains("cannot put cell 1 to sleep: it has ended"), "{}", refused.errors);
}

#[test]
fn cells_fall_asleep_by_themselves_and_wake_up_for_input_and_timers() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("sh", r#"eval "$(pando-ready -s)"; eval "$1""#);
    let service = fixture.serve(&["--sleep-after", "100ms"]);
    let start = |script: &str| {
        let cell = service.json("POST", "/v1/cells", json!({ "template": "sh", "arguments": [script] }));
        cell["id"].to_string()
    };
    let reader = start("x=1; while read line; do x=$((x+1)); echo $x $line; done");
    let timer = start("busybox sleep 4; echo late");
    for cell in [&reader, &timer] {
        wait_until(|| state(&service, cell) == "asleep");
    }
    // A cell that falls asleep has no record yet.
    let has = |line: &str| service.ask("GET", "/v1/metrics", "").1.lines().any(|other| other == line);
    wait_until(|| ["pando_cells{state=\"asleep\"} 2", "pando_swap_records 2", "# EOF"].into_iter().all(has));
    for (line, answer) in [("one", "2 one\n"), ("two", "3 two\n")] {
        assert_eq!(service.ask("POST", &format!("/v1/cells/{reader}/input"), &format!("{line}\n")).0, 204);
        wait_until(|| fixture.pando(&["logs", &reader]).output.ends_with(answer));
        wait_until(|| state(&service, &reader) == "asleep");
    }
    let copies = service.json("POST", &format!("/v1/cells/{reader}/fork"), json!({ "count": 2 }));
    assert_eq!(copies.as_array().map(Vec::len), Some(2), "a sleeping cell can be copied");
    let copy = copies[1]["id"].to_string();
    wait_until(|| state(&service, &copy) == "asleep");
    assert_eq!(service.ask("POST", &format!("/v1/cells/{copy}/input?end=true"), "three\n").0, 204);
    wait_until(|| fixture.pando(&["logs", &copy]).output == "4 three\n");
    assert_eq!(fixture.pando(&["logs", "-f", &timer]).output, "late\n");
}
