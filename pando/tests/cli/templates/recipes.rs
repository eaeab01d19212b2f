// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando template build`: templates of recipes in files. The Python client's tests build recipes by the same command, with packages and
//! images.

use crate::fixture::{Fixture, assert_output, wait_until};
use pando_testing::needs_kvm;
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

/// Writes the recipe `pando.toml` with this line of the shell.
fn write_recipe(fixture: &Fixture, line: &str) {
    let text = format!(
        "preload = [\"json.tool\"]\nenv = {{ NAME = \"it's\" }}\nsteps = [\n  {{ copy = [\"files\", \"/opt/data\"] }},\n  {{ run = \"{line}\" }},\n]\n"
    );
    fs::write(fixture.path("pando.toml"), text).expect("there is room");
}

#[test]
fn a_recipe_is_built_once_and_again_when_it_has_changed() {
    needs_kvm!();
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("files")).expect("there is room");
    fs::write(fixture.path("files/text"), "one").expect("there is room");
    write_recipe(&fixture, "echo $NAME > /opt/said; echo done");
    let built = fixture.pando(&["template", "build", "mine"]);
    assert_eq!((built.status, &built.output[..]), (0, "mine\n"), "{}", built.errors);
    assert!(built.errors.contains("creating the template \"recipe-session-") && built.errors.contains("\ndone\n"), "{}", built.errors);
    let code = "import os, sys; print('json.tool' in sys.modules, open('/opt/said').read().strip(), open('/opt/data/text').read(), \
                os.environ['NAME'], sys.argv[1:], sys.stdin.read())";
    // The clone has input, arguments and variables of its own.
    let mut command = fixture.command(&["clone", "mine", code, "a", "b c"]);
    let mut clone = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("pando starts");
    clone.stdin.take().expect("it is piped").write_all(b"typed").expect("it reads");
    let output = clone.wait_with_output().expect("it ends").stdout;
    assert_eq!(String::from_utf8_lossy(&output), "True it's one it's ['a', 'b c'] typed\n");
    let draw = || fixture.pando(&["clone", "mine", "import random; print(random.random())"]).output;
    assert_eq!((0..3).map(|_| draw()).collect::<HashSet<String>>().len(), 3);
    // The same recipe, and one with another file.
    assert_output(&fixture.pando(&["template", "build", "mine"]), "mine\n");
    let digest = fixture.pando(&["template", "build"]).output;
    assert!(digest.starts_with("recipe-session-"), "{digest}");
    fs::write(fixture.path("files/text"), "two").expect("there is room");
    assert_eq!(fixture.pando(&["template", "build", "mine"]).status, 0);
    assert_output(&fixture.pando(&["clone", "mine", "print(open('/opt/data/text').read())"]), "two\n");
    assert_ne!(fixture.pando(&["template", "build"]).output, digest);
    // Only templates of recipes are replaced without being asked.
    fixture.plant("own", "pando-ready; echo own");
    let refused = fixture.pando(&["template", "build", "own"]);
    assert!(refused.status == 125 && refused.errors.contains("own"), "{}", refused.errors);
    assert_output(&fixture.pando(&["clone", "own"]), "own\n");
    assert_eq!(fixture.pando(&["template", "build", "--replace", "own"]).status, 0);
    assert_output(&fixture.pando(&["clone", "own", "print(6 * 7)"]), "42\n");
}

#[test]
fn a_step_that_fails_is_named_after_its_output() {
    needs_kvm!();
    let fixture = Fixture::new();
    fs::write(fixture.path("files"), "").expect("there is room");
    write_recipe(&fixture, "echo why; exit 3");
    let failed = fixture.pando(&["template", "build", "mine"]);
    assert_eq!((failed.status, &failed.output[..]), (125, ""));
    assert!(failed.errors.ends_with("why\npando: run echo why; exit 3: exited with status 3\n"), "{}", failed.errors);
    fs::remove_file(fixture.path("files")).expect("it is there");
    let missing = fixture.pando(&["template", "build", "mine"]);
    assert!(missing.status == 125 && missing.errors.contains("files: no such file or directory"), "{}", missing.errors);
    fs::write(fixture.path("pando.toml"), "steps = [{ apt = [\"git\"] }]").expect("there is room");
    let refused = fixture.pando(&["template", "build", "mine"]);
    assert!(refused.status == 125 && refused.errors.contains("pando.toml: apt needs an image"), "{}", refused.errors);
    // The service of the failed build has ended with it, and its cell.
    assert!(fixture.pando(&["ps"]).errors.contains("it is not running"));
}

#[test]
fn the_service_of_a_build_that_is_killed_ends() {
    needs_kvm!();
    let fixture = Fixture::new();
    fs::write(fixture.path("files"), "").expect("there is room");
    write_recipe(&fixture, "echo begun; exec sleep 1000");
    let mut command = fixture.command(&["template", "build", "--json"]);
    let mut build = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("pando starts");
    let mut lines = BufReader::new(build.stdout.take().expect("it is piped")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains("begun"))), "the step begins");
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", build.id())).expect("it runs");
    build.kill().expect("it runs");
    build.wait().expect("it ends");
    let service: u32 = children.trim().parse().expect("it has one child");
    wait_until(|| {
        let state = fs::read_to_string(format!("/proc/{service}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    });
}
