// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands that act on a cell of the service: names, signals, output.

use crate::fixture::{Fixture, Service, assert_output, wait_until};
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
    let started =
        fixture.pando(&[&["clone", "-d"], options, &["sh", &format!("{script}; echo begun; while :; do sleep 1 & wait; done")]].concat());
    assert_eq!((started.status, &started.errors[..]), (0, ""));
    let number = started.output.trim_end();
    service.wait_for_output(&format!("/v1/cells/{number}"), "begun");
    number.into()
}

#[test]
fn signals_have_the_names_that_kill_accepts() {
    needs_kvm!();
    let (fixture, service) = served();
    let script = "for name in TERM INT HUP USR1; do trap \"echo $name\" $name; done";
    let cell = start(&fixture, &service, &[], script);
    let place = format!("/v1/cells/{cell}");
    let names =
        [("TERM", "TERM"), ("sigterm", "TERM"), ("15", "TERM"), ("INT", "INT"), ("SIGHUP", "HUP"), ("usr1", "USR1"), ("10", "USR1")];
    let mut expected = "begun\n".to_owned();
    for (signal, caught) in names {
        assert_output(&fixture.pando(&["kill", "-s", signal, &cell]), "");
        expected += &format!("{caught}\n");
        wait_until(|| fixture.pando(&["logs", &cell]).output == expected);
    }
    let refused = fixture.pando(&["kill", "-s", "NOPE", &cell]);
    assert!(refused.status == 125 && refused.errors.contains("give a name, such as TERM or SIGTERM"), "{}", refused.errors);
    assert_output(&fixture.pando(&["kill", "-s", "SIGKILL", &cell]), "");
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
    assert_output(&fixture.pando(&["exec", "web", "busybox", "echo", "in"]), "in\n");
    let stats: Value = serde_json::from_str(&fixture.pando(&["stats", "--json", "web"]).output).expect("it is JSON");
    assert_eq!((&stats["id"].to_string(), &stats["name"]), (&first, &json!("web")));
    let refused = fixture.pando(&["clone", "-d", "--name", "web", "sh", "true"]);
    let message =
        format!("pando: cannot name a cell web: cell {first} has this name: end that cell (`pando kill`), or give another name\n");
    assert_eq!((refused.status, refused.errors), (125, message));
    assert!(fixture.pando(&["clone", "-d", "--name", "7", "sh", "true"]).errors.contains("would be a cell's number"));
    assert_output(&fixture.pando(&["kill", "web"]), "");
    // The name is free again, and means the living cell; without one, the last.
    let second = start(&fixture, &service, &["--name", "web", "--hostname", "aspen"], "hostname");
    assert_eq!(fixture.pando(&["logs", "web"]).output, "aspen\nbegun\n");
    assert_output(&fixture.pando(&["kill", "web"]), "");
    assert_eq!(fixture.pando(&["logs", "web"]).output, "aspen\nbegun\n");
    assert_output(&fixture.pando(&["kill", "--rm", &second]), "");
    assert_eq!(fixture.pando(&["logs", "web"]).output, "web\nbegun\n");
    let missing = fixture.pando(&["logs", "nobody"]);
    assert!(missing.errors.contains("there is no cell nobody: `pando ps -a` lists the cells"), "{}", missing.errors);
}

#[test]
fn output_that_was_dropped_is_reported() {
    needs_kvm!();
    let (fixture, service) = served();
    let cell = start(&fixture, &service, &[], "seq 200000; echo end");
    let logs = fixture.pando(&["logs", &cell]);
    let first = logs.output.len();
    let dropped = 1_288_895 + "end\nbegun\n".len() - first;
    let message = format!(
        "pando: {dropped} bytes of earlier output are missing: the service keeps the last MiB, or as much as --output-limit allows\n"
    );
    assert_eq!((logs.status, logs.errors), (0, message));
    assert!(first >= 1 << 20 && logs.output.ends_with("\n200000\nend\nbegun\n"));
    let (_, lines) = service.ask("GET", &format!("/v1/cells/{cell}/output"), "");
    let pieces: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    assert_eq!((&pieces[0]["dropped_bytes"], &pieces[0]["number"]), (&json!(dropped), &json!(dropped)));
    assert!(pieces.len() > 1 && pieces[1]["dropped_bytes"].is_null());
    // With a limit, all output up to it is kept.
    let kept = start(&fixture, &service, &["--output-limit", "2M"], "seq 200000");
    let logs = fixture.pando(&["logs", &kept]);
    assert_eq!((logs.output.len(), &logs.errors[..]), (1_288_895 + "begun\n".len(), ""));
}

#[test]
fn times_are_for_people_and_for_programs() {
    needs_kvm!();
    let (fixture, service) = served();
    let cell = start(&fixture, &service, &[], "true");
    let shown = fixture.pando(&["stats", &cell]).output;
    let started = shown.lines().find(|line| line.starts_with("started")).expect("it was started");
    assert!(started.contains(" ago (20") && started.ends_with("Z)"), "{started}");
    let stats: Value = serde_json::from_str(&fixture.pando(&["stats", "--json", &cell]).output).expect("it is JSON");
    let time = stats["started"].as_str().expect("it is text");
    assert!(time.len() >= "2026-01-01T00:00:00Z".len() && time.as_bytes()[10] == b'T' && time.ends_with('Z'), "{time}");
}

#[test]
fn programs_in_a_cell_are_configured_like_its_own() {
    needs_kvm!();
    let fixture = Fixture::new();
    let create = ["template", "create", "--no-train", "-e", "COLOUR=red", "-e", "SIZE=1", "-w", "/tmp", "sh", "--"];
    let script = r#"eval "$(pando-ready -s)"; export OWN=1; cd /; eval "$1""#;
    assert_output(&fixture.pando(&[&create[..], &["busybox", "sh", "-c", script]].concat()), "");
    let service = fixture.serve(&[]);
    let cell = start(&fixture, &service, &["-e", "SIZE=2"], "true");
    let show = "echo $COLOUR $SIZE $MORE $OWN $PWD $HOME $(id -u)";
    let exec = |words: &[&str]| fixture.pando(&[&["exec"], words].concat());
    assert_output(&exec(&[&cell, "sh", "-c", show]), "red 2 /tmp /root 0\n");
    assert_output(
        &exec(&["-e", "MORE=3", "-e", "COLOUR=blue", "-w", "/usr", "-u", "4242", &cell, "sh", "-c", show]),
        "blue 2 3 /usr /home/4242 4242\n",
    );
    // Errors and statuses are those of docker.
    let refused = |words: &[&str]| {
        let said = exec(words);
        (said.status, said.output, said.errors)
    };
    assert_eq!(refused(&[&cell, "no-such-program"]), (127, String::new(), "pando: no-such-program: not found in PATH\n".into()));
    assert_eq!(refused(&[&cell, "/no/such"]), (127, String::new(), "pando: /no/such: no such file or directory\n".into()));
    assert_eq!(refused(&[&cell, "/etc/passwd"]), (126, String::new(), "pando: /etc/passwd: permission denied\n".into()));
    assert_eq!(refused(&["-e", "PATH=/etc", &cell, "passwd"]), (126, String::new(), "pando: passwd: permission denied\n".into()));
    let missing = "pando: working directory /no/such: no such file or directory\n";
    assert_eq!(refused(&["-w", "/no/such", &cell, "true"]), (127, String::new(), missing.into()));
}
