// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells of `pando serve` on a host, and clones without it, that have cells of their own.

use crate::case::PANDO;
use crate::fixture::{Fixture, assert_output, wait_until};
use pando_testing::needs_kvm;
use serde_json::{Value, json};

/// A shell that runs its argument as a script, as a template that sees `pando`.
const SHELL: &str = r#"eval "$(pando-ready -s)"; PATH=/opt:$PATH; eval "$1""#;

/// A fixture with the template `sh`.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    let volume = format!("{PANDO}:/opt/pando:ro");
    let words = ["template", "create", "--no-train", "-v", &volume, "sh", "--", "busybox", "sh", "-c", SHELL];
    assert_output(&fixture.pando(&words), "");
    fixture
}

#[test]
fn clones_without_a_service_have_nested_cells() {
    needs_kvm!();
    let fixture = fixture();
    let nested = "ls /dev/cells; pando run -- sh -c 'echo inner; exit 3'; echo status $?";
    assert_output(&fixture.pando(&["clone", "--nest", "2", "sh", nested]), "/dev/cells\ninner\nstatus 3\n");
    // Lines of clones that run at a time come in any order.
    let deep = "pando run --nest 1 -- pando run -- sh -c 'echo $(hostname) deep'";
    assert_output(&fixture.pando(&["clone", "--nest", "2", "--count", "2", "sh", deep]), "pando deep\npando deep\n");
    let refused = fixture.pando(&["clone", "sh", "pando run -- true; echo status $?"]);
    assert_eq!(refused.output, "status 125\n");
    assert!(refused.errors.contains("start it with `--nest NUMBER`"), "{}", refused.errors);
}

#[test]
fn cells_of_a_service_have_nested_cells_within_their_limits() {
    needs_kvm!();
    let fixture = fixture();
    let service = fixture.serve(&[]);
    let made = fixture.pando(&["clone", "-d", "--nest", "1", "--name", "outer", "-m", "200M", "sh", "sleep 1000"]);
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    let inside = |script: &str| fixture.pando(&["exec", "-e", "PATH=/opt:/usr/bin:/bin", "outer", "sh", "-c", script]);
    assert_output(&inside("pando run -- echo inner; pando run -- cat /etc/hostname | wc -l"), "inner\n1\n");
    let full = inside("pando run -m 200M -- sh -c 'head -c 400M /dev/zero | tail' 2>/dev/null; echo status $?");
    // The cell is ended, or the program cannot allocate.
    assert!(["status 137\n", "status 1\n"].contains(&&full.output[..]), "{}", full.output);
    let second = inside("mkfifo /tmp/f; pando run -- sh -c 'echo ready; cat' </tmp/f & exec 3>/tmp/f; pando run -- true; echo status $?");
    assert!(second.errors.contains("--nest"), "{}", second.errors);
    // The host's user sees what runs inside, as a tree.
    let inner = "pando run --nest 1 --hostname inner -- pando run --hostname deep -- sleep 1000";
    let made = fixture.pando(&["clone", "-d", "--nest", "2", "--name", "tree", "sh", inner]);
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    wait_until(|| fixture.pando(&["ps", "--tree"]).output.contains("    deep"));
    let tree = fixture.pando(&["ps", "--tree"]).output;
    let names: Vec<&str> =
        tree.lines().skip(1).map(|line| line[8..].split("  ").find(|word| !word.is_empty()).unwrap_or_default()).collect();
    assert_eq!(names, ["outer", "tree", "inner", "deep"], "{tree}");
    let json = fixture.pando(&["ps", "--tree", "--json"]).output;
    let cells: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let below = &cells[1]["descendants"];
    assert_eq!((&below[0]["depth"], &below[1]["depth"], &below[1]["state"]), (&json!(1), &json!(2), &json!("running")), "{json}");
    assert!(below[0]["memory_bytes"].as_u64() > below[1]["memory_bytes"].as_u64() && cells[0].get("descendants").is_none(), "{json}");
    // A program without a template may have some, too: it reports whether it has the device.
    let detached = fixture.pando(&["run", "-d", "--nest", "3", "busybox", "ls", "/dev/cells"]);
    service.wait_for_output(&format!("/v1/cells/{}", detached.output.trim_end()), "/dev/cells");
    let ran = service.json("POST", "/v1/run", json!({ "template": "sh", "arguments": ["pando run -- echo inner"], "nest": 1 }));
    assert_eq!(ran["stdout"], "inner\n", "{ran}");
    let (status, answer) = service.ask("POST", "/v1/run", &json!({ "template": "sh", "nest": "many" }).to_string());
    assert!(status == 400 && answer.contains("nest"), "{status} {answer}");
    // Nothing is left of them: the template can be removed, and its files are closed.
    assert_output(&fixture.pando(&["kill", "outer"]), "");
    assert_output(&fixture.pando(&["template", "rm", "sh"]), "");
}
