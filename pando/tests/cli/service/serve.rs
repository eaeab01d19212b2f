// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando serve`: one process with cells for all users who may open its socket.

use crate::fixture::{Fixture, ProgramOutput, Service, assert_output, wait_until};
use pando_testing::{host_program, needs_kvm};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

/// A shell that runs its argument as a script.
const SHELL: &str = r#"x=5; eval "$(pando-ready -s)"; eval "$1""#;

/// A directory with that template, and a service.
fn served() -> (Fixture, Service) {
    let fixture = Fixture::new();
    fixture.plant("sh", SHELL);
    let service = fixture.serve(&[]);
    (fixture, service)
}

fn run(service: &Service, script: &str, more: Value) -> Value {
    let mut asked = json!({ "template": "sh", "arguments": [script] });
    asked.as_object_mut().expect("it is one").extend(more.as_object().expect("it is one").clone());
    service.json("POST", "/v1/run", asked)
}

#[test]
fn a_clone_runs_in_one_round_trip() {
    needs_kvm!();
    let (_fixture, service) = served();
    let ran = run(
        &service,
        "read line; echo $x $NAME $line; echo no >&2; echo note done > /dev/pando; exit 3",
        json!({ "environment": { "NAME": "it's" }, "input": "in\n" }),
    );
    let part = |name: &str| ran[name].clone();
    assert_eq!((part("stdout"), part("stderr"), part("exit_code")), (json!("5 it's in\n"), json!("no\n"), json!(3)));
    assert_eq!((part("reason"), part("notes")), (json!("exited"), json!(["done"])));
    let bytes = run(&service, r"printf '\377'", json!({}));
    assert_eq!(bytes["stdout"], json!({ "base64": "/w==" }));
    assert_eq!(service.json("GET", "/v1/cells", json!(null)), json!([]));
}

#[test]
fn cells_that_exceed_a_limit_end_with_the_reason() {
    needs_kvm!();
    let (_fixture, service) = served();
    let cases = [
        ("while :; do :; done", json!({ "timeout": 0.3 }), "timed-out"),
        ("yes", json!({ "output_limit": 1000 }), "output-limit"),
        ("echo 0123456789abcdef", json!({ "output_limit": 10 }), "output-limit"),
        ("kill -9 $$", json!({}), "signalled"),
        ("dd if=/dev/zero of=/tmp/file bs=1M count=100 2>&1; echo $?", json!({ "memory": "16M" }), "exited"),
    ];
    for (script, limits, reason) in cases {
        let ran = run(&service, script, limits);
        assert_eq!(ran["reason"], reason, "{ran}");
    }
    let ran = run(&service, "yes", json!({ "output_limit": 1000 }));
    assert_eq!(ran["stdout"].as_str().map(str::len), Some(1000), "the output up to the limit is returned");
    // The next run is not affected.
    assert_eq!(run(&service, "echo $x", json!({}))["stdout"], "5\n");
}

