// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports of the host that lead to cells of the service.

use crate::fixture::{Fixture, Service, assert_output, wait_until};
use crate::network::gateways::{fetch_from_cell, gateways, send};
use pando_testing::needs_kvm;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::TcpListener;

/// A template whose clones evaluate their first argument.
const TEMPLATE: &str = r#"eval "$(pando-ready -s)"; eval "$1""#;

/// A script that serves a page with this text.
fn server(text: &str) -> String {
    format!("echo {text} > /tmp/page; exec busybox httpd -f -p 80 -h /tmp")
}

/// The port of the host in the description of a cell with a single forward.
fn port(cell: &Value) -> u16 {
    let ports = cell["ports"].as_array().expect("a list");
    assert!(ports.len() == 1 && ports[0]["cell"] == 80 && ports[0]["protocol"] == "tcp", "{cell}");
    let host = ports[0]["host"].as_str().expect("text");
    host.strip_prefix("127.0.0.1:").expect("only this host reaches it").parse().expect("a port")
}

fn start(service: &Service, text: &str, publish: &str) -> Value {
    service.json("POST", "/v1/cells", json!({ "template": "sh", "arguments": [server(text)], "publish": [publish] }))
}

fn is_served(port: u16, text: &str) -> bool {
    fetch_from_cell(port).is_ok_and(|page| page.ends_with(&format!("\n{text}\n")))
}

#[test]
fn ports_of_clones_lead_to_them_until_they_end() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("sh", TEMPLATE);
    let service = fixture.serve(&["--gateways", "2"]);
    let cells = ["one", "other"].map(|text| (start(&service, text, "0:80"), text));
    for (cell, text) in &cells {
        wait_until(|| is_served(port(cell), text));
        assert_eq!(service.json("GET", &format!("/v1/cells/{}", cell["id"]), Value::Null)["ports"], cell["ports"]);
    }
    let [(one, _), (other, _)] = &cells;
    let listed = fixture.pando(&["ps"]).output;
    assert!(listed.contains(&format!("127.0.0.1:{}->80/tcp", port(one))), "{listed}");
    // A port is free again when its cell has ended, and another cell may have it.
    let id = format!("/v1/cells/{}", one["id"]);
    assert_eq!(service.ask("POST", &format!("{id}/kill?signal=kill"), "").0, 204);
    wait_until(|| TcpListener::bind(("127.0.0.1", port(one))).is_ok());
    assert_eq!(service.json("GET", &id, Value::Null)["ports"], json!([]));
    let next = start(&service, "next", &format!("{}:80", port(one)));
    wait_until(|| is_served(port(&next), "next"));
    assert!(is_served(port(other), "other"));
}

#[test]
fn a_port_that_cannot_be_published_is_refused_with_advice() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("sh", TEMPLATE);
    let service = fixture.serve(&["--gateways", "1"]);
    let ask = |body: Value| service.ask("POST", "/v1/cells", &body.to_string());
    for _ in 0..3 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let taken = listener.local_addr().expect("it listens").port();
        let (status, answer) = ask(json!({ "template": "sh", "arguments": ["exit"], "publish": [format!("{taken}:80")] }));
        assert!(status == 409 && answer.contains("port-unavailable") && answer.contains("is taken"), "{status} {answer}");
    }
    // The only gateway is free again each time.
    let cell = start(&service, "page", "0:80");
    wait_until(|| is_served(port(&cell), "page"));
    for (body, code, expected) in [
        (json!({ "template": "sh", "publish": ["0:80"], "network": "lab" }), 400, "omit network"),
        (json!({ "template": "sh", "publish": ["80/udp"] }), 400, "HOST:CELL/udp"),
        (json!({ "template": "sh", "publish": ["80"] }), 503, "--listen 127.0.0.1:8080"),
    ] {
        let (status, answer) = ask(body);
        assert!(status == code && answer.contains(expected), "{status} {answer}");
    }
}

#[test]
fn a_gateway_that_replaces_another_keeps_the_ports() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("sh", TEMPLATE);
    let service = fixture.serve(&["--gateways", "1"]);
    let cell = start(&service, "page", "0:80");
    wait_until(|| is_served(port(&cell), "page"));
    let [gateway] = gateways(service.child.id())[..] else { panic!("there is one") };
    send(gateway, Signal::KILL);
    wait_until(|| gateways(service.child.id()).first().is_some_and(|next| *next != gateway));
    // Connections wait in the backlog until the next gateway accepts them.
    assert!(is_served(port(&cell), "page"));
}

#[test]
fn detached_programs_publish_ports() {
    needs_kvm!();
    let fixture = Fixture::new();
    let _service = fixture.serve(&["--gateways", "2"]);
    let started = fixture.pando(&["run", "-d", "-p", "0:80", "--name", "web", "busybox", "sh", "-c", &server("page")]);
    assert_eq!(started.status, 0, "{}", started.errors);
    let announced = started.errors.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once(' ')).expect("an address");
    let port = announced.0.parse().expect("a port");
    wait_until(|| is_served(port, "page"));
    assert_output(&fixture.pando(&["kill", "web"]), "");
}
