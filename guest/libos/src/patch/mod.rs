// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patched calls: sites of `syscall` and `cpuid` that trapped become jumps, which cost nanoseconds instead of an exit.
//!
//! A site's five bytes, from the instruction's first on, become a jump to a *trampoline*. The trampoline enters the libOS and then runs
//! copies of the instructions that the jump replaces. This is sound because:
//! - Only an executed instruction is patched, and only code that follows it is moved: nothing is guessed ([`code`]).
//! - Every byte of the jump but the first is an undefined opcode ([`trampoline_space`]). A jump into a patched site raises an exception.
//!   The libOS continues at the copy of that instruction or, if none started there, restores the program's own bytes.
//! - Nothing is pushed onto the program's stack, and the trampoline changes only registers that the instruction overwrites
//!   ([`trampoline`]).
//! - The program sees only addresses of its own code: addresses of trampolines are translated wherever it can see them
//!   ([`Patches::original`]).
//! - Code that the program or others can write is not patched. When permissions or mappings change, the program's bytes are restored
//!   first. A program that reads its own code sees the jumps: that is the one remaining difference.
//!
//! This module records the patches and knows the encodings; [`crate::memory::patching`] changes memory.

pub mod code;
pub mod decode;
#[cfg(test)]
mod tests;
pub mod trampoline;
pub mod trampoline_space;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::ops::Range;

use pando_abi::PAGE_SIZE;

use code::{INSTRUCTION, JUMP, TrappingInstruction, WINDOW};
use trampoline::{ENTRY_CODE, OffsetPair};

/// Number of traps before a site is patched. Patching costs an exit for all sites that trapped so far, and copies their pages.
const TRAPS: NonZeroU32 = NonZeroU32::new(2).unwrap();
/// That number for sites that trap first in a clone: a patch there copies pages for this clone alone, and there may be thousands of clones.
const TRAPS_IN_CLONES: NonZeroU32 = NonZeroU32::new(4).unwrap();
/// Number of sites that are patched together: two calls of a batch for each.
pub const MAX_SITES: usize = 32;
/// Backoff: the factor by which that number grows each time the program's bytes had to be restored.
const BACKOFF: NonZeroU32 = NonZeroU32::new(4).unwrap();
/// Number of jumps into a patched site before the program's bytes are restored: each costs as much as the trap that the patch saves.
const JUMPS: u8 = 16;
/// Upper limit on the recorded sites. Programs have a few dozen; those that generate code have any number.
const SITES: usize = 8192;
/// Maximum length of a trampoline in bytes: the entry, three moved instructions, the jump back.
const TRAMPOLINE: u64 = 64;

/// A patched site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The program's own bytes.
    pub original: [u8; JUMP],
    /// The address range of its trampoline.
    pub trampoline: Range<u64>,
    /// The offsets of the instructions in the code and in the trampoline, in order.
    pub offsets: Vec<OffsetPair>,
    /// How often it was jumped into.
    pub jumps: u8,
}

impl Site {
    /// Bytes of the program that the trampoline replaces, from the site on.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.offsets.last().map_or(JUMP as u64, |last| last.original.into())
    }
}

/// The trap count of a site.
#[derive(Clone, Copy, Debug)]
struct Traps {
    kind: TrappingInstruction,
    /// Whether it trapped in this run and its page was not changed since: only then is it known that an instruction starts there.
    is_recent: bool,
    count: u32,
    /// The trap at which it is patched; `None`: it cannot be.
    due: Option<NonZeroU32>,
}

/// All patches of an address space.
#[derive(Clone, Debug, Default)]
pub struct Patches {
    /// The libOS's entries for each kind. `None`: nothing is patched.
    entries: Option<[u64; 2]>,
    sites: BTreeMap<u64, Site>,
    /// Sites by the start of their trampolines.
    trampolines: BTreeMap<u64, u64>,
    /// Pages of trampoline space.
    pages: BTreeSet<u64>,
    traps: BTreeMap<u64, Traps>,
    /// How many patches were removed so far.
    given_up: u64,
    /// Whether the program was cloned with its cell.
    is_cloned: bool,
}

impl Patches {
    /// No patches yet; those of `syscall` and of `cpuid` jump to these entries.
    #[must_use]
    pub fn new(entries: [u64; 2]) -> Patches {
        Patches { entries: Some(entries), ..Patches::default() }
    }

    /// The initial state for a new program: the same entries, no patches.
    #[must_use]
    pub fn fresh(&self) -> Patches {
        Patches { entries: self.entries, ..Patches::default() }
    }

    /// The entries, as the end of a page of trampolines contains them.
    #[must_use]
    pub fn entries(&self) -> Option<[u64; 2]> {
        self.entries
    }

