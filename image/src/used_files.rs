// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host files that an image has read content of, and whether they are the same later.

use std::path::PathBuf;

use crate::{BlockError, Image, host_stat::lstat, image::BlockSource, version::Version};

/// A file of the host, of which content was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsedFile {
    /// Its path.
    pub path: PathBuf,
    /// Its device and inode number, its size, and its modification time in seconds and nanoseconds.
    pub version: (u64, u64, u64, i64, u32),
    /// The lower twelve bits of its mode.
    pub permissions: u16,
}

impl UsedFile {
    pub(crate) fn new(path: PathBuf, version: &Version) -> UsedFile {
        let Version { device, inode, size, modified, permissions, changed: _ } = *version;
        UsedFile { path, version: (device, inode, size, modified.0, modified.1), permissions }
    }

    /// Whether the host has the same content at this path, for the same readers at least.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        let is_same = |now: &Version| {
            let (device, inode, size, seconds, nanoseconds) = self.version;
            let modified = (seconds, nanoseconds);
            now.has_content_of(&Version { device, inode, size, modified, permissions: self.permissions, changed: now.changed })
        };
        lstat(&self.path).is_ok_and(|stat| is_same(&Version::of(&stat)))
    }
}

impl Image {
    /// The host files of which content was read since the image was opened. Those of images of containers are left out: they never change.
    ///
    /// # Errors
    /// A table is damaged.
    pub fn used_files(&self) -> Result<Vec<UsedFile>, BlockError> {
        let mut used = Vec::new();
        for host in self.sources().filter_map(|source| if let BlockSource::Host(host) = source { Some(host) } else { None }) {
            host.add_used(&mut used)?;
        }
        Ok(used)
    }
}
