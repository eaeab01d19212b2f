// SPDX-License-Identifier: MIT OR Apache-2.0
//! The resources that hostile cells and many templates occupy in `pando serve`: its memory and its descriptors stay within limits.

use crate::case::PANDO;
use crate::compile::{Linkage, program};
use crate::fixture::{Fixture, Service, wait_until};
use pando_testing::{host_program, needs_kvm};
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// A shell that runs its argument as a script.
const SHELL: &str = r#"eval "$(pando-ready -s)"; eval "$1""#;

/// Creates a template of that shell which sees a directory.
fn plant(fixture: &Fixture, name: &str, shown: &Path) {
    let volume = format!("{}:/shown:ro", shown.display());
    let made = fixture.pando(&["template", "create", "-v", &volume, name, "--", "busybox", "sh", "-c", SHELL]);
    assert_eq!((made.status, &made.errors[..]), (0, ""));
}

/// Starts a service in a process with this limit of open files.
fn serve_with_files(fixture: &Fixture, files: u32, options: &[&str]) -> Service {
    let inner = fixture.command(&[]);
    let mut command = Command::new(host_program("sh"));
    command.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\""), PANDO, "serve"]).args(options).stdin(Stdio::null());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(inner.get_current_dir().expect("it has one"));
    fixture.service(command)
}

/// The resident memory of a process, in bytes.
fn resident(service: &Service) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.child.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("it is a number");
    kilobytes << 10
}

/// The memory of a process without that of its cells, in bytes. `None`: this user may not read that.
fn own_memory(service: &Service) -> Option<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{}/smaps", service.child.id())).ok()?;
    let (mut sum, mut is_of_cells) = (0, false);
    for line in maps.lines() {
        if let Some(kilobytes) = line.strip_prefix("Anonymous:") {
            let kilobytes: u64 = kilobytes.trim().trim_end_matches(" kB").parse().expect("it is a number");
            sum += if is_of_cells { 0 } else { kilobytes << 10 };
        } else if let Some((start, end)) = line.split_whitespace().next().and_then(|range| range.split_once('-')) {
            let address = |text| u64::from_str_radix(text, 16).ok();
            // The memory of the virtual machine is one mapping, larger than any other.
            is_of_cells = address(start).zip(address(end)).is_some_and(|(start, end)| end - start >= 1 << 30);
        }
    }
    Some(sum)
}

/// Each takes some kilobytes, for its description, its log, its tasks and its place in tables: no thread, stack or buffer.
#[test]
fn sleeping_cells_take_little_of_the_host() {
    needs_kvm!();
    const FIRST: u64 = 100;
    const MORE: u64 = 400;
    const MOST: u64 = 12 << 10;
    let fixture = Fixture::new();
    fixture.plant("sh", SHELL);
    let swap = format!("{}:1G", std::env::temp_dir().display());
    let service = fixture.serve(&["--memory", "2G", "--sleep-after", "100ms", "--swap", &swap]);
    let start = |count: u64, all: u64| {
        let started = fixture.pando(&["clone", "-d", "--count", &count.to_string(), "sh", "exec sleep 100000"]);
        assert_eq!(started.status, 0, "{}", started.errors);
        let asleep = format!("pando_cells{{state=\"asleep\"}} {all}");
        wait_until(|| service.ask("GET", "/v1/metrics", "").1.lines().any(|line| line == asleep));
    };
    start(FIRST, FIRST);
    let Some(before) = own_memory(&service) else {
        println!("left out: this user may not read the memory map of the service");
        return;
    };
    start(MORE, FIRST + MORE);
    let grown = own_memory(&service).expect("it was read before").saturating_sub(before);
    println!("{} bytes for each sleeping cell", grown / MORE);
    assert!(grown < MORE * MOST, "the service has grown by {} bytes for each sleeping cell", grown / MORE);
}

/// Two million single bytes alternating between two streams, printed by four cells. Each piece of them once took 75 bytes.
#[test]
fn a_cell_that_changes_streams_at_each_byte_takes_little_of_the_host() {
    needs_kvm!();
    const BYTES: u64 = 1 << 20;
    let fixture = Fixture::new();
    plant(&fixture, "flood", program("alternating", Linkage::GLIBC).parent().expect("it has one"));
    let service = fixture.serve(&[]);
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
    // The service still has all of the output.
    let mut said = 0;
    for line in service.ask("GET", &format!("{}/output?from={}", places[3], BYTES - 1000), "").1.lines() {
        let piece: Value = serde_json::from_str(line).expect("it is JSON");
        said += piece["data"].as_str().map_or(0, str::len);
    }
    assert_eq!(said, 1000);
}