    /// The address, in the page of a trampoline, of the word with the entry for a kind.
    #[must_use]
    pub fn entry_word(trampoline: u64, kind: TrappingInstruction) -> u64 {
        let end = (trampoline / PAGE_SIZE + 1) * PAGE_SIZE;
        end - trampoline_space::ENTRIES + if kind == TrappingInstruction::Syscall { 0 } else { 8 }
    }

    /// Notes that the cell is a clone from now on.
    pub fn note_clone(&mut self) {
        self.is_cloned = true;
    }

    /// Counts a trap of a site. Returns whether to patch it now.
    pub fn record_trap(&mut self, site: u64, kind: TrappingInstruction) -> bool {
        if self.entries.is_none() || self.traps.len() >= SITES && !self.traps.contains_key(&site) {
            return false;
        }
        let due = Some(if self.is_cloned { TRAPS_IN_CLONES } else { TRAPS });
        let traps = self.traps.entry(site).or_insert(Traps { kind, is_recent: true, count: 0, due });
        (traps.kind, traps.is_recent) = (kind, true);
        traps.count = traps.count.saturating_add(1);
        traps.due.is_some_and(|due| traps.count >= due.get())
    }

    /// Sites that trapped and are not patched, at most as many as are patched together. Sites whose patches had to be removed are not among
    /// them.
    pub fn pending(&self) -> impl Iterator<Item = (u64, TrappingInstruction)> {
        let is_pending = |site: u64, traps: &Traps| {
            traps.is_recent && traps.due.is_some_and(|due| due <= TRAPS_IN_CLONES) && !self.sites.contains_key(&site)
        };
        let pending = self.traps.iter().filter(move |(site, traps)| is_pending(**site, traps));
        pending.map(|(site, traps)| (*site, traps.kind)).take(MAX_SITES)
    }

    /// Begins to count anew, in the child of a fork. Most children execute another program soon, and each would copy pages for patches of
    /// sites that trapped in its parent.
    pub fn reset_counts(&mut self) {
        self.traps.values_mut().for_each(|traps| (traps.is_recent, traps.count) = (false, 0));
    }

    /// Marks a site that cannot be patched.
    pub fn refuse(&mut self, site: u64) {
        if let Some(traps) = self.traps.get_mut(&site) {
            traps.due = None;
        }
    }

    /// Finds an address for a trampoline, and whether its page must be mapped first.
    pub fn find_trampoline_space(&self, site: u64, length: u64, can_be_mapped: impl Fn(u64) -> bool) -> Option<(u64, bool)> {
        let is_taken = |address: u64, length: u64| {
            let others = self.trampolines.range(address.saturating_sub(TRAMPOLINE)..address + length);
            others.filter_map(|(_, site)| self.sites.get(site)).any(|other| other.trampoline.end > address)
        };
        let address = trampoline_space::find(site, length, self.pages.iter().copied(), is_taken, can_be_mapped)?;
        Some((address, !self.pages.contains(&(address / PAGE_SIZE * PAGE_SIZE))))
    }

    /// Records a page of trampoline space.
    pub fn add_page(&mut self, page: u64) {
        self.pages.insert(page);
    }

    /// Records a patched site.
    pub fn add(&mut self, site: u64, patched: Site) {
        self.trampolines.insert(patched.trampoline.start, site);
        self.sites.insert(site, patched);
    }

    /// Whether a patch already replaces code in this range.
    #[must_use]
    pub fn covers(&self, range: Range<u64>) -> bool {
        let near = self.sites.range(range.start.saturating_sub(WINDOW as u64)..range.end);
        near.into_iter().any(|(start, site)| start + site.length() > range.start)
    }

    /// The sites affected by a change of these addresses: their code or their trampolines lie there.
    #[must_use]
    pub fn sites_in(&self, range: Range<u64>) -> Vec<u64> {
        let code = self.sites.range(range.start.saturating_sub(WINDOW as u64)..range.end);
        let code = code.filter(|(start, site)| *start + site.length() > range.start).map(|(start, _)| *start);
        let trampoline_pages = self.trampolines.range(range.start.saturating_sub(TRAMPOLINE)..range.end);
        let trampoline_pages =
            trampoline_pages.filter(|(_, site)| self.sites.get(site).is_some_and(|site| site.trampoline.end > range.start));
        let sites: BTreeSet<u64> = code.chain(trampoline_pages.map(|(_, site)| *site)).collect();
        sites.into_iter().collect()
    }

    /// Removes pages from trampoline space. They contain no trampolines any more.
    pub fn forget_trampoline_pages(&mut self, pages: Range<u64>) {
        self.pages.retain(|page| !pages.contains(page));
    }

    /// Keeps the trap counts of pages whose code may change, but waits until the sites trap again.
    pub fn expect_changes(&mut self, pages: Range<u64>) {
        self.traps.range_mut(pages).for_each(|(_, traps)| traps.is_recent = false);
    }

