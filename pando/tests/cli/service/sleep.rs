// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleeping cells: real servers, sessions and timers across sleep.

use crate::fixture::{Fixture, Service, assert_output, wait_until};
use crate::network::gateways::gateways;
use pando_testing::{are_installed, needs_kvm};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;

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
    assert_output(&fixture.pando(&["wake", "web"]), "");
    assert_eq!(state(&service, "web"), "running");
    sleep();
    let told = fixture.pando(&["exec", "web", "busybox", "cat", "/tmp/page"]);
    assert_eq!((told.output.as_str(), told.status), ("hello\n", 0), "{}", told.errors);
    sleep();
    assert_output(&fixture.pando(&["kill", "web"]), "");
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

#[test]
fn a_transfer_goes_on_whose_receiver_sleeps_in_the_middle() {
    needs_kvm!();
    if !are_installed(&["python3"]) {
        return;
    }
    let fixture = Fixture::new();
    let service = fixture.serve(&["--gateways", "1"]);
    // It reads a part, waits for a line of its standard input, reads the rest, and sends all of it back.
    let script = "import socket, sys
connection = socket.create_server(('', 80)).accept()[0]
data = b''
while len(data) < 1 << 20:
    data += connection.recv(1 << 20)
print('waiting', flush=True)
sys.stdin.readline()
while piece := connection.recv(1 << 20):
    data += piece
connection.sendall(data)
connection.close()";
    let started = fixture.pando(&["run", "-d", "-i", "-p", "0:80", "--name", "receiver", "--", "python3", "-c", script]);
    let announced = started.errors.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once(' ')).expect("an address");
    let port: u16 = announced.0.parse().expect("a port");
    let sent: Vec<u8> = (0..24_u32 << 20).map(|at| (at % 251 + at / 65_521) as u8).collect();
    let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("the gateway listens");
    let mut sending = connection.try_clone().expect("a descriptor");
    let sleep = || wait_until(|| fixture.pando(&["sleep", "receiver"]).status == 0 && state(&service, "receiver") == "asleep");
    // First the sender pauses, then the receiver: its window is closed, and probes of the window may wake it up.
    sending.write_all(&sent[..1000]).expect("it is open");
    sleep();
    let rest = sent[1000..].to_vec();
    let sender = std::thread::spawn(move || {
        sending.write_all(&rest).expect("it is open");
        sending.shutdown(Shutdown::Write).expect("it is open");
    });
    service.wait_for_output("/v1/cells/receiver", "waiting");
    sleep();
    assert_eq!(service.ask("POST", "/v1/cells/receiver/input", "go\n").0, 204);
    let mut received = Vec::new();
    connection.read_to_end(&mut received).expect("it is answered");
    sender.join().expect("all of it was sent");
    assert!(received == sent, "{} bytes of {} came back, or others", received.len(), sent.len());
}

