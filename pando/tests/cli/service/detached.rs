// SPDX-License-Identifier: MIT OR Apache-2.0
//! A service beside the command line: programs that run in it with `-d`, and a service that was left behind.

use crate::case::text;
use crate::fixture::{Fixture, ProgramOutput, assert_output, wait_until};
use pando_testing::needs_kvm;
use serde_json::json;
use std::io::Write;
use std::process::{Command, Stdio};

/// Checks that a command is refused with this message.
#[track_caller]
fn refused(said: &ProgramOutput, wanted: &str) {
    assert!(said.status == 125 && said.output.is_empty() && said.errors.contains(wanted), "{}", said.errors);
}

#[test]
fn clones_and_programs_run_in_the_service_until_they_are_ended() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("sh", r#"eval "$(pando-ready -s)"; eval "$1""#);
    refused(&fixture.pando(&["run", "-d", "busybox", "true"]), "start `pando serve`");
    let service = fixture.serve(&[]);
    let made = fixture.pando(&["clone", "-d", "--count", "3", "sh", "hostname; sleep 1000"]);
    let numbers: Vec<&str> = made.output.lines().collect();
    assert_eq!((made.status, numbers.len(), &made.errors[..]), (0, 3, ""));
    assert_eq!(fixture.pando(&["ps", "-q"]).output, made.output);
    service.wait_for_output(&format!("/v1/cells/{}", numbers[2]), &format!("sh-{}", numbers[2]));
    let labelled = fixture.pando(&["clone", "-d", "-l", "user=ann", "--label", "job", "sh", "sleep 1000"]);
    assert_eq!((labelled.status, &labelled.errors[..]), (0, ""));
    for (filters, found) in [
        (&["label=user"][..], true),
        (&["label=user=ann", "label=job"], true),
        (&["label=user=bob"], false),
        (&["label=job", "label=x"], false),
    ] {
        let words: Vec<&str> = ["ps", "-q"].into_iter().chain(filters.iter().flat_map(|filter| ["--filter", filter])).collect();
        assert_output(&fixture.pando(&words), if found { &labelled.output } else { "" });
    }
    refused(&fixture.pando(&["ps", "--filter", "name=x"]), "give label=NAME or label=NAME=VALUE");
    refused(&fixture.pando(&["clone", "-d", "-l", "=x", "sh"]), "give NAME=VALUE");
    assert_output(&fixture.pando(&["kill", labelled.output.trim_end()]), "");
    assert_output(&fixture.pando(&[&["kill"], &numbers[..]].concat()), "");
    let unknown = fixture.pando(&["kill", "999"]);
    assert!(unknown.status == 1 && unknown.errors.contains("there is no cell 999: `pando ps -a` lists the cells"), "{}", unknown.errors);
    // A program without a template, with arguments and variables of its own.
    let words = ["run", "-d", "--rm", "--name", "web", "-e", "A=it's", "-m", "64M", "busybox", "sh", "-c"];
    let started = fixture.pando(&[&words[..], &["hostname; echo \"$A\" $1; sleep 1000", "sh", "a b"]].concat());
    assert_eq!((started.status, &started.errors[..]), (0, ""));
    let place = format!("/v1/cells/{}", started.output.trim_end());
    service.wait_for_output(&place, "it's a b");
    assert!(service.json("GET", &place, json!(null))["outcome"].is_null());
    let listed = fixture.pando(&["ps"]).output;
    assert!(listed.lines().any(|line| line.split_whitespace().nth(1) == Some("web")), "{listed}");
    assert_output(&fixture.pando(&["exec", "-i", started.output.trim_end(), "busybox", "hostname"]), "web\n");
    assert_output(&fixture.pando(&["kill", "--rm", started.output.trim_end()]), "");
    for (options, option, advice) in [
        (&["-v", ".:/data"][..], "this -v", "add `:ro` or `:snapshot`"),
        (&["-v", ".:/data:live"], "this -v", "add `:ro` or `:snapshot`"),
        (&["-P"], "-P", "run the program without -d"),
        (&["--net", "private"], "this --net", "run the program without -d"),
    ] {
        let said = fixture.pando(&[&["run", "-d"], options, &["busybox", "true"]].concat());
        refused(&said, &format!("-d does not support {option}: "));
        refused(&said, advice);
    }
    assert_eq!(fixture.pando(&["run", "-d", "no-such-program"]).status, 127);
    refused(&fixture.pando(&["run", "-d", "-v", ".:/data:ro", "busybox", "true"]), "--show DIR");
    refused(&fixture.pando(&["run", "-d", "--root", ".", "busybox", "true"]), "--show DIR");
    let own = fixture.path("own");
    std::fs::copy("/bin/sh", &own).expect("there is room");
    refused(&fixture.pando(&["run", "-d", own.to_str().expect("a plain name")]), "is not part of the host's software");
    let listed = fixture.pando(&["ps", "-a"]).output;
    assert!(listed.contains("hostname; sleep 1000"), "{listed}");
    // Shell completion lists the existing cells and templates.
    let complete = |words: &[&str]| {
        let mut command: Command = fixture.command(&[&["--", "pando"], words].concat());
        command.env("PANDO_COMPLETE", "bash").env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        text(&command.output().expect("pando starts").stdout).to_owned()
    };
    assert!(complete(&["clone", ""]).lines().any(|line| line == "sh"), "{}", complete(&["clone", ""]));
    assert!(complete(&["logs", ""]).lines().any(|line| line == numbers[0]), "{}", complete(&["logs", ""]));
    assert!(!complete(&["kill", ""]).lines().any(|line| line == numbers[0]), "it has ended");
}

