// SPDX-License-Identifier: MIT OR Apache-2.0
//! A supervisor: a cell with Debian's sshd, in whose shell an unmodified `pando` manages the cells of one project.

use crate::case::PANDO;
use crate::fixture::{Fixture, ProgramOutput, Service, assert_output, wait_until};
use pando_testing::{host_program, needs_kvm};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

/// A program that waits, and counts the lines that it reads.
const WAITING: &str = r#"eval "$(pando-ready -s)"; echo "in $1"; while read line; do echo "$line"; done; sleep 1000"#;

/// Prepares sshd for root, and starts it. Its sessions have the address of the service and the token.
const SSHD: &str = r#"mkdir -p /run/sshd /var/log /root/.ssh; : > /var/log/lastlog; : > /var/log/wtmp; : > /run/utmp
cp /srv/key.pub /root/.ssh/authorized_keys; chmod 700 /root/.ssh; chmod 600 /root/.ssh/authorized_keys; chown -R 0:0 /root
ssh-keygen -A > /dev/null; exec /usr/sbin/sshd -D -e -o "SetEnv=PANDO_HOST=tcp://10.77.0.1:$PORT PANDO_TOKEN=$TOKEN""#;

/// Starts a cell of the template with a name and a project.
fn start(service: &Service, name: &str, project: &str) -> Value {
    let new = json!({ "template": "sh", "name": name, "labels": { "project": project }, "arguments": [project] });
    let cell = service.json("POST", "/v1/cells", new);
    service.wait_for_output(&format!("/v1/cells/{name}"), &format!("in {project}"));
    cell
}

/// A service with cells of two projects and a control address; its port, and a token for one project.
fn served(fixture: &Fixture, options: &[&str]) -> (Service, u16, String) {
    fixture.plant("sh", WAITING);
    let service = fixture.serve(&[&["--control", "127.0.0.1:0"], options].concat());
    for (name, project) in [("shop-1", "shop"), ("shop-2", "shop"), ("bank-1", "bank")] {
        start(&service, name, project);
    }
    let control = service.json("GET", "/v1", Value::Null)["control"].as_str().expect("an address").to_owned();
    let port = control.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
    let created = fixture.pando(&["token", "create", "--label", "project=shop"]);
    assert_eq!((created.status, &created.errors[..]), (0, ""));
    (service, port, created.output.trim_end().to_owned())
}

