// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many cells that are started at once wait in a queue. Requests reach them there, and cells that never idle do not keep them from
//! starting.

use crate::fixture::{Fixture, Service, wait_until};
use pando_testing::needs_kvm;
use serde_json::{Value, json};

/// Cells that compute for ever: more than start at a time.
const BUSY: u64 = 100;

fn cell(service: &Service, cell: u64) -> Value {
    service.json("GET", &format!("/v1/cells/{cell}"), Value::Null)
}

#[test]
fn queued_cells_answer_requests_and_others_start_after_those_that_compute() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("sh", r#"eval "$(pando-ready -s)"; eval "$1""#);
    let service = fixture.serve(&["--sleep-after", "100ms"]);
    let started = fixture.pando(&["clone", "sh", "-d", "--count", &BUSY.to_string(), "while :; do :; done"]);
    assert_eq!(started.status, 0, "{}", started.errors);
    // They come last. The time limit of the second counts from its start.
    let start = |specification: Value| service.json("POST", "/v1/cells", specification)["id"].as_u64().expect("a number");
    let idle = start(json!({ "template": "sh", "arguments": ["read line"] }));
    let limited = start(json!({ "template": "sh", "arguments": ["echo begun; read line"], "timeout": 1 }));
    let watched = start(json!({ "template": "sh", "arguments": ["read line"], "idle_timeout": 1 }));
    assert_eq!([idle, limited, watched], [BUSY + 1, BUSY + 2, BUSY + 3]);
    assert_eq!(cell(&service, limited)["state"], json!("queued"));
    let queued = fixture.pando(&["ps", "-q", "--state", "queued"]).output;
    assert!(queued.ends_with(&format!("{}\n{idle}\n{limited}\n{watched}\n", BUSY)), "{queued}");
    let refused = fixture.pando(&["sleep", &idle.to_string()]);
    assert!(refused.status == 125 && refused.errors.contains("it is queued for its start"), "{}", refused.errors);
    // A program in a queued cell is answered, and the cells before it remain where they are.
    let told = fixture.pando(&["exec", &BUSY.to_string(), "busybox", "echo", "here"]);
    assert_eq!((told.output.as_str(), told.status), ("here\n", 0), "{}", told.errors);
    assert_eq!(cell(&service, BUSY)["state"], json!("running"));
    assert_eq!(cell(&service, BUSY - 1)["state"], json!("queued"));
    assert_eq!(fixture.pando(&["kill", &(BUSY - 1).to_string()]).status, 0);
    wait_until(|| cell(&service, BUSY - 1)["state"] == json!("ended"));
    assert_eq!(fixture.pando(&["wake", &(BUSY - 2).to_string()]).status, 0);
    assert_eq!(cell(&service, BUSY - 2)["state"], json!("running"));
    // The others are admitted although those before them never idle.
    wait_until(|| cell(&service, 20)["state"] == json!("running"));
    assert_eq!(cell(&service, limited)["state"], json!("queued"), "its time has not begun");
    let busy: Vec<String> = (1..=BUSY).map(|id| id.to_string()).collect();
    assert_eq!(fixture.pando(&busy.iter().map(String::as_str).fold(vec!["rm", "-f"], |all, id| [all, vec![id]].concat())).status, 0);
    wait_until(|| cell(&service, idle)["state"] == json!("asleep"));
    for (id, output) in [(limited, "begun\n"), (watched, "")] {
        wait_until(|| cell(&service, id)["state"] == json!("ended"));
        assert_eq!(cell(&service, id)["outcome"]["reason"], json!("timed-out"));
        assert_eq!(fixture.pando(&["logs", &id.to_string()]).output, output);
    }
}
