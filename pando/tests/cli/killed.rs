// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whenever who saves a template is killed, the one of old is there, or the new one, and whole.

use crate::case::long_runs;
use crate::grove::Grove;
use pando_testing::lab::kvm_is_there;
use std::fs;
use std::process::{Child, Stdio};
use std::thread;

/// A program with bytes in no order, which says in a clone whether they are what they were, and its word.
const SCRIPT: &str = "
import hashlib, os, pando, sys
word = sys.argv[1]
data = os.urandom(24 << 20)
before = hashlib.blake2b(data).digest()
pando.ready()
print(word, hashlib.blake2b(data).digest() == before)
";

/// What is in the way of the template's file: how long that is which is being written.
fn under_way(grove: &Grove) -> Option<u64> {
    let directory = grove.file("it");
    let entries = fs::read_dir(directory.parent().expect("it lies in a directory")).into_iter().flatten().flatten();
    let mut written = entries.filter(|entry| entry.file_name().as_encoded_bytes().ends_with(b".new"));
    written.next().and_then(|entry| Some(entry.metadata().ok()?.len()))
}

/// Kills a process once it has written so much, if it comes to that before it ends.
fn kill_at(grove: &Grove, length: u64, mut child: Child) {
    while child.try_wait().expect("it is ours").is_none() {
        if under_way(grove).is_some_and(|written| written >= length) {
            child.kill().expect("it is ours");
        }
        thread::yield_now();
    }
}

#[test]
fn who_is_killed_while_saving_leaves_the_old_template_or_the_new_one() {
    let rounds = if long_runs() { 200 } else { 8 };
    if !kvm_is_there() {
        return;
    }
    let grove = Grove::new();
    let words = |number: u64| {
        ["template", "create", "--replace", "it", "--", "/usr/bin/python3", "-c", SCRIPT]
            .map(String::from)
            .into_iter()
            .chain([number.to_string()])
    };
    let create = |number: u64| {
        let words: Vec<String> = words(number).collect();
        let mut command = grove.command(&words.iter().map(|word| &word[..]).collect::<Vec<_>>());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pando starts")
    };
    assert!(create(0).wait().expect("it is ours").success());
    let length = fs::metadata(grove.file("it")).expect("it was kept").len();
    let (mut kept, mut replaced) = (0, 0);
    for number in 1..=rounds {
        // From its first byte to all of it, from where it is a matter of luck.
        kill_at(&grove, length * (number - 1) / (rounds - 1), create(number));
        let said = grove.pando(&["clone", "it"]);
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
    assert!(replaced < rounds, "nobody was killed in time");
    // Nothing stays of those who were killed.
    assert!(create(rounds + 1).wait().expect("it is ours").success());
    assert_eq!(under_way(&grove), None);
}
