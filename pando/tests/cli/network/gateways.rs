// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gateways that hang or die: their cells go on, and `pando run` and the service end in time.

use crate::case::{PANDO, as_shell};
use crate::fixture::{Fixture, Service, wait_until};
use crate::network::reach::{port_in, serve};
use pando_testing::needs_kvm;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The name and the parent of a process, if one with this PID runs.
fn process(number: i32) -> Option<(String, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    // A zombie does not count.
    let state = fields.next()?;
    (state != "Z").then_some((name.to_owned(), fields.next()?.parse().ok()?))
}

/// The children of a process that have this name, in ascending order.
fn children(parent: i32, name: &str) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").expect("it is there").flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<i32> = numbers.filter(|number| process(*number).is_some_and(|found| found == (name.to_owned(), parent))).collect();
    found.sort_unstable();
    found
}

/// The gateways of a process of cells, by PID.
pub(crate) fn gateways(parent: u32) -> Vec<i32> {
    children(parent as i32, "gateways").into_iter().flat_map(|launcher| children(launcher, "gateway")).collect()
}

pub(super) fn send(number: i32, signal: Signal) {
    kill_process(Pid::from_raw(number).expect("a process"), signal).expect("it is ours");
}

/// A shell in a cell that fetches a page of the host for each line of its input.
struct Fetching {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    errors: BufReader<ChildStderr>,
}

impl Fetching {
    fn new() -> Fetching {
        let port = serve(b"from the host");
        let script = format!("while read go; do busybox wget -q -O - http://10.77.0.1:{port}/; echo; done");
        let mut command = Command::new(PANDO);
        command.args(["run", "--allow", &format!("host:{port}"), "busybox", "sh", "-c", &script]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pando starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut fetching = Fetching { child, input, output, errors };
        fetching.fetch();
        fetching
    }

    fn ask(&mut self) {
        self.input.as_mut().expect("it is open").write_all(b"\n").expect("the cell reads");
    }

    fn answer(&mut self) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the cell writes");
        assert_eq!(line, "from the host\n");
    }

    fn fetch(&mut self) {
        self.ask();
        self.answer();
    }

    /// Reads pando's next message.
    fn next_message(&mut self) -> String {
        let mut line = String::new();
        self.errors.read_line(&mut line).expect("it is text");
        line
    }

    fn gateway(&self) -> i32 {
        match gateways(self.child.id())[..] {
            [gateway] => gateway,
            ref others => panic!("{others:?} are no single gateway"),
        }
    }

    /// Closes its input and returns its status and pando's further messages.
    fn end(mut self) -> (i32, String) {
        drop(self.input.take());
        let mut said = String::new();
        self.errors.read_to_string(&mut said).expect("it is text");
        (as_shell(self.child.wait().expect("it is ours")), said)
    }
}

/// Waits until gateways and launchers, which need not be children of this process, have ended.
fn await_ends(processes: &[i32]) {
    wait_until(|| !processes.iter().any(|number| process(*number).is_some_and(|(name, _)| name.starts_with("gateway"))));
}

#[test]
fn a_gateway_that_dies_is_replaced_a_few_times() {
    needs_kvm!();
    let mut cell = Fetching::new();
    for _ in 0..4 {
        send(cell.gateway(), Signal::KILL);
        let said = cell.next_message();
        assert!(said.contains("signal 9") && said.contains("another takes its place"), "{said}");
        cell.fetch();
    }
    send(cell.gateway(), Signal::KILL);
    let said = cell.next_message();
    assert!(said.contains("without connections to other networks") && said.contains("start the cell again"), "{said}");
    assert!(gateways(cell.child.id()).is_empty());
    assert_eq!(cell.end(), (0, String::new()));
}

#[test]
fn a_gateway_that_hangs_is_replaced() {
    needs_kvm!();
    let mut cell = Fetching::new();
    let gateway = cell.gateway();
    send(gateway, Signal::STOP);
    cell.ask();
    let said = cell.next_message();
    assert!(said.contains("did not answer") && said.contains("another takes its place"), "{said}");
    // The next gateway answers the request that the cell made meanwhile.
    cell.answer();
    assert_ne!(cell.gateway(), gateway);
    await_ends(&[gateway]);
    assert_eq!(cell.end(), (0, String::new()));
}

