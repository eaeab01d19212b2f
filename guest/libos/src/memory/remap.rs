// SPDX-License-Identifier: MIT OR Apache-2.0
//! Growing, shrinking and moving mappings.

use pando_abi::Permissions;
use pando_rt::memory::PageRange;
use pando_rt::user;

use super::AddressSpace;
use super::patching::Content;
use super::regions::Backing;
use crate::errno::Errno;

/// Where a mapping may go that changes its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nowhere: it stays.
    Stay,
    /// Wherever there is room, if it cannot stay.
    Anywhere,
    /// Here, over whatever is there.
    At(u64),
}

impl AddressSpace {
    /// Gives the mapping `old` the length of `bytes`, a multiple of pages. Returns where it starts then.
    ///
    /// # Errors
    /// `EFAULT`: it is not one mapping, whole. `EINVAL`: old and new place overlap, or the new one is none. `ENOMEM`.
    pub fn remap(&mut self, old: PageRange, bytes: u64, target: Target) -> Result<u64, Errno> {
        let [(part, region)] = self.regions.pieces(old)[..] else { return Err(Errno::EFAULT) };
        if part != old {
            return Err(Errno::EFAULT);
        }
        let new = super::pages(old.start(), bytes)?;
        let to = match target {
            Target::At(address) => super::pages(address, bytes)?,
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
                self.find(new.bytes())?
            }
        };
        if to.start() < old.end() && old.start() < to.end() {
            return Err(Errno::EINVAL);
        }
        self.release(old, Content::Stays)?;
        if region.backing == Backing::Reserved {
            self.map(to, region.permissions, region.backing)?;
        } else {
            self.map(to, Permissions::READ_WRITE, region.backing)?;
            if !region.permissions.readable() {
                self.protect(old, Permissions::READ)?;
            }
            user::copy(to.start(), old.start(), old.bytes().min(to.bytes()))?;
            self.protect(to, region.permissions)?;
        }
        self.unmap(old)?;
        Ok(to.start())
    }
}
