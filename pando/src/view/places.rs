// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which directories of the host are anybody's, and which are somebody's.

use std::path::{Path, PathBuf};

/// Directories of the root that hold the host's software.
pub(super) const SOFTWARE: [&str; 10] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "opt", "etc"];
/// What an installation prefix has programs in.
const PROGRAM_DIRECTORIES: [&str; 3] = ["bin", "sbin", "shims"];
/// Directories whose content a cell makes up itself.
const MADE_UP: [&str; 3] = ["/proc", "/sys", "/dev"];

/// What the rules must know of the host, and of who asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// Where the caller stands, without links.
    pub(crate) directory: Option<PathBuf>,
    /// Home directories, those of others too.
    pub(crate) homes: Vec<PathBuf>,
    /// The host's list of users.
    pub(crate) users: String,
    /// Where images are kept from one start to the next.
    pub(crate) cache: Option<PathBuf>,
}

impl Surroundings {
    /// What this process finds around it.
    pub(crate) fn here() -> Self {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute("HOME");
        let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(home.as_ref()?.join(".cache")));
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let others = users.lines().filter_map(|line| line.split(':').nth(5)).map(PathBuf::from);
        // Users of the system have homes such as `/` and `/usr/sbin`, which are nobody's.
        let homes = others.filter(|path| path.parent().is_some() && !is_software(path)).chain(home);
        let homes = homes.collect();
        Surroundings { directory: std::env::current_dir().ok(), homes, users, cache: cache.map(|cache| cache.join("pando")) }
    }

    /// The current directory, if it is to be shown: not the root or a home or what holds one, and not what is the host's software or made
    /// up anyway.
    pub(crate) fn shown_directory(&self) -> Option<&Path> {
        let directory = self.directory.as_deref()?;
        let is_top = is_software(directory) && directory.components().count() == 2;
        let made_up = MADE_UP.iter().any(|made_up| directory.starts_with(made_up));
        if self.is_private(directory) || is_top || made_up { None } else { Some(directory) }
    }

    /// The installation prefixes of a program that is not part of the host's software: of the path by which it was
    /// found, whose directory has no links, and of the one to which that leads. None where only the file itself is to
    /// be shown.
    pub(crate) fn prefixes(&self, program: &Path) -> Vec<PathBuf> {
        let real = program.canonicalize().unwrap_or_else(|_| program.into());
        let mut prefixes: Vec<PathBuf> = Vec::new();
        for path in [program, &real] {
            let Some(prefix) = prefix(path).filter(|prefix| !is_software(prefix) && !self.is_private(prefix)) else { continue };
            if !prefixes.iter().any(|other| prefix.starts_with(other)) {
                prefixes.push(prefix.into());
            }
        }
        prefixes
    }

    /// Whether a directory is the root, or a home, or one that holds homes.
    fn is_private(&self, directory: &Path) -> bool {
        let usual = ["/home", "/root"].iter().any(|home| directory == Path::new(home)) || directory.parent() == Some(Path::new("/home"));
        directory.parent().is_none() || usual || self.homes.iter().any(|home| home.starts_with(directory))
    }
}

/// The parent of the directory that a program lies in, if that is one for programs.
fn prefix(program: &Path) -> Option<&Path> {
    let directory = program.parent()?;
    let name = directory.file_name()?;
    if PROGRAM_DIRECTORIES.iter().any(|known| name == *known) { directory.parent() } else { None }
}

/// Whether a path lies in the host's software.
fn is_software(path: &Path) -> bool {
    let mut components = path.components();
    components.next();
    components.next().is_some_and(|top| SOFTWARE.iter().any(|known| top.as_os_str() == *known))
}
