// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limit on the growth of the served files.

use rustix::io::Errno;

/// How far the files may still grow.
#[derive(Debug)]
pub(crate) struct Growth {
    left: u64,
    most: u64,
}

impl Growth {
    /// Files that may grow by so many bytes.
    pub(crate) fn new(most: u64) -> Growth {
        Growth { left: most, most }
    }

    /// Charges a file that grows from `size` bytes to `end`. A file that is cut off (`cuts`) gives bytes back.
    ///
    /// # Errors
    /// `EDQUOT`.
    pub(crate) fn charge(&mut self, size: u64, end: u64, cuts: bool) -> Result<(), Errno> {
        if cuts && end < size {
            self.left = self.left.saturating_add(size - end).min(self.most);
            return Ok(());
        }
        self.left = self.left.checked_sub(end.saturating_sub(size)).ok_or(Errno::DQUOT)?;
        Ok(())
    }
}
