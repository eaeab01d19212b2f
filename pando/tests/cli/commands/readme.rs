// SPDX-License-Identifier: MIT OR Apache-2.0
//! A new user's first five minutes: the README's commands work, help helps, shells accept the completions, errors name the mistake.

use crate::case::{Case, Input, PANDO, finish, succeed, text};
use crate::data;
use crate::fixture::pando;
use pando_testing::lab::is_kvm_available;
use pando_testing::{host_program, needs_kvm};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// A program of the user's own.
const MINE: &str = "#include <stdio.h>\nint main(int count, char **words) { while (--count) puts(*++words); }\n";

/// The command lines of the README's blocks, without their comments.
fn commands_of_the_readme() -> Vec<String> {
    let readme = include_str!("../../../../README.md");
    let blocks = readme.split("```sh\n").skip(1).map(|block| block.split("```").next().expect("there is a first part"));
    let lines = blocks.flat_map(str::lines).map(|line| line.split(" #").next().expect("there is a first part").trim());
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn the_commands_of_the_readme_work() {
    needs_kvm!();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("bin")).expect("the directory is ours");
    symlink(PANDO, path("bin/pando")).expect("it was not there");
    fs::write(path("data.txt"), data::text(1000)).expect("the directory is ours");
    fs::write(path("mine.c"), MINE).expect("the directory is ours");
    let mut compile = Command::new(host_program("gcc"));
    compile.args(["-static", "-o"]).args([path("my-static-program"), path("mine.c")]);
    succeed(compile);
    // Natively, the host name is that of a cell.
    fs::create_dir(path("native")).expect("the directory is ours");
    fs::write(path("native/hostname"), "#!/bin/sh\necho pando\n").expect("the directory is ours");
    fs::set_permissions(path("native/hostname"), fs::Permissions::from_mode(0o755)).expect("the file is ours");
    let run = |line: &str, first: &str| {
        let mut shell = Command::new(host_program("bash"));
        shell.args(["-o", "pipefail", "-c", line]).current_dir(directory.path());
        shell.env("XDG_DATA_HOME", path("data"));
        shell.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", path(first).display()));
        finish(shell, Input::Nothing)
    };
    let mut lines = commands_of_the_readme();
    assert!(lines.len() > 5, "{lines:?}");
    // This test is part of that suite.
    lines.retain(|line| line != "cargo xtask test");
    for line in lines {
        // The tested program is the one that cargo built.
        let line = line.replace("cargo run --release -- ", "pando ");
        assert!(line.contains("pando "), "a command that this test does not know: {line}");
        let outcome = run(&line, "bin");
        // Creating or removing a template prints nothing unless it fails.
        let is_silent = ["pando template create", "pando template rm"].iter().any(|silent| line.starts_with(silent));
        assert!(outcome.status == 0 && outcome.output.is_empty() == is_silent, "{line}: {outcome:?}");
        // A program in a cell prints the same as on the host.
        if let Some((before, after)) = line.split_once("pando run ")
            && let Some((_, program)) = after.split_once("-- ")
        {
            assert_eq!(text(&outcome.output), text(&run(&format!("{before}{program}"), "native").output), "{line}");
        }
    }
}

/// The first words of the lines of a help section, with the rest of the lines.
fn section<'a>(help: &'a str, title: &str) -> Vec<&'a str> {
    let lines = help.lines().skip_while(move |line| *line != title).skip(1);
    lines.take_while(|line| !line.is_empty()).map(str::trim_start).collect()
}

/// All commands except `help`, as the words that call them.
fn commands() -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    let mut pending = vec![Vec::new()];
    while let Some(words) = pending.pop() {
        let asked: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
        let outcome = pando(&asked);
        assert_eq!((outcome.status, &outcome.errors[..]), (0, ""), "{asked:?}");
        let help = text(&outcome.output).to_owned();
        let usage = ["Usage: pando".to_owned()].into_iter().chain(words.iter().cloned()).collect::<Vec<_>>().join(" ");
        assert!(help.contains(&usage) && help.contains("--help"), "{asked:?}: {help}");
        for line in section(&help, "Commands:").into_iter().filter(|line| !line.starts_with("help ")) {
            let (name, about) = line.split_once(' ').expect("a command says what it is for");
            assert!(about.trim().len() > 10, "{line}");
            pending.push(words.iter().cloned().chain([name.to_owned()]).collect());
        }
        found.push(words);
    }
    found
}

