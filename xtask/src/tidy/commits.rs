// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the subjects of the commits since the time that `layers.toml` states.

use super::{Finding, Rule};
use std::path::Path;
use std::process::Command;

/// Longest subject of a commit, in characters.
const COLUMNS: usize = 72;

/// The commits since a time, one a line: hash, tab, subject. `None` without git or without a history.
pub(crate) fn subjects(root: &Path, since: &str) -> Option<String> {
    let mut git = Command::new("git");
    git.args(["log", "--no-merges", "--format=%h%x09%s", &format!("--since={since}")]).current_dir(root);
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Checks the subjects in the output of [`subjects`].
pub(crate) fn check_subjects(log: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (commit, subject) in log.lines().filter_map(|line| line.split_once('\t')) {
        let mut find = |message| findings.push(Finding { path: format!("commit {commit}"), line: 1, rule: Rule::CommitSubject, message });
        let length = subject.chars().count();
        if length > COLUMNS {
            find(format!("the subject has {length} characters, at most {COLUMNS}: move details to the body"));
        }
        if subject.ends_with('.') {
            find("a subject ends without a full stop".into());
        }
    }
    findings
}