/// Fetches a page from a server in a cell, through a port of the host.
pub(super) fn fetch_from_cell(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(b"GET /page HTTP/1.0\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

/// A run that is killed with the test.
struct Serving {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Serving {
    /// Ends it because of an error. The panic has Pando's messages, which tell what became of the gateway.
    fn fail(&mut self, error: &std::io::Error) -> ! {
        let gateways = gateways(self.child.id());
        self.child.kill().expect("it is ours");
        let mut said = String::new();
        self.errors.read_to_string(&mut said).expect("it is text");
        panic!("the cell does not answer: {error}; gateways {gateways:?}; {said}");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_gateway_that_hangs_is_replaced_although_its_cell_is_idle() {
    needs_kvm!();
    const LINES: usize = 20_000;
    let script = format!("busybox seq {LINES} > /tmp/page; exec busybox httpd -f -p 80 -h /tmp");
    let mut command = Command::new(PANDO);
    let mut child =
        command.args(["run", "-p", "0:80", "busybox", "sh", "-c", &script]).stderr(Stdio::piped()).spawn().expect("pando starts");
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
    let port = port_in(&mut errors);
    let mut run = Serving { child, errors };
    let fetch = |run: &mut Serving| {
        let page = fetch_from_cell(port).unwrap_or_else(|error| run.fail(&error));
        assert!(page.starts_with("HTTP/1.") && page.ends_with(&format!("\n{LINES}\n")), "{} bytes", page.len());
    };
    wait_until(|| fetch_from_cell(port).is_ok_and(|page| page.ends_with(&format!("\n{LINES}\n"))));
    let [gateway] = gateways(run.child.id())[..] else { panic!("there is one") };
    send(gateway, Signal::STOP);
    // The server in the cell sends nothing. The next gateway accepts this connection.
    fetch(&mut run);
    let mut said = String::new();
    run.errors.read_line(&mut said).expect("it is text");
    assert!(said.contains("did not answer") && said.contains("another takes its place"), "{said}");
    await_ends(&[gateway]);
    let [next] = gateways(run.child.id())[..] else { panic!("there is one") };
    assert_ne!(next, gateway);
    for _ in 0..3 {
        fetch(&mut run);
    }
    // A gateway that answers is not replaced.
    assert_eq!(gateways(run.child.id()), [next]);
    kill_process(Pid::from_child(&run.child), Signal::TERM).expect("it is ours");
    run.child.wait().expect("it is ours");
}

#[test]
fn a_run_ends_although_its_gateway_hangs() {
    needs_kvm!();
    for asks in [false, true] {
        let cell = Fetching::new();
        let (gateway, launcher) = (cell.gateway(), children(cell.child.id() as i32, "gateways"));
        send(gateway, Signal::STOP);
        if asks {
            kill_process(Pid::from_child(&cell.child), Signal::TERM).expect("it is ours");
        }
        let (status, said) = cell.end();
        // On a machine that is busy for seconds the gateway is replaced before the cell's end, and its replacement stops.
        let is_replaced = said.contains("another takes its place");
        assert!(if is_replaced { asks || status == 0 } else { status == 125 && said.contains("did not stop in time") }, "{status} {said}");
        await_ends(&[launcher, vec![gateway]].concat());
    }
}

#[test]
fn nothing_of_a_gateway_is_left_when_its_run_is_killed() {
    needs_kvm!();
    let mut cell = Fetching::new();
    let processes = [children(cell.child.id() as i32, "gateways"), vec![cell.gateway()]].concat();
    assert_eq!(processes.len(), 2);
    send(processes[1], Signal::STOP);
    cell.child.kill().expect("it is ours");
    await_ends(&processes);
}

#[test]
fn a_gateway_is_confined_by_itself() {
    needs_kvm!();
    let cell = Fetching::new();
    let launcher = children(cell.child.id() as i32, "gateways")[0];
    for number in [launcher, cell.gateway()] {
        let status = std::fs::read_to_string(format!("/proc/{number}/status")).expect("it runs");
        for wanted in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000"] {
            assert!(status.lines().any(|line| line == wanted), "no {wanted:?} in {status}");
        }
    }
    // The gateway has the launcher's seccomp filter and one of its own.
    let filters = |number: i32| {
        let status = std::fs::read_to_string(format!("/proc/{number}/status")).expect("it runs");
        status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:")).map(|count| count.trim().to_owned())
    };
    assert_eq!((filters(cell.gateway()), filters(launcher)), (Some("2".into()), Some("1".into())));
    // `/proc/PID/fd` can be read only with permission to trace the process.
    if let Ok(open) = std::fs::read_dir(format!("/proc/{}/fd", cell.gateway())) {
        let names: Vec<String> = open.flatten().filter_map(|entry| Some(entry.path().read_link().ok()?.to_str()?.to_owned())).collect();
        let is_known = |name: &String| ["socket:", "anon_inode:", "/dev/null", "/memfd:frames"].iter().any(|known| name.starts_with(known));
        assert!(!names.is_empty() && names.iter().all(is_known), "{names:?}");
    }
    assert_eq!(cell.end(), (0, String::new()));
}

/// Starts a clone that fetches a page, and again for each line of its input. Returns the cell's path in the service.
fn fetching(service: &Service, port: u16) -> String {
    let script = format!("while :; do busybox wget -q -O - http://10.77.0.1:{port}/ && echo; read go; done");
    let asked = json!({ "template": "sh", "arguments": [script], "allow": [format!("host:{port}")] });
    let cell = format!("/v1/cells/{}", service.json("POST", "/v1/cells", asked)["id"]);
    service.wait_for_output(&cell, "from the host");
    cell
}

#[test]
fn a_gateway_that_hangs_does_not_block_the_service() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("sh", r#"eval "$(pando-ready -s)"; eval "$1""#);
    let service = fixture.serve(&["--gateways", "2"]);
    let port = serve(b"from the host");
    let run = || {
        let fetch = format!("busybox wget -q -O - http://10.77.0.1:{port}/");
        let asked = json!({ "template": "sh", "arguments": [fetch], "allow": [format!("host:{port}")] });
        service.ask("POST", "/v1/run", &asked.to_string())
    };
    let hanging = fetching(&service, port);
    let [gateway] = gateways(service.child.id())[..] else { panic!("there is one") };
    send(gateway, Signal::STOP);
    // Meanwhile, the gateways of other cells work.
    for _ in 0..3 {
        let (status, answer) = run();
        assert!(status == 200 && answer.contains("from the host"), "{status} {answer}");
    }
    let other = fetching(&service, port);
    // The hanging gateway's slot is free again once its cell has ended.
    assert_eq!(service.ask("DELETE", &hanging, "").0, 204);
    let (status, answer) = run();
    assert!(status == 200 && answer.contains("from the host"), "{status} {answer}");
    await_ends(&[gateway]);
    assert_eq!(service.ask("DELETE", &other, "").0, 204);
}