    /// Drops the trap counts of pages, whose code may change.
    pub fn forget_traps(&mut self, pages: Range<u64>) {
        while let Some((&site, _)) = self.traps.range(pages.clone()).next() {
            self.traps.remove(&site);
        }
    }

    /// Drops all records of unmapped memory. Patches into that range, and those whose trampolines lie in it, are unmapped too.
    pub fn forget(&mut self, range: Range<u64>) {
        for site in self.sites_in(range.clone()) {
            self.give_up(site, false);
        }
        self.forget_traps(range.clone());
        self.forget_trampoline_pages(range);
    }

    /// Takes over trap counts from another run of the same program with the same code addresses.
    pub fn import_counts(&mut self, other: &Patches) {
        self.traps.extend(other.traps.iter().map(|(site, traps)| (*site, Traps { is_recent: false, ..*traps })));
    }

    /// The number of patched sites.
    #[must_use]
    pub fn count_sites(&self) -> usize {
        self.sites.len()
    }

    /// The pages of trampoline space.
    pub fn trampoline_pages(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().copied()
    }

    /// The patched site at this address.
    #[must_use]
    pub fn site(&self, site: u64) -> Option<&Site> {
        self.sites.get(&site)
    }

    /// Removes a patch whose original bytes have been restored or unmapped.
    pub fn remove(&mut self, site: u64) {
        if let Some(patched) = self.sites.remove(&site) {
            self.trampolines.remove(&patched.trampoline.start);
            self.given_up += 1;
        }
        if let Some(traps) = self.traps.get_mut(&site) {
            traps.count = 0;
        }
    }

    /// Removes such a patch because it did not last. The site traps more often before it is patched again; `for_good`: it is never patched
    /// again.
    pub fn give_up(&mut self, site: u64, for_good: bool) {
        self.remove(site);
        if let Some(traps) = self.traps.get_mut(&site) {
            traps.due = traps.due.filter(|_| !for_good).map(|due| due.saturating_mul(BACKOFF));
        }
    }

    /// How many patches were removed so far. While this number is unchanged, every existing trampoline stays valid.
    #[must_use]
    pub fn removed_count(&self) -> u64 {
        self.given_up
    }

    /// The site whose jump contains the address `instruction`, behind its first byte.
    #[must_use]
    pub fn jumped_into(&self, instruction: u64) -> Option<u64> {
        let mut near = self.sites.range(instruction.checked_sub(JUMP as u64 - 1)?..instruction);
        near.next_back().map(|(site, _)| *site)
    }

    /// Counts a jump into a site. Returns whether to continue at the copy of the target instruction. `false`: no instruction started
    /// there, or this happens too often.
    pub fn allows_jump(&mut self, site: u64, instruction: u64) -> bool {
        let has_copy = self.copy(instruction).is_some();
        self.sites.get_mut(&site).is_some_and(|patched| {
            patched.jumps = patched.jumps.saturating_add(1);
            has_copy && patched.jumps <= JUMPS
        })
    }

    /// The address of the copy of a replaced instruction.
    #[must_use]
    pub fn copy(&self, instruction: u64) -> Option<u64> {
        let site = self.jumped_into(instruction)?;
        let patched = self.sites.get(&site)?;
        let pair = patched.offsets.iter().find(|pair| site + u64::from(pair.original) == instruction)?;
        Some(patched.trampoline.start + u64::from(pair.copy))
    }

    /// The program address that an address in a trampoline corresponds to; in its entry, the site itself. `None`: there is no trampoline
    /// at that address.
    #[must_use]
    pub fn original(&self, instruction: u64) -> Option<u64> {
        let (start, site) = self.trampolines.range(..=instruction).next_back()?;
        let patched = self.sites.get(site).filter(|patched| patched.trampoline.contains(&instruction))?;
        if self.entry_code(instruction).is_some() {
            return Some(*site);
        }
        let offset = instruction - start;
        // Each copy is one instruction, so no instruction pointer lies inside one.
        patched.offsets.iter().find(|pair| u64::from(pair.copy) == offset).map(|pair| site + u64::from(pair.original))
    }

    /// The site whose trampoline's entry contains this address.
    #[must_use]
    pub fn entry_code(&self, instruction: u64) -> Option<u64> {
        let (start, site) = self.trampolines.range(..=instruction).next_back()?;
        Some(*site).filter(|_| instruction - start < ENTRY_CODE.into())
    }

    /// The site from which a context arrived at the first instruction of the libOS's entry. `after` is the address behind the site
    /// according to the registers, for either entry.
    #[must_use]
    pub fn site_of_entry(&self, instruction: u64, after: [u64; 2]) -> Option<u64> {
        let entries = self.entries?;
        let (_, after) = entries.into_iter().zip(after).find(|(entry, _)| *entry == instruction)?;
        Some(after.wrapping_sub(INSTRUCTION as u64)).filter(|site| self.sites.contains_key(site))
    }
}
