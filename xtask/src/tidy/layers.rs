// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layer rules: dependencies between crates, between modules, and names restricted to some folders.

use super::layers_file::{LayersFile, Module};
use super::scan::{Scan, ScannedName};
use super::{Finding, Rule};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use toml::{Table, Value};

/// The workspace's packages: name to folder, and how the root manifest renames dependencies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packages {
    /// Package name to folder.
    pub(crate) folders: BTreeMap<String, String>,
    /// Key in `[workspace.dependencies]` to package name, where they differ.
    pub(crate) renamed: BTreeMap<String, String>,
}

impl Packages {
    /// Reads the root manifest and those of the members.
    ///
    /// # Errors
    /// If one is missing or malformed.
    pub(crate) fn read(root: &Path) -> Result<Packages> {
        let manifest = |folder: &str| -> Result<Table> {
            let path = root.join(folder).join("Cargo.toml");
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            text.parse().with_context(|| format!("{folder}/Cargo.toml"))
        };
        let workspace = manifest("")?;
        let workspace = workspace.get("workspace").context("the root Cargo.toml has no [workspace]")?;
        let mut packages = Packages::default();
        for member in workspace.get("members").and_then(Value::as_array).into_iter().flatten() {
            let folder = member.as_str().context("workspace.members contains a value that is not a string")?;
            let member = manifest(folder)?;
            let name = member.get("package").and_then(|p| p.get("name")).and_then(Value::as_str);
            packages.folders.insert(name.with_context(|| format!("{folder}/Cargo.toml names no package"))?.into(), folder.into());
        }
        for (key, value) in workspace.get("dependencies").and_then(Value::as_table).into_iter().flatten() {
            if let Some(package) = value.get("package").and_then(Value::as_str) {
                packages.renamed.insert(key.clone(), package.into());
            }
        }
        Ok(packages)
    }
}

/// Checks that `layers.toml` names exactly the members of the workspace.
pub(crate) fn check_house(house: &LayersFile, packages: &Packages) -> Vec<Finding> {
    let finding = |message| Finding { path: "layers.toml".into(), line: 1, rule: Rule::LayersComplete, message };
    let declared = |folder: &str| house.crates.iter().any(|c| c.folder == folder);
    let exists = |folder: &str| packages.folders.values().any(|f| f == folder);
    let mut findings = Vec::new();
    for folder in packages.folders.values().filter(|folder| !declared(folder)) {
        findings.push(finding(format!("the crate `{folder}` has no line under [crates]")));
    }
    for rule in &house.crates {
        for folder in [&rule.folder].into_iter().chain(&rule.tests).filter(|folder| !exists(folder)) {
            findings.push(finding(format!("`{folder}` under [crates] is not a member of the workspace")));
        }
    }
    findings
}

/// Checks a crate's dependencies against its line in `layers.toml`, and against the restricted names.
///
/// # Errors
/// If the manifest is not TOML.
pub(crate) fn check_manifest(house: &LayersFile, packages: &Packages, folder: &str, text: &str) -> Result<Vec<Finding>> {
    let manifest: Table = text.parse().with_context(|| format!("{folder}/Cargo.toml"))?;
    // A folder without a line is reported by `check_house`, unless it is not a member at all (a fuzz workspace of its own).
    let Some(rule) = house.crates.iter().find(|c| c.folder == folder) else { return Ok(Vec::new()) };
    let mut findings = Vec::new();
    for (section, key, package) in dependencies(&manifest, packages) {
        let finding = |rule, message| Finding { path: format!("{folder}/Cargo.toml"), line: line_of(text, &key), rule, message };
        if let Some(used) = packages.folders.get(&package) {
            let for_tests = section == "dev-dependencies" && rule.tests.contains(used);
            if !rule.uses.contains(used) && !for_tests {
                findings.push(finding(Rule::LayerCrate, format!("`{folder}` may not depend on `{used}` ({section})")));
            }
        }
        let path = [package.replace('-', "_")];
        for names in house.names.iter().filter(|names| names.paths.iter().any(|prefix| starts_with(&path, prefix))) {
            if !within(&names.only, folder) {
                findings
                    .push(finding(Rule::LayerName, format!("`{}` may be used only in {}: {}", path[0], names.only.join(", "), names.why)));
            }
        }
    }
    Ok(findings)
}

/// Lists all dependencies of a manifest as (section, key, package name).
fn dependencies(manifest: &Table, packages: &Packages) -> Vec<(String, String, String)> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flatten().filter_map(|(_, target)| target.as_table());
    let mut found = Vec::new();
    for table in [manifest].into_iter().chain(targets) {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (key, value) in table.get(section).and_then(Value::as_table).into_iter().flatten() {
                let package = value.get("package").and_then(Value::as_str).or_else(|| packages.renamed.get(key).map(String::as_str));
                found.push((section.to_string(), key.clone(), package.unwrap_or(key).to_string()));
            }
        }
    }
    found
}