/// Whether a process runs whose parent is not this test's: a zombie has ended.
fn is_running(number: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{number}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_service_that_is_killed_leaves_nothing_but_its_templates() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("sh", r#"eval "$(pando-ready -s)"; x=$1; while read line; do echo "$x $line"; done"#);
    let swap = fixture.path("swap");
    std::fs::create_dir(&swap).expect("it is fresh");
    let options = ["--gateways", "2", "--listen", "127.0.0.1:0", "--sleep-after", "100ms", "--swap", &format!("{}:64M", swap.display())];
    let files = |directory: &Path| std::fs::read_dir(directory).expect("it is there").count();
    let templates = fixture.file("sh").parent().expect("a directory").to_owned();
    let kept = files(&templates);
    for round in 0..3 {
        let mut service = fixture.serve(&options);
        assert!(service.json("GET", "/v1/cells", Value::Null).as_array().is_some_and(Vec::is_empty), "no cell outlives its service");
        assert!(fixture.pando(&["template", "ls"]).output.contains("sh"));
        for publish in [json!([]), json!(["0:80"]), json!(["80"])] {
            let new = json!({ "template": "sh", "arguments": [format!("round {round}")], "publish": publish });
            let cell = service.json("POST", "/v1/cells", new)["id"].to_string();
            wait_until(|| state(&service, &cell) == "asleep");
            assert_eq!(service.ask("POST", &format!("/v1/cells/{cell}/input"), "line\n").0, 204);
            wait_until(|| fixture.pando(&["logs", &cell]).output == format!("round {round} line\n"));
        }
        // While cells fall asleep and wake up.
        let gateways = gateways(service.child.id());
        assert_eq!(gateways.len(), 2, "one of a cell, and one of all cells with names");
        assert_eq!(service.ask("POST", "/v1/cells/1/input", "line\n").0, 204);
        service.child.kill().expect("it is ours");
        service.child.wait().expect("it is ours");
        wait_until(|| !gateways.iter().any(|gateway| is_running(*gateway)));
        assert_eq!((files(&swap), files(&templates)), (0, kept), "no file is left over");
    }
}

/// A page of the list of cells: their numbers, and the path of the next page.
fn page(service: &Service, path: &str) -> (Vec<u64>, Option<String>) {
    let mut answer = String::new();
    let _ = service.send("GET", path, b"").read_to_string(&mut answer);
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    let cells: Value = serde_json::from_str(body).expect("it is JSON");
    let next = head.lines().find_map(|line| line.strip_prefix("link: <")?.strip_suffix(">; rel=\"next\""));
    (cells.as_array().expect("a list").iter().map(|cell| cell["id"].as_u64().expect("a number")).collect(), next.map(String::from))
}

#[test]
fn cells_are_listed_in_pages_and_by_state() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("sh", r#"eval "$(pando-ready -s)"; sleep 1000"#);
    let service = fixture.serve(&[]);
    assert_eq!(fixture.pando(&["clone", "-d", "--count", "9", "sh"]).status, 0);
    for cell in ["2", "5", "9"] {
        wait_until(|| fixture.pando(&["sleep", cell]).status == 0);
    }
    assert_output(&fixture.pando(&["kill", "4"]), "");
    wait_until(|| fixture.pando(&["ps", "-a", "-q", "--state", "ended"]).output == "4\n");
    for (words, listed) in [
        (&["--state", "asleep"][..], "2\n5\n9\n"),
        (&["--state", "asleep", "--limit", "2"], "2\n5\n"),
        (&["--state", "asleep", "--limit", "50"], "2\n5\n9\n"),
        (&["--limit", "4"], "1\n2\n3\n5\n"),
        (&["-a", "--limit", "4"], "1\n2\n3\n4\n"),
        (&["--limit", "0"], ""),
    ] {
        assert_output(&fixture.pando(&[&["ps", "-q"], words].concat()), listed);
    }
    // Each page leads to the next one, and together they have each cell once.
    for (query, expected) in
        [("limit=2", &[1, 2, 3, 4, 5, 6, 7, 8, 9][..]), ("limit=1&state=asleep", &[2, 5, 9]), ("limit=4&state=running", &[1, 3, 6, 7, 8])]
    {
        let (mut all, mut next) = (Vec::new(), Some(format!("/v1/cells?{query}")));
        while let Some(path) = next {
            let (cells, following) = page(&service, &path);
            assert!(cells.len() <= 4, "{path}: {cells:?}");
            all.extend(cells);
            next = following;
        }
        assert_eq!(all, expected, "{query}");
    }
    // Cells that end between two pages are left out, and the others stay in their places.
    let (first, next) = page(&service, "/v1/cells?limit=3");
    assert_output(&fixture.pando(&["kill", "--rm", "3", "5"]), "");
    assert_eq!((first, page(&service, &next.expect("there are more")).0), (vec![1, 2, 3], vec![4, 6, 7]));
    // Extreme and invalid numbers.
    assert_eq!(page(&service, &format!("/v1/cells?after={}", u64::MAX)), (vec![], None));
    assert_eq!(page(&service, "/v1/cells?limit=18446744073709551615&after=8"), (vec![9], None));
    assert_eq!(page(&service, "/v1/cells?limit=0&after=8").0, [9], "a page has room for one cell at least");
    for query in ["limit=-1", "limit=18446744073709551616", "after=x", "state=gone", "state=", "descendants=maybe"] {
        let (status, answer) = service.ask("GET", &format!("/v1/cells?{query}"), "");
        assert!(status == 400 && answer.contains("bad-request"), "{query}: {status} {answer}");
    }
}
