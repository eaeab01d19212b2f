// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's memory, environment and programs.

use crate::view::Account;
pub(crate) use pando_manager::host::{absolute, memory, memory_info, plain};
use rustix::fs::{Mode, OFlags, open};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The search path if PATH is not set.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why a program cannot be started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoProgram {
    /// It does not exist.
    NotFound,
    /// It exists, but cannot be executed.
    NotExecutable(String),
}

/// Finds a program: by its path if the name holds a slash, in PATH otherwise.
pub(crate) fn find_program(name: &OsStr) -> Result<PathBuf, NoProgram> {
    if name.as_bytes().contains(&b'/') {
        return check(Path::new(name));
    }
    if name.is_empty() {
        return Err(NoProgram::NotFound);
    }
    let mut best = NoProgram::NotFound;
    for directory in program_directories() {
        match check(&directory.join(name)) {
            Ok(found) => return Ok(found),
            Err(NoProgram::NotFound) => {}
            // Another directory may hold an executable one.
            Err(other) => best = other,
        }
    }
    Err(best)
}

/// The directories in PATH.
pub(crate) fn program_directories() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    std::env::split_paths(&path).collect()
}

fn check(path: &Path) -> Result<PathBuf, NoProgram> {
    let refused = |why: &str| Err(NoProgram::NotExecutable(why.into()));
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Err(NoProgram::NotFound),
        Err(error) => return Err(NoProgram::NotExecutable(plain(&error))),
    };
    if metadata.is_dir() {
        return refused("is a directory");
    }
    if !metadata.is_file() {
        return refused("is not a regular file");
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return refused("is not executable: chmod +x it if it is a program");
    }
    // The file may have been replaced by a FIFO: do not block on it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match open(path, flags, Mode::empty()).map_err(std::io::Error::from) {
        Ok(_) => absolute(path).map_err(|error| NoProgram::NotExecutable(plain(&error))),
        Err(error) => Err(NoProgram::NotExecutable(format!("cannot be read: {}", plain(&error)))),
    }
}

/// An environment variable for the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    /// Its name.
    pub(crate) name: OsString,
    /// Its value; `None`: that of this process.
    pub(crate) value: Option<OsString>,
}

impl Variable {
    /// Reads `NAME[=VALUE]`.
    pub(crate) fn parse(text: OsString) -> Result<Variable, String> {
        let mut bytes = text.into_vec();
        let value = bytes.iter().position(|byte| *byte == b'=').map(|at| {
            let value = bytes.split_off(at + 1);
            bytes.truncate(at);
            OsString::from_vec(value)
        });
        if bytes.is_empty() {
            return Err("the name is missing: give NAME=VALUE, or a NAME to pass on".into());
        }
        Ok(Variable { name: OsString::from_vec(bytes), value })
    }
}

/// A program's environment: the account's variables, those of PATH, locale and time zone, and those given on the command line.
pub(crate) fn environment(account: &Account, given: &[Variable]) -> Vec<Vec<u8>> {
    let shown = |name: &OsStr| {
        let name = name.as_bytes();
        matches!(name, b"PATH" | b"TERM" | b"LANG" | b"TZ") || name.starts_with(b"LC_")
    };
    let own = std::env::vars_os().filter(|(name, _)| shown(name));
    lines(account.variables().chain(own).chain(values(given)))
}

/// The variables that are given to a clone.
pub(crate) fn given(given: &[Variable]) -> Vec<Vec<u8>> {
    lines(values(given))
}

/// Variables with their values; those to pass on that are not set here are left out.
fn values(given: &[Variable]) -> impl Iterator<Item = (OsString, OsString)> {
    given.iter().filter_map(|Variable { name, value }| Some((name.clone(), value.clone().or_else(|| std::env::var_os(name))?)))
}

/// Each as NAME=VALUE; a later one replaces an earlier one of the same name.
fn lines(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<Vec<u8>> {
    let variables: BTreeMap<OsString, OsString> = variables.collect();
    variables.into_iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::Variable;
    use std::ffi::OsString;

    #[test]
    fn variables_are_read_as_people_write_them() {
        let variable = |text: &str| Variable::parse(text.into()).map(|Variable { name, value }| (name, value));
        let word = OsString::from;
        assert_eq!(variable("A=b=c"), Ok((word("A"), Some(word("b=c")))));
        assert_eq!(variable("A="), Ok((word("A"), Some(word("")))));
        assert_eq!(variable("A"), Ok((word("A"), None)));
        assert!(variable("").is_err() && variable("=x").is_err());
    }
}