#[test]
fn the_command_line_runs_clones_there() {
    needs_kvm!();
    let (fixture, service) = served();
    let mut clone = fixture
        .command(&["clone", "sh", "echo begun; cat; exit 4"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("pando starts");
    let mut output = BufReader::new(clone.stdout.take().expect("it was asked for"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it can be read");
    assert_eq!(line, "begun\n");
    let listed = fixture.pando(&["ps", "--json"]);
    let cell: Value = serde_json::from_str(&listed.output).expect("one line for one cell");
    assert_eq!((&cell["template"], &cell["outcome"]), (&json!("sh"), &Value::Null));
    let mut input = clone.stdin.take().expect("it was asked for");
    input.write_all(b"typed").expect("it reads");
    drop(input);
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("it can be read");
    let ended = clone.wait_with_output().expect("it ends");
    assert_eq!((&rest[..], ended.status.code(), &ended.stderr[..]), ("typed", Some(4), &b""[..]));
    assert_eq!(service.json("GET", "/v1/cells", json!(null)), json!([]), "the cell was removed");
}

#[test]
fn a_slow_reader_gets_all_output() {
    needs_kvm!();
    let (fixture, _service) = served();
    let script = "echo begun; seq 400000";
    let mut clone = fixture.command(&["clone", "sh", script]).stdout(Stdio::piped()).spawn().expect("pando starts");
    let mut output = BufReader::new(clone.stdout.take().expect("it was asked for"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it can be read");
    // Output of three times the service's buffer waits until it is read.
    let rest: Vec<u32> = output.lines().map(|line| line.expect("it can be read").parse().expect("it is a number")).collect();
    assert_eq!((&line[..], rest.len()), ("begun\n", 400_000));
    assert!(rest.iter().copied().eq(1..=400_000));
    assert!(clone.wait().expect("it ends").success());
}

#[test]
fn a_cell_lives_on_without_whoever_made_it() {
    needs_kvm!();
    let (fixture, _service) = served();
    let made =
        fixture.pando(&["clone", "-d", "sh", "trap 'echo caught; exit 7' TERM; echo two >&2; echo one; while :; do sleep 1 & wait; done"]);
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    let cell = made.output.trim();
    let mut followed = fixture.command(&["logs", "-f", cell]).stdout(Stdio::piped()).spawn().expect("pando starts");
    let mut output = BufReader::new(followed.stdout.take().expect("it was asked for"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it can be read");
    assert_eq!(line, "one\n");
    let asked = fixture.pando(&["kill", "--signal", "terminate", cell]);
    assert_eq!((asked.status, &asked.errors[..]), (0, ""));
    line.clear();
    output.read_line(&mut line).expect("it can be read");
    assert_eq!(line, "caught\n");
    assert!(followed.wait().expect("it ends with the cell").success());
    let ProgramOutput { output, .. } = fixture.pando(&["ps", "-a"]);
    assert!(output.contains("exited with status 7"), "{output}");
    let told = fixture.pando(&["stats", "--json", cell]);
    let told: Value = serde_json::from_str(&told.output).expect("it is JSON");
    assert_eq!(told["outcome"]["exit_code"], 7);
    let ProgramOutput { output, errors, .. } = fixture.pando(&["logs", cell]);
    assert_eq!((&output[..], &errors[..]), ("one\ncaught\n", "two\n"));
    assert_output(&fixture.pando(&["kill", "--rm", cell]), "");
    assert!(fixture.pando(&["logs", cell]).errors.contains("there is no cell"));
}

#[test]
fn a_cell_that_runs_becomes_a_template() {
    needs_kvm!();
    let (fixture, service) = served();
    let cell = service.json("POST", "/v1/cells", json!({ "template": "sh", "arguments": ["read a; echo a $a; read b; echo $x $a $b"] }));
    let id = cell["id"].to_string();
    let give = |id: &str, line: &str, end: bool| {
        assert_eq!(service.ask("POST", &format!("/v1/cells/{id}/input?end={end}"), line).0, 204);
    };
    give(&id, "first\n", false);
    // After its first output it waits for the next input.
    wait_until(|| service.ask("GET", &format!("/v1/cells/{id}/output"), "").1.contains("a first"));
    let frozen = fixture.pando(&["template", "freeze", &id, "half"]);
    assert!(frozen.status == 0 && frozen.errors.contains("random numbers"), "{}", frozen.errors);
    assert_eq!(service.json("GET", &format!("/v1/cells/{id}/wait"), json!(null))["outcome"]["reason"], "frozen");
    for second in ["1", "2"] {
        let ran = service.json("POST", "/v1/run", json!({ "template": "half", "input": format!("{second}\n") }));
        assert_eq!(ran["stdout"], format!("5 first {second}\n"), "{ran}");
    }
    // A shell does not notice that it was cloned.
    assert_eq!(service.json("GET", "/v1/templates/half", json!(null))["forced"], true);
    // Freezing under an existing name fails without ending the cell.
    let cell = service.json("POST", "/v1/cells", json!({ "template": "sh", "arguments": ["echo here; read a; echo $a"] }));
    let id = cell["id"].to_string();
    wait_until(|| service.ask("GET", &format!("/v1/cells/{id}/output"), "").1.contains("here"));
    assert!(fixture.pando(&["template", "freeze", &id, "half"]).errors.contains("already"));
    assert_eq!(fixture.pando(&["template", "freeze", "--force", "--replace", &id, "half"]).status, 0);
    assert_eq!(service.json("GET", "/v1/templates/half", json!(null))["forced"], true);
    let ran = service.json("POST", "/v1/run", json!({ "template": "half", "input": "x\n" }));
    assert_eq!(ran["stdout"], "x\n", "{ran}");
}

#[test]
fn templates_are_the_same_with_and_without_a_service() {
    needs_kvm!();
    let (fixture, service) = served();
    assert_eq!(run(&service, "echo $x", json!({}))["stdout"], "5\n");
    let again = ["template", "create", "--replace", "sh", "--", "busybox", "sh", "-c", r#"x=6; eval "$(pando-ready -s)"; eval "$1""#];
    assert_eq!(fixture.pando(&again).status, 0);
    assert_eq!(run(&service, "echo $x", json!({}))["stdout"], "6\n");
    let asked = json!({ "name": "made", "arguments": ["busybox", "sh", "-c", "echo said; pando-ready; echo on"], "replace": true });
    assert_eq!(service.json("POST", "/v1/templates", asked.clone())["name"], "made");
    assert_eq!(service.json("POST", "/v1/templates", asked)["name"], "made");
    assert_output(&fixture.pando(&["clone", "made"]), "on\n");
    let names = service.json("GET", "/v1/templates", json!(null));
    assert_eq!(names.as_array().map(Vec::len), Some(2));
    assert_output(&fixture.pando(&["template", "rm", "made"]), "");
    assert_eq!(service.ask("POST", "/v1/run", r#"{"template":"made"}"#).0, 404);
    assert_eq!(service.ask("DELETE", "/v1/templates/sh", "").0, 204);
    assert_eq!(service.ask("DELETE", "/v1/templates/sh", "").0, 404);
}

#[test]
fn cells_with_the_same_network_reach_each_other() {
    needs_kvm!();
    let (fixture, service) = served();
    let script = "mkdir /tmp/www; hostname > /tmp/www/name; echo ready; busybox httpd -f -p 80 -h /tmp/www";
    let server = service.json("POST", "/v1/cells", json!({ "template": "sh", "arguments": [script], "network": "inner" }));
    let (address, id) = (server["addresses"]["ipv4"].as_str().expect("it is in a network"), server["id"].to_string());
    wait_until(|| service.ask("GET", &format!("/v1/cells/{id}/output"), "").1.contains("ready"));
    // A client may start before the server listens.
    let fetch = format!("until busybox wget -q -O - http://{address}/name; do :; done");
    assert_output(&fixture.pando(&["clone", "--network", "inner", "sh", &fetch]), &format!("sh-{id}\n"));
    let others = run(&service, &format!("busybox wget -q -O - http://{address}/name; echo $?"), json!({ "network": "outer" }));
    assert_eq!(others["stdout"], "1\n", "{others}");
    assert!(fixture.pando(&["clone", "--network", "a b", "sh"]).errors.contains("not a valid network name"));
}

#[test]
fn programs_are_started_in_cells_that_run() {
    needs_kvm!();
    let (fixture, service) = served();
    let cell = fixture.pando(&["clone", "-d", "sh", "echo mine > /tmp/file; echo ready; sleep 1000"]);
    let cell = cell.output.trim();
    wait_until(|| fixture.pando(&["logs", cell]).output == "ready\n");
    assert_output(&fixture.pando(&["exec", cell, "cat", "/tmp/file"]), "mine\n");
    let script = "cat; echo $NAME $PWD $(id -u); echo no >&2; exit 3";
    let mut job = fixture
        .command(&["exec", "-i", "-e", "NAME=it's", "-w", "/tmp", "-u", "7", cell, "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("pando starts");
    job.stdin.take().expect("it was asked for").write_all(b"typed\n").expect("it reads");
    let ended = job.wait_with_output().expect("it ends");
    let [output, errors] = [&ended.stdout, &ended.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert_eq!((ended.status.code(), &*output, &*errors), (Some(3), "typed\nit's /tmp 7\n", "no\n"));
    // Without -i, the input stays for others.
    let mut reads = std::process::Command::new(host_program("sh"));
    reads.args(["-c", "while read -r word; do \"$@\" echo $word; done", "sh"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let exec = fixture.command(&["exec", cell]);
    reads.arg(exec.get_program()).args(exec.get_args());
    exec.get_envs().for_each(|(name, value)| _ = value.map(|value| reads.env(name, value)));
    let mut reads = reads.spawn().expect("a shell starts");
    reads.stdin.take().expect("it was asked for").write_all(b"one\ntwo\n").expect("it reads");
    assert_eq!(String::from_utf8_lossy(&reads.wait_with_output().expect("it ends").stdout), "one\ntwo\n");
    let missing = fixture.pando(&["exec", cell, "/no/such"]);
    assert!(missing.status == 127 && !missing.errors.is_empty(), "{}", missing.errors);
    let late = fixture.pando(&["exec", "--timeout", "100ms", cell, "sh", "-c", "echo begun; sleep 1000"]);
    assert_eq!((late.status, &late.output[..]), (124, "begun\n"));
    // Files are transferred without a program.
    let file = format!("/v1/cells/{cell}/file?path=/tmp/other");
    let large: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    service.bytes("PUT", &file, &large);
    assert!(service.bytes("GET", &file, b"") == large);
    assert_output(&fixture.pando(&["exec", cell, "stat", "-c", "%s", "/tmp/other"]), "4000000\n");
    let (status, answer) = service.ask("GET", &format!("/v1/cells/{cell}/file?path=/no/such"), "");
    assert!(status == 422 && answer.contains("/no/such"), "{answer}");
    assert_eq!(service.ask("PUT", &format!("/v1/cells/{cell}/file?path=/no/such"), "x").0, 422);
    // If the client disconnects, the program is terminated.
    let path = format!("/v1/cells/{cell}/exec");
    let left = service.send("POST", &path, b"{\"arguments\":[\"sleep\",\"2000\"]}\n");
    let sleeps = || fixture.pando(&["exec", cell, "pgrep", "-f", "sleep 2000"]).status == 0;
    wait_until(&sleeps);
    drop(left);
    wait_until(|| !sleeps());
    assert_eq!(service.ask("POST", &path, "{}\n").0, 400);
    assert_eq!(service.ask("POST", &path, "no").0, 400);
    let (status, answer) = service.ask("POST", &path, "{\"arguments\":[\"true\"],\"timeout\":0}\n");
    assert!(status == 400 && answer.contains("timeout: 0 is not a valid time"), "{answer}");
    assert_output(&fixture.pando(&["kill", cell]), "");
    let (status, answer) = service.ask("POST", &path, "{\"arguments\":[\"true\"]}\n");
    assert!(status == 409 && answer.contains("has ended"), "{answer}");
    // A client that is still sending gets the error as well.
    let mut late =
        fixture.command(&["exec", "-i", cell, "cat"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pando starts");
    let mut input = late.stdin.take().expect("it was asked for");
    while input.write_all(&[b'x'; 4096]).is_ok() {}
    let told = late.wait_with_output().expect("it ends");
    assert!(String::from_utf8_lossy(&told.stderr).contains("has ended"), "{}", String::from_utf8_lossy(&told.stderr));
}

#[test]
fn templates_go_in_and_out_as_files() {
    needs_kvm!();
    let (fixture, service) = served();
    let saved = service.bytes("GET", "/v1/templates/sh/file", b"");
    let (status, answer) = service.ask("PUT", "/v1/templates/sh/file", "");
    assert!(status == 409 && answer.contains("already"), "{answer}");
    assert_eq!(service.ask("PUT", "/v1/templates/none/file", "no template").0, 409);
    assert!(service.bytes("PUT", "/v1/templates/copy/file", &saved).starts_with(b"{"));
    let ran = service.json("POST", "/v1/run", json!({ "template": "copy", "arguments": ["echo $x"] }));
    assert_eq!(ran["stdout"], "5\n");
    std::fs::write(fixture.path("file"), saved).expect("there is room");
    assert_output(&fixture.pando(&["template", "load", "file", "third"]), "");
    assert_output(&fixture.pando(&["clone", "third", "echo $x"]), "5\n");
}

#[test]
fn malformed_requests_are_refused_with_reasons() {
    needs_kvm!();
    let (fixture, service) = served();
    let cases = [
        ("GET", "/v1/nothing", "", 404, "openapi.json"),
        ("PATCH", "/v1/cells", "", 405, "openapi.json"),
        ("GET", "/v1/cells/first", "", 404, "no cell first"),
        ("GET", "/v1/cells/99/wait?timeout=soon", "", 400, "timeout"),
        ("POST", "/v1/attach", "{}", 400, "give a template"),
        ("POST", "/v1/run", "{", 400, "JSON"),
        ("POST", "/v1/run", r#"{"template":"sh","tiemout":1}"#, 400, "timeout"),
        ("POST", "/v1/run", r#"{"template":"../sh"}"#, 400, "not a valid template name"),
        ("POST", "/v1/run", r#"{"template":"none"}"#, 404, "pando template create none"),
        ("POST", "/v1/run", r#"{"template":"sh","memory":"12"}"#, 400, "too little memory"),
        ("POST", "/v1/run", r#"{"template":"sh","timeout":-1}"#, 400, "timeout"),
        ("POST", "/v1/run", r#"{"template":"sh","cpus":2}"#, 400, "share of a core"),
        ("POST", "/v1/run", r#"{"template":"sh","cpu_weight":0}"#, 400, "cpu_weight: `0` is not a CPU weight"),
        ("POST", "/v1/run", r#"{"template":"sh","environment":{"a=b":""}}"#, 400, "environment"),
        ("POST", "/v1/run", r#"{"template":"sh","input":{"base64":"!"}}"#, 400, "base64"),
        ("POST", "/v1/templates", r#"{"name":"new"}"#, 400, "arguments"),
        ("POST", "/v1/templates", r#"{"name":"sh","arguments":["busybox"]}"#, 409, "already"),
        ("POST", "/v1/templates", r#"{"name":"new","arguments":["no-such-program"]}"#, 422, "was not found"),
        ("POST", "/v1/templates", r#"{"name":"new","arguments":["busybox","sh","-c","echo why"]}"#, 422, "why"),
        ("GET", "/v1/cells/99", "", 404, "no cell 99"),
        ("POST", "/v1/cells/99/kill", "", 404, "no cell 99"),
    ];
    for (method, path, body, status, word) in cases {
        let (told, answer) = service.ask(method, path, body);
        assert!(told == status && answer.contains(word), "{method} {path} {body}: {told} {answer}");
        let problem: Value = serde_json::from_str(&answer).expect("every problem is told in the same form");
        assert!(problem["problem"].is_string() && problem["message"].is_string(), "{answer}");
    }
    // A file that is not a socket is not replaced.
    let file = fixture.path("notes");
    std::fs::write(&file, "mine").expect("there is room");
    assert_eq!(fixture.pando(&["serve", "--socket", file.to_str().expect("it is text")]).status, 125);
    assert_eq!(std::fs::read_to_string(&file).ok().as_deref(), Some("mine"));
    let second = fixture.pando(&["serve"]);
    assert!(second.status == 125 && second.errors.contains("another `pando serve` uses it"), "{}", second.errors);
}

#[test]
fn a_full_machine_takes_no_more_and_says_so() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("sh", SHELL);
    let service = fixture.serve(&["--memory", "64M"]);
    // Idle cells sleep when memory is short. Random content does not fit into the swap space.
    let fill =
        json!({ "template": "sh", "arguments": ["dd if=/dev/urandom of=/tmp/file bs=1M count=12 2> /dev/null; echo full; sleep 1000"] });
    let mut cells = Vec::new();
    let refused = loop {
        let (status, answer) = service.ask("POST", "/v1/cells", &fill.to_string());
        if status != 201 {
            break (status, answer);
        }
        let cell: Value = serde_json::from_str(&answer).expect("it is JSON");
        let id = cell["id"].to_string();
        wait_until(|| service.ask("GET", &format!("/v1/cells/{id}/output"), "").1.contains("full"));
        cells.push(id);
        assert!(cells.len() < 20, "64 MiB are enough for all of them");
    };
    assert!(refused.0 == 503 && refused.1.contains("machine-full") && refused.1.contains("--memory"), "{refused:?}");
    assert!(cells.len() > 1, "{cells:?}");
    // Running cells continue, and there is room again once one has ended.
    assert_eq!(service.json("GET", "/v1", json!(null))["running"], cells.len());
    for id in &cells {
        assert_eq!(service.ask("DELETE", &format!("/v1/cells/{id}"), "").0, 204);
    }
    wait_until(|| service.ask("POST", "/v1/run", &json!({ "template": "sh", "arguments": ["echo $x"] }).to_string()).0 != 503);
    assert_eq!(run(&service, "echo $x", json!({}))["stdout"], "5\n");
}

#[test]
fn a_run_ends_when_its_client_disconnects() {
    needs_kvm!();
    let (_fixture, service) = served();
    let asked = service.send("POST", "/v1/run", &json!({ "template": "sh", "arguments": ["sleep 1000"] }).to_string().into_bytes());
    let cells = || service.json("GET", "/v1/cells", json!(null)).as_array().map(Vec::len);
    wait_until(|| cells() == Some(1));
    drop(asked);
    wait_until(|| cells() == Some(0));
}

#[test]
fn a_service_that_was_killed_leaves_nothing_in_the_way() {
    needs_kvm!();
    let (fixture, mut service) = served();
    service.json("POST", "/v1/cells", json!({ "template": "sh", "arguments": ["sleep 1000"] }));
    service.child.kill().expect("it runs");
    service.child.wait().expect("it ends");
    let ProgramOutput { status, errors, .. } = fixture.pando(&["ps"]);
    assert!(status == 125 && errors.contains("start `pando serve`"), "{errors}");
    // Without a service, this process does it itself.
    assert_output(&fixture.pando(&["clone", "sh", "echo $x"]), "5\n");
    let next = fixture.serve(&[]);
    assert_eq!(next.json("GET", "/v1/cells", json!(null)), json!([]));
    assert_eq!(run(&next, "echo $x", json!({}))["stdout"], "5\n");
}

#[test]
fn templates_see_only_the_shown_parts_of_the_host() {
    needs_kvm!();
    let fixture = Fixture::new();
    let (shown, hidden) = (fixture.path("shown"), fixture.path("hidden"));
    for directory in [&shown, &hidden] {
        std::fs::create_dir(directory).expect("there is room");
        std::fs::write(directory.join("file"), "seen").expect("there is room");
    }
    let service = fixture.serve(&["--show", shown.to_str().expect("it is text")]);
    let make = |name: &str, directory: &std::path::Path| {
        let volume = format!("{}:/data", directory.display());
        let words = ["busybox", "sh", "-c", "pando-ready; cat /data/file"];
        service.ask("POST", "/v1/templates", &json!({ "name": name, "arguments": words, "volumes": [volume] }).to_string())
    };
    assert_eq!(make("shown", &shown).0, 201);
    assert_eq!(service.json("POST", "/v1/run", json!({ "template": "shown" }))["stdout"], "seen");
    let (status, answer) = make("hidden", &hidden);
    assert!(status == 422 && answer.contains("hidden"), "{status} {answer}");
}

#[test]
fn a_template_that_never_ends_is_refused() {
    needs_kvm!();
    let fixture = Fixture::new();
    let service = fixture.serve(&["--memory", "64M"]);
    let mut stream = service.begin("PUT", "/v1/templates/large/file", 1 << 40);
    let mut sender = stream.try_clone().expect("a descriptor is free");
    let piece = vec![0; 1 << 20];
    // Until nobody reads any more.
    let sending = std::thread::spawn(move || std::iter::repeat(()).take_while(|()| sender.write_all(&piece).is_ok()).count());
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("it is answered");
    assert_eq!(String::from_utf8_lossy(&head), "HTTP/1.1 413");
    let mut rest = String::new();
    // The answer can be read although the connection is reset.
    let _ = stream.read_to_string(&mut rest);
    assert!(rest.contains("too-large") && rest.contains("--memory"), "{rest}");
    drop(stream);
    sending.join().expect("it does not panic");
    let left = std::fs::read_dir(fixture.path("data/pando/templates")).expect("it was made").count();
    assert_eq!(left, 0, "what had come is gone");
}
