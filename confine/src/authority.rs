// SPDX-License-Identifier: MIT OR Apache-2.0
//! Authority over files: what a process needs of root's, by the owners and modes of files.

use rustix::process::{getegid, geteuid};
use rustix::thread::capabilities;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bits of a mode, for one class of users.
pub(crate) const READ: u32 = 0o4;
pub(crate) const WRITE: u32 = 0o2;
const SEARCH: u32 = 0o1;

/// The part of root's authority over files that a process keeps. A process of another user has none of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Authority {
    /// Files may be read that only other users may read.
    pub read: bool,
    /// Files of other users may be changed.
    pub change: bool,
}

/// A file's owner, group and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOwner {
    /// Its owner.
    pub user: u32,
    /// Its owner's group.
    pub group: u32,
    /// Its permissions.
    pub mode: u32,
    /// Whether it is a directory.
    pub is_directory: bool,
}

impl From<&Metadata> for FileOwner {
    fn from(found: &Metadata) -> FileOwner {
        FileOwner { user: found.uid(), group: found.gid(), mode: found.mode(), is_directory: found.is_dir() }
    }
}

impl Authority {
    /// Finds the authority needed to read these files and directories, and to replace them by others with the same
    /// owners. Without capabilities of this process, it checks nothing: the process needs none then for what it can do.
    #[must_use]
    pub fn over(files: impl IntoIterator<Item = FileOwner>) -> Authority {
        if capabilities(None).is_ok_and(|had| had.permitted.is_empty()) {
            return Authority::default();
        }
        let caller = Caller::this();
        let over =
            |file: FileOwner| Authority { read: !caller.may(&file, READ), change: (file.user, file.group) != (caller.user, caller.group) };
        files.into_iter().map(over).fold(Authority::default(), Authority::and)
    }

    /// The union of both.
    #[must_use]
    pub fn and(self, other: Authority) -> Authority {
        Authority { read: self.read || other.read, change: self.change || other.change }
    }
}

/// The user and group of this process, without capabilities and supplementary groups.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    user: u32,
    group: u32,
}

impl Caller {
    /// The calling process.
    pub(crate) fn this() -> Caller {
        Caller { user: geteuid().as_raw(), group: getegid().as_raw() }
    }

    /// Whether a file's mode grants all of these bits; a directory must also be searchable.
    fn may(self, file: &FileOwner, bits: u32) -> bool {
        let bits = if file.is_directory { bits | SEARCH } else { bits };
        let class = match (file.user == self.user, file.group == self.group) {
            (true, _) => file.mode >> 6,
            (false, true) => file.mode >> 3,
            (false, false) => file.mode,
        };
        class & bits == bits
    }

    /// Whether a path grants these bits, and all directories above it can be searched. True for a missing path.
    pub(crate) fn reaches(self, path: &Path, bits: u32) -> bool {
        let may = |path: &Path, bits: u32| path.metadata().map_or(true, |found| self.may(&FileOwner::from(&found), bits));
        may(path, bits) && path.ancestors().skip(1).all(|above| may(above, SEARCH))
    }
}