#[test]
fn programs_in_the_service_see_what_their_options_say() {
    needs_kvm!();
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.path("shown/bin")).expect("there is room");
    std::fs::copy("/bin/busybox", fixture.path("shown/bin/busybox")).expect("there is room");
    let shown = fixture.path("shown").display().to_string();
    let service = fixture.serve(&["--show", &shown]);
    let assert_output = |options: &[&str], wanted: &str| {
        let started = fixture.pando(&[&["run", "-d"], options].concat());
        assert_eq!((started.status, &started.errors[..]), (0, ""));
        service.wait_for_output(&format!("/v1/cells/{}", started.output.trim_end()), wanted);
    };
    // They share a root, but neither their files nor their users.
    assert_output(
        &["--name", "a", "-u", "7:8", "-w", "/tmp", "busybox", "sh", "-c", "echo a > f; echo $(id -u) $(id -g) $(pwd); sleep 1000"],
        "7 8 /tmp",
    );
    assert_output(
        &["--name", "b", "-w", "/tmp", "-e", "HOME=/h", "busybox", "sh", "-c", "echo files $(ls) $(id -u) $HOME; sleep 1000"],
        "files 0 /h",
    );
    assert_output(&["-v", &format!("{shown}:/data:ro"), "busybox", "sh", "-c", "ls /data; touch /data/x"], "touch: /data/x: Read-only");
    assert_output(&["--root", &shown, "--tmpfs", "/t:mode=700", "/bin/busybox", "sh", "-c", "/bin/busybox ls -d /bin /t; exit 3"], "/bin");
    assert_eq!(fixture.pando(&["exec", "a", "busybox", "sh", "-c", "id -u; pwd"]).output, "7\n/tmp\n");
    // A template of such a cell sees the same.
    assert_eq!(fixture.pando(&["template", "freeze", "--force", "a", "kept"]).status, 0);
    assert_eq!(fixture.pando(&["clone", "-d", "--name", "c", "kept"]).status, 0);
    assert_eq!(fixture.pando(&["exec", "c", "busybox", "sh", "-c", "id -u; cat f"]).output, "7\na\n");
    let wrong = [
        json!({}),
        json!({ "arguments": [""] }),
        json!({ "template": "kept", "image": "x" }),
        json!({ "template": "kept", "user": "7" }),
        json!({ "arguments": ["true"], "entrypoint": "x" }),
        json!({ "arguments": ["true"], "bare": true, "root": "/usr" }),
        json!({ "arguments": ["true"], "directory": "here" }),
        json!({ "arguments": ["true"], "user": "a:b:c" }),
        json!({ "arguments": ["true"], "tmpfs": ["/t:size"] }),
        json!({ "arguments": ["true"], "volumes": [format!("{shown}:/data")] }),
        json!({ "arguments": ["true"], "volumes": ["/proc:/p:ro"] }),
        json!({ "arguments": ["true"], "volumes": ["./:/data:ro"] }),
        json!({ "arguments": ["true"], "root": "." }),
        json!({ "arguments": ["no-such-program"] }),
        json!({ "image": "no-such-image" }),
    ];
    for request in wrong {
        let (status, refusal) = service.ask("POST", "/v1/cells", &request.to_string());
        assert!((400..500).contains(&status), "{request}: {status} {refusal}");
    }
}

