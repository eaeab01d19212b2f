// SPDX-License-Identifier: MIT OR Apache-2.0
//! Circles of imports between the files of a crate.
//!
//! A file may use names of the modules around it: `super::Cell` in `cell/call.rs` is no arrow. A module's own file and the files
//! inside it share private names, and Rust programmers read them together.

use super::imports::{Import, module_path};
use super::{Finding, Rule};
use std::collections::{BTreeMap, BTreeSet};

/// Checks that no files of a crate import each other in a circle.
pub(crate) fn check_circles(folder: &str, imports: &[Import]) -> Vec<Finding> {
    let imports: Vec<Import> = imports.iter().filter(|import| !is_of_parent(import)).cloned().collect();
    let finding = |(path, line, message)| Finding { path: format!("{folder}/src/{path}"), line, rule: Rule::ImportCircle, message };
    circles_of(&imports).into_iter().map(finding).collect()
}

/// The circles: for each a file, a line in it, and a description.
pub(crate) fn circles_of(imports: &[Import]) -> Vec<(String, usize, String)> {
    circles(imports).iter().map(|circle| describe(imports, circle)).collect()
}

/// Whether the imported name is of a module around the importing file.
fn is_of_parent(import: &Import) -> bool {
    module_path(&import.from).starts_with(&module_path(&import.to))
}

/// Describes a circle by a shortest way around.
fn describe(imports: &[Import], circle: &BTreeSet<String>) -> (String, usize, String) {
    let way = shortest(imports, circle);
    let steps: Vec<String> =
        way.iter().map(|import| format!("{}:{} uses {} ({})", import.from, import.line, import.to, import.name)).collect();
    let message = format!("{} files import each other in a circle: {}", circle.len(), steps.join("; "));
    (way[0].from.clone(), way[0].line, message)
}

/// A shortest circle inside a group of files that all reach each other.
fn shortest<'a>(imports: &'a [Import], circle: &BTreeSet<String>) -> Vec<&'a Import> {
    let inside: Vec<&Import> = imports.iter().filter(|import| circle.contains(&import.from) && circle.contains(&import.to)).collect();
    let from = |start: &str| {
        let mut ways: Vec<Vec<&Import>> = inside.iter().filter(|import| import.from == start).map(|import| vec![*import]).collect();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut at = 0;
        while let Some(way) = ways.get(at).cloned() {
            let end = way[way.len() - 1].to.as_str();
            if end == start {
                return way;
            }
            if seen.insert(end) {
                ways.extend(inside.iter().filter(|import| import.from == end).map(|import| way.iter().copied().chain([*import]).collect()));
            }
            at += 1;
        }
        Vec::new()
    };
    circle.iter().map(|start| from(start)).filter(|way| !way.is_empty()).min_by_key(Vec::len).unwrap_or_default()
}

/// The groups of at least two files that all reach each other.
pub(crate) fn circles(imports: &[Import]) -> Vec<BTreeSet<String>> {
    let mut arrows: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for import in imports {
        arrows.entry(&import.from).or_default().push(&import.to);
    }
    let reach = |start: &str| {
        let mut seen: BTreeSet<String> = BTreeSet::new();
        let mut open: Vec<&str> = arrows.get(start).cloned().unwrap_or_default();
        while let Some(file) = open.pop() {
            if seen.insert(file.to_string()) {
                open.extend(arrows.get(file).into_iter().flatten());
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<String>> = arrows.keys().map(|file| (*file, reach(file))).collect();
    let mutual = |file: &str| -> BTreeSet<String> {
        reached[file].iter().filter(|other| reached.get(other.as_str()).is_some_and(|back| back.contains(file))).cloned().collect()
    };
    let groups: BTreeSet<BTreeSet<String>> = arrows.keys().map(|file| mutual(file)).filter(|group| group.len() > 1).collect();
    groups.into_iter().collect()
}
