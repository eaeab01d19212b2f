// SPDX-License-Identifier: MIT OR Apache-2.0
//! `stat` gives the same for host files in a cell as on the host, so programs that remember it need not read everything again.

use crate::case::{Case, Input, finish};
use pando_testing::{host_program, needs_kvm};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

fn git(directory: &Path, words: &str) {
    let mut command = Command::new(host_program("git"));
    command.current_dir(directory).args(["-c", "user.name=a", "-c", "user.email=a@example.org"]).args(words.split(' ').skip(1));
    let outcome = finish(command, Input::Nothing);
    assert_eq!(outcome.status, 0, "{}", outcome.errors);
}

/// A directory with files.
fn files(count: usize) -> TempDir {
    let above = tempfile::tempdir().expect("the host has room");
    fs::create_dir(above.path().join("inner")).expect("it is ours");
    (0..count).for_each(|number| fs::write(above.path().join(format!("inner/f{number}")), "text\n").expect("it is ours"));
    symlink("inner", above.path().join("link")).expect("it is ours");
    above
}

#[test]
fn git_accepts_an_index_of_the_host() {
    needs_kvm!();
    let repository = files(300);
    git(repository.path(), "git init -q");
    git(repository.path(), "git add -A");
    git(repository.path(), "git commit -qm first");
    // It compares what `stat` says with the index, and nothing else.
    let words = ["-c", "safe.directory=*", "diff-files", "--name-only"];
    let outcome = Case::new("git", &words).directory(repository.path()).cell();
    assert_eq!((outcome.status, String::from_utf8_lossy(&outcome.output).as_ref()), (0, ""), "{}", outcome.errors);
}

#[test]
fn files_have_the_attributes_of_the_host() {
    needs_kvm!();
    let shown = files(3);
    fs::hard_link(shown.path().join("inner/f0"), shown.path().join("also")).expect("it is ours");
    let paths = [".", "inner", "link", "inner/f0", "also", "inner/f1"];
    let words = [&["-c", "%d %i %Z %Y %a %n"][..], &paths].concat();
    Case::new("stat", &words).directory(shown.path()).check();
    Case::new("stat", &["-c", "%h %i", "also", "inner/f0", "inner/f2"]).directory(shown.path()).check();
    // Numbers in listings are the same.
    Case::new("ls", &["-i", "inner", "."]).directory(shown.path()).check();
}

#[test]
fn no_two_files_have_the_same_device_and_number() {
    needs_kvm!();
    let shown = files(2);
    let elsewhere = files(1);
    fs::hard_link(elsewhere.path().join("inner/f0"), shown.path().join("other")).expect("it is one file system");
    let at = |directory: &Path, cell: &str| format!("{}:{cell}:ro", directory.display());
    // A copy in the overlay keeps its number; what is new has another; what is shown twice is two files.
    let script = "id() { stat -c '%d:%i' \"$@\"; }; before=$(id inner/f0); echo more >> inner/f0; [ $before = $(id inner/f0) ] || echo changed
        echo new > new; mkdir fresh; ln new newer
        [ $(id new) = $(id newer) ] || echo differs
        id new fresh . inner inner/f0 inner/f1 other link /tmp /twice /twice/inner /twice/inner/f0 /twice/inner/f1 /else/inner/f0 / /usr /proc \
        | sort | uniq -d";
    let options = ["-v".into(), at(shown.path(), "/twice"), "-v".into(), at(elsewhere.path(), "/else")];
    let outcome = Case::new("sh", &["-c", script]).options(&options).directory(shown.path()).cell();
    assert_eq!((outcome.status, String::from_utf8_lossy(&outcome.output).as_ref()), (0, ""), "{}", outcome.errors);
}
