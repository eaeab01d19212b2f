// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applies patches to memory once they pay off, and restores the program's own bytes before it can notice them.

use alloc::vec;
use alloc::vec::Vec;
use core::iter;

use pando_abi::{MapFlags, PAGE_SIZE, Permissions, SavedContext};
use pando_rt::memory::{self, Batch, PageRange};
use pando_rt::user;

use super::AddressSpace;
use super::layout::LOW_START;
use super::regions::{Backing, Region};
use crate::errno::Errno;
use crate::files::sharing::Sharing;
use crate::patch::code::{JUMP, TrappingInstruction, WINDOW, replaced};
use crate::patch::{MAX_SITES, Patches, Site, trampoline, trampoline_space};

/// Prefixes that change the meaning of a jump, though not of the instruction that it replaces. Not `lock`, with which neither is valid:
/// glibc's `_exit` has such a byte there, the end of `mov %esi,%eax`.
const PREFIXES: [u8; 3] = [0x66, 0xf2, 0xf3];

/// Vectors of the exceptions that are raised after an instruction rather than before it.
const DEBUG: u64 = 1;
const BREAKPOINT: u64 = 3;

/// Whether pages keep their content when their patches are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageContent {
    /// It stays: the program's bytes are restored.
    Kept,
    /// It is discarded.
    Discarded,
}

/// A patch that is recorded but not written yet.
struct PlannedPatch {
    /// The address of the replaced instruction.
    site: u64,
    /// The jump that replaces it.
    jump: [u8; JUMP],
    /// The address of the trampoline.
    start: u64,
    /// The bytes to write there.
    trampoline: Vec<u8>,
}

impl AddressSpace {
    /// Counts a trap of an instruction. Once a patch of its site pays off, patches it, and at the same exit other sites that trapped: most
    /// of them would pay off soon, and the exit costs more than their patches. A site that cannot be patched keeps trapping.
    pub fn trapped(&mut self, site: u64, kind: TrappingInstruction) {
        if self.patches.record_trap(site, kind) {
            let others = self.patches.pending().filter(|(other, _)| *other != site).take(MAX_SITES - 1);
            self.patch(iter::once((site, kind)).chain(others).collect());
        }
    }

    /// Patches sites that trapped once, so that clones share the patches.
    pub fn patch_for_clones(&mut self) {
        self.patch(self.patches.pending().collect());
    }

    /// Makes a clone patch its sites later than its source did.
    pub fn note_clone(&mut self) {
        self.patches.note_clone();
    }

    /// Patches sites, at one exit.
    // Never part of the usual system call, which should not pay for this frame with another page of stack.
    #[inline(never)]
    fn patch(&mut self, sites: Vec<(u64, TrappingInstruction)>) {
        let (mut planned, mut pages) = (Vec::with_capacity(sites.len()), Vec::new());
        for (site, kind) in sites {
            match self.plan(site, kind, &mut pages) {
                Some(patch) => planned.push(patch),
                None => self.patches.refuse(site),
            }
        }
        let entries = self.patches.entries().unwrap_or_default().map(u64::to_le_bytes).concat();
        let mut batch = Batch::default();
        let mapped = pages.iter().take_while(|page| {
            batch.map(**page, MapFlags::eager(Permissions::READ_EXECUTE));
            batch.write(page.end() - trampoline_space::ENTRIES, &entries).is_ok()
        });
        let (mapped, for_pages) = (mapped.count(), batch.count());
        let added = planned.iter().take_while(|patch| {
            let writes = [(patch.start, &patch.trampoline[..]), (patch.site, &patch.jump)];
            writes.into_iter().all(|(address, bytes)| batch.write(address, bytes).is_ok())
        });
        let added = added.count();
        let performed = batch.perform();
        // A trampoline without a jump to it has no effect.
        let patched = (performed.saturating_sub(for_pages) / 2).min(added);
        for (index, patch) in planned.drain(patched..).enumerate() {
            // The first was refused; the others were not tried.
            self.patches.give_up(patch.site, index == 0);
        }
        for page in pages.drain((performed / 2).min(mapped)..) {
            // A page without entries is never recorded. Without memory for the tables it stays mapped, as if it were mapped ahead.
            let _ = memory::unmap(page);
            self.regions.remove(page);
            self.patches.forget_trampoline_pages(page.start()..page.end());
        }
    }