/// Runs `pando` at the control address.
fn remote(fixture: &Fixture, port: u16, token: &str, words: &[&str]) -> ProgramOutput {
    let mut command = fixture.command(words);
    command.env("PANDO_HOST", format!("tcp://127.0.0.1:{port}")).env("PANDO_TOKEN", token);
    let outcome = command.output().expect("pando starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
    ProgramOutput { status: outcome.status.code().expect("no signal ends it"), output: text(outcome.stdout), errors: text(outcome.stderr) }
}

#[test]
fn a_cell_with_sshd_manages_its_project_and_nothing_else() {
    needs_kvm!();
    let fixture = Fixture::new();
    let served_files = fixture.path("srv");
    fs::create_dir(&served_files).expect("there is room");
    fs::copy(PANDO, served_files.join("pando")).expect("there is room");
    let made =
        Command::new(host_program("ssh-keygen")).args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(served_files.join("key")).status();
    assert!(made.expect("ssh-keygen is there").success());
    let key = fixture.path("key");
    fs::rename(served_files.join("key"), &key).expect("the same file system");
    let shown = served_files.display().to_string();
    let (service, port, token) = served(&fixture, &["--gateways", "1", "--show", &shown]);
    let (allowed, volume) = (format!("host:{port}"), format!("{shown}:/srv:ro"));
    let (port, token) = (format!("PORT={port}"), format!("TOKEN={token}"));
    let options =
        ["run", "-d", "--name", "supervisor", "-p", "0:22", "--allow", &allowed, "-v", &volume, "-e", &port, "-e", &token, "-u", "0"];
    let started = fixture.pando(&[&options[..], &["--", "sh", "-c", SSHD]].concat());
    assert_eq!(started.status, 0, "{}", started.errors);
    let announced = started.errors.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once(' ')).expect("an address");
    service.wait_for_output("/v1/cells/supervisor", "Server listening");
    let ssh = |line: &str| {
        let mut command = Command::new(host_program("ssh"));
        command.arg("-i").arg(&key).args(["-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]);
        command.args(["-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-p", announced.0, "root@127.0.0.1", line]);
        let outcome = command.output().expect("ssh starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (outcome.status.code().expect("no signal ends it"), text(&outcome.stdout), text(&outcome.stderr))
    };
    let (status, listed, errors) = ssh("/srv/pando ps");
    assert!(status == 0 && listed.contains("shop-1") && listed.contains("shop-2"), "{status} {listed} {errors}");
    assert!(!listed.contains("bank-1") && !listed.contains("supervisor"), "{listed}");
    assert_eq!(ssh("/srv/pando logs shop-1"), (0, "in shop\n".into(), String::new()));
    assert_eq!(ssh("/srv/pando sleep shop-2 && /srv/pando ps -q --state asleep --limit 50").1, "2\n");
    assert_eq!(ssh("/srv/pando wake shop-2 && /srv/pando ps -q --state asleep"), (0, String::new(), String::new()));
    assert!(ssh("/srv/pando stats").1.contains("running          2"), "{:?}", ssh("/srv/pando stats"));
    assert_eq!(ssh("/srv/pando kill shop-1"), (0, String::new(), String::new()));
    wait_until(|| service.json("GET", "/v1/cells/shop-1", Value::Null)["state"] == "ended");
    // It has no right to cells of others, new cells, programs in cells, files.
    let unknown = "there is no cell bank-1";
    for (line, words) in [
        ("/srv/pando kill bank-1", unknown),
        ("/srv/pando logs bank-1", unknown),
        ("/srv/pando stats 3", "there is no cell 3"),
        ("/srv/pando run -d -- true", "not allowed with this token"),
        ("/srv/pando clone -d sh", "a token allows ps"),
        ("/srv/pando exec shop-2 cat /etc/passwd", "not allowed with this token"),
        ("/srv/pando kill -s STOP shop-2", "a token allows KILL, TERM and INT"),
        ("/srv/pando rm -f shop-2", "not allowed with this token"),
        ("/srv/pando token create --label project=bank", "not allowed with this token"),
    ] {
        let (status, output, errors) = ssh(line);
        assert!(status != 0 && output.is_empty() && errors.contains(words), "{line}: {status} {output} {errors}");
    }
    for name in ["bank-1", "shop-2", "supervisor"] {
        assert_eq!(service.json("GET", &format!("/v1/cells/{name}"), Value::Null)["state"], "running", "{name}");
    }
    // A removed token is refused at once.
    assert_output(&fixture.pando(&["token", "rm", "1"]), "");
    let (status, _, errors) = ssh("/srv/pando ps");
    assert!(status != 0 && errors.contains("needs a token"), "{status} {errors}");
}

#[test]
fn tokens_open_only_what_they_are_for() {
    needs_kvm!();
    let fixture = Fixture::new();
    let (service, port, token) = served(&fixture, &[]);
    assert_eq!(remote(&fixture, port, &token, &["ps", "-q"]).output, "1\n2\n");
    // A name that another project uses leads nowhere, also for a cell that was started later.
    assert_output(&fixture.pando(&["kill", "--rm", "shop-1"]), "");
    start(&service, "shop-1", "bank");
    let refused = remote(&fixture, port, &token, &["kill", "shop-1"]);
    assert!(refused.status != 0 && refused.errors.contains("there is no cell shop-1"), "{}", refused.errors);
    // An own cell that has ended is found all the same.
    start(&service, "till", "shop");
    assert_output(&fixture.pando(&["kill", "till"]), "");
    start(&service, "till", "bank");
    assert_eq!(remote(&fixture, port, &token, &["logs", "till"]).output, "in shop\n");
    let wrong = remote(&fixture, port, "x", &["ps"]);
    assert!(wrong.status != 0 && wrong.errors.contains("set PANDO_TOKEN"), "{}", wrong.errors);
    let listed = fixture.pando(&["token", "ls", "--json"]).output;
    assert_eq!(listed, "{\"id\":1,\"labels\":{\"project\":\"shop\"}}\n");
    assert!(!listed.contains(&token));
    // Raw requests: strange paths and heads get an error, and the service goes on.
    let ask = |head: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    for (path, status) in [
        ("/v1/cells/../templates", "403"),
        ("/v1/cells/bank-1%2f..%2fshop-2", "404"),
        ("/v1/cells/3", "404"),
        ("/v1/cells/2/file?path=/etc/passwd", "403"),
        ("//v1/cells", "403"),
        ("/v1/metrics", "403"),
        ("/v1/cells/2/output?whole=true", "403"),
        ("/v1/cells?state=gone", "400"),
        ("/v1/cells?after=1&limit=1", "200"),
    ] {
        let answer = ask(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
        assert!(!answer.contains("\"bank\""), "{path}: {answer}");
    }
    for head in [
        // The connection is closed all the same.
        "GET /v1/cells HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        format!("GET /v1/cells HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Basic {token}\r\n\r\n"),
        format!("GET /v1/cells HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {token}x\r\n\r\n"),
    ] {
        assert!(ask(&head).starts_with("HTTP/1.1 401"), "{head}");
    }
    assert!(!ask("\u{1}garbage\r\n\r\n").contains(" 200 "));
    assert_eq!(remote(&fixture, port, &token, &["ps", "-q"]).output, "2\n");
}

#[test]
fn a_removed_token_ends_what_its_clients_follow() {
    needs_kvm!();
    let fixture = Fixture::new();
    let (_service, port, token) = served(&fixture, &[]);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let head = format!("GET /v1/cells/shop-1/output?follow=true HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it reads");
    let (mut answer, mut piece) = (String::new(), [0; 1024]);
    while !answer.contains("in shop") {
        let length = stream.read(&mut piece).expect("it answers");
        assert!(length > 0, "{answer}");
        answer += &String::from_utf8_lossy(&piece[..length]);
    }
    assert_output(&fixture.pando(&["token", "rm", "1"]), "");
    // It ends, without the chunk that marks a complete answer.
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("0\r\n\r\n"), "{rest:?}");
}

#[test]
fn a_control_address_of_another_interface_and_a_wrong_environment_are_refused() {
    let fixture = Fixture::new();
    let refused = fixture.pando(&["serve", "--control", "0.0.0.0:9000"]);
    assert!(refused.status != 0 && refused.errors.contains("give 127.0.0.1:9000"), "{}", refused.errors);
    for (host, words) in [
        ("127.0.0.1:9000", "give tcp://HOST:PORT"),
        ("tcp://127.0.0.1", "give tcp://HOST:PORT"),
        ("tcp://localhost:9000", "no name like localhost"),
        ("tcp://h:1", "set PANDO_TOKEN"),
    ] {
        let outcome = fixture.command(&["ps"]).env("PANDO_HOST", host).env_remove("PANDO_TOKEN").output().expect("pando starts");
        let errors = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(!outcome.status.success() && errors.contains(words), "{host}: {errors}");
    }
}

/// It would be that of another directory for each command.
#[test]
fn a_relative_socket_in_the_environment_is_refused() {
    let fixture = Fixture::new();
    let outcome = fixture.command(&["ps"]).env("PANDO_SOCKET", "./socket").env_remove("PANDO_HOST").output().expect("pando starts");
    let errors = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(!outcome.status.success() && errors.contains("PANDO_SOCKET=./socket: not an absolute path"), "{errors}");
}
