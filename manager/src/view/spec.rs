// SPDX-License-Identifier: MIT OR Apache-2.0
//! The specification of a view: the files and the environment that a program sees.

use super::ViewError;
use crate::host;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The files and the environment that a program sees. By default the host's software and the current directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewSpec {
    /// Variables of the program's environment, in addition to the usual ones.
    pub variables: Vec<(OsString, OsString)>,
    /// The working directory in the cell; `None`: the current directory.
    pub directory: Option<PathBuf>,
    /// The user that the program runs as; `None`: that of the container image, or root.
    pub user: Option<UserName>,
    /// The root instead of the host's software: a directory, a tar archive or an image.
    pub root: Option<PathBuf>,
    /// The root instead of the host's software: a container image.
    pub image: Option<ImageSpec>,
    /// Directories of the cell that are empty at the start, whatever the root has there, with their permissions.
    pub temporary: Vec<(PathBuf, u16)>,
    /// The program may change only volumes that are writable and temporary directories.
    pub read_only: bool,
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
    /// Changes are written back to the host; otherwise they are lost with the cell.
    pub writable: bool,
    /// The cell's programs may not change it.
    pub read_only: bool,
    /// It is a live mount: changes on either side are seen by the other.
    pub live: bool,
    /// It is the named volume, whose directory [`volumes::acquire`](crate::volumes::acquire) sets as the path on the host.
    pub name: Option<VolumeName>,
}

/// The name of a volume: letters, digits, dots, dashes and underlines, of which the first is a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeName(String);

impl FromStr for VolumeName {
    type Err = String;

    fn from_str(text: &str) -> Result<VolumeName, String> {
        if host::is_plain_name(text) {
            return Ok(VolumeName(text.into()));
        }
        Err(format!("`{text}` is not a valid volume name: give up to 64 letters, digits, dots, dashes and underlines, such as data-1"))
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// A container image of the store, and how its program is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageSpec {
    /// Its name, or its ID.
    pub name: String,
    /// The program instead of the image's entrypoint and command.
    pub entrypoint: Option<OsString>,
    /// The program has a terminal.
    pub has_terminal: bool,
}

/// A user and group by name or number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserName {
    /// The user.
    pub user: String,
    /// The group; `None`: the user's.
    pub group: Option<String>,
}

/// The user that a program runs as. By default root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user ID.
    pub user: u32,
    /// The group ID.
    pub group: u32,
}

impl UserName {
    /// Reads `USER[:GROUP]`; `None` if a part is missing or holds a colon.
    pub fn parse(text: &str) -> Option<UserName> {
        let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
        let is_name = |name: &str| !name.is_empty() && !name.contains([':', '\0', '\n']);
        (is_name(user) && group.is_none_or(is_name)).then(|| UserName { user: user.into(), group: group.map(Into::into) })
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UserName { user, group } = self;
        match group {
            Some(group) => write!(out, "{user}:{group}"),
            None => write!(out, "{user}"),
        }
    }
}

impl From<User> for UserName {
    fn from(User { user, group }: User) -> UserName {
        UserName { user: user.to_string(), group: Some(group.to_string()) }
    }
}

impl ViewSpec {
    /// Checks that the program changes no files of the host: clones and cells of a service cannot.
    ///
    /// # Errors
    /// It names a volume that is written back, or a live mount.
    pub(crate) fn check_unchanging(&self) -> Result<(), ViewError> {
        let changing = self.volumes.iter().find(|volume| volume.writable || volume.live);
        let reason = |volume: &VolumeSpec| match &volume.name {
            Some(name) => format!(
                "clones and cells of a service cannot use named volumes, which are live; if {name} is a file or a directory, write ./{name}"
            ),
            None => "clones and cells of a service cannot write to the host: add `:ro`".into(),
        };
        changing.map_or(Ok(()), |volume| Err(ViewError::Volume { volume: volume.host.clone(), reason: reason(volume) }))
    }

    /// Checks that a volume of the host can be changed if it is to be: a single file is part of the root.
    pub(super) fn check_writable(&self, writable: bool, host: &Path) -> Result<(), String> {
        match self.read_only && writable && !host.is_dir() {
            true => Err("with --read-only a single file cannot be changed: mount its directory, or the file with `:ro`".into()),
            false => Ok(()),
        }
    }

    /// The directories of the cell that are file systems of their own. If the root is read-only, `/dev` is one of them, for terminals.
    pub(super) fn own_file_systems(&self) -> Vec<Vec<u8>> {
        let devices = self.read_only.then(|| b"/dev".to_vec());
        devices.into_iter().chain(self.temporary.iter().map(|(path, _)| path.as_os_str().as_bytes().to_vec())).collect()
    }

    /// Whether the program is one of the host's software.
    pub fn is_of_software(&self) -> bool {
        self.root.is_none() && self.image.is_none() && !self.bare && self.volumes.is_empty()
    }
}
