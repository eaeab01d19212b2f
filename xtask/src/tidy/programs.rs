// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the host programs that tests name, in calls and in scripts: the Debian package of each must be known.
//!
//! A test that passes on its author's machine and fails on a fresh one uses a program that only the author has. Therefore
//! each word at a command position that names a program on this machine must be in the table of `pando-packages`, as must
//! each path of a program.

use super::layers::is_test_file;
use super::scan::Scan;
use super::{Finding, Rule};
use pando_packages::TOOLCHAIN;
use std::collections::HashSet;
use std::fs;

/// The names of the programs on a machine.
#[derive(Clone, Debug)]
pub(crate) struct Installed(pub(crate) HashSet<String>);

impl Installed {
    /// The programs of this machine.
    pub(crate) fn here() -> Installed {
        let entries = pando_packages::folders().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        Installed(entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
    }
}

/// Names of programs that appear in tests as something else: words, keys, applets of busybox, programs that tests compile.
const OTHER_WORDS: [&str; 14] =
    ["bc", "file", "go", "initdb", "kvm", "open", "patch", "print", "pyenv", "python", "sqlite3", "time", "unzip", "vi"];
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
pub(crate) fn check_texts(installed: &Installed, path: &str, scan: &Scan) -> Vec<Finding> {
    let is_test = is_test_file(path) && !path.ends_with("/build.rs") && path != TABLE;
    let texts = scan.texts.iter().filter(|text| is_test || text.modules.iter().any(|module| module == "tests"));
    let mut findings = Vec::new();
    for text in texts {
        if text.starts {
            let message = format!("start it by `Command::new(host_program({:?}))`, which knows its package", text.value);
            findings.push(Finding { path: path.into(), line: text.line, rule: Rule::HostProgram, message });
        } else {
            findings.extend(unknown(installed, &text.value).map(|name| finding(path, text.line, name)));
        }
    }
    findings
}

/// Checks a script of the tests.
pub(crate) fn check_script(installed: &Installed, path: &str, text: &str) -> Vec<Finding> {
    let code = text.lines().enumerate().filter(|(_, line)| is_test_file(path) && !line.trim_start().starts_with('#'));
    code.flat_map(|(at, line)| unknown(installed, line).map(move |name| finding(path, at + 1, name))).collect()
}

fn finding(path: &str, line: usize, name: &str) -> Finding {
    let message = format!("`{name}` is a program that a fresh system may lack: add it to testing/packages/src/table.rs");
    Finding { path: path.into(), line, rule: Rule::HostProgram, message }
}

/// The programs in a text that no package of the table contains.
fn unknown<'a>(installed: &'a Installed, text: &'a str) -> impl Iterator<Item = &'a str> {
    let is_program = |name: &&str| installed.0.contains(*name) && !OTHER_WORDS.contains(name) && !TOOLCHAIN.contains(name);
    let named = commands(text).into_iter().filter(is_program).chain(paths(text, installed));
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

/// The paths of programs in the system's folders.
fn paths<'a>(text: &'a str, installed: &'a Installed) -> impl Iterator<Item = &'a str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    let names = |word: &str| FOLDERS.iter().any(|folder| word.strip_prefix(folder).is_some_and(|name| installed.0.contains(name)));
    text.split(move |c| !is_part(c)).filter(move |word| names(word))
}
