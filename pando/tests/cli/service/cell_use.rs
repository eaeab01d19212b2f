// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watches of files in cells, and the limits of programs and of idle cells.

use crate::fixture::{Fixture, Service, assert_output, wait_until};
use pando_testing::needs_kvm;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};

fn started() -> (Fixture, Service) {
    let fixture = Fixture::new();
    let service = fixture.serve(&[]);
    let script = "mkdir -p /w/deep; echo begun; sleep 1000";
    let started = fixture.pando(&["run", "-d", "--name", "box", "busybox", "sh", "-c", script]);
    assert_eq!((started.status, &started.errors[..]), (0, ""));
    service.wait_for_output("/v1/cells/box", "begun");
    (fixture, service)
}

/// The events of a watch, as type and path.
fn events(service: &Service, query: &str) -> impl Iterator<Item = (String, String)> {
    let lines = BufReader::new(service.send("GET", &format!("/v1/cells/box/watch?{query}"), b"")).lines().map_while(Result::ok);
    lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok()).filter(Value::is_object).map(|event| {
        let text = |name: &str| event[name].as_str().expect("text").to_owned();
        (text("event"), text("path"))
    })
}

#[test]
fn events_of_files_are_reported_as_they_happen() {
    needs_kvm!();
    let (fixture, service) = started();
    let mut flat = events(&service, "path=/w");
    let mut deep = events(&service, "path=/w&recursive=true");
    let begun = |(event, path): (String, String)| (event == "started" && path.is_empty()).then_some(());
    assert_eq!((flat.next().and_then(begun), deep.next().and_then(begun)), (Some(()), Some(())));
    let script = "echo a > /w/f; chmod 600 /w/f; mv /w/f /w/g; mkdir /w/new; echo b > /w/new/h; echo c > /w/deep/i; rm /w/g; rm -r /w/new";
    assert_output(&fixture.pando(&["exec", "box", "busybox", "sh", "-c", script]), "");
    let until = |events: &mut dyn Iterator<Item = (String, String)>| {
        let mut found: Vec<(String, String)> = Vec::new();
        for event in events {
            let is_last = event == ("remove".into(), "/w/new".into());
            if found.last() != Some(&event) {
                found.push(event);
            }
            if is_last {
                break;
            }
        }
        found.into_iter().map(|(event, path)| format!("{event} {path}")).collect::<Vec<_>>()
    };
    let of_top = [
        "create /w/f",
        "write /w/f",
        "attributes /w/f",
        "moved-from /w/f",
        "moved-to /w/g",
        "create /w/new",
        "remove /w/g",
        "remove /w/new",
    ];
    assert_eq!(until(&mut flat), of_top);
    let all = until(&mut deep);
    for event in of_top.iter().chain(&["create /w/new/h", "write /w/new/h", "create /w/deep/i", "write /w/deep/i", "remove /w/new/h"]) {
        assert!(all.iter().any(|found| found == event), "{event}: {all:?}");
    }
    let (status, refusal) = service.ask("GET", "/v1/cells/box/watch?path=/none", "");
    assert!(status == 422 && refusal.contains("no such file"), "{status} {refusal}");
    // A client that disconnects leaves no watch behind: as many more can be made as a cell may have programs.
    drop((flat, deep));
    for _ in 0..40 {
        wait_until(|| events(&service, "path=/w").next().is_some());
    }
}

#[test]
fn files_in_a_new_directory_are_reported_however_slow_the_client_is() {
    needs_kvm!();
    let (fixture, service) = started();
    let mut events = events(&service, "path=/w&recursive=true");
    assert_eq!(events.next(), Some(("started".into(), String::new())));
    // More events than are on their way at a time, and not more than the cell keeps.
    let script = "name=$(busybox printf '%0200d' 0); i=0; while [ $i -lt 10000 ]; do i=$((i+1)); > /w/$name$i; done; \
        mkdir -p /w/new/below; echo > /w/new/file; echo > /w/new/below/file; echo > /w/end";
    assert_output(&fixture.pando(&["exec", "box", "busybox", "sh", "-c", script]), "");
    let last = ("create".into(), "/w/end".into());
    let found: Vec<(String, String)> = events.take_while(|event| *event != last).collect();
    assert!(found.iter().all(|(event, _)| event != "overflow"));
    for path in ["/w/new", "/w/new/below", "/w/new/file", "/w/new/below/file"] {
        assert!(found.contains(&("create".into(), path.into())), "{path}");
    }
}

#[test]
fn a_process_that_leaves_its_group_does_not_write_on_without_a_client() {
    needs_kvm!();
    let (fixture, service) = started();
    let script = "busybox setsid sh -c 'echo $$ > /w/pid; exec busybox yes' & wait";
    let program = json!({ "arguments": ["busybox", "sh", "-c", script], "output_limit": 1000 }).to_string() + "\n";
    let lines = BufReader::new(service.send("POST", "/v1/cells/box/exec", program.as_bytes())).lines().map_while(Result::ok);
    let mut written = 0;
    for line in lines {
        written += serde_json::from_str::<Value>(&line).ok().and_then(|piece| piece["data"].as_str().map(str::len)).unwrap_or(0);
        if written == 1000 {
            break;
        }
    }
    // The cell's first program does not wait for it.
    let runs = "busybox grep -q '^State:.[RS]' /proc/$(cat /w/pid)/status";
    wait_until(|| fixture.pando(&["exec", "box", "busybox", "sh", "-c", runs]).status != 0);
}

#[test]
fn programs_that_write_too_much_are_killed() {
    needs_kvm!();
    let (_fixture, service) = started();
    let program = json!({ "arguments": ["busybox", "yes"], "output_limit": 100_000 }).to_string() + "\n";
    let (status, answer) = service.ask("POST", "/v1/cells/box/exec", &program);
    let lines: Vec<Value> = answer.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let written: usize = lines.iter().filter_map(|line| line["data"].as_str()).map(str::len).sum();
    let end = lines.last().expect("an end");
    assert_eq!((status, written, &end["exit_code"]), (200, 100_000, &json!(137)));
    assert!(end["message"].as_str().is_some_and(|message| message.contains("output limit of 100000 bytes")), "{end}");
}

#[test]
fn cells_without_use_end_after_their_idle_timeout() {
    needs_kvm!();
    let fixture = Fixture::new();
    let service = fixture.serve(&[]);
    let start = |script: &str| {
        let new = json!({ "arguments": ["busybox", "sh", "-c", script], "idle_timeout": 0.5 });
        service.json("POST", "/v1/cells", new)["id"].to_string()
    };
    let (busy, idle) = (start("while :; do :; done"), start("sleep 1000"));
    let state = |cell: &str| service.json("GET", &format!("/v1/cells/{cell}"), json!(null));
    wait_until(|| state(&idle)["outcome"]["reason"] == "timed-out");
    assert!(state(&busy)["outcome"].is_null());
    let refused = json!({ "arguments": ["busybox", "true"], "idle_timeout": -1 });
    assert_eq!(service.ask("POST", "/v1/cells", &refused.to_string()).0, 400);
}
