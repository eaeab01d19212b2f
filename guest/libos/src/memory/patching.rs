// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patches in memory: putting them in where it pays, and giving the program its own bytes back before it can tell.

use alloc::vec;
use alloc::vec::Vec;

use pando_abi::{PAGE_SIZE, Permissions, SavedContext};
use pando_rt::memory::{self, PageRange};
use pando_rt::user;

use super::AddressSpace;
use super::layout::LOW_START;
use super::regions::{Backing, Region, Sharing};
use crate::errno::Errno;
use crate::patch::code::{JUMP, Kind, WINDOW, covered};
use crate::patch::{Patches, Site, room, trampoline};

/// Prefixes that would mean something else to a jump than to the instruction that it replaces.
const PREFIXES: [u8; 4] = [0x66, 0xf0, 0xf2, 0xf3];

/// Vectors of the exceptions that come after an instruction rather than before it.
const DEBUG: u64 = 1;
const BREAKPOINT: u64 = 3;

/// What becomes of pages that patches are taken out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// It stays: the program's bytes come back.
    Stays,
    /// It goes: nobody will see it.
    Goes,
}

impl AddressSpace {
    /// Notes that an instruction trapped, and patches its site once that pays. Where it cannot be patched it keeps trapping.
    pub fn trapped(&mut self, site: u64, kind: Kind) {
        if self.patches.count(site) && self.patch(site, kind).is_none() {
            self.patches.refuse(site);
        }
    }

    /// Makes the instruction at `site` a jump to a trampoline. `None`: nothing has changed but, perhaps, a page that nobody names.
    fn patch(&mut self, site: u64, kind: Kind) -> Option<()> {
        let code = self.code(site)?;
        let covered = covered(&code, kind)?;
        if self.patches.covers(site..site + u64::from(covered.end)) {
            return None;
        }
        let length = u64::from(trampoline::length(&covered));
        let (start, is_new) = self.patches.find_room(site, length, |page| self.can_hold_trampolines(page))?;
        let entry = Patches::entry_word(start, kind);
        let bytes = trampoline::assemble(start, site, &code, &covered, kind, entry)?;
        let jump = trampoline::displacement(site + JUMP as u64, start)?;
        if is_new {
            self.add_room(start, &bytes)?;
        } else {
            memory::write(start, &bytes).ok()?;
        }
        memory::write(site, &[0xe9, jump[0], jump[1], jump[2], jump[3]]).ok()?;
        let original = code.first_chunk().copied()?;
        self.patches.add(site, Site { original, trampoline: start..start + length, places: trampoline::places(&covered), jumps: 0 });
        Some(())
    }

    /// The bytes of the code from `site` on, as far as it can be patched: it can be executed, is the program's own, and cannot be written to behind our back.
    fn code(&self, site: u64) -> Option<Vec<u8>> {
        // Patches must not get into a file.
        let is_own = |region: &Region| !matches!(region.backing, Backing::Node(file) if file.sharing == Sharing::Writes);
        let is_code = |region: &Region| region.permissions == Permissions::READ_EXECUTE && !region.backing.is_nothing() && is_own(region);
        let (end, _) = self.regions.end_of(site).filter(|(_, region)| is_code(region))?;
        if self.regions.end_of(site.checked_sub(1)?).is_some_and(|(_, region)| region.permissions.readable()) {
            let mut before = [0];
            user::read(site - 1, &mut before).ok()?;
            if PREFIXES.contains(&before[0]) {
                return None;
            }
        }
        let mut code = vec![0; WINDOW.min((end - site) as usize)];
        user::read(site, &mut code).ok()?;
        (code.len() >= JUMP).then_some(code)
    }

    /// Whether a page may become one that holds trampolines: free, and not where the program's own memory grows or is put.
    fn can_hold_trampolines(&self, page: u64) -> bool {
        let in_stack = self.stack.room().contains(&page);
        let is_free = |range| self.regions.is_free(range) && self.ahead.is_free(range);
        page >= LOW_START && !in_stack && PageRange::new(page, page + PAGE_SIZE).is_some_and(is_free)
    }

    /// Maps a page for trampolines, with the first of them and the entries.
    fn add_room(&mut self, start: u64, trampoline: &[u8]) -> Option<()> {
        let range = PageRange::new(start / PAGE_SIZE * PAGE_SIZE, start / PAGE_SIZE * PAGE_SIZE + PAGE_SIZE)?;
        let entries = self.patches.entries()?.map(u64::to_le_bytes).concat();
        self.map(range, Permissions::READ_EXECUTE, Backing::Anonymous).ok()?;
        // From the trampoline to the page's end: one exit.
        let mut content = vec![0; (range.end() - start) as usize];
        let (head, tail) = content.split_at_mut_checked(trampoline.len())?;
        head.copy_from_slice(trampoline);
        tail.last_chunk_mut::<{ room::ENTRIES as usize }>()?.copy_from_slice(&entries);
        memory::write(start, &content).ok()?;
        self.patches.add_page(range.start());
        Some(())
    }

    /// Takes patches out of pages that are about to change; of what goes children get nothing in particular any more.
    ///
    /// # Errors
    /// `ENOMEM`: the program's bytes could not be put back.
    pub(super) fn release(&mut self, range: PageRange, content: Content) -> Result<(), Errno> {
        let pages = range.start()..range.end();
        for site in self.patches.concerned(pages.clone()) {
            let length = self.patches.site(site).map_or(0, Site::length);
            let is_gone = content == Content::Goes && range.start() <= site && site + length <= range.end();
            if is_gone {
                self.patches.give_up(site, false);
            } else {
                self.restore(site, false)?;
            }
        }
        if content == Content::Goes {
            self.patches.forget_traps(pages.clone());
            self.keep_in_children(range);
        }
        self.patches.forget_rooms(pages);
        Ok(())
    }

    /// Puts the program's bytes back; `for_good`: they stay.
    fn restore(&mut self, site: u64, for_good: bool) -> Result<(), Errno> {
        if let Some(patched) = self.patches.site(site) {
            memory::write(site, &patched.original)?;
        }
        self.patches.give_up(site, for_good);
        Ok(())
    }

    /// Mends an exception that there would be none of without patches: a jump into a patched site, or a single step onto a trampoline. Says whether it did,
    /// and the context runs on where it now stands.
    pub fn mend(&mut self, context: &mut SavedContext) -> bool {
        match context.cause {
            // The jump was stepped over, and nothing else has happened: the instruction itself is next.
            DEBUG => match self.patches.way_in(context.rip) {
                Some(site) if self.restore(site, true).is_ok() => context.rip = site,
                _ => return false,
            },
            BREAKPOINT => return false,
            _ => match self.patches.jumped_into(context.rip) {
                Some(site) if self.patches.allows_jump(site, context.rip) => {}
                Some(site) => return self.restore(site, true).is_ok(),
                None => return false,
            },
        }
        true
    }

    /// Makes a context stand in the program's own code, as whoever looks at it will expect: it may have been interrupted in a trampoline.
    pub fn settle(&self, context: &mut SavedContext) {
        let arriving = self.patches.arriving(context.rip, [context.rcx, context.rdx]);
        context.rip = arriving.or_else(|| self.patches.original(context.rip)).unwrap_or(context.rip);
    }

    /// Makes a context that stands behind the start of a patched site go on in its trampoline.
    pub fn unsettle(&self, context: &mut SavedContext) {
        context.rip = self.patches.copy(context.rip).unwrap_or(context.rip);
    }
}
