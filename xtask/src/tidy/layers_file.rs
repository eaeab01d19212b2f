// SPDX-License-Identifier: MIT OR Apache-2.0
//! `layers.toml`, parsed: the allowed dependencies of crates, modules and names.
//!
//! Lines are ordered from the bottom up, and a line's `uses` may only name lines above it. The order itself thus shows that
//! there is no cycle. Floors say the same in short: a module may use all modules of the floors below its own.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// The allowed dependencies of one crate, by folder.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Crate {
    /// The crate's folder.
    #[serde(skip)]
    pub(crate) folder: String,
    /// Crates that it may depend on.
    pub(crate) uses: Vec<String>,
    /// Crates that only its tests may depend on.
    #[serde(default)]
    pub(crate) tests: Vec<String>,
}

/// A module, a file or a folder inside a crate, and the siblings that it may use.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    /// The crate's folder, followed by the path of the module around it: `kernel` or `kernel/memory`.
    pub(crate) folder: String,
    /// The module's name.
    pub(crate) name: String,
    /// Sibling modules that it may use.
    pub(crate) uses: Vec<String>,
}

/// Names that only some folders may use.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Names {
    /// Path prefixes, as `std::env`.
    pub(crate) paths: Vec<String>,
    /// Folders that may use them.
    pub(crate) only: Vec<String>,
    /// Whether build scripts and tests may use them anywhere.
    #[serde(default)]
    pub(crate) tests: bool,
    /// The reason, for the finding's text.
    pub(crate) why: String,
}

/// The content of `layers.toml`.
#[derive(Clone, Debug)]
pub(crate) struct LayersFile {
    /// The crates, bottom first.
    pub(crate) crates: Vec<Crate>,
    /// The modules of all crates that declare some, bottom first within a crate.
    pub(crate) modules: Vec<Module>,
    /// The time of the first commit whose subject is checked.
    pub(crate) commits_since: String,
    /// Folders that may contain `unsafe`.
    pub(crate) unsafe_folders: Vec<String>,
    /// Names restricted to some folders.
    pub(crate) names: Vec<Names>,
}

impl LayersFile {
    /// Parses the text of `layers.toml`.
    ///
    /// # Errors
    /// If it is not TOML, has an unknown key, or a line uses one that is not above it.
    pub(crate) fn parse(text: &str) -> Result<LayersFile> {
        let mut table: Table = text.parse()?;
        let mut house = LayersFile {
            crates: Vec::new(),
            modules: Vec::new(),
            commits_since: "now".into(),
            unsafe_folders: Vec::new(),
            names: Vec::new(),
        };
        for (folder, line) in section(&mut table, "crates")? {
            let rule: Crate = typed(&format!("crates.{folder}"), line)?;
            let above: Vec<&str> = house.crates.iter().map(|c| c.folder.as_str()).collect();
            ensure_above(&folder, &rule.uses, &above)?;
            house.crates.push(Crate { folder, ..rule });
        }
        for (folder, lines) in section(&mut table, "modules")? {
            let lines: Table = typed(&format!("modules.{folder}"), lines)?;
            let mut above: Vec<String> = Vec::new();
            for (name, uses) in lines {
                let uses: Vec<String> = typed(&format!("modules.{folder}.{name}"), uses)?;
                ensure_above(&name, &uses, &above.iter().map(String::as_str).collect::<Vec<_>>())?;
                above.push(name.clone());
                house.modules.push(Module { folder: folder.clone(), name, uses });
            }
        }
        for (folder, floors) in optional_section(&mut table, "floors")? {
            let mut below: Vec<String> = Vec::new();
            for floor in typed::<Vec<Vec<String>>>(&format!("floors.{folder}"), floors)? {
                house.modules.extend(floor.iter().map(|name| Module { folder: folder.clone(), name: name.clone(), uses: below.clone() }));
                below.extend(floor);
            }
        }
        for (key, value) in optional_section(&mut table, "commits")? {
            ensure!(key == "since", "commits.{key}: unknown key; the only one is `since`");
            house.commits_since = typed("commits.since", value)?;
        }
        for (key, value) in section(&mut table, "unsafe")? {
            ensure!(key == "only", "unsafe.{key}: unknown key; the only one is `only`");
            house.unsafe_folders = typed("unsafe.only", value)?;
        }
        for (name, line) in section(&mut table, "names")? {
            house.names.push(typed(&format!("names.{name}"), line)?);
        }
        if let Some(key) = table.keys().next() {
            bail!("unknown section [{key}]");
        }
        Ok(house)
    }
}

impl LayersFile {
    /// The folders of all crates.
    pub(crate) fn folders(&self) -> Vec<&str> {
        self.crates.iter().map(|rule| rule.folder.as_str()).collect()
    }
}

fn section(table: &mut Table, name: &str) -> Result<Table> {
    typed(name, table.remove(name).with_context(|| format!("the section [{name}] is missing"))?)
}

/// A section that may be absent.
fn optional_section(table: &mut Table, name: &str) -> Result<Table> {
    table.remove(name).map_or(Ok(Table::new()), |value| typed(name, value))
}

fn typed<T: DeserializeOwned>(key: &str, value: Value) -> Result<T> {
    value.try_into().with_context(|| key.to_string())
}

fn ensure_above(line: &str, uses: &[String], above: &[&str]) -> Result<()> {
    for used in uses {
        ensure!(above.contains(&used.as_str()), "`{line}` uses `{used}`, which is not above it");
    }
    Ok(())
}
