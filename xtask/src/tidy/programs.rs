// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the host programs that tests name, in calls and in scripts: the Debian package of each must be known.
//!
//! A test that passes on its author's machine and fails on a fresh one uses a program that only the author has. Therefore
//! no word at a command position may name a program of Debian that the table of `pando-packages` lacks (`programs.txt` lists
//! these), and each path of a program must be in the table.

use super::layers::is_test_file;
use super::scan::Scan;
use super::{Finding, Rule};
use std::collections::HashSet;
use std::sync::LazyLock;

/// Programs that the table lacks, by package. Which programs this machine has does not matter: all machines give the same answer.
pub(super) const LIST: &str = include_str!("programs.txt");
/// The names in [`LIST`].
static OTHER_PROGRAMS: LazyLock<HashSet<&str>> = LazyLock::new(|| names(LIST).collect());

/// The names of programs in a list of the form of [`LIST`].
pub(super) fn names(list: &str) -> impl Iterator<Item = &str> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines.flat_map(str::split_whitespace).filter(|word| !word.ends_with(':'))
}

/// Names in paths of programs that no test starts.
const PLACEHOLDERS: [&str; 3] = ["a", "nothing", "run"];
/// The examples of this rule.
const EXAMPLES: &str = "xtask/src/tidy/tests.rs";
/// The table itself, which contains names of packages too.
const TABLE: &str = "testing/packages/src/table.rs";
/// Shell keywords, and programs that start others: a command follows.
const BEFORE_COMMANDS: [&str; 16] =
    ["!", "--", "-c", "command", "do", "elif", "else", "env", "exec", "if", "nohup", "then", "time", "timeout", "until", "while"];
/// Separators: a command follows each of them.
const SEPARATORS: [char; 7] = [';', '|', '&', '(', '`', '\n', '\0'];
/// Folders of programs, with their closing slash.
const FOLDERS: [&str; 4] = ["/usr/bin/", "/usr/sbin/", "/bin/", "/sbin/"];

/// Checks the string literals of a Rust file's test code.
pub(crate) fn check_texts(path: &str, scan: &Scan) -> Vec<Finding> {
    let is_test = is_test_file(path) && !path.ends_with("/build.rs") && path != TABLE && path != EXAMPLES;
    let texts = scan.texts.iter().filter(|text| is_test || text.modules.iter().any(|module| module == "tests"));
    let mut findings = Vec::new();
    for text in texts {
        if text.starts {
            let message = format!("start it by `Command::new(host_program({:?}))`, which knows its package", text.value);
            findings.push(Finding { path: path.into(), line: text.line, rule: Rule::HostProgram, message });
        } else {
            findings.extend(unknown(&text.value).map(|name| finding(path, text.line, name)));
        }
    }
    findings
}

/// Checks a script of the tests.
pub(crate) fn check_script(path: &str, text: &str) -> Vec<Finding> {
    let code = text.lines().enumerate().filter(|(_, line)| is_test_file(path) && !line.trim_start().starts_with('#'));
    code.flat_map(|(at, line)| unknown(line).map(move |name| finding(path, at + 1, name))).collect()
}

fn finding(path: &str, line: usize, name: &str) -> Finding {
    let message = format!("`{name}` is a program that a fresh system may lack: add it to testing/packages/src/table.rs");
    Finding { path: path.into(), line, rule: Rule::HostProgram, message }
}

/// The programs in a text that no package of the table contains.
fn unknown(text: &str) -> impl Iterator<Item = &str> {
    let named = commands(text).into_iter().filter(|name| OTHER_PROGRAMS.contains(name)).chain(paths(text));
    named.filter(|name| pando_packages::package_of(name).is_none())
}

/// The bare words at command positions.
fn commands(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for command in text.split(SEPARATORS) {
        let mut words = command.split_whitespace().map(|word| word.trim_matches(['"', '\'', '{', '}', ')']));
        // `sh -c` and the like have commands further on.
        while let Some(name) = words.find(|word| !is_before_command(word)) {
            found.push(name);
            if !words.any(|word| BEFORE_COMMANDS.contains(&word)) {
                break;
            }
        }
    }
    found
}

/// Whether a command may follow: a shell keyword, a variable assignment, an option, a time limit.
fn is_before_command(word: &str) -> bool {
    word.is_empty() || BEFORE_COMMANDS.contains(&word) || word.contains('=') || word.starts_with('-') || word.parse::<u32>().is_ok()
}

/// The paths of programs in the system's folders, patterns aside.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/._+-*?[".contains(c);
    let is_program = |word: &str| {
        let name = FOLDERS.iter().find_map(|folder| word.strip_prefix(folder));
        name.is_some_and(|name| !name.is_empty() && !name.contains(['/', '*', '?', '[']) && !PLACEHOLDERS.contains(&name))
    };
    text.split(move |c| !is_part(c)).filter(move |word| is_program(word))
}
