// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules about documents and commits.

use super::super::commits::check_subjects;
use super::super::documents::{check_decisions, check_trusted};
use super::Rule;

#[test]
fn trusted_dependency_catches_a_list_that_is_not_the_manifests() {
    let list = "- the dependencies of these two crates: `kvm-ioctls`,\n  `libc`.\n\nThe `image` reader is not.\n";
    let check = |text: &str, manifests: &[&str]| -> Vec<String> {
        let manifests: Vec<String> = manifests.iter().map(ToString::to_string).collect();
        check_trusted(text, &manifests).expect("TOML").into_iter().map(|finding| finding.message).collect()
    };
    let machine = "[dependencies]\nkvm-ioctls.workspace = true\npando-abi.workspace = true\n[dev-dependencies]\nproptest = \"1\"\n";
    let kernel = "[dependencies]\nlibc = \"0.2\"\n";
    assert!(check(list, &[machine, kernel]).is_empty());
    assert_eq!(check(list, &[machine]), ["neither machine nor kernel uses `libc`"]);
    assert_eq!(check(list, &[machine, kernel, "[dependencies]\nserde = \"1\"\n"]), ["machine or kernel use `serde`: name it"]);
    assert_eq!(check("no list", &[machine, kernel]).len(), 1);
}

#[test]
fn decision_number_catches_gaps_doubles_and_missing_index_entries() {
    let broken = |names: &[&str], index: &str| -> Vec<(Rule, String)> {
        let files: Vec<String> = names.iter().map(|name| format!("docs/decisions/{name}")).collect();
        check_decisions(&files, index).into_iter().map(|finding| (finding.rule, finding.path)).collect()
    };
    let index = "| [0001](0001-a.md) | A |\n| [0002](0002-b.md) | B |\n| [0003](0003-c.md) | C |\n| [0002](0002-d.md) | D |\n";
    let at = |name: &str| vec![(Rule::DecisionNumber, format!("docs/decisions/{name}"))];
    assert_eq!(broken(&["0001-a.md", "0002-b.md", "0003-c.md", "README.md"], index), []);
    assert_eq!(broken(&["0001-a.md", "0003-c.md"], index), at("0003-c.md"), "a gap");
    assert_eq!(broken(&["0001-a.md", "0002-b.md", "0002-d.md"], index), at("0002-d.md"), "given twice");
    assert_eq!(broken(&["0001-a.md", "0002-e.md"], index), at("0002-e.md"), "not in the index");
    assert_eq!(broken(&["0001-a.md", "later.md"], index), at("later.md"), "no number");
}

#[test]
fn commit_subject_catches_long_lines_and_full_stops() {
    let line = |length: usize| format!("c61e1d9\t{}\n", "a".repeat(length));
    let rules = |log: &str| check_subjects(log).into_iter().map(|finding| finding.rule).collect::<Vec<_>>();
    assert_eq!(rules(&line(72)), []);
    assert_eq!(rules(&line(73)), [Rule::CommitSubject]);
    assert_eq!(rules("c61e1d9\tkernel: Split edits by change.\n"), [Rule::CommitSubject]);
    assert_eq!(rules(""), [], "no history");
}
