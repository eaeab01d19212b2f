// SPDX-License-Identifier: MIT OR Apache-2.0
//! The quota of a write-back: by how much all exports together may grow.

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

/// The cost of each name in addition to its file's bytes: a cell could fill a file system with empty files.
const NAME_COST: u64 = 4096;

/// The remaining quota. Sizes count as `ls` shows them: a hole takes no space here, but a copy of the file may fill it.
#[derive(Debug)]
pub(super) struct Quota {
    left: u64,
}

impl Quota {
    /// A quota of this many bytes.
    pub(super) fn new(bytes: u64) -> Quota {
        Quota { left: bytes }
    }

    /// Charges a file of this size for what it takes more than the file that it replaces. Returns what it takes less, to be credited once
    /// it has replaced that: a cell may begin to replace a file as often as it likes.
    ///
    /// # Errors
    /// `EDQUOT`: the quota is exceeded.
    pub(super) fn charge(&mut self, size: u64, before: Option<Stat>) -> Result<u64, Errno> {
        let (after, before) = (size.saturating_add(NAME_COST), cost(before));
        self.left = self.left.checked_sub(after.saturating_sub(before)).ok_or(Errno::DQUOT)?;
        Ok(before.saturating_sub(after))
    }

    /// Returns bytes of the quota.
    pub(super) fn credit(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes);
    }
}

/// The cost of an existing file.
pub(super) fn cost(stat: Option<Stat>) -> u64 {
    let Some(stat) = stat else { return 0 };
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if is_file { u64::try_from(stat.st_size).unwrap_or(0).saturating_add(NAME_COST) } else { NAME_COST }
}
