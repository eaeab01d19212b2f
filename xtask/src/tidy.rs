// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds the tree to the rules that a machine can check, so that reviews are free for the rest.
//!
//! Every rule has a short stable name (`Rule`), the same that CONTRIBUTING.md explains. The layers are data: `layers.toml` at the root.
//! Checks are pure functions from a file's text to findings; only [`check`] touches the disk.

mod house;
mod layers;
mod programs;
mod scan;
mod shape;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result};
use std::fmt;
use std::fs;
use std::path::Path;

use house::House;
use layers::Packages;
use programs::Installed;

/// A rule, by the name that findings and reviews cite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// `layers.toml` names each workspace crate once, and nothing else.
    LayersComplete,
    /// A crate depends only on the workspace crates that `layers.toml` grants it.
    LayerCrate,
    /// A module uses only the sibling modules that `layers.toml` grants it.
    LayerModule,
    /// Names kept to some folders (KVM, libc, JSON, the environment) stay there.
    LayerName,
    /// `unsafe` stands only where `layers.toml` allows it.
    UnsafeHome,
    /// The first line of a source file is its SPDX licence line.
    SpdxFirst,
    /// Every module starts with `//!`.
    ModuleDoc,
    /// No file is longer than [`shape::FILE_LINES`].
    FileLength,
    /// No function is longer than [`shape::FUNCTION_LINES`].
    FunctionLength,
    /// No notes to one's later self: what is missing goes to the issue tracker.
    Unfinished,
    /// A test that is ignored says why.
    IgnoreReason,
    /// Tests name only programs of the host whose Debian package is known.
    HostProgram,
    /// A source file parses as Rust.
    Syntax,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::LayersComplete => "layers-complete",
            Rule::LayerCrate => "layer-crate",
            Rule::LayerModule => "layer-module",
            Rule::LayerName => "layer-name",
            Rule::UnsafeHome => "unsafe-home",
            Rule::SpdxFirst => "spdx-first",
            Rule::ModuleDoc => "module-doc",
            Rule::FileLength => "file-length",
            Rule::FunctionLength => "function-length",
            Rule::Unfinished => "unfinished",
            Rule::IgnoreReason => "ignore-reason",
            Rule::HostProgram => "host-program",
            Rule::Syntax => "syntax",
        })
    }
}

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path relative to the repository's root, with `/`.
    pub(crate) path: String,
    /// Line, counted from 1.
    pub(crate) line: usize,
    /// The rule that is broken.
    pub(crate) rule: Rule,
    /// What is wrong, and what to do where that is not plain.
    pub(crate) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.message)
    }
}

/// Checks the whole tree under `root` and returns what is wrong, sorted by place.
///
/// # Errors
/// If a file cannot be read or `layers.toml` or a manifest is malformed; broken rules are findings, not errors.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>> {
    let house = House::parse(&read(root, "layers.toml")?).context("layers.toml")?;
    let packages = Packages::read(root)?;
    let installed = Installed::here();
    let mut findings = layers::check_house(&house, &packages);
    let mut files = Vec::new();
    list(root, "", &mut files)?;
    for path in files {
        let text = read(root, &path)?;
        findings.extend(shape::check_text(&path, &text));
        if path.ends_with(".rs") {
            findings.extend(check_source(&house, &installed, &path, &text));
        } else if path.ends_with(".sh") {
            findings.extend(programs::check_script(&installed, &path, &text));
        } else if let Some(folder) = path.strip_suffix("/Cargo.toml") {
            findings.extend(layers::check_manifest(&house, &packages, folder, &text)?);
        }
    }
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// Checks one Rust file: its shape, what it names, where it says `unsafe`, which programs its tests start.
fn check_source(house: &House, installed: &Installed, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = shape::check_source(path, text);
    match scan::scan(text) {
        Ok(scan) => {
            findings.extend(layers::check_names(house, path, &scan));
            findings.extend(layers::check_modules(house, path, &scan));
            findings.extend(layers::check_unsafe(house, path, &scan));
            findings.extend(shape::check_ignores(path, &scan));
            findings.extend(programs::check_texts(installed, path, &scan));
        }
        Err(message) => findings.push(Finding { path: path.into(), line: 1, rule: Rule::Syntax, message }),
    }
    findings
}

fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"))
}

/// Lists the files that rules apply to, depth first, leaving out build output and hidden folders other than the project's own.
fn list(root: &Path, folder: &str, files: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join(folder)).with_context(|| format!("listing {folder}"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let hidden = name.starts_with('.') && !matches!(name.as_str(), ".ci" | ".cargo");
            if !hidden && name != "target" {
                list(root, &path, files)?;
            }
        } else if kind.is_file() && (shape::is_checked(&path) || path.ends_with("/Cargo.toml")) {
            files.push(path);
        }
    }
    Ok(())
}