fn line_of(text: &str, key: &str) -> usize {
    let is_key =
        |line: &str| line.trim_start().trim_matches('"').strip_prefix(key).is_some_and(|rest| rest.starts_with([' ', '=', '.', '"']));
    text.lines().position(is_key).map_or(1, |at| at + 1)
}

/// Checks a file's names against the restricted names.
pub(crate) fn check_names(house: &LayersFile, path: &str, scan: &Scan) -> Vec<Finding> {
    let mut findings = Vec::new();
    for names in house.names.iter().filter(|names| !within(&names.only, path)) {
        for name in &scan.names {
            let exempt = names.tests && (is_test_file(path) || name.modules.iter().any(|module| module == "tests"));
            if let Some(prefix) = names.paths.iter().find(|prefix| starts_with(&name.segments, prefix)).filter(|_| !exempt) {
                let message = format!("`{prefix}` may be used only in {}: {}", names.only.join(", "), names.why);
                findings.push(Finding { path: path.into(), line: name.line, rule: Rule::LayerName, message });
            }
        }
    }
    findings
}

/// Checks the sibling modules that a file of a crate with `[modules]` uses.
pub(crate) fn check_modules(house: &LayersFile, path: &str, scan: &Scan) -> Vec<Finding> {
    let Some((folder, inside)) = path.split_once("/src/") else { return Vec::new() };
    let modules: Vec<&Module> = house.modules.iter().filter(|module| module.folder == folder).collect();
    let here = module_path(inside);
    let (Some(own), false) = (here.first(), modules.is_empty()) else { return Vec::new() };
    let finding = |line, message| Finding { path: path.into(), line, rule: Rule::LayerModule, message };
    let Some(rule) = modules.iter().find(|module| module.name == *own) else {
        return vec![finding(1, format!("the module `{own}` has no line under [modules.{folder}] of layers.toml"))];
    };
    let mut findings = Vec::new();
    for name in &scan.names {
        if let Some(used) = top_module(name, &here).filter(|used| used != own && !rule.uses.contains(used)) {
            findings.push(finding(name.line, format!("`{own}` may not use `{used}` (`{}`)", name.segments.join("::"))));
        }
    }
    findings
}

/// The module path of a file under `src`: `memory/tree.rs` is `memory::tree`, the crate's root is empty.
fn module_path(inside: &str) -> Vec<String> {
    let mut path: Vec<String> = inside.trim_end_matches(".rs").split('/').map(str::to_string).collect();
    if path.last().is_some_and(|last| last == "mod") || path == ["lib"] || path == ["main"] {
        path.pop();
    }
    path
}

/// The crate's top module that a relative name resolves to; `None` if it resolves to another crate or the root itself.
fn top_module(name: &ScannedName, file: &[String]) -> Option<String> {
    let supers = name.segments.iter().take_while(|segment| *segment == "super").count();
    let mut path: Vec<String> = file.iter().chain(&name.modules).cloned().collect();
    match name.segments.first()?.as_str() {
        "crate" => return name.segments.get(1).cloned(),
        "self" => path.extend_from_slice(&name.segments[1..]),
        "super" => {
            path.truncate(path.len().saturating_sub(supers));
            path.extend_from_slice(&name.segments[supers..]);
        }
        _ => return None,
    }
    path.into_iter().next()
}

/// Checks that `unsafe` is used only where it may.
pub(crate) fn check_unsafe(house: &LayersFile, path: &str, scan: &Scan) -> Vec<Finding> {
    if within(&house.unsafe_folders, path) {
        return Vec::new();
    }
    let message = format!("`unsafe` may be used only in {}", house.unsafe_folders.join(", "));
    let finding = |line: &usize| Finding { path: path.into(), line: *line, rule: Rule::UnsafeHome, message: message.clone() };
    scan.unsafes.iter().map(finding).collect()
}

fn within(folders: &[String], path: &str) -> bool {
    folders.iter().any(|folder| path == folder || path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/')))
}

fn starts_with(segments: &[String], prefix: &str) -> bool {
    let mut rest = segments.iter();
    prefix.split("::").all(|wanted| rest.next().is_some_and(|segment| segment == wanted))
}

/// Whether a whole file is a build script or test code, by its path.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.ends_with("/build.rs")
        || path.ends_with("/tests.rs")
        || path.contains("/tests/")
        || path.contains("/benches/")
        || path.starts_with("testing/")
}
