// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules for the host's directories: which are public and which are private.

use std::path::{Path, PathBuf};

/// Directories of the root that hold the host's software.
pub(super) const SOFTWARE: [&str; 10] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "opt", "etc"];
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
pub(crate) struct Prefix {
    /// The directory.
    pub(crate) directory: PathBuf,
    /// The names in it that are shown; `None`: all.
    pub(crate) names: Option<&'static [&'static str]>,
    /// The variable by which programs find it.
    pub(crate) variable: Option<&'static str>,
}

impl Prefix {
    /// Whether it shows all of a directory.
    pub(crate) fn shows(&self, directory: &Path) -> bool {
        let first = directory.strip_prefix(&self.directory).map(|rest| rest.components().next());
        match (first, self.names) {
            (Err(_), _) | (Ok(None), Some(_)) => false,
            (Ok(_), None) => true,
            (Ok(Some(first)), Some(names)) => names.iter().any(|name| first.as_os_str() == *name),
        }
    }

    /// The directories and files that it shows.
    pub(crate) fn shown(&self) -> Vec<PathBuf> {
        match self.names {
            None => vec![self.directory.clone()],
            Some(names) => names.iter().map(|name| self.directory.join(name)).filter(|path| path.exists()).collect(),
        }
    }
}

/// The facts about the host and the caller on which the rules depend.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostEnvironment {
    /// The caller's current directory, without links.
    pub(crate) directory: Option<PathBuf>,
    /// Home directories, including those of other users.
    pub(crate) homes: Vec<PathBuf>,
    /// The host's list of users.
    pub(crate) users: String,
    /// The directory of cached images.
    pub(crate) cache: Option<PathBuf>,
    /// The directory of cached images of prefixes and directories, if these may be cached.
    pub(crate) trees: Option<PathBuf>,
    /// rustup's home, which holds its toolchains.
    pub(crate) rustup_home: Option<PathBuf>,
}

impl HostEnvironment {
    /// The environment of this process.
    pub(crate) fn here() -> Self {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute("HOME");
        let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(home.as_ref()?.join(".cache")));
        let rustup_home = absolute("RUSTUP_HOME").or_else(|| Some(home.as_ref()?.join(".rustup")));
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let others = users.lines().filter_map(|line| line.split(':').nth(5)).map(PathBuf::from);
        // System users have homes such as `/` and `/usr/sbin`, which are not private.
        let homes = others.filter(|path| path.parent().is_some() && !is_software(path)).chain(home);
        let homes = homes.collect();
        let cache = cache.map(|cache| cache.join("pando"));
        HostEnvironment { directory: std::env::current_dir().ok(), homes, users, trees: cache.clone(), cache, rustup_home }
    }

    /// The current directory, if it is shown: not if it is the root, a home or a parent of one, or part of the host's software or of
    /// generated directories.
    pub(crate) fn shown_directory(&self) -> Option<&Path> {
        let directory = self.directory.as_deref()?;
        let is_top = is_software(directory) && directory.components().count() == 2;
        let made_up = GENERATED.iter().any(|made_up| directory.starts_with(made_up));
        if self.is_private(directory) || is_top || made_up { None } else { Some(directory) }
    }

    /// The installation prefixes of a program outside the host's software: that of the path by which it was found, whose
    /// directory has no links, and that of its canonical path. A proxy of rustup needs rustup's home as well. Empty if only
    /// the file itself is shown.
    pub(crate) fn prefixes(&self, program: &Path) -> Vec<Prefix> {
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

/// Whether a path lies in the host's software.
fn is_software(path: &Path) -> bool {
    let mut components = path.components();
    components.next();
    components.next().is_some_and(|top| SOFTWARE.iter().any(|known| top.as_os_str() == *known))
}
