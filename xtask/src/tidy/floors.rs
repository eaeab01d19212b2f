// SPDX-License-Identifier: MIT OR Apache-2.0
//! The floors of a crate's modules, computed from its imports in the form of `layers.toml`: a module lies directly above the
//! highest module that it uses.

use super::imports::Import;
use super::layers::{ROOT, member};
use std::collections::{BTreeMap, BTreeSet};

/// The lines of `layers.toml` for the modules inside the module `above` of a crate; `files` is relative to `src`.
///
/// A comment marks modules that use each other in a circle: no floors grant that.
pub(crate) fn print(scope: &str, above: &[&str], files: &[String], imports: &[Import]) -> String {
    let module = |file: &str| member(above, file).unwrap_or_else(|| ROOT.into());
    let inside = |file: &str| super::imports::module_path(file).iter().zip(above).filter(|(a, b)| a == *b).count() == above.len();
    let members = files.iter().filter_map(|file| member(above, file));
    let mut uses: BTreeMap<String, BTreeSet<String>> = members.map(|name| (name, BTreeSet::new())).collect();
    for import in imports.iter().filter(|import| inside(&import.from) && inside(&import.to)) {
        let (from, to) = (module(&import.from), module(&import.to));
        if from != to && from != ROOT {
            uses.entry(from).or_default().insert(to.clone());
            uses.entry(to).or_default();
        }
    }
    let mut text = if scope.contains('/') { format!("\"{scope}\" = [\n") } else { format!("{scope} = [\n") };
    let mut below: BTreeSet<String> = BTreeSet::new();
    while !uses.is_empty() {
        let ready: Vec<String> = uses.iter().filter(|(_, used)| used.is_subset(&below)).map(|(name, _)| name.clone()).collect();
        let (floor, is_circle) = if ready.is_empty() { (circle(&uses, &below), true) } else { (ready, false) };
        let names = floor.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        text += &format!("    [{names}],{}\n", if is_circle { " # a circle" } else { "" });
        uses.retain(|name, _| !floor.contains(name));
        below.extend(floor);
    }
    text + "]\n"
}

/// Of modules that all use each other or something above: the smallest group that uses nothing outside of itself.
fn circle(uses: &BTreeMap<String, BTreeSet<String>>, below: &BTreeSet<String>) -> Vec<String> {
    let reach = |start: &String| {
        let mut seen = BTreeSet::from([start.clone()]);
        let mut open = vec![start.clone()];
        while let Some(name) = open.pop() {
            let next = uses.get(&name).into_iter().flatten().filter(|used| !below.contains(*used));
            open.extend(next.filter(|used| seen.insert((*used).clone())).cloned().collect::<Vec<_>>());
        }
        seen
    };
    uses.keys().map(reach).min_by_key(BTreeSet::len).unwrap_or_default().into_iter().collect()
}
