// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options that change what a program finds: each does what it says, and nothing else.

use crate::case::{Case, PANDO};
use pando_testing::lab::kvm_is_there;
use std::fs;
use std::process::Command;

/// What busybox prints in a cell with these options.
fn printed(options: &[&str], words: &[&str]) -> String {
    let outcome = Case::new("busybox", words).options(options).cell();
    assert_eq!((outcome.status, &outcome.errors[..]), (0, ""), "{options:?} {words:?}");
    String::from_utf8(outcome.output).expect("it is text")
}

#[test]
fn the_environment_is_what_was_named() {
    if !kvm_is_there() {
        return;
    }
    let variables = |options: &[&str]| {
        let mut command = Command::new(PANDO);
        command.env_clear().envs([("PATH", "/usr/bin:/bin"), ("SECRET", "no"), ("LC_ALL", "C"), ("HOME", "/root"), ("GIVEN", "by name")]);
        let output = command.arg("run").args(options).args(["busybox", "env"]).output().expect("pando starts");
        String::from_utf8(output.stdout).expect("it is text")
    };
    assert_eq!(variables(&[]), "LC_ALL=C\nPATH=/usr/bin:/bin\n");
    let options = ["-e", "GIVEN", "-e", "NOT_SET", "-e", "NEW=a=b", "--env=LC_ALL=", "-e", "NEW=last one counts"];
    assert_eq!(variables(&options), "GIVEN=by name\nLC_ALL=\nNEW=last one counts\nPATH=/usr/bin:/bin\n");
}

#[test]
fn the_program_starts_where_it_shall() {
    if kvm_is_there() {
        assert_eq!(printed(&["-w", "/tmp"], &["pwd"]), "/tmp\n");
        assert_eq!(printed(&["--workdir=/"], &["pwd"]), "/\n");
    }
}

#[test]
fn the_program_finds_a_file_where_it_was_put() {
    if !kvm_is_there() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("here");
    fs::write(&file, "words\n").expect("a temporary file can be written");
    let volume = format!("{}:/elsewhere/there:ro", file.display());
    assert_eq!(printed(&["-v", &volume], &["cat", "/elsewhere/there"]), "words\n");
}

#[test]
fn a_share_of_the_core_slows_a_program_down_and_changes_nothing_else() {
    if kvm_is_there() {
        assert_eq!(printed(&["--cpus", "0.3"], &["seq", "100000"]), printed(&[], &["seq", "100000"]));
    }
}

#[test]
fn letters_may_stand_together() {
    if kvm_is_there() {
        assert_eq!(printed(&["-ie", "A=b", "-w/"], &["sh", "-c", "echo $A; pwd"]), "b\n/\n");
    }
}
