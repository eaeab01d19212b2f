// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options that change the environment of a program: each has its documented effect, and no other.

use crate::case::{Case, PANDO};
use pando_testing::lab::is_kvm_available;
use pando_testing::{host_program, needs_kvm};
use std::fs;
use std::process::Command;

/// The output of busybox in a cell with these options.
fn printed(options: &[&str], words: &[&str]) -> String {
    let outcome = Case::new("busybox", words).options(options).cell();
    assert_eq!((outcome.status, &outcome.errors[..]), (0, ""), "{options:?} {words:?}");
    String::from_utf8(outcome.output).expect("it is text")
}

#[test]
fn the_environment_holds_the_named_variables_only() {
    needs_kvm!();
    let variables = |options: &[&str]| {
        let mut command = Command::new(PANDO);
        command.env_clear().envs([("PATH", "/usr/bin:/bin"), ("SECRET", "no"), ("LC_ALL", "C"), ("HOME", "/root"), ("GIVEN", "by name")]);
        let output = command.arg("run").args(options).args(["busybox", "env"]).output().expect("pando starts");
        String::from_utf8(output.stdout).expect("it is text")
    };
    let users = fs::read_to_string("/etc/passwd").expect("every host has one");
    let root: Vec<&str> = users.lines().find(|line| line.starts_with("root:")).expect("every host has one").split(':').collect();
    let (home, shell) = (root[5], root[6]);
    assert_eq!(variables(&[]), format!("HOME={home}\nLC_ALL=C\nLOGNAME=root\nPATH=/usr/bin:/bin\nSHELL={shell}\nUSER=root\n"));
    let homeless = ["-e", "HOME=/tmp", "-u", "4711"];
    assert_eq!(variables(&homeless), "HOME=/tmp\nLC_ALL=C\nPATH=/usr/bin:/bin\nSHELL=/bin/sh\n");
    let options = ["-e", "GIVEN", "-e", "NOT_SET", "-e", "NEW=a=b", "--env=LC_ALL=", "-e", "NEW=last one counts"];
    let expected =
        format!("GIVEN=by name\nHOME={home}\nLC_ALL=\nLOGNAME=root\nNEW=last one counts\nPATH=/usr/bin:/bin\nSHELL={shell}\nUSER=root\n");
    assert_eq!(variables(&options), expected);
}

#[test]
fn each_user_has_a_home_of_its_own() {
    needs_kvm!();
    let script = "cd ~ && ls -A && echo one >file && cat ~/file && pwd && stat -c '%u %a' .";
    assert_eq!(printed(&[], &["sh", "-c", script]), "one\n/root\n0 700\n");
    assert_eq!(printed(&["-u", "4711:4711"], &["sh", "-c", script]), "one\n/home/4711\n4711 700\n");
}

#[test]
fn the_hosts_directories_for_state_are_there_without_content() {
    needs_kvm!();
    let modes = "cd /var && stat -c '%n %u %g %a' . lib lib/dpkg lib/dpkg/info cache log spool";
    let native = Command::new(host_program("busybox")).args(["sh", "-c", modes]).output().expect("busybox starts");
    assert_eq!(printed(&[], &["sh", "-c", modes]), String::from_utf8(native.stdout).expect("it is text"));
    assert_eq!(printed(&[], &["find", "/var", "-type", "f"]), "");
    assert_eq!(printed(&[], &["sh", "-c", "mkdir /var/lib/dpkg/own && echo /var/lib/dpkg/own"]), "/var/lib/dpkg/own\n");
}

#[test]
fn the_program_starts_where_it_shall() {
    if is_kvm_available() {
        assert_eq!(printed(&["-w", "/tmp"], &["pwd"]), "/tmp\n");
        assert_eq!(printed(&["--workdir=/"], &["pwd"]), "/\n");
    }
}

#[test]
fn the_program_finds_a_file_where_it_was_put() {
    needs_kvm!();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("here");
    fs::write(&file, "words\n").expect("a temporary file can be written");
    let volume = format!("{}:/elsewhere/there:ro", file.display());
    assert_eq!(printed(&["-v", &volume], &["cat", "/elsewhere/there"]), "words\n");
}

#[test]
fn a_share_of_the_core_slows_a_program_down_and_changes_nothing_else() {
    if is_kvm_available() {
        assert_eq!(printed(&["--cpus", "0.3"], &["seq", "100000"]), printed(&[], &["seq", "100000"]));
    }
}

#[test]
fn cpu_time_stands_still_while_a_share_is_used_up() {
    if !is_kvm_available() {
        return;
    }
    // The loop takes much longer than a period of the share.
    let script = r#"TIMEFORMAT="%R %U %S"; time for ((i = 0; i < 300000; i++)); do :; done"#;
    let outcome = Case::new("bash", &["-c", script]).options(&["--cpus", "0.2"]).cell();
    let times: Vec<f64> = outcome.errors.split_whitespace().filter_map(|time| time.parse().ok()).collect();
    let [real, user, system] = times[..] else { panic!("{outcome:?}") };
    assert!(real > 0.5 && user > 0.0 && user + system < real / 2.0, "{outcome:?}");
}

#[test]
fn letters_may_stand_together() {
    if is_kvm_available() {
        assert_eq!(printed(&["-ie", "A=b", "-w/"], &["sh", "-c", "echo $A; pwd"]), "b\n/\n");
    }
}
