// SPDX-License-Identifier: MIT OR Apache-2.0
//! Growing, shrinking and moving mappings.

use pando_abi::{PAGE_SIZE, Permissions};
use pando_rt::memory::PageRange;
use pando_rt::user;

use super::AddressSpace;
use super::patching::Content;
use super::regions::{Backing, Region};
use crate::errno::Errno;

/// Where a mapping may go that changes its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nowhere: it stays.
    Stay,
    /// Wherever there is room, if it cannot stay.
    Anywhere,
    /// Wherever there is room, but not where it is.
    Elsewhere,
    /// Here, over whatever is there, which is elsewhere than the mapping.
    At(u64),
}

impl AddressSpace {
    /// Gives the mapping `old` the length of `bytes`, a multiple of pages. Returns where it starts then.
    ///
    /// # Errors
    /// `EFAULT`: it is not one mapping, whole. `EINVAL`: the new place is none. `ENOMEM`.
    pub fn remap(&mut self, old: PageRange, bytes: u64, target: Target) -> Result<u64, Errno> {
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
            Target::At(address) => super::pages(address, bytes)?,
            Target::Elsewhere => self.find(new.bytes(), PAGE_SIZE)?,
            Target::Stay | Target::Anywhere => {
                let Some(grown) = PageRange::new(old.end(), new.end()) else {
                    PageRange::new(new.end(), old.end()).map_or(Ok(()), |tail| self.unmap(tail))?;
                    return Ok(old.start());
                };
                if self.regions.is_free(grown) {
                    self.extend(old.bytes(), grown, region)?;
                    return Ok(old.start());
                }
                if target == Target::Stay {
                    return Err(Errno::ENOMEM);
                }
                self.find(new.bytes(), PAGE_SIZE)?
            }
        };
        self.release(old, Content::Stays)?;
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

    /// Maps elsewhere what a piece of a mapping holds, as far as there is room.
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

/// Whether one is what a mapping of a file is behind the file's end.
fn is_rest(one: Region, other: Region) -> bool {
    let is_file = matches!(one.backing, Backing::Blocks(_) | Backing::Node(_) | Backing::Copy);
    is_file && matches!(other.backing, Backing::Beyond(_)) && one.permissions == other.permissions
}
