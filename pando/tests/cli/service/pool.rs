// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates of `pando serve`, while others replace them, create them or fail to.

use crate::fixture::{Fixture, Service};
use pando_testing::needs_kvm;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// A shell that runs its argument as a script.
const SHELL: &str = r#"x=5; eval "$(pando-ready -s)"; eval "$1""#;

fn served(options: &[&str]) -> (Fixture, Service) {
    let fixture = Fixture::new();
    fixture.plant("sh", SHELL);
    let service = fixture.serve(options);
    (fixture, service)
}

fn assert_clone_prints(service: &Service, template: &str, said: &str) {
    let ran = service.json("POST", "/v1/run", json!({ "template": template, "arguments": ["echo $x"] }));
    assert_eq!(ran["stdout"], said, "{ran}");
}

#[test]
fn clones_of_a_template_under_replacement_get_the_old_or_the_new_one() {
    needs_kvm!();
    let (_fixture, service) = served(&[]);
    let saved = service.bytes("GET", "/v1/templates/sh/file", b"");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert_clone_prints(&service, "sh", "5\n");
                }
            });
        }
        for _ in 0..20 {
            service.bytes("PUT", "/v1/templates/sh/file?replace=true", &saved);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn slow_templates_delay_no_other_request() {
    needs_kvm!();
    let (_fixture, service) = served(&[]);
    let make = |number: u32| json!({ "name": format!("slow{number}"), "arguments": ["busybox", "sleep", "1000"], "memory": "16M" });
    let asked: Vec<_> = (0..20).map(|number| service.send("POST", "/v1/templates", make(number).to_string().as_bytes())).collect();
    for _ in 0..5 {
        assert_clone_prints(&service, "sh", "5\n");
    }
    drop(asked);
}

#[test]
fn failed_requests_release_their_disks() {
    needs_kvm!();
    let fixture = Fixture::new();
    let shown = fixture.path("shown");
    std::fs::create_dir(&shown).expect("there is room");
    let service = fixture.serve(&["--show", shown.to_str().expect("it is text")]);
    let volumes: Vec<String> = (0..12).map(|number| format!("{}:/data{number}", shown.display())).collect();
    // Two hundred times a dozen disks and one for its root: more than the kernel's limit of disks.
    let endless = "x".repeat(600_000);
    let asked = json!({ "name": "none", "arguments": ["busybox", endless], "bare": true, "volumes": volumes }).to_string();
    for _ in 0..200 {
        let (status, answer) = service.ask("POST", "/v1/templates", &asked);
        assert!(status == 422 && answer.contains("arguments"), "{status} {answer}");
    }
    let asked = json!({ "name": "some", "arguments": ["busybox", "sh", "-c", "pando-ready; echo here"], "volumes": volumes });
    service.json("POST", "/v1/templates", asked);
    let ran = service.json("POST", "/v1/run", json!({ "template": "some" }));
    assert_eq!(ran["stdout"], "here\n", "{ran}");
}

#[test]
fn the_template_of_a_frozen_cell_exists_when_the_freeze_is_reported() {
    needs_kvm!();
    let (_fixture, service) = served(&[]);
    let script = "echo here; read a; echo $x $a";
    let cell = service.json("POST", "/v1/cells", json!({ "template": "sh", "arguments": [script] }));
    let place = format!("/v1/cells/{}", cell["id"]);
    service.wait_for_output(&place, "here");
    let asked = service.send("POST", &format!("{place}/freeze"), br#"{"name":"half"}"#);
    let ended = service.json("GET", &format!("{place}/wait"), json!(null));
    assert_eq!(ended["outcome"]["reason"], "frozen", "{ended}");
    let ran = service.json("POST", "/v1/run", json!({ "template": "half", "input": "more\n" }));
    assert_eq!(ran["stdout"], "5 more\n", "{ran}");
    drop(asked);
    let (status, answer) = service.ask("POST", &format!("{place}/freeze"), r#"{"name":"other"}"#);
    assert!(status == 409 && answer.contains("has ended"), "{answer}");
}

#[test]
fn clones_of_a_loaded_template_read_files_as_they_are_at_the_first_read() {
    needs_kvm!();
    let fixture = Fixture::new();
    let shown = fixture.path("shown");
    std::fs::create_dir(&shown).expect("there is room");
    for name in ["file", "removed"] {
        std::fs::write(shown.join(name), "seen").expect("there is room");
    }
    let service = fixture.serve(&["--show", shown.to_str().expect("it is text")]);
    let asked = json!({ "name": "reader", "arguments": ["busybox", "sh", "-c", SHELL], "volumes": [format!("{}:/data", shown.display())] });
    service.json("POST", "/v1/templates", asked);
    assert_clone_prints(&service, "reader", "5\n");
    std::fs::write(shown.join("file"), "something else").expect("there is room");
    std::fs::remove_file(shown.join("removed")).expect("it is ours");
    let read = |name: &str| {
        let ran = service.json("POST", "/v1/run", json!({ "template": "reader", "arguments": [format!("cat /data/{name}")] }));
        (ran["stdout"].clone(), ran["exit_code"].clone())
    };
    assert_eq!(read("file"), (json!("something else"), json!(0)));
    assert_eq!(read("removed"), (json!(""), json!(1)), "its name is there, and its content is gone");
    // The template is loaded again, and is still good.
    assert_clone_prints(&service, "reader", "5\n");
    assert_eq!(read("file"), (json!("something else"), json!(0)));
}

#[test]
fn the_standard_template_follows_the_host_and_the_options() {
    needs_kvm!();
    let fixture = Fixture::new();
    let python = fixture.path("software/bin/python3");
    // A program that prints its version; with training, also its argument.
    let install = |version: u32| {
        let script = format!("#!/bin/sh\nversion={version}\neval \"$(pando-ready -s)\"\necho $version $1\n");
        let fresh = python.with_extension("new");
        std::fs::write(&fresh, script).expect("there is room");
        std::fs::set_permissions(&fresh, PermissionsExt::from_mode(0o755)).expect("it is ours");
        std::fs::rename(&fresh, &python).expect("there is room");
    };
    std::fs::create_dir_all(python.parent().expect("it has one")).expect("there is room");
    install(1);
    let path = format!("{}:{}", Path::new(&python).parent().expect("it has one").display(), std::env::var("PATH").unwrap_or_default());
    let mut command = fixture.command(&["serve"]);
    command.env("PATH", path);
    let mut service = fixture.service(command);
    let ran = |service: &Service| {
        let ran = service.json("POST", "/v1/run", json!({ "template": "python", "arguments": ["x"] }));
        ran["stdout"].as_str().map(str::to_owned).unwrap_or_default()
    };
    assert_eq!(ran(&service), "1 x\n");
    install(2);
    // The loaded template stays in use.
    assert_eq!(ran(&service), "1 x\n");
    let touch = || {
        let kept = std::fs::read(fixture.file("python")).expect("it was made");
        std::fs::write(fixture.file("python"), kept).expect("there is room");
    };
    touch();
    assert_eq!(ran(&service), "2 x\n");
    assert!(service.next_line_contains("creating template"));
    // A template that was created with other options is refused, not replaced.
    let asked = json!({ "name": "python", "memory": "64M", "replace": true });
    let made: Value = service.json("POST", "/v1/templates", asked);
    assert_eq!(made["memory_bytes"], 64 << 20);
    assert_eq!(ran(&service), "2 x\n");
    install(3);
    touch();
    let (status, answer) = service.ask("POST", "/v1/run", r#"{"template":"python"}"#);
    assert!(status == 409 && answer.contains("--replace"), "{status} {answer}");
}