    /// Plans and records the replacement of the instruction at `site` by a jump to a trampoline. Adds the page that must be mapped for
    /// it, if there is none. `None`: nothing has changed, except that an unused page may have been added.
    fn plan(&mut self, site: u64, kind: TrappingInstruction, pages: &mut Vec<PageRange>) -> Option<PlannedPatch> {
        let code = self.code(site)?;
        let replaced = replaced(&code, kind)?;
        if self.patches.covers(site..site + u64::from(replaced.end)) {
            return None;
        }
        let length = u64::from(trampoline::length(&replaced));
        let (start, is_new) = self.patches.find_trampoline_space(site, length, |page| self.can_hold_trampolines(page))?;
        let entry = Patches::entry_word(start, kind);
        let bytes = trampoline::assemble(start, site, &code, &replaced, kind, entry)?;
        let jump = trampoline::displacement(site + JUMP as u64, start)?;
        if is_new {
            pages.push(self.add_trampoline_page(start)?);
        }
        let original = code.first_chunk().copied()?;
        self.patches.add(site, Site { original, trampoline: start..start + length, offsets: trampoline::offsets(&replaced), jumps: 0 });
        Some(PlannedPatch { site, jump: [0xe9, jump[0], jump[1], jump[2], jump[3]], start, trampoline: bytes })
    }

    /// The bytes of the code from `site` on that can be patched: executable, private to the program, and not writable by others.
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

    /// Whether a page may become trampoline space: it is free, and not in an area into which the program's own memory grows or is mapped.
    fn can_hold_trampolines(&self, page: u64) -> bool {
        let in_stack = self.stack.room().contains(&page);
        let is_free = |range| self.regions.is_free(range) && self.premapped.is_free(range);
        page >= LOW_START && !in_stack && PageRange::new(page, page + PAGE_SIZE).is_some_and(is_free)
    }

    /// Records a page of trampoline space for a trampoline at `start`; it is mapped later, with the entries at its end.
    fn add_trampoline_page(&mut self, start: u64) -> Option<PageRange> {
        let page = PageRange::new(start / PAGE_SIZE * PAGE_SIZE, start / PAGE_SIZE * PAGE_SIZE + PAGE_SIZE)?;
        if self.is_full() {
            return None;
        }
        self.patches.add_page(page.start());
        self.regions.put(page, Region { permissions: Permissions::READ_EXECUTE, backing: Backing::Anonymous });
        Some(page)
    }

    /// Removes patches from pages that are about to change. Discarded pages also lose the advice for children.
    ///
    /// # Errors
    /// `ENOMEM`: the program's bytes could not be restored.
    pub(super) fn release(&mut self, range: PageRange, content: PageContent) -> Result<(), Errno> {
        let pages = range.start()..range.end();
        for site in self.patches.sites_in(pages.clone()) {
            let length = self.patches.site(site).map_or(0, Site::length);
            let is_gone = content == PageContent::Discarded && range.start() <= site && site + length <= range.end();
            if is_gone {
                self.patches.give_up(site, false);
            } else {
                self.restore(site, false)?;
            }
        }
        match content {
            PageContent::Kept => self.patches.expect_changes(pages.clone()),
            PageContent::Discarded => {
                self.patches.forget_traps(pages.clone());
                self.keep_in_children(range);
            }
        }
        self.patches.forget_trampoline_pages(pages);
        Ok(())
    }

    /// Restores the program's bytes at all sites. Every saved context must stand in the program's own code. The running space need not be
    /// this one.
    pub fn remove_patches(&mut self) {
        for site in self.patches.sites_in(0..u64::MAX) {
            let Some(patched) = self.patches.site(site) else { continue };
            // Without memory for a copy of the page, it stays.
            if memory::write_in(self.space.0.into(), site, &patched.original).is_ok() {
                self.patches.remove(site);
            }
        }
    }

    /// Restores the program's bytes; `for_good`: the site is never patched again.
    fn restore(&mut self, site: u64, for_good: bool) -> Result<(), Errno> {
        if let Some(patched) = self.patches.site(site) {
            memory::write(site, &patched.original)?;
        }
        self.patches.give_up(site, for_good);
        Ok(())
    }

    /// Handles an exception that only patches can cause: a jump into a patched site, or a single step onto a trampoline. Returns whether
    /// it did; the context then continues from its current instruction pointer.
    pub fn handle_patch_exception(&mut self, context: &mut SavedContext) -> bool {
        match context.cause {
            // Only the jump was stepped over: the instruction itself is next.
            DEBUG => match self.patches.entry_code(context.rip) {
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

    /// Moves a context that may have been interrupted in a trampoline to the equivalent address in the program's own code.
    pub fn leave_trampoline(&self, context: &mut SavedContext) {
        let arriving = self.patches.site_of_entry(context.rip, [context.rcx, context.rdx]);
        context.rip = arriving.or_else(|| self.patches.original(context.rip)).unwrap_or(context.rip);
    }

    /// Moves a context behind the start of a patched site to the equivalent address in its trampoline.
    pub fn enter_trampoline(&self, context: &mut SavedContext) {
        context.rip = self.patches.copy(context.rip).unwrap_or(context.rip);
    }
}