#[test]
fn cells_are_restarted_by_their_policies() {
    needs_kvm!();
    let fixture = Fixture::new();
    let service = fixture.serve(&[]);
    let cells = |name: &str| {
        let all = service.json("GET", "/v1/cells", json!(null));
        all.as_array().expect("a list").iter().filter(|cell| cell["name"] == name).cloned().collect::<Vec<_>>()
    };
    let start = |name: &str, policy: &str, script: &str| {
        let started = fixture.pando(&["run", "-d", "--name", name, "--restart", policy, "busybox", "sh", "-c", script]);
        assert_eq!((started.status, &started.errors[..]), (0, ""));
    };
    start("forever", "always", "echo once");
    wait_until(|| cells("forever").iter().any(|cell| cell["restarts"] == 2));
    assert_eq!(fixture.pando(&["kill", "forever"]).status, 0);
    let restarted = cells("forever").len();
    start("asked", "unless-stopped", "trap 'exit 0' TERM; echo begun; while :; do sleep 1000 & wait; done");
    service.wait_for_output("/v1/cells/asked", "begun");
    assert_eq!(fixture.pando(&["kill", "-s", "TERM", "asked"]).status, 0);
    start("well", "on-failure", "exit 0");
    start("badly", "on-failure:2", "cat; exit 3");
    wait_until(|| cells("badly").iter().any(|cell| cell["restarts"] == 2 && cell["outcome"]["exit_code"] == 3));
    // A restarted cell takes the place of the ended one.
    assert_eq!(cells("badly").len(), 1);
    start("removed", "always", "echo begun; sleep 1000");
    service.wait_for_output("/v1/cells/removed", "begun");
    assert_eq!(service.ask("DELETE", "/v1/cells/removed", "").0, 204);
    start("last", "on-failure:1", "exit 1");
    wait_until(|| cells("last").iter().any(|cell| cell["restarts"] == 1 && !cell["outcome"].is_null()));
    // By now all others would have been restarted.
    assert_eq!((cells("forever").len(), cells("asked").len(), cells("well").len()), (restarted, 1, 1));
    assert!(cells("removed").is_empty());
    let wrong = json!({ "arguments": ["busybox", "true"], "restart": "sometimes" });
    assert_eq!(service.ask("POST", "/v1/cells", &wrong.to_string()).0, 400);
    let attached = json!({ "arguments": ["busybox", "true"], "restart": "always" });
    assert_eq!(service.ask("POST", "/v1/run", &attached.to_string()).0, 400);
    assert_ne!(fixture.pando(&["run", "--restart", "always", "busybox", "true"]).status, 0);
}

#[test]
fn a_service_that_was_left_behind_blocks_no_command() {
    needs_kvm!();
    let fixture = Fixture::new();
    for directory in ["run", "hidden"] {
        std::fs::create_dir(fixture.path(directory)).expect("there is room");
    }
    std::fs::write(fixture.path("hidden/file"), "seen").expect("there is room");
    let command = |words: &[&str], data: &str| {
        let mut command = fixture.command(words);
        command.env("XDG_RUNTIME_DIR", fixture.path("run")).env("XDG_DATA_HOME", fixture.path(data));
        command
    };
    let pando = |words: &[&str], data: &str| {
        let mut child =
            command(words, data).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pando starts");
        // A process that has ended does not read this.
        let _ = child.stdin.take().expect("it is a pipe").write_all(b"in ");
        let outcome = child.wait_with_output().expect("it is ours");
        let status = outcome.status.code().expect("no signal ends it");
        ProgramOutput { status, output: text(&outcome.stdout).into(), errors: text(&outcome.stderr).into() }
    };
    let _service = fixture.service(command(&["serve"], "data"));
    // The service was started before there was a template that sees this directory.
    let volume = format!("{}:/data:ro", fixture.path("hidden").display());
    let script = "pando-ready; cat - /data/file";
    let made = pando(&["template", "create", "-v", &volume, "late", "--", "busybox", "sh", "-c", script], "data");
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    assert_output(&pando(&["clone", "late"], "data"), "in seen");
    refused(&pando(&["clone", "-d", "late"], "data"), "`kill ");
    // The service stores its templates in another directory than the one where these are created.
    let made = pando(&["template", "create", "other", "--", "busybox", "sh", "-c", "pando-ready; cat"], "elsewhere");
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    assert_output(&pando(&["clone", "other"], "elsewhere"), "in ");
    refused(&pando(&["clone", "-d", "other"], "elsewhere"), "stores its templates in");
}