#[test]
fn each_command_helps() {
    let commands = commands();
    assert!(["run", "image", "doctor", "completions", "manual"].iter().all(|name| commands.contains(&vec![(*name).to_owned()])));
    assert!(commands.iter().any(|words| *words == ["image", "build"]), "{commands:?}");
}

#[test]
fn each_command_has_a_page_of_the_manual() {
    for words in commands().iter().filter(|words| words.len() == 1) {
        let page = pando(&["manual", &words[0]]);
        let named = format!("pando\\-{}", words[0]);
        assert!(page.status == 0 && text(&page.output).contains(&named), "{words:?}: {page:?}");
        let mut man = Command::new(host_program("man"));
        man.args(["--warnings", "--local-file", "-"]).env("LC_ALL", "C.UTF-8").env("MANWIDTH", "200");
        let shown = finish(man, Input::Pipe(&page.output));
        assert_eq!((shown.status, &shown.errors[..]), (0, ""), "{words:?}");
    }
}

#[test]
fn shells_understand_their_completions() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for shell in ["bash", "zsh", "fish"] {
        let file = directory.path().join(shell);
        fs::write(&file, pando(&["completions", shell]).output).expect("the directory is ours");
        let mut check = Command::new(host_program(shell));
        check.arg("-n").arg(&file).env("HOME", directory.path());
        let outcome = finish(check, Input::Nothing);
        assert_eq!((outcome.status, &outcome.errors[..]), (0, ""), "{shell}");
    }
    completed("fish", &["-c", "source $argv[1]; complete -C 'pando run --ti'"], &directory.path().join("fish"), "--timeout");
    let words = "source \"$0\"; COMP_WORDS=(pando run --ti); COMP_CWORD=2; _clap_complete_pando pando --ti run; echo \"${COMPREPLY[@]}\"";
    completed("bash", &["-c", words], &directory.path().join("bash"), "--timeout");
}

/// Checks that a shell completes an option.
fn completed(shell: &str, words: &[&str], file: &Path, wanted: &str) {
    let mut command = Command::new(host_program(shell));
    command.args(words).arg(file).env("HOME", file.parent().expect("it lies in a directory"));
    // The completions call the program itself.
    let directory = Path::new(PANDO).parent().expect("it lies in one").display();
    command.env("PATH", format!("{directory}:/usr/bin:/bin"));
    let outcome = finish(command, Input::Nothing);
    assert!(outcome.status == 0 && text(&outcome.output).contains(wanted), "{shell}: {outcome:?}");
}

#[test]
fn a_mistake_in_each_option_is_named() {
    for words in commands() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let help = pando(&[&words[..], &["--help"]].concat());
        for line in section(text(&help.output), "Options:") {
            let Some(at) = line.find("--") else { continue };
            let end = at + line[at..].find([' ', '[']).unwrap_or(line.len() - at);
            let name = &line[at..end];
            // An option without its value, or with an invalid one.
            let takes = line[end..].starts_with(" <");
            let mistake = if takes { name.to_owned() } else { format!("{name}=no such value") };
            let outcome = pando(&[&words[..], &[&mistake]].concat());
            assert!(outcome.status == 125 && outcome.output.is_empty(), "{words:?} {mistake}: {outcome:?}");
            assert!(outcome.errors.starts_with("error: ") && outcome.errors.contains(name), "{words:?} {mistake}: {}", outcome.errors);
        }
        let outcome = pando(&[&words[..], &["--no-such-option"]].concat());
        assert!(outcome.status == 125 && outcome.errors.contains("--no-such-option"), "{words:?}: {outcome:?}");
    }
}

#[test]
fn the_first_programs_run() {
    let lines: [&[&str]; 5] = [
        &["busybox", "echo", "hello"],
        &["busybox", "ls", "-a", "/usr/share/common-licenses"],
        &["busybox", "grep", "-c", "the", "/usr/share/common-licenses/GPL-3"],
        &["busybox", "sh", "-c", "for i in 1 2 3; do echo $i; done; exit 5"],
        &["busybox", "sha256sum", "/bin/busybox"],
    ];
    if is_kvm_available() {
        lines.iter().for_each(|words| Case::new(words[0], &words[1..]).check());
    }
}
