// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands that act on a cell of the service: names, signals, output.

use crate::fixture::{Fixture, Service, says};
use pando_testing::needs_kvm;
use serde_json::{Value, json};

/// A service, with a shell that runs its argument as a script.
fn served() -> (Fixture, Service) {
    let fixture = Fixture::new();
    fixture.plant("sh", r#"eval "$(pando-ready -s)"; eval "$1""#);
    let service = fixture.serve(&[]);
    (fixture, service)
}

/// Starts a cell in the background and waits until it has printed `begun`. Returns its number.
#[track_caller]
fn start(fixture: &Fixture, service: &Service, options: &[&str], script: &str) -> String {
    let started = fixture.pando(&[&["clone", "-d"], options, &["sh", &format!("{script}; echo begun; while :; do sleep 1 & wait; done")]].concat());
    assert_eq!((started.status, &started.errors[..]), (0, ""));
    let number = started.output.trim_end();
    service.hear(&format!("/v1/cells/{number}"), "begun");
    number.into()
}

#[test]
fn signals_have_the_names_that_kill_accepts() {
    needs_kvm!();
    let (fixture, service) = served();
    let script = "for name in TERM INT HUP USR1; do trap \"echo $name\" $name; done";
    let cell = start(&fixture, &service, &[], script);
    let place = format!("/v1/cells/{cell}");
    for (number, (signal, caught)) in
        [("TERM", "TERM"), ("sigterm", "TERM"), ("15", "TERM"), ("INT", "INT"), ("SIGHUP", "HUP"), ("usr1", "USR1"), ("10", "USR1")].into_iter().enumerate()
    {
        says(&fixture.pando(&["kill", "-s", signal, &cell]), "");
        // The shell runs the handlers one after the other.
        service.hear(&place, caught);
        let lines = fixture.pando(&["logs", &cell]).output;
        assert_eq!(lines.lines().count(), number + 2, "{signal}: {lines}");
    }
    let refused = fixture.pando(&["kill", "-s", "NOPE", &cell]);
    assert!(refused.status == 125 && refused.errors.contains("give a name, such as TERM or SIGTERM"), "{}", refused.errors);
    says(&fixture.pando(&["kill", "-s", "SIGKILL", &cell]), "");
    assert_eq!(service.json("GET", &place, json!(null))["outcome"]["reason"], "killed");
}

#[test]
fn cells_have_names_and_living_ones_never_the_same() {
    needs_kvm!();
    let (fixture, service) = served();
    let first = start(&fixture, &service, &["--name", "web"], "hostname");
    let listed = fixture.pando(&["ps"]).output;
    assert!(listed.lines().any(|line| line.split_whitespace().nth(1) == Some("web")), "{listed}");
    assert_eq!(fixture.pando(&["logs", "web"]).output, "web\nbegun\n");
    says(&fixture.pando(&["exec", "web", "busybox", "echo", "in"]), "in\n");
    let stats: Value = serde_json::from_str(&fixture.pando(&["stats", "--json", "web"]).output).expect("it is JSON");
    assert_eq!((&stats["id"].to_string(), &stats["name"]), (&first, &json!("web")));
    let refused = fixture.pando(&["clone", "-d", "--name", "web", "sh", "true"]);
    let message = format!("pando: cannot name a cell web: cell {first} has this name: end that cell (`pando kill`), or give another name\n");
    assert_eq!((refused.status, refused.errors), (125, message));
    assert!(fixture.pando(&["clone", "-d", "--name", "7", "sh", "true"]).errors.contains("would be a cell's number"));
    says(&fixture.pando(&["kill", "web"]), "");
    // The name is free again, and means the living cell; without one, the last.
    let second = start(&fixture, &service, &["--name", "web", "--hostname", "aspen"], "hostname");
    assert_eq!(fixture.pando(&["logs", "web"]).output, "aspen\nbegun\n");
    says(&fixture.pando(&["kill", "web"]), "");
    assert_eq!(fixture.pando(&["logs", "web"]).output, "aspen\nbegun\n");
    says(&fixture.pando(&["kill", "--rm", &second]), "");
    assert_eq!(fixture.pando(&["logs", "web"]).output, "web\nbegun\n");
    let missing = fixture.pando(&["logs", "nobody"]);
    assert!(missing.errors.contains("there is no cell nobody: `pando ps -a` lists the cells"), "{}", missing.errors);
}
