// SPDX-License-Identifier: MIT OR Apache-2.0
//! Grows, shrinks and moves mappings (`mremap`).

use pando_abi::{PAGE_SIZE, Permissions};
use pando_rt::memory::PageRange;
use pando_rt::user;

use super::AddressSpace;
use super::patching::PageContent;
use super::regions::{Backing, Region};
use crate::errno::Errno;

/// Where a resized mapping may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemapTarget {
    /// Nowhere: it stays.
    Stay,
    /// To any free range, if it cannot stay.
    Anywhere,
    /// To any free range other than its own (`MREMAP_DONTUNMAP`).
    Elsewhere,
    /// To this address, in place of existing mappings; it does not overlap the old mapping.
    At(u64),
}

impl AddressSpace {
    /// Resizes the mapping `old` to `bytes`, a multiple of pages. Returns its new start.
    ///
    /// # Errors
    /// `EFAULT`: the range is not exactly one mapping. `EINVAL`: the new address is invalid. `ENOMEM`.
    pub fn remap(&mut self, old: PageRange, bytes: u64, target: RemapTarget) -> Result<u64, Errno> {
        let pieces = self.regions.pieces(old);
        let region = match pieces[..] {
            [(part, region)] if part == old => region,
            // The end of its file may divide a mapping.
            [(part, one), (rest, other)]
                if part.end() == rest.start() && part.bytes() + rest.bytes() == old.bytes() && is_rest(one, other) =>
            {
                other
            }
            _ => return Err(Errno::EFAULT),
        };
        let new = super::pages(old.start(), bytes)?;
        let to = match target {
            RemapTarget::At(address) => super::pages(address, bytes)?,
            RemapTarget::Elsewhere => self.find(new.bytes(), PAGE_SIZE)?,
            RemapTarget::Stay | RemapTarget::Anywhere => {
                let Some(grown) = PageRange::new(old.end(), new.end()) else {
                    PageRange::new(new.end(), old.end()).map_or(Ok(()), |tail| self.unmap(tail))?;
                    return Ok(old.start());
                };
                if self.regions.is_free(grown) {
                    self.extend(old.bytes(), grown, region)?;
                    return Ok(old.start());
                }
                if target == RemapTarget::Stay {
                    return Err(Errno::ENOMEM);
                }
                self.find(new.bytes(), PAGE_SIZE)?
            }
        };
        self.release(old, PageContent::Kept)?;
        for &(part, region) in &pieces {
            let start = to.start() + (part.start() - old.start());
            let end = if part.end() == old.end() { to.end() } else { to.end().min(start + part.bytes()) };
            if let Some(to) = PageRange::new(start, end) {
                self.move_piece(part, region, to)?;
            }
        }
        self.unmap(old)?;
        Ok(to.start())
    }

    /// Maps a piece of a mapping at its new address, as far as it fits there.
    fn move_piece(&mut self, old: PageRange, region: Region, to: PageRange) -> Result<(), Errno> {
        let backing = region.backing.moved(old.start(), to.start());
        if backing.is_nothing() {
            return self.map(to, region.permissions, backing);
        }
        self.map(to, Permissions::READ_WRITE, backing)?;
        if !region.permissions.readable() {
            self.protect(old, Permissions::READ)?;
        }
        user::copy(to.start(), old.start(), old.bytes().min(to.bytes()))?;
        self.protect(to, region.permissions)
    }
}

/// Whether `one` is the part behind the file's end of a mapping of a file.
fn is_rest(one: Region, other: Region) -> bool {
    let is_file = matches!(one.backing, Backing::Blocks(_) | Backing::Node(_) | Backing::Copy);
    is_file && matches!(other.backing, Backing::Beyond(_)) && one.permissions == other.permissions
}
