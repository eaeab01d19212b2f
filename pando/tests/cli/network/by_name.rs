// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells that clients reach by name at one address of the service: HTTP by the Host header, TLS by SNI.

use crate::fixture::{Fixture, Service, assert_output, wait_until};
use crate::network::gateways::{gateways, send};
use pando_testing::{are_installed, host_program, needs_kvm};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};

/// The arguments of a service that listens for clients of cells.
const LISTEN: [&str; 2] = ["--listen", "127.0.0.1:0"];
/// A template whose clones serve a page with their first argument.
const TEMPLATE: &str = r#"eval "$(pando-ready -s)"; echo "$1" > /tmp/page; exec busybox httpd -f -p 80 -h /tmp"#;

/// The port at which a service leads clients to cells.
fn port(service: &Service) -> u16 {
    let server = service.json("GET", "/v1", Value::Null);
    let address = server["listen"].as_str().expect("it listens");
    address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port")
}

/// Runs curl with these arguments, and returns what it prints on both streams.
fn curl(port: u16, arguments: &[&str]) -> String {
    let mut command = Command::new(host_program("curl"));
    command.args(["-sS", "--max-time", "60", "--connect-to", &format!("::127.0.0.1:{port}")]).args(arguments);
    let output = command.output().expect("curl starts");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// The page of a cell.
fn page(port: u16, name: &str) -> String {
    curl(port, &[&format!("http://{name}.cells.localhost/page")])
}

fn state(service: &Service, cell: &str) -> Value {
    service.json("GET", &format!("/v1/cells/{cell}"), Value::Null)["state"].clone()
}

/// Sends bytes, and returns everything that comes back.
fn exchange(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(bytes).expect("it is open");
    let mut answer = Vec::new();
    // A reset after the answer is an end, too.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn a_request_reaches_the_cell_whose_name_it_has() {
    needs_kvm!();
    if !are_installed(&["curl"]) {
        return;
    }
    let fixture = Fixture::new();
    fixture.plant("web", TEMPLATE);
    let service = fixture.serve(&[LISTEN[0], LISTEN[1], "--swap", &format!("{}:64M", std::env::temp_dir().display())]);
    let port = port(&service);
    let started = fixture.pando(&["clone", "web", "-d", "--count", "3", "--publish", "80", "same"]);
    assert_eq!((started.output.as_str(), started.status), ("1\n2\n3\n", 0), "{}", started.errors);
    let named = fixture.pando(&["clone", "-d", "--name", "Shop", "--publish", "80", "web", "shop"]);
    assert!(named.errors.contains(&format!("shop.cells.localhost:{port} is forwarded to port 80 of cell 4")), "{}", named.errors);
    for (name, text) in [("1", "same\n"), ("web-3", "same\n"), ("4", "shop\n"), ("SHOP", "shop\n"), ("80.shop", "shop\n")] {
        wait_until(|| page(port, name) == text);
    }
    let listed = fixture.pando(&["ps"]).output;
    assert!(listed.contains(&format!("web-2.cells.localhost:{port}->80/tcp")), "{listed}");
    // A sleeping cell is woken by a request for it; no other cell is.
    for cell in ["1", "Shop"] {
        wait_until(|| fixture.pando(&["sleep", cell]).status == 0 && state(&service, cell) == "asleep");
    }
    assert_eq!(page(port, "shop"), "shop\n");
    assert_eq!((state(&service, "1"), state(&service, "Shop")), (json!("asleep"), json!("running")));
    // Names that lead nowhere are refused with advice.
    for (url, advice) in [
        ("http://nobody.cells.localhost/", "no cell `nobody` is published by name: `pando ps`"),
        ("http://81.shop.cells.localhost/", "request one of [80]"),
        ("http://evil.example/", "request NAME.cells.localhost"),
        ("http://cells.localhost/", "request NAME.cells.localhost"),
    ] {
        let answer = curl(port, &["-w", "%{http_code}", url]);
        assert!(answer.contains(advice) && answer.ends_with("404"), "{url}: {answer}");
    }
    assert_output(&fixture.pando(&["kill", "Shop"]), "");
    assert!(page(port, "shop").contains("no cell `shop`"));
    // A fork has a name of its own, and serves as its original does.
    let forks = service.json("POST", "/v1/cells/2/fork", json!({ "count": 1 }));
    assert_eq!(page(port, &forks[0]["id"].to_string()), "same\n");
}

#[test]
fn the_name_of_a_client_that_waits_is_looked_up_again() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("web", TEMPLATE);
    fixture.plant("late", r#"eval "$(pando-ready -s)"; while busybox nc -l -p 81 -e true; do :; done"#);
    let service = fixture.serve(&LISTEN);
    let port = port(&service);
    let start = |template: &str| {
        let started = fixture.pando(&["clone", "-d", "--name", "shop", "--publish", "80", "--publish", "81", template, "new"]);
        assert_eq!(started.status, 0, "{}", started.errors);
    };
    let second = b"GET /page HTTP/1.0\r\nhost: 81.shop.cells.localhost\r\n\r\n";
    let request = b"GET /page HTTP/1.0\r\nhost: shop.cells.localhost\r\n\r\n";
    // A client waits ten seconds at most. If the cell ends only after them, for this host is slow, everything is tried again.
    wait_until(|| {
        start("late");
        wait_until(|| !exchange(port, second).starts_with(b"HTTP/1.1 "));
        // Its program does not listen at the first port, so the client is connected again and again.
        let mut waiting = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        waiting.write_all(request).expect("it is open");
        // A later client has reached the cell, so the first one has been led to it, too.
        assert!(!exchange(port, second).starts_with(b"HTTP/1.1 404"));
        assert_output(&fixture.pando(&["kill", "shop"]), "");
        let mut answer = String::new();
        waiting.read_to_string(&mut answer).expect("it is answered");
        let is_late = answer.starts_with("HTTP/1.1 502");
        assert!(is_late || answer.starts_with("HTTP/1.1 404") && answer.contains("no cell `shop`"), "{answer}");
        !is_late
    });
    start("web");
    wait_until(|| exchange(port, request).ends_with(b"new\n"));
}

#[test]
fn connections_that_stay_open_belong_to_the_cell_of_their_first_request() {
    needs_kvm!();
    if !are_installed(&["curl", "python3"]) {
        return;
    }
    let fixture = Fixture::new();
    let service = fixture.serve(&LISTEN);
    let port = port(&service);
    let script = "import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        text = f'{sys.argv[1]} {self.path}\\n'.encode()
        self.send_response(200)
        self.send_header('content-length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(('', 8000), Handler).serve_forever()";
    for name in ["one", "two"] {
        let started = fixture.pando(&["run", "-d", "-p", "8000", "--name", name, "--", "python3", "-c", script, name]);
        assert_eq!(started.status, 0, "{}", started.errors);
        wait_until(|| curl(port, &[&format!("http://{name}.cells.localhost/")]) == format!("{name} /\n"));
    }
    let url = |name: &str| format!("http://{name}.cells.localhost/[1-20]");
    let connections = curl(port, &["-w", "%{num_connects}\n", &url("one"), &url("two")]);
    let opened = connections.lines().filter(|line| *line == "1").count();
    assert_eq!(opened, 2, "each cell has one connection: {connections}");
    assert!(connections.contains("one /20\n") && connections.contains("two /20\n"), "{connections}");
    // The service that leads clients is replaced when it dies, and listens at the same port.
    let [gateway] = gateways(service.child.id())[..] else { panic!("there is one for all cells") };
    send(gateway, Signal::KILL);
    wait_until(|| gateways(service.child.id()).first().is_some_and(|next| *next != gateway));
    assert_eq!(curl(port, &["http://two.cells.localhost/"]), "two /\n");
}

#[test]
fn hostile_clients_are_refused_and_delay_nobody() {
    needs_kvm!();
    if !are_installed(&["curl"]) {
        return;
    }
    let fixture = Fixture::new();
    fixture.plant("web", TEMPLATE);
    let service = fixture.serve(&LISTEN);
    let port = port(&service);
    assert_output(&fixture.pando(&["clone", "web", "-d", "--count", "2", "--publish", "80", "here"]), "1\n2\n");
    wait_until(|| page(port, "1") == "here\n");
    let long = [b"GET / HTTP/1.1\r\nx: ".to_vec(), vec![b'x'; 20_000]].concat();
    let cases: [(&[u8], &str); 6] = [
        (b"\0\xff\xfe garbage\r\n\r\n", "HTTP/1.1 400 "),
        (b"GET / HTTP/1.1\r\n\r\n", "exactly one Host header"),
        (b"GET / HTTP/1.1\r\nhost: 1.cells.localhost\r\nhost: 2.cells.localhost\r\n\r\n", "exactly one Host header"),
        (b"GET http://1.cells.localhost/page HTTP/1.1\r\nhost: 1.cells.localhost\r\n\r\n", "this is no proxy"),
        (b"GET / HTTP/1.1\r\nhost: ../x.cells.localhost\r\n\r\n", "HTTP/1.1 404 "),
        (&long, "HTTP/1.1 431 "),
    ];
    for (bytes, expected) in cases {
        let answer = exchange(port, bytes);
        assert!(String::from_utf8_lossy(&answer).contains(expected), "{expected}: {}", answer.escape_ascii());
    }
    // Clients that send their heads byte by byte, or nothing, hold up no other one. Those that end early get nothing.
    let mut slow: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("it listens")).collect();
    for stream in slow.iter_mut().step_by(2) {
        stream.write_all(b"GET /page HTTP/1.0\r\nho").expect("it is open");
    }
    assert_eq!(page(port, "2"), "here\n");
    let mut first = slow.swap_remove(0);
    for piece in [&b"st: 1.ce"[..], b"lls.localhost\r\n", b"\r\n"] {
        first.write_all(piece).expect("it is open");
    }
    let mut answer = String::new();
    first.read_to_string(&mut answer).expect("it is answered");
    assert!(answer.ends_with("\nhere\n"), "a head may come in pieces: {answer}");
    let mut ended = slow.swap_remove(0);
    ended.shutdown(Shutdown::Write).expect("it is open");
    let mut answer = Vec::new();
    ended.read_to_end(&mut answer).expect("it is closed");
    assert!(answer.is_empty());
    let mut late = slow.swap_remove(1);
    let mut answer = String::new();
    late.read_to_string(&mut answer).expect("it is closed");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    // A cell without a server is named as the cause.
    let started = fixture.pando(&["run", "-d", "-p", "80", "--name", "idle", "busybox", "sleep", "1000"]);
    assert_eq!(started.status, 0, "{}", started.errors);
    let answer = curl(port, &["-w", "%{http_code}", "http://idle.cells.localhost/"]);
    assert!(answer.contains("does not listen") && answer.ends_with("502"), "{answer}");
    // One cell does not reach another one at its address, although both are in the network that leads clients.
    let other = service.json("GET", "/v1/cells/2", Value::Null)["addresses"]["ipv4"].as_str().expect("an address").to_owned();
    let tried = fixture.pando(&["exec", "1", "busybox", "wget", "-q", "-T", "2", "-O", "-", &format!("http://{other}/page")]);
    assert!(tried.status != 0 && tried.output.is_empty(), "{}", tried.output);
    let refused = fixture.pando(&["clone", "-d", "--publish", "80", "--network", "lab", "web", "x"]);
    assert!(refused.status == 125 && refused.errors.contains("omit"), "{}", refused.errors);
    let refused = fixture.pando(&["run", "-p", "80", "busybox", "true"]);
    assert!(refused.status == 125 && refused.errors.contains("--publish 8080:80"), "{}", refused.errors);
}

#[test]
fn tls_reaches_the_cell_that_sni_names_and_ends_there() {
    needs_kvm!();
    if !are_installed(&["openssl"]) {
        return;
    }
    let fixture = Fixture::new();
    let service = fixture.serve(&LISTEN);
    let port = port(&service);
    for name in ["red", "blue"] {
        let script = format!(
            "openssl req -x509 -newkey rsa:2048 -nodes -keyout /tmp/key -out /tmp/cert -days 1 -subj /CN={name} 2> /dev/null
            echo {name} > /tmp/page; cd /tmp; exec openssl s_server -quiet -accept 443 -cert /tmp/cert -key /tmp/key -WWW"
        );
        let started = fixture.pando(&["run", "-d", "-p", "443", "--name", name, "busybox", "sh", "-c", &script]);
        assert_eq!(started.status, 0, "{}", started.errors);
    }
    let fetch = |arguments: &[&str]| {
        let mut command = Command::new(host_program("openssl"));
        command.args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-ign_eof"]).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("openssl starts");
        let mut input = child.stdin.take().expect("a pipe");
        // It may have failed already.
        let _ = input.write_all(b"GET /page HTTP/1.0\r\n\r\n");
        drop(input);
        let output = child.wait_with_output().expect("it ends");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    for name in ["red", "blue"] {
        let answer = || fetch(&["-servername", &format!("{name}.cells.localhost")]);
        wait_until(|| answer().contains(&format!("\n{name}\n")));
        assert!(answer().contains(&format!("CN = {name}")), "the certificate is the cell's own");
    }
    for arguments in [&["-servername", "green.cells.localhost"][..], &["-servername", "red.example.org"], &["-noservername"]] {
        let answer = fetch(arguments);
        assert!(answer.contains("unrecognized name"), "{arguments:?}: {answer}");
    }
}
