// SPDX-License-Identifier: MIT OR Apache-2.0
//! The imports between Python files: of files beside each other, of packages, and of files beside a package from inside it.

use super::circles::circles_of;
use super::imports::Import;
use super::{Finding, Rule};
use std::collections::BTreeSet;

/// Checks that no Python files import each other in a circle. `files`: path and text. Tests are programs of their own.
pub(crate) fn check_circles(files: &[(String, String)]) -> Vec<Finding> {
    let paths: BTreeSet<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
    let imports: Vec<Import> = files.iter().flat_map(|(path, text)| imports(path, text, &paths)).collect();
    circles_of(&imports).into_iter().map(|(path, line, message)| Finding { path, line, rule: Rule::ImportCircle, message }).collect()
}

/// The imports of a file that lead to other files of the tree, inside of functions too.
fn imports(path: &str, text: &str, paths: &BTreeSet<&str>) -> Vec<Import> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for name in modules(line.trim()) {
            let target = find(path, &name, paths).filter(|target| target != path);
            found.extend(target.map(|to| Import { from: path.into(), to, line: number + 1, name }));
        }
    }
    found
}

/// The modules that a line imports; those of the own package begin with a dot.
fn modules(line: &str) -> Vec<String> {
    let names = |list: &str| -> Vec<String> {
        list.trim_start_matches('(').split(',').filter_map(|name| name.split_whitespace().next()).map(str::to_string).collect()
    };
    if let Some(list) = line.strip_prefix("from . import ") {
        return names(list).into_iter().map(|name| format!(".{name}")).collect();
    }
    match line.strip_prefix("from ") {
        Some(rest) => rest.split_once(" import ").map(|(module, _)| module.to_string()).into_iter().collect(),
        None => line.strip_prefix("import ").map(names).unwrap_or_default(),
    }
}

/// The file of a module, seen from a file: beside it, or beside its package.
fn find(path: &str, name: &str, paths: &BTreeSet<&str>) -> Option<String> {
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let (relative, name) = name.strip_prefix('.').map_or((false, name), |name| (true, name));
    let name = name.replace('.', "/");
    let at = |directory: &str| {
        let both = [format!("{directory}/{name}.py"), format!("{directory}/{name}/__init__.py")];
        both.into_iter().map(|path| path.trim_start_matches('/').to_string()).find(|path| paths.contains(path.as_str()))
    };
    let is_package = paths.contains(format!("{directory}/__init__.py").as_str());
    let around = || directory.rsplit_once('/').and_then(|(around, _)| at(around));
    match (relative, is_package) {
        (true, _) | (false, false) => at(directory),
        (false, true) => around(),
    }
}