/// Programs in a cell that say much which nobody reads, and read nothing of what they are sent.
#[test]
fn jobs_of_a_cell_take_little_of_the_host() {
    needs_kvm!();
    const JOBS: usize = 16;
    // 64 KiB of output and 1 MiB of input; in the service twice four pieces of 64 KiB in JSON, a piece of input, and what a connection has.
    const EACH: u64 = (64 << 10) + (1 << 20) + (1 << 20);
    // Requests that the cell has not read, and the overhead of allocators.
    const ALL: u64 = 12 << 20;
    let fixture = Fixture::new();
    fixture.plant("sh", SHELL);
    let service = fixture.serve(&[]);
    let cell = service.json("POST", "/v1/cells", json!({ "template": "sh", "arguments": ["echo begun; sleep 1000"], "memory": "64M" }));
    let place = format!("/v1/cells/{}", cell["id"]);
    service.wait_for_output(&place, "begun");
    let free = || service.json("GET", "/v1", json!(null))["free_bytes"].as_u64().expect("it is a number");
    let (before, free_before) = (resident(&service), free());
    let jobs: Vec<UnixStream> = (0..JOBS)
        .map(|_| {
            let command = json!({ "arguments": ["sh", "-c", "while :; do echo yes yes yes; done"] });
            let mut stream = service.begin("POST", &format!("{place}/exec"), 1 << 30);
            stream.write_all(format!("{command}\n").as_bytes()).expect("it reads");
            // As much input as it takes.
            stream.set_nonblocking(true).expect("it is a socket");
            stream
        })
        .collect();
    let input = vec![b'x'; 1 << 20];
    let (mut sent, mut idle) = (0, 0);
    while idle < 20 {
        let before = sent;
        sent += jobs.iter().filter_map(|mut stream| stream.write(&input).ok()).sum::<usize>();
        idle = if sent == before { idle + 1 } else { 0 };
        // While it answers this, it takes more.
        free();
    }
    assert!(sent >= JOBS << 20, "{sent} bytes are less than they may have before them");
    // A job more is refused; by then those are at work.
    let (status, refusal) = service.ask("POST", &format!("{place}/exec"), "{ \"arguments\": [\"true\"] }\n");
    assert!(status >= 400, "{status} {refusal}");
    let taken = free_before.saturating_sub(free());
    let grown = resident(&service).saturating_sub(before).saturating_sub(taken);
    assert!(grown < JOBS as u64 * EACH + ALL, "the service has grown by {} KiB beside its cells' memory", grown >> 10);
    assert_eq!(service.ask("DELETE", &place, "").0, 204);
}

/// Gateways of cells that open all the connections they can leave others theirs.
#[test]
fn cells_that_open_connections_do_not_block_the_service() {
    needs_kvm!();
    let fixture = Fixture::new();
    for name in ["sh", "other"] {
        plant(&fixture, name, program("connecting", Linkage::GLIBC).parent().expect("it has one"));
    }
    let service = serve_with_files(&fixture, 512, &["--gateways", "4"]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("the host has a port");
    let port = listener.local_addr().expect("it listens").port();
    std::thread::spawn(move || listener.incoming().flatten().collect::<Vec<_>>());
    for _ in 0..4 {
        let script = format!("exec /shown/connecting {port}");
        let asked = json!({ "template": "sh", "arguments": [script], "allow": [format!("host:{port}")] });
        let cell = service.json("POST", "/v1/cells", asked);
        service.wait_for_output(&format!("/v1/cells/{}", cell["id"]), "holds");
    }
    for template in ["sh", "other"] {
        let ran = service.json("POST", "/v1/run", json!({ "template": template, "arguments": ["cat /shown/connecting | wc -c"] }));
        assert!(ran["exit_code"] == 0 && ran["stdout"] != "0\n", "{ran}");
    }
}

/// More templates are used in turn than a process with few descriptors can hold open files for.
#[test]
fn many_templates_share_few_descriptors() {
    needs_kvm!();
    const TEMPLATES: usize = 16;
    let fixture = Fixture::new();
    for number in 0..TEMPLATES {
        let shown = fixture.path(&format!("shown{number}"));
        std::fs::create_dir(&shown).expect("there is room");
        for file in 0..40 {
            std::fs::write(shown.join(format!("file{file}")), format!("{number}.{file}\n")).expect("there is room");
        }
        plant(&fixture, &format!("sh{number}"), &shown);
    }
    let service = serve_with_files(&fixture, 256, &[]);
    for _ in 0..2 {
        for number in 0..TEMPLATES {
            let asked = json!({ "template": format!("sh{number}"), "arguments": ["cat /shown/* | wc -l; /bin/sh -c 'echo $0'"] });
            let ran = service.json("POST", "/v1/run", asked);
            assert_eq!((&ran["stdout"], &ran["stderr"]), (&json!("40\n/bin/sh\n"), &json!("")), "{ran}");
        }
    }
}

/// Idle clients take no more than their share of connections, and others get an error.
#[test]
fn connections_are_counted() {
    needs_kvm!();
    let fixture = Fixture::new();
    let service = serve_with_files(&fixture, 256, &[]);
    let mut silent = Vec::new();
    let told = loop {
        let stream = service.begin("POST", "/v1/run", 1);
        // Accepted connections wait for the body.
        silent.push(stream);
        assert!(silent.len() < 250, "no connection is refused");
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
    wait_until(|| service.ask("GET", "/v1", "").0 == 200);
    let refused = Command::new(host_program("sh"))
        .args(["-c", &format!("ulimit -n 100 && exec {PANDO} serve --socket {}", fixture.path("other").display())])
        .env("XDG_DATA_HOME", fixture.path("data"))
        .output()
        .expect("sh starts");
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("too low for a service") && errors.contains("ulimit -Hn"), "{errors}");
}
