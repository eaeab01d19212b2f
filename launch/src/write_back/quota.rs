// SPDX-License-Identifier: MIT OR Apache-2.0
//! The quota of written-back bytes: by how much all exports together may grow.

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

/// The cost of each name besides its file's bytes: a cell could fill a file system with empty files.
const NAME_COST: u64 = 4096;

/// By how much the exports may still grow. Sizes count as `ls` shows them: a hole takes no room here, but whoever copies the file fills it.
#[derive(Debug)]
pub(super) struct Quota {
    left: u64,
}

impl Quota {
    /// Room for so many bytes.
    pub(super) fn new(most: u64) -> Quota {
        Quota { left: most }
    }

    /// Takes room for a file of this size in place of what was there before.
    ///
    /// # Errors
    /// `EDQUOT`: there is not enough.
    pub(super) fn charge(&mut self, size: u64, before: Option<Stat>) -> Result<(), Errno> {
        let left = self.left.saturating_add(cost(before));
        self.left = left.checked_sub(size.saturating_add(NAME_COST)).ok_or(Errno::DQUOT)?;
        Ok(())
    }

    /// Gives back the room of what was removed.
    pub(super) fn credit(&mut self, removed: Option<Stat>) {
        self.left = self.left.saturating_add(cost(removed));
    }
}

/// The size of something that exists.
fn cost(stat: Option<Stat>) -> u64 {
    let Some(stat) = stat else { return 0 };
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if is_file { u64::try_from(stat.st_size).unwrap_or(0).saturating_add(NAME_COST) } else { NAME_COST }
}
