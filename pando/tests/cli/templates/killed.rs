// SPDX-License-Identifier: MIT OR Apache-2.0
//! If a process is killed while it saves a template, either the old template is there, or the new one, complete.

use crate::case::long_runs;
use crate::fixture::{Fixture, wait_until};
use pando_testing::needs_kvm;
use std::fs;
use std::process::{Child, Stdio};

/// A program with random data. Its clones print whether the data is unchanged, and the program's word.
const SCRIPT: &str = "
import hashlib, os, pando, sys
word = sys.argv[1]
data = os.urandom(24 << 20)
before = hashlib.blake2b(data).digest()
pando.ready()
print(word, hashlib.blake2b(data).digest() == before)
";

/// The length of the unfinished template file, if there is one.
fn under_way(fixture: &Fixture) -> Option<u64> {
    let directory = fixture.file("it");
    let entries = fs::read_dir(directory.parent().expect("it lies in a directory")).into_iter().flatten().flatten();
    let mut written = entries.filter(|entry| entry.file_name().as_encoded_bytes().ends_with(b".new"));
    written.next().and_then(|entry| Some(entry.metadata().ok()?.len()))
}

/// Kills a process once it has written this much, unless it ends before.
fn kill_at(fixture: &Fixture, length: u64, mut child: Child) {
    wait_until(|| {
        if under_way(fixture).is_some_and(|written| written >= length) {
            child.kill().expect("it is ours");
        }
        child.try_wait().expect("it is ours").is_some()
    });
}

#[test]
fn a_kill_during_a_save_leaves_the_old_template_or_the_new_one() {
    let rounds = if long_runs() { 200 } else { 8 };
    needs_kvm!();
    let fixture = Fixture::new();
    let words = |number: u64| {
        ["template", "create", "--replace", "it", "--", "/usr/bin/python3", "-c", SCRIPT]
            .map(String::from)
            .into_iter()
            .chain([number.to_string()])
    };
    let create = |number: u64| {
        let words: Vec<String> = words(number).collect();
        let mut command = fixture.command(&words.iter().map(|word| &word[..]).collect::<Vec<_>>());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pando starts")
    };
    assert!(create(0).wait().expect("it is ours").success());
    let length = fs::metadata(fixture.file("it")).expect("it was kept").len();
    let (mut kept, mut replaced) = (0, 0);
    for number in 1..=rounds {
        // From its first byte to its last; the exact moment is random.
        kill_at(&fixture, length * (number - 1) / (rounds - 1), create(number));
        let said = fixture.pando(&["clone", "it"]);
        let is_new = said.output == format!("{number} True\n");
        assert!(
            said.status == 0 && (is_new || said.output == format!("{kept} True\n")),
            "{kept}, then {number}: {} {}",
            said.output,
            said.errors
        );
        if is_new {
            (kept, replaced) = (number, replaced + 1);
        }
    }
    assert!(replaced < rounds, "no process was killed in time");
    // Killed processes leave no files behind.
    assert!(create(rounds + 1).wait().expect("it is ours").success());
    assert_eq!(under_way(&fixture), None);
}
