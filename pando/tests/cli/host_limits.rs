// SPDX-License-Identifier: MIT OR Apache-2.0
//! What hostile cells and many templates make `pando serve` hold: its memory and its descriptors stay within their bounds.

use crate::case::PANDO;
use crate::compile::{Linked, program};
use crate::grove::{Grove, Service};
use pando_testing::host_program;
use pando_testing::lab::kvm_is_there;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

/// A shell that is given a script.
const SHELL: &str = r#"eval "$(pando-ready -s)"; eval "$1""#;

/// A template of that shell which sees a directory.
fn plant(grove: &Grove, name: &str, shown: &Path) {
    let volume = format!("{}:/shown:ro", shown.display());
    let made = grove.pando(&["template", "create", "-v", &volume, name, "--", "busybox", "sh", "-c", SHELL]);
    assert_eq!((made.status, &made.errors[..]), (0, ""));
}

/// A service of a process that may open so many files.
fn serve_with_files(grove: &Grove, files: u32, options: &[&str]) -> Service {
    let inner = grove.command(&[]);
    let mut command = Command::new(host_program("sh"));
    command.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\""), PANDO, "serve"]).args(options).stdin(Stdio::null());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(inner.get_current_dir().expect("it has one"));
    grove.service(command)
}

/// Memory of a process that is in use now, in bytes.
fn resident(service: &Service) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.child.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("it is a number");
    kilobytes << 10
}

/// Two million single bytes in turn on two streams, as four cells have them said. Each piece of them once took 75 bytes.
#[test]
fn a_cell_that_changes_streams_at_each_byte_takes_little_of_the_host() {
    if !kvm_is_there() {
        return;
    }
    const BYTES: u64 = 1 << 20;
    let grove = Grove::new();
    plant(&grove, "flood", program("alternating", Linked::Glibc).parent().expect("it has one"));
    let service = grove.serve(&[]);
    let run = |bytes: u64| {
        let script = format!("exec /shown/alternating {bytes}");
        let cell = service.json("POST", "/v1/cells", json!({ "template": "flood", "arguments": [script], "memory": "16M" }));
        let place = format!("/v1/cells/{}", cell["id"]);
        let ended = service.json("GET", &format!("{place}/wait"), json!(null));
        assert_eq!(ended["outcome"]["exit_code"], 0, "{ended}");
        place
    };
    run(1000);
    let before = resident(&service);
    let places: Vec<String> = (0..4).map(|_| run(BYTES)).collect();
    let grown = resident(&service).saturating_sub(before);
    assert!(grown < 100 << 20, "the service has grown by {} MiB", grown >> 20);
    // All of it is remembered.
    let mut said = 0;
    for line in service.ask("GET", &format!("{}/output?from={}", places[3], BYTES - 1000), "").1.lines() {
        let piece: Value = serde_json::from_str(line).expect("it is JSON");
        said += piece["data"].as_str().map_or(0, str::len);
    }
    assert_eq!(said, 1000);
}

/// Gateways of cells that open all the connections they can leave others theirs.
#[test]
fn cells_that_open_connections_keep_nobody_from_the_service() {
    if !kvm_is_there() {
        return;
    }
    let grove = Grove::new();
    for name in ["sh", "other"] {
        plant(&grove, name, program("connecting", Linked::Glibc).parent().expect("it has one"));
    }
    let service = serve_with_files(&grove, 512, &["--gateways", "4"]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("the host has a port");
    let port = listener.local_addr().expect("it listens").port();
    std::thread::spawn(move || listener.incoming().flatten().collect::<Vec<_>>());
    for _ in 0..4 {
        let script = format!("exec /shown/connecting {port}");
        let asked = json!({ "template": "sh", "arguments": [script], "allow": [format!("host:{port}")] });
        let cell = service.json("POST", "/v1/cells", asked);
        service.hear(&format!("/v1/cells/{}", cell["id"]), "holds");
    }
    for template in ["sh", "other"] {
        let ran = service.json("POST", "/v1/run", json!({ "template": template, "arguments": ["cat /shown/connecting | wc -c"] }));
        assert!(ran["exit_code"] == 0 && ran["stdout"] != "0\n", "{ran}");
    }
}

/// More templates are used in turn than a process with few descriptors can keep the files of.
#[test]
fn many_templates_share_few_descriptors() {
    if !kvm_is_there() {
        return;
    }
    const TEMPLATES: usize = 16;
    let grove = Grove::new();
    for number in 0..TEMPLATES {
        let shown = grove.path(&format!("shown{number}"));
        std::fs::create_dir(&shown).expect("there is room");
        for file in 0..40 {
            std::fs::write(shown.join(format!("file{file}")), format!("{number}.{file}\n")).expect("there is room");
        }
        plant(&grove, &format!("sh{number}"), &shown);
    }
    let service = serve_with_files(&grove, 256, &[]);
    for _ in 0..2 {
        for number in 0..TEMPLATES {
            let asked = json!({ "template": format!("sh{number}"), "arguments": ["cat /shown/* | wc -l; /bin/sh -c 'echo $0'"] });
            let ran = service.json("POST", "/v1/run", asked);
            assert_eq!((&ran["stdout"], &ran["stderr"]), (&json!("40\n/bin/sh\n"), &json!("")), "{ran}");
        }
    }
}

/// Clients that connect and say nothing take no more than their share, and others are told.
#[test]
fn connections_are_counted() {
    if !kvm_is_there() {
        return;
    }
    let grove = Grove::new();
    let service = serve_with_files(&grove, 256, &[]);
    let mut silent = Vec::new();
    let told = loop {
        let stream = service.begin("POST", "/v1/run", 1);
        // Those that are served wait for the body.
        silent.push(stream);
        assert!(silent.len() < 250, "nobody is turned away");
        let (status, answer) = match silent.len() % 8 {
            0 => service.ask("GET", "/v1", ""),
            _ => continue,
        };
        if status == 503 {
            break answer;
        }
    };
    assert!(told.contains("too-many-connections") && told.contains("ulimit"), "{told}");
    drop(silent);
    while service.ask("GET", "/v1", "").0 != 200 {}
    let refused = Command::new(host_program("sh"))
        .args(["-c", &format!("ulimit -n 100 && exec {PANDO} serve --socket {}", grove.path("other").display())])
        .env("XDG_DATA_HOME", grove.path("data"))
        .output()
        .expect("sh starts");
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("too few for a service") && errors.contains("ulimit -Hn"), "{errors}");
}
