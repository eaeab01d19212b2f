// SPDX-License-Identifier: MIT OR Apache-2.0
//! The environment of this process: its variables and its directory.

use crate::observer;
use pando_manager::environment::{HostEnvironment, lines};
use pando_manager::host;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// The environment of this process, whose reports go to standard error.
pub(crate) fn caller() -> HostEnvironment {
    HostEnvironment::new(std::env::vars_os(), std::env::current_dir().ok(), observer::reporter())
}

/// Whether cells are to fall asleep whenever they idle (`PANDO_DROWSY`): tests run like that, to see that nobody notices.
pub(crate) fn sleeps_when_idle() -> bool {
    std::env::var_os("PANDO_DROWSY").is_some_and(|value| !value.is_empty())
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

/// The variables of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VariableFile(pub(crate) Vec<Variable>);

impl VariableFile {
    /// Reads a file as docker does: a line is `NAME=VALUE` or a `NAME` to pass on, values are taken as they are, and empty lines and those
    /// that begin with `#` are left out.
    pub(crate) fn read(path: OsString) -> Result<VariableFile, String> {
        let text = std::fs::read(&path).map_err(|error| host::plain(&error))?;
        let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line).trim_ascii_start());
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
        lines.map(|line| Variable::parse(OsString::from_vec(line.to_vec()))).collect::<Result<_, _>>().map(VariableFile)
    }
}

/// The variables that are given to a clone, each as NAME=VALUE.
pub(crate) fn given(given: &[Variable]) -> Vec<Vec<u8>> {
    lines(values(given))
}

/// Variables with their values; those to pass on that are not set here are left out.
pub(crate) fn values(given: &[Variable]) -> impl Iterator<Item = (OsString, OsString)> {
    given.iter().filter_map(|Variable { name, value }| Some((name.clone(), value.clone().or_else(|| std::env::var_os(name))?)))
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
