// SPDX-License-Identifier: MIT OR Apache-2.0
//! The environment in which a front end runs: its directory, its variables, the host's users and programs.

use crate::host;
use crate::report::Reporter;
use crate::view_images::ViewImages;
use pando_image::escaped;
use rustix::fs::{Mode, OFlags, open};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The search path if PATH is not set.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Directories of the root that hold the host's software.
pub(crate) const SOFTWARE: [&str; 10] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "opt", "etc"];

/// Why a program cannot be started.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// It does not exist.
    #[error("program `{}` was not found{}", escaped(.0), if .0.as_encoded_bytes().contains(&b'/') { "" } else { ": give its path, or a name in PATH" })]
    NotFound(OsString),
    /// It exists, but cannot be executed.
    #[error("{}: {reason}", escaped(program))]
    NotExecutable {
        /// The program, as it was named.
        program: OsString,
        /// The reason.
        reason: String,
    },
}

/// The facts about the host and the caller on which views depend.
#[derive(Clone, Debug, Default)]
pub struct HostEnvironment {
    /// The caller's current directory, without links.
    pub directory: Option<PathBuf>,
    /// Home directories, including those of other users.
    pub homes: Vec<PathBuf>,
    /// The host's list of users.
    pub users: String,
    /// The directory of cached images.
    pub cache: Option<PathBuf>,
    /// The directory of cached images of prefixes and directories, if these may be cached.
    pub tree_cache: Option<PathBuf>,
    /// Cached images of prefixes and directories are compared with the host file by file.
    pub compares_files: bool,
    /// The images that are kept with the template whose view is prepared.
    pub(crate) view_images: Option<ViewImages>,
    /// rustup's home, which holds its toolchains.
    pub rustup_home: Option<PathBuf>,
    /// The directory of the caller's data.
    pub data: Option<PathBuf>,
    /// The directories in which programs are found by name.
    pub path: Vec<PathBuf>,
    /// The caller's variables that every program gets: PATH, the terminal's type, locale and time zone.
    pub inherited: Vec<(OsString, OsString)>,
    /// Receives warnings and progress.
    pub reporter: Reporter,
}

impl HostEnvironment {
    /// The environment of a process with these variables, in this directory. Reads the host's list of users.
    pub fn new(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        directory: Option<PathBuf>,
        reporter: Reporter,
    ) -> HostEnvironment {
        let variables: BTreeMap<OsString, OsString> = variables.into_iter().collect();
        let absolute = |name: &str| variables.get(OsStr::new(name)).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute("HOME");
        let below_home = |name: &str| Some(home.as_ref()?.join(name));
        let cache = absolute("XDG_CACHE_HOME").or_else(|| below_home(".cache")).map(|cache| cache.join("pando"));
        let rustup_home = absolute("RUSTUP_HOME").or_else(|| below_home(".rustup"));
        let data = absolute("XDG_DATA_HOME").or_else(|| below_home(".local/share")).map(|data| data.join("pando"));
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let others = users.lines().filter_map(|line| line.split(':').nth(5)).map(PathBuf::from);
        // System users have homes such as `/` and `/usr/sbin`, which are not private.
        let homes = others.filter(|path| path.parent().is_some() && !is_software(path)).chain(home.clone()).collect();
        let path = search_path(variables.get(OsStr::new("PATH")).map_or(OsStr::new(DEFAULT_PATH), OsString::as_os_str));
        let inherited = variables.into_iter().filter(|(name, _)| is_inherited(name)).collect();
        HostEnvironment {
            directory,
            homes,
            users,
            tree_cache: cache.clone(),
            cache,
            compares_files: false,
            view_images: None,
            rustup_home,
            data,
            path,
            inherited,
            reporter,
        }
    }

    /// Finds a program: by its path if the name holds a slash, in PATH otherwise.
    ///
    /// # Errors
    /// It does not exist, or cannot be executed.
    pub fn find_program(&self, name: &OsStr) -> Result<PathBuf, ProgramError> {
        let not_found = || ProgramError::NotFound(name.into());
        let not_executable = |reason| ProgramError::NotExecutable { program: name.into(), reason };
        if name.as_bytes().contains(&b'/') {
            return check(Path::new(name)).map_err(not_executable)?.ok_or_else(not_found);
        }
        if name.is_empty() {
            return Err(not_found());
        }
        let mut error = not_found();
        for directory in &self.path {
            match check(&directory.join(name)) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                // Another directory may hold an executable one.
                Err(reason) => error = not_executable(reason),
            }
        }
        Err(error)
    }

    /// The same environment, with the search path of these variables if they name one.
    pub(crate) fn with_path_of(&self, variables: &[(OsString, OsString)]) -> HostEnvironment {
        let given = variables.iter().rfind(|(name, _)| name == "PATH");
        let path = given.map_or_else(|| self.path.clone(), |(_, value)| search_path(value));
        HostEnvironment { path, ..self.clone() }
    }

    /// Whether a program, which [`find_program`](HostEnvironment::find_program) finds, or another of its name, is part of the host's
    /// software.
    pub fn is_in_software(&self, name: &OsStr) -> bool {
        if name.as_bytes().contains(&b'/') {
            return host::absolute(Path::new(name)).is_ok_and(|path| is_software(&path));
        }
        self.path.iter().filter(|directory| is_software(directory)).any(|directory| matches!(check(&directory.join(name)), Ok(Some(_))))
    }

    /// A program's environment: the variables of its account, those that every program gets, and `given`. Each is NAME=VALUE; a later one
    /// replaces an earlier one of the same name.
    pub fn program_environment<'a>(
        &self,
        account: impl Iterator<Item = (OsString, OsString)>,
        given: impl IntoIterator<Item = &'a (OsString, OsString)>,
    ) -> Vec<Vec<u8>> {
        lines(account.chain(self.inherited.iter().cloned()).chain(given.into_iter().cloned()))
    }
}

/// Variables as NAME=VALUE; a later one replaces an earlier one of the same name.
pub fn lines(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<Vec<u8>> {
    let variables: BTreeMap<OsString, OsString> = variables.into_iter().collect();
    variables.into_iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat()).collect()
}

/// The directories of a search path.
fn search_path(path: &OsStr) -> Vec<PathBuf> {
    path.as_bytes().split(|byte| *byte == b':').map(|directory| PathBuf::from(OsStr::from_bytes(directory))).collect()
}

/// Whether a path lies in the host's software.
pub(crate) fn is_software(path: &Path) -> bool {
    let mut components = path.components();
    components.next();
    components.next().is_some_and(|top| SOFTWARE.iter().any(|known| top.as_os_str() == *known))
}

/// Whether every program gets the caller's variable of this name.
fn is_inherited(name: &OsStr) -> bool {
    let name = name.as_bytes();
    matches!(name, b"PATH" | b"TERM" | b"LANG" | b"TZ") || name.starts_with(b"LC_")
}

/// The absolute path of a program; `None` if it does not exist. The error is the reason why it cannot be executed.
fn check(path: &Path) -> Result<Option<PathBuf>, String> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(host::plain(&error)),
    };
    if metadata.is_dir() {
        return Err("is a directory".into());
    }
    if !metadata.is_file() {
        return Err("is not a regular file".into());
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err("is not executable: chmod +x it if it is a program".into());
    }
    // The file may have been replaced by a FIFO: do not block on it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match open(path, flags, Mode::empty()).map_err(std::io::Error::from) {
        Ok(_) => host::absolute(path).map(Some).map_err(|error| host::plain(&error)),
        Err(error) => Err(format!("cannot be read: {}", host::plain(&error))),
    }
}
