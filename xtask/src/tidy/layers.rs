// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layer rules: dependencies between crates, between modules, and names restricted to some folders.

use super::imports::{Import, module_path};
use super::layers_file::{LayersFile, Module};
use super::scan::Scan;
use super::{Finding, Rule};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use toml::{Table, Value};

/// The name in `layers.toml` of the file around the modules: `lib.rs` or `mod.rs`.
pub(crate) const ROOT: &str = "super";

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
    let folders: Vec<String> = house.crates.iter().map(|rule| rule.folder.clone()).collect();
    let scopes: BTreeSet<&str> = house.modules.iter().map(|module| module.folder.as_str()).collect();
    for scope in scopes.into_iter().filter(|scope| !within(&folders, scope)) {
        findings.push(finding(format!("`{scope}` under [modules] or [floors] is in no crate")));
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

/// Checks the imports between the modules of a crate, and that `layers.toml` names these modules.
///
/// `files` has the crate's files relative to `src`.
pub(crate) fn check_modules(house: &LayersFile, folder: &str, files: &[(String, String)], imports: &[Import]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (scopes, modules) = (scopes(house, folder), files.iter().filter_map(|(file, _)| member(&[], file)).collect::<BTreeSet<_>>());
    if modules.len() > 1 && !scopes.contains(folder) {
        let message = format!("`{folder}` has modules, but no lines in layers.toml; `cargo xtask tidy --floors {folder}` computes them");
        findings.push(Finding { path: "layers.toml".into(), line: 1, rule: Rule::LayersComplete, message });
    }
    for scope in scopes {
        let finding = |file: &str, line, message| Finding { path: format!("{folder}/src/{file}"), line, rule: Rule::LayerModule, message };
        let lines: Vec<&Module> = house.modules.iter().filter(|module| module.folder == scope).collect();
        let above: Vec<&str> = scope[folder.len()..].split('/').filter(|part| !part.is_empty()).collect();
        let inside = |file: &str| member(&above, file);
        let members: BTreeSet<String> = files.iter().filter_map(|(file, _)| inside(file)).collect();
        for name in members.iter().filter(|name| !lines.iter().any(|line| line.name == **name)) {
            let file = files.iter().find(|(file, _)| inside(file).as_ref() == Some(name)).map_or("lib.rs", |(file, _)| file);
            findings.push(finding(
                file,
                1,
                format!("the module `{name}` has no line for `{scope}` in layers.toml; `cargo xtask tidy --floors {scope}` computes them"),
            ));
        }
        for line in lines.iter().filter(|line| line.name != ROOT && !members.contains(&line.name)) {
            let message = format!("`{scope}` has no module `{}`", line.name);
            findings.push(Finding { path: "layers.toml".into(), line: 1, rule: Rule::LayersComplete, message });
        }
        for import in imports {
            let Some(own) = inside(&import.from) else { continue };
            let Some(rule) = lines.iter().find(|line| line.name == own) else { continue };
            let target = module_path(&import.to);
            let is_root = target.len() == above.len() && target.iter().zip(&above).all(|(a, b)| a == b);
            let used = if is_root { Some(ROOT.to_string()) } else { inside(&import.to) };
            if let Some(used) = used.filter(|used| *used != own && !rule.uses.contains(used)) {
                let message = format!("`{own}` may not use `{used}` of `{scope}` (`{}`)", import.name);
                findings.push(finding(&import.from, import.line, message));
            }
        }
    }
    findings
}

/// The crate's folder and the module folders in it that `layers.toml` has lines for.
fn scopes<'a>(house: &'a LayersFile, folder: &str) -> BTreeSet<&'a str> {
    house.modules.iter().map(|module| module.folder.as_str()).filter(|scope| within(&[folder.to_string()], scope)).collect()
}

/// The module directly inside `above` that a file belongs to. `above`'s own file and its tests belong to none of them.
pub(crate) fn member(above: &[&str], file: &str) -> Option<String> {
    let path = module_path(file);
    (path.len() > above.len() && path.iter().zip(above).all(|(a, b)| a == b))
        .then(|| path[above.len()].clone())
        .filter(|name| name != "tests")
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
