// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks statements of documents against the tree: the trusted dependencies in SECURITY.md, the numbers of decisions.

use super::{Finding, Rule};
use anyhow::{Context, Result};
use regex::Regex;
use std::collections::BTreeSet;
use toml::{Table, Value};

/// The document that names the dependencies that the isolation relies on.
pub(crate) const SECURITY: &str = "SECURITY.md";
/// The crates whose dependencies it names.
pub(crate) const TRUSTED: [&str; 2] = ["machine", "kernel"];
/// The words before the list of dependencies; a full stop ends the list.
const BEFORE_LIST: &str = "the dependencies of these two crates:";
/// The folder of decisions.
pub(crate) const DECISIONS: &str = "docs/decisions/";

/// Checks that SECURITY.md names exactly the direct dependencies of the trusted crates. `manifests` has these crates' manifests.
///
/// # Errors
/// If a manifest is not TOML.
pub(crate) fn check_trusted(text: &str, manifests: &[String]) -> Result<Vec<Finding>> {
    let mut used = BTreeSet::new();
    for manifest in manifests {
        let manifest: Table = manifest.parse().context("a manifest of a trusted crate")?;
        let dependencies = manifest.get("dependencies").and_then(Value::as_table).into_iter().flatten();
        used.extend(dependencies.map(|(name, _)| name.clone()).filter(|name| !name.starts_with("pando-")));
    }
    let finding = |line, message| Finding { path: SECURITY.into(), line, rule: Rule::TrustedDependency, message };
    let Some(start) = text.find(BEFORE_LIST) else {
        return Ok(vec![finding(1, format!("the list of trusted dependencies, which follows `{BEFORE_LIST}`, is missing"))]);
    };
    let list = text[start + BEFORE_LIST.len()..].split(".\n").next().unwrap_or_default();
    let named: BTreeSet<String> = list.split('`').skip(1).step_by(2).map(str::to_string).collect();
    let line = text[..start].lines().count();
    let missing = used.difference(&named).map(|name| finding(line, format!("{} use `{name}`: name it", TRUSTED.join(" or "))));
    let surplus = named.difference(&used).map(|name| finding(line, format!("neither {} uses `{name}`", TRUSTED.join(" nor "))));
    Ok(missing.chain(surplus).collect())
}

/// Checks that the decisions are numbered from 1 without a gap, that no number is given twice, and that the index lists each.
pub(crate) fn check_decisions(files: &[String], index: &str) -> Vec<Finding> {
    let finding = |path: &str, message| Finding { path: path.into(), line: 1, rule: Rule::DecisionNumber, message };
    let numbered = Regex::new(r"^(\d{4})-[a-z0-9-]+\.md$").expect("the pattern is well formed");
    let mut findings = Vec::new();
    let mut next = 1;
    let mut decisions: Vec<&String> = files.iter().filter(|path| path.starts_with(DECISIONS) && !path.ends_with("/README.md")).collect();
    decisions.sort();
    for path in decisions {
        let name = &path[DECISIONS.len()..];
        let Some(number) = numbered.captures(name).and_then(|groups| groups[1].parse::<u32>().ok()) else {
            findings.push(finding(path, "a decision's file is named like 0001-subject.md".into()));
            continue;
        };
        if number != next {
            findings.push(finding(
                path,
                format!("the number is {number:04}, and the next free one is {next:04}: leave no gap and give none twice"),
            ));
        }
        if !index.contains(&format!("| [{number:04}]({name}) |")) {
            findings.push(finding(path, format!("{DECISIONS}README.md does not list it")));
        }
        next = number + 1;
    }
    findings
}
