// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the tree against the rules that a machine can check, so that reviews can focus on the rest.
//!
//! Every rule has a short stable name (`Rule`), which CONTRIBUTING.md explains. The layers are data: `layers.toml` at the
//! root. Checks are pure functions from a file's text to findings; only [`check`] reads files.

mod circles;
mod commits;
mod documents;
mod floors;
mod imports;
pub(crate) mod language;
mod layers;
mod layers_file;
mod programs;
mod python;
mod scan;
mod shape;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use layers::Packages;
use layers_file::LayersFile;

/// The table of terms that the names of the code follow.
const GLOSSARY: &str = "docs/glossary.md";

/// A rule, by the name that findings and reviews cite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// `layers.toml` names each workspace crate once, and nothing else.
    LayersComplete,
    /// A crate depends only on the workspace crates that `layers.toml` grants it.
    LayerCrate,
    /// A module uses only the sibling modules that `layers.toml` grants it.
    LayerModule,
    /// Files of a crate do not import each other in a circle.
    ImportCircle,
    /// Names restricted to some folders (KVM, libc, JSON, the environment) are used only there.
    LayerName,
    /// `unsafe` is used only where `layers.toml` allows it.
    UnsafeHome,
    /// The first line of a source file is its SPDX licence line.
    SpdxFirst,
    /// Every module starts with `//!`.
    ModuleDoc,
    /// No file is longer than [`shape::FILE_LINES`].
    FileLength,
    /// No function is longer than [`shape::FUNCTION_LINES`].
    FunctionLength,
    /// No notes to one's later self: unfinished work goes to the issue tracker.
    Unfinished,
    /// An ignored test gives its reason.
    IgnoreReason,
    /// Tests name only programs of the host whose Debian package is known.
    HostProgram,
    /// A sentence has a subject: it does not begin with a relative pronoun.
    PlainSentence,
    /// Comments and documents use the field's terms.
    PrivateWord,
    /// A line of Markdown or of a comment is not longer than [`language::LINE_COLUMNS`].
    LongLine,
    /// A function's name has a subject or a verb: it does not begin with a relative pronoun.
    FunctionName,
    /// A type's name is a noun.
    TypeNoun,
    /// At most two crates declare a type of the same name.
    TypeHomes,
    /// The names of the glossary exist.
    GlossaryName,
    /// SECURITY.md names the dependencies of the trusted crates.
    TrustedDependency,
    /// Decisions are numbered without gaps.
    DecisionNumber,
    /// The subject of a commit is short.
    CommitSubject,
    /// A source file parses as Rust.
    Syntax,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::LayersComplete => "layers-complete",
            Rule::LayerCrate => "layer-crate",
            Rule::LayerModule => "layer-module",
            Rule::ImportCircle => "import-circle",
            Rule::LayerName => "layer-name",
            Rule::UnsafeHome => "unsafe-home",
            Rule::SpdxFirst => "spdx-first",
            Rule::ModuleDoc => "module-doc",
            Rule::FileLength => "file-length",
            Rule::FunctionLength => "function-length",
            Rule::Unfinished => "unfinished",
            Rule::IgnoreReason => "ignore-reason",
            Rule::HostProgram => "host-program",
            Rule::PlainSentence => "plain-sentence",
            Rule::PrivateWord => "private-word",
            Rule::LongLine => "long-line",
            Rule::FunctionName => "function-name",
            Rule::TypeNoun => "type-noun",
            Rule::TypeHomes => "type-homes",
            Rule::GlossaryName => "glossary-name",
            Rule::TrustedDependency => "trusted-dependency",
            Rule::DecisionNumber => "decision-number",
            Rule::CommitSubject => "commit-subject",
            Rule::Syntax => "syntax",
        })
    }
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Path relative to the repository's root, with `/`.
    pub(crate) path: String,
    /// Line, counted from 1.
    pub(crate) line: usize,
    /// The violated rule.
    pub(crate) rule: Rule,
    /// The problem, and the remedy where that is not plain.
    pub(crate) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.message)
    }
}

