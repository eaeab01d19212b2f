// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules for the host's directories: which are public and which are private.

use crate::environment::{HostEnvironment, is_software};
use std::path::{Path, PathBuf};

/// Directories of programs in an installation prefix.
const PROGRAM_DIRECTORIES: [&str; 3] = ["bin", "sbin", "shims"];
/// Directories whose content the cell generates.
const GENERATED: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The parts of pyenv's root that its shims need.
const PYENV: [&str; 7] = ["bin", "libexec", "plugins", "pyenv.d", "shims", "version", "versions"];
/// The parts of rustup's home that its proxies need.
const RUSTUP: [&str; 2] = ["settings.toml", "toolchains"];
/// The part of Cargo's home that installed programs need. Credentials lie beside it.
const CARGO: [&str; 1] = ["bin"];

/// An installation prefix of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The directory.
    pub directory: PathBuf,
    /// The names in it that are shown; `None`: all.
    pub names: Option<&'static [&'static str]>,
    /// The variable by which programs find it.
    pub variable: Option<&'static str>,
}

impl Prefix {
    /// Whether it shows all of a directory.
    pub fn shows(&self, directory: &Path) -> bool {
        let first = directory.strip_prefix(&self.directory).map(|rest| rest.components().next());
        match (first, self.names) {
            (Err(_), _) | (Ok(None), Some(_)) => false,
            (Ok(_), None) => true,
            (Ok(Some(first)), Some(names)) => names.iter().any(|name| first.as_os_str() == *name),
        }
    }

    /// The directories and files that it shows.
    pub fn shown(&self) -> Vec<PathBuf> {
        match self.names {
            None => vec![self.directory.clone()],
            Some(names) => names.iter().map(|name| self.directory.join(name)).filter(|path| path.exists()).collect(),
        }
    }
}

impl HostEnvironment {
    /// The current directory, if it is shown: not if it is the root, a home or a parent of one, or part of the host's software or of
    /// generated directories.
    pub fn shown_directory(&self) -> Option<&Path> {
        let directory = self.directory.as_deref()?;
        let is_top = is_software(directory) && directory.components().count() == 2;
        let is_generated = GENERATED.iter().any(|generated| directory.starts_with(generated));
        if self.is_private(directory) || is_top || is_generated { None } else { Some(directory) }
    }

    /// The installation prefixes of a program outside the host's software: that of the path by which it was found, whose
    /// directory has no links, and that of its canonical path. A proxy of rustup needs rustup's home as well. Empty if only
    /// the file itself is shown.
    pub fn prefixes(&self, program: &Path) -> Vec<Prefix> {
        let real = program.canonicalize().unwrap_or_else(|_| program.into());
        let mut prefixes: Vec<Prefix> = Vec::new();
        for path in [program, &real] {
            let Some(directory) = prefix(path).filter(|prefix| !is_software(prefix) && !self.is_private(prefix)) else { continue };
            if !prefixes.iter().any(|other| directory.starts_with(&other.directory)) {
                prefixes.push(Prefix { directory: directory.into(), names: names(directory), variable: None });
            }
            if directory.join("bin/rustup").is_file()
                && let Some(home) = self.rustup_home.as_ref().and_then(|home| home.canonicalize().ok())
                && !prefixes.iter().any(|other| home.starts_with(&other.directory))
                && !self.is_private(&home)
            {
                prefixes.push(Prefix { directory: home, names: Some(&RUSTUP), variable: Some("RUSTUP_HOME") });
            }
        }
        prefixes
    }

    /// Whether a directory is the root, a home, or a parent of homes.
    fn is_private(&self, directory: &Path) -> bool {
        let usual = ["/home", "/root"].iter().any(|home| directory == Path::new(home)) || directory.parent() == Some(Path::new("/home"));
        directory.parent().is_none() || usual || self.homes.iter().any(|home| home.starts_with(directory))
    }
}

/// The parent of a program's directory, if that is a directory of programs.
fn prefix(program: &Path) -> Option<&Path> {
    let directory = program.parent()?;
    let name = directory.file_name()?;
    if PROGRAM_DIRECTORIES.iter().any(|known| name == *known) { directory.parent() } else { None }
}

/// The names that its programs need, if the prefix is the home of a tool that keeps other files there too.
fn names(prefix: &Path) -> Option<&'static [&'static str]> {
    let is_cargo = prefix.file_name().is_some_and(|name| name == ".cargo") || prefix.join("bin/rustup").is_file();
    let is_pyenv = prefix.join("shims").is_dir() && prefix.join("libexec/pyenv").is_file();
    if is_cargo {
        Some(&CARGO)
    } else if is_pyenv {
        Some(&PYENV)
    } else {
        None
    }
}
