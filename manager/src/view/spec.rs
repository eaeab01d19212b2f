// SPDX-License-Identifier: MIT OR Apache-2.0
//! The specification of a view: the files and the environment that a program sees.

use std::ffi::OsString;
use std::path::PathBuf;

/// The files and the environment that a program sees. By default the host's software and the current directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewSpec {
    /// Variables of the program's environment, in addition to the usual ones.
    pub variables: Vec<(OsString, OsString)>,
    /// The working directory in the cell; `None`: the current directory.
    pub directory: Option<PathBuf>,
    /// The user that the program runs as.
    pub user: User,
    /// The root instead of the host's software: a directory, a tar archive or an image.
    pub root: Option<PathBuf>,
    /// The program sees nothing of the host but itself.
    pub bare: bool,
    /// Files and directories of the host that it sees.
    pub volumes: Vec<VolumeSpec>,
}

/// A file or directory of the host, and its path in the cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Its path on the host.
    pub host: PathBuf,
    /// Its absolute path in the cell.
    pub cell: PathBuf,
    /// Changes are written back to the host.
    pub writable: bool,
}

/// The user that a program runs as. By default root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user ID.
    pub user: u32,
    /// The group ID.
    pub group: u32,
}

impl ViewSpec {
    /// Whether the program sees the host's software and nothing else, with any variables.
    pub fn is_software(&self) -> bool {
        ViewSpec { variables: self.variables.clone(), ..ViewSpec::default() } == *self
    }
}