/// Checks the whole tree under `root` and returns the findings, sorted by path and line.
///
/// # Errors
/// If a file cannot be read or `layers.toml` or a manifest is malformed. Violated rules are findings, not errors.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>> {
    let house = LayersFile::parse(&read(root, "layers.toml")?).context("layers.toml")?;
    let packages = Packages::read(root)?;
    let mut findings = layers::check_house(&house, &packages);
    let mut files = Vec::new();
    let (mut types, mut all_types) = (Vec::new(), BTreeSet::new());
    let (mut sources, mut scripts) = (Vec::new(), Vec::new());
    list(root, "", &mut files)?;
    for path in &files {
        let (path, text) = (path.clone(), read(root, path)?);
        if language::is_checked(&path) {
            findings.extend(language::check_prose(&path, &text));
            findings.extend(language::check_functions(&path, &text));
        }
        if shape::is_checked(&path) {
            findings.extend(shape::check_text(&path, &text));
        }
        if path.ends_with(".rs") {
            all_types.extend(language::all_types(&text));
            types.extend(language::types(&text).into_iter().map(|(name, line)| (name, path.clone(), line)));
            findings.extend(check_source(&house, &path, &text));
            sources.push((path, text));
        } else if path.ends_with(".py") {
            scripts.push((path, text));
        } else if path.ends_with(".sh") {
            findings.extend(programs::check_script(&path, &text));
        } else if let Some(folder) = path.strip_suffix("/Cargo.toml") {
            findings.extend(layers::check_manifest(&house, &packages, folder, &text)?);
        }
    }
    for folder in house.crates.iter().map(|rule| &rule.folder) {
        findings.extend(check_crate(&house, folder, &sources));
    }
    findings.extend(python::check_circles(&scripts));
    findings.extend(language::check_types(&types, &house.folders()));
    findings.extend(language::check_glossary(GLOSSARY, &read(root, GLOSSARY)?, &all_types, &files));
    let manifests = documents::TRUSTED.iter().map(|folder| read(root, &format!("{folder}/Cargo.toml"))).collect::<Result<Vec<_>>>()?;
    findings.extend(documents::check_trusted(&read(root, documents::SECURITY)?, &manifests)?);
    findings.extend(documents::check_decisions(&files, &read(root, &format!("{}README.md", documents::DECISIONS))?));
    findings.extend(commits::check_subjects(&commits::subjects(root, &house.commits_since).unwrap_or_default()));
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// Checks the imports between the files of one crate.
fn check_crate(house: &LayersFile, folder: &str, sources: &[(String, String)]) -> Vec<Finding> {
    let source = format!("{folder}/src/");
    let inside = |(path, text): &(String, String)| Some((path.strip_prefix(&source)?.to_string(), text.clone()));
    let files: Vec<_> = sources.iter().filter_map(inside).collect();
    let imports = imports::imports(&files);
    let mut findings = layers::check_modules(house, folder, &files, &imports);
    findings.extend(circles::check_circles(folder, &imports));
    findings
}

/// Computes the floors of the modules inside a crate, or inside a module of one (`kernel/memory`), as lines of `layers.toml`.
///
/// # Errors
/// If a file cannot be read, or no crate has this folder.
pub(crate) fn floors(root: &Path, scope: &str) -> Result<String> {
    let house = LayersFile::parse(&read(root, "layers.toml")?).context("layers.toml")?;
    let folder = house.crates.iter().map(|rule| &rule.folder).find(|folder| Path::new(scope).starts_with(folder));
    let folder = folder.with_context(|| format!("layers.toml has no crate `{scope}`"))?;
    let mut paths = Vec::new();
    list(root, &format!("{folder}/src"), &mut paths)?;
    let sources = paths.iter().filter(|path| path.ends_with(".rs"));
    let sources =
        sources.map(|path| Ok((path[folder.len() + "/src/".len()..].to_string(), read(root, path)?))).collect::<Result<Vec<_>>>()?;
    let above: Vec<&str> = scope[folder.len()..].split('/').filter(|part| !part.is_empty()).collect();
    let files: Vec<String> = sources.iter().map(|(path, _)| path.clone()).collect();
    Ok(floors::print(scope, &above, &files, &imports::imports(&sources)))
}

/// Checks one Rust file: its shape, the names that it uses, its `unsafe`, the programs that its tests start.
fn check_source(house: &LayersFile, path: &str, text: &str) -> Vec<Finding> {
    let mut findings = shape::check_source(path, text);
    match scan::scan(text) {
        Ok(scan) => {
            findings.extend(layers::check_names(house, path, &scan));
            findings.extend(layers::check_unsafe(house, path, &scan));
            findings.extend(shape::check_ignores(path, &scan));
            findings.extend(programs::check_texts(path, &scan));
        }
        Err(message) => findings.push(Finding { path: path.into(), line: 1, rule: Rule::Syntax, message }),
    }
    findings
}

fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"))
}

/// Lists the files that rules apply to, depth first, without build output and hidden folders other than the project's own.
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
        } else if kind.is_file() && ((shape::is_checked(&path) || language::is_checked(&path)) || path.ends_with("/Cargo.toml")) {
            files.push(path);
        }
    }
    Ok(())
}
