// SPDX-License-Identifier: MIT OR Apache-2.0
//! What children get as zeros (`MADV_WIPEONFORK`), so that what is random in a process does not come again in its children.

use pando_rt::memory::{self, PageRange};

use super::AddressSpace;
use super::backing::plan;
use crate::errno::Errno;

impl AddressSpace {
    /// Lets children get a range as zeros.
    ///
    /// # Errors
    /// `EINVAL`: something else is mapped there than private memory.
    pub fn wipe_in_children(&mut self, range: PageRange) -> Result<(), Errno> {
        let pieces = self.regions.pieces(range);
        if pieces.iter().any(|(_, region)| region.backing.is_file()) {
            return Err(Errno::EINVAL);
        }
        pieces.into_iter().for_each(|(piece, region)| self.wiped.put(piece, region));
        Ok(())
    }

    /// Lets children get a range as it is.
    pub fn keep_in_children(&mut self, range: PageRange) {
        self.wiped.remove(range);
    }

    /// Makes zeros of what a child gets as such, in its own space.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn wipe(&self) -> Result<(), Errno> {
        let wiped = self.wiped.all().into_iter().flat_map(|(part, _)| self.regions.pieces(part));
        for (piece, region) in wiped.filter(|(_, region)| !region.backing.is_nothing()) {
            plan(piece, region.permissions, region.backing)
                .try_for_each(|(part, flags)| memory::map_in(self.space.0.into(), part, flags))?;
        }
        Ok(())
    }
}
