// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invalid files that the operator names, and the effect of a cell's files on later runs.

use crate::case::PANDO;
use crate::fixture::{Fixture, ProgramOutput};
use pando_testing::{host_program, needs_kvm};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{self, File};
use std::process::Command;

/// Runs `pando` with a directory of templates, for a minute at most.
fn pando(fixture: &Fixture, words: &[&str]) -> ProgramOutput {
    let inner = fixture.command(words);
    let mut command = Command::new(host_program("timeout"));
    command.arg("60").arg(PANDO).args(words).current_dir(inner.get_current_dir().expect("it has one"));
    command.env("XDG_DATA_HOME", fixture.path("data")).env_remove("XDG_RUNTIME_DIR").stdin(std::process::Stdio::null());
    let outcome = command.output().expect("timeout starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ProgramOutput {
        status: outcome.status.code().expect("no signal ends it"),
        output: text(&outcome.stdout),
        errors: text(&outcome.stderr),
    }
}

#[test]
fn a_fifo_without_a_writer_blocks_nothing() {
    needs_kvm!();
    let fixture = Fixture::new();
    mknodat(CWD, fixture.path("fifo"), FileType::Fifo, Mode::RWXU, 0).expect("there is room");
    fs::create_dir_all(fixture.path("data/pando/templates")).expect("there is room");
    mknodat(CWD, fixture.path("data/pando/templates/pipe.template"), FileType::Fifo, Mode::RWXU, 0).expect("there is room");
    let path = fixture.path("fifo").to_str().expect("it is text").to_owned();
    let (volume, writable) = (format!("{path}:/x:ro"), format!("{path}:/x"));
    for words in [
        &["template", "load", "./fifo", "name"][..],
        &["template", "inspect", "./fifo"],
        &["clone", "./fifo"],
        &["clone", "pipe"],
        &["template", "ls"],
        &["run", "--root", &path, "true"],
        &["run", "-v", &volume, "busybox", "true"],
        &["run", "-v", &writable, "busybox", "true"],
        &["run", &path],
        &["image", "build", &path, "-o", "image"],
    ] {
        let said = pando(&fixture, words);
        let told = said.output + &said.errors;
        assert!(said.status != 124 && (told.contains("fifo") || told.contains("pipe")), "{words:?}: {} {told}", said.status);
    }
}

#[test]
fn names_in_messages_do_nothing_to_a_terminal() {
    let fixture = Fixture::new();
    for words in
        [&["run", "no\x1b[31m\x07such"][..], &["run", "--root", "no\x1b[31m\nsuch", "true"], &["run", "-v", "/no\u{202e}such:/x", "true"]]
    {
        let said = pando(&fixture, words);
        assert_ne!(said.status, 0);
        let obeyed = said.errors.trim_end().chars().find(|character| character.is_control() || *character == '\u{202e}');
        assert_eq!(obeyed, None, "{words:?}: {:?}", said.errors);
    }
}

/// A file with more holes than the limit of a volume does not make its directory unusable for later cells.
#[test]
fn a_file_of_holes_takes_no_directory_away() {
    needs_kvm!();
    let fixture = Fixture::new();
    let shared = fixture.path("shared");
    fs::create_dir(&shared).expect("there is room");
    let volume = format!("{}:/shared", shared.display());
    let run = |options: &[&str], script: &str| {
        let words = [&["run", "-v", &volume], options, &["busybox", "sh", "-c", script]].concat();
        pando(&fixture, &words)
    };
    let make = "cd /shared; truncate -s 8796093022208 holes; echo small > small";
    let refused = run(&[], make);
    assert!(refused.status == 125 && refused.errors.contains("--write-limit") && refused.errors.contains("holes"), "{}", refused.errors);
    assert_eq!(fs::read_to_string(shared.join("small")).ok().as_deref(), Some("small\n"));
    assert!(!shared.join("holes").exists());
    // Names count against the limit, too.
    let refused = run(&["--write-limit", "40K"], "cd /shared; for number in 1 2 3 4 5 6 7 8 9 10 11 12; do touch $number; done");
    assert!(refused.status == 125, "{}", refused.errors);
    assert_eq!(fs::read_dir(&shared).expect("it is there").count(), 11);
    // Rewriting a file does not count twice.
    let again = "cd /shared; for number in 1 2 3 4 5; do head -c 20000 /dev/zero > same; sync; rm same; sync; done";
    let whole = run(&["--write-limit", "40K"], again);
    assert_eq!((whole.status, &whole.errors[..]), (0, ""));
    // Such a file may come from the host itself.
    File::create(shared.join("holes")).and_then(|file| file.set_len(8 << 40)).expect("it has no content");
    let later = run(&[], "cd /shared; cat small; stat -c %s holes; head -c 1 holes || echo unread; echo more >> small; rm holes");
    assert_eq!((later.status, &later.output[..]), (0, "small\n8796093022208\nunread\n"), "{}", later.errors);
    assert_eq!(fs::read_to_string(shared.join("small")).ok().as_deref(), Some("small\nmore\n"));
    assert!(!shared.join("holes").exists());
}
