// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patched calls: sites of `syscall` and `cpuid` that trapped become jumps, so that the next time costs nanoseconds instead of an exit.
//!
//! A site's five bytes, from the instruction's first on, become a jump to a *trampoline*, which enters the libOS and then runs copies of the instructions that the jump
//! covers. What makes this sound:
//! - Only an instruction that was executed is patched, and only code that follows it is moved: nothing is guessed ([`code`]).
//! - Every byte of the jump but the first is an opcode that does not exist ([`room`]). A jump into a patched site raises an exception; the libOS leads it to the copy of that
//!   instruction, or, if none started there, puts the program's own bytes back.
//! - Nothing is pushed onto the program's stack, and the trampoline changes no register but those that the instruction overwrites ([`trampoline`]).
//! - The program sees itself where its own code stands: whatever shows it an address translates those of trampolines ([`Patches::original`]).
//! - Code that the program can write, or that somebody else could, is not patched. When permissions or mappings change, the program's bytes
//!   come back first. A program that reads its own code sees the jumps: that is the one difference left.
//!
//! This module keeps the books and knows the encodings; [`crate::memory::patching`] does it to memory.

pub mod code;
pub mod decode;
pub mod room;
#[cfg(test)]
mod tests;
pub mod trampoline;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use pando_abi::PAGE_SIZE;

use code::{INSTRUCTION, JUMP, Kind, WINDOW};
use trampoline::{Place, WAY_IN};

/// How often a site traps before it is patched: patching costs two exits or three and copies a page, about as much as four traps, so whoever comes seldom pays at most twice the least.
const TRAPS: u32 = 4;
/// How many times more often it traps before it is patched anew, each time that the program's bytes had to come back.
const RELUCTANCE: u32 = 4;
/// How often a patched site may be jumped into before the program's bytes come back: each time costs as much as the trap that the patch saves.
const JUMPS: u8 = 16;
/// Sites that are kept in mind. Programs have a few dozen; those that make code have any number.
const SITES: usize = 8192;
/// Bytes that a trampoline has at most: the way in, three moved instructions, the way back.
const TRAMPOLINE: u64 = 64;

/// A site that was patched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The program's own bytes.
    pub original: [u8; JUMP],
    /// Where its trampoline starts, and its length.
    pub trampoline: Range<u64>,
    /// Which instructions stand where, in order.
    pub places: Vec<Place>,
    /// How often it was jumped into.
    pub jumps: u8,
}

impl Site {
    /// Bytes of the program that the trampoline stands for, from the site on.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.places.last().map_or(JUMP as u64, |last| last.original.into())
    }
}

/// What is known of a site that traps.
#[derive(Clone, Copy, Debug)]
struct Traps {
    seen: u32,
    /// With which trap it is to be patched; `None`: it cannot be.
    due: Option<u32>,
}

/// All that was patched.
#[derive(Clone, Debug, Default)]
pub struct Patches {
    /// The libOS's entries for each kind. `None`: nothing is patched.
    entries: Option<[u64; 2]>,
    sites: BTreeMap<u64, Site>,
    /// Sites by the start of their trampolines.
    trampolines: BTreeMap<u64, u64>,
    /// Pages that hold trampolines.
    pages: BTreeSet<u64>,
    traps: BTreeMap<u64, Traps>,
    /// How many sites were given up so far.
    given_up: u64,
}

impl Patches {
    /// Patches lead to these entries, of `syscall` and of `cpuid`.
    #[must_use]
    pub fn new(entries: [u64; 2]) -> Patches {
        Patches { entries: Some(entries), ..Patches::default() }
    }

    /// What a fresh program starts with: the same entries, nothing patched.
    #[must_use]
    pub fn fresh(&self) -> Patches {
        Patches { entries: self.entries, ..Patches::default() }
    }

    /// The entries, as a page of trampolines ends with them.
    #[must_use]
    pub fn entries(&self) -> Option<[u64; 2]> {
        self.entries
    }

    /// Where the word lies, in the page of a trampoline, that holds the entry for a kind.
    #[must_use]
    pub fn entry_word(trampoline: u64, kind: Kind) -> u64 {
        let end = (trampoline / PAGE_SIZE + 1) * PAGE_SIZE;
        end - room::ENTRIES + if kind == Kind::Syscall { 0 } else { 8 }
    }

    /// Notes that a site trapped. Says whether now is the time to patch it.
    pub fn count(&mut self, site: u64) -> bool {
        if self.entries.is_none() || self.traps.len() >= SITES && !self.traps.contains_key(&site) {
            return false;
        }
        let traps = self.traps.entry(site).or_insert(Traps { seen: 0, due: Some(TRAPS) });
        traps.seen = traps.seen.saturating_add(1);
        traps.due.is_some_and(|due| traps.seen >= due)
    }

    /// Notes that a site cannot be patched.
    pub fn refuse(&mut self, site: u64) {
        if let Some(traps) = self.traps.get_mut(&site) {
            traps.due = None;
        }
    }

    /// Finds the place for a trampoline, and says whether its page must be mapped first.
    pub fn find_room(&self, site: u64, length: u64, can_be_mapped: impl Fn(u64) -> bool) -> Option<(u64, bool)> {
        let is_taken = |place: u64, length: u64| {
            let others = self.trampolines.range(place.saturating_sub(TRAMPOLINE)..place + length);
            others.filter_map(|(_, site)| self.sites.get(site)).any(|other| other.trampoline.end > place)
        };
        let place = room::find(site, length, self.pages.iter().copied(), is_taken, can_be_mapped)?;
        Some((place, !self.pages.contains(&(place / PAGE_SIZE * PAGE_SIZE))))
    }

    /// Notes a page that holds trampolines from now on.
    pub fn add_page(&mut self, page: u64) {
        self.pages.insert(page);
    }

    /// Notes that a site is patched.
    pub fn add(&mut self, site: u64, patched: Site) {
        self.trampolines.insert(patched.trampoline.start, site);
        self.sites.insert(site, patched);
    }

    /// Whether code in this range is covered by a patch already.
    #[must_use]
    pub fn covers(&self, range: Range<u64>) -> bool {
        let near = self.sites.range(range.start.saturating_sub(WINDOW as u64)..range.end);
        near.into_iter().any(|(start, site)| start + site.length() > range.start)
    }

    /// The sites that a change of these addresses concerns: their code or their trampolines lie there.
    #[must_use]
    pub fn concerned(&self, range: Range<u64>) -> Vec<u64> {
        let code = self.sites.range(range.start.saturating_sub(WINDOW as u64)..range.end);
        let code = code.filter(|(start, site)| *start + site.length() > range.start).map(|(start, _)| *start);
        let rooms = self.trampolines.range(range.start.saturating_sub(TRAMPOLINE)..range.end);
        let rooms = rooms.filter(|(_, site)| self.sites.get(site).is_some_and(|site| site.trampoline.end > range.start));
        let sites: BTreeSet<u64> = code.chain(rooms.map(|(_, site)| *site)).collect();
        sites.into_iter().collect()
    }

    /// Forgets that pages hold trampolines. None lies there any more.
    pub fn forget_rooms(&mut self, pages: Range<u64>) {
        self.pages.retain(|page| !pages.contains(page));
    }

    /// Forgets what trapped in pages: other code may come there.
    pub fn forget_traps(&mut self, pages: Range<u64>) {
        while let Some((&site, _)) = self.traps.range(pages.clone()).next() {
            self.traps.remove(&site);
        }
    }

    /// Forgets all that it knows of memory that is gone. Whatever leads there, or from there to elsewhere, is gone too.
    pub fn forget(&mut self, range: Range<u64>) {
        for site in self.concerned(range.clone()) {
            self.give_up(site, false);
        }
        self.forget_traps(range.clone());
        self.forget_rooms(range);
    }

    /// Learns from another run of the same program, whose code lay in the same places, how often its sites have trapped.
    pub fn learn(&mut self, other: &Patches) {
        self.traps.extend(other.traps.iter());
    }

    /// How many sites are patched.
    #[must_use]
    pub fn count_sites(&self) -> usize {
        self.sites.len()
    }

    /// The pages that hold trampolines.
    pub fn rooms(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().copied()
    }

    /// The patched site at this address.
    #[must_use]
    pub fn site(&self, site: u64) -> Option<&Site> {
        self.sites.get(&site)
    }

    /// Gives a site up: the program's own bytes are back, or gone. It traps more often before it is patched again; `for_good`: it always will.
    pub fn give_up(&mut self, site: u64, for_good: bool) {
        if let Some(patched) = self.sites.remove(&site) {
            self.trampolines.remove(&patched.trampoline.start);
            self.given_up += 1;
        }
        if let Some(traps) = self.traps.get_mut(&site) {
            traps.due = traps.due.filter(|_| !for_good).map(|due| due.saturating_mul(RELUCTANCE));
            traps.seen = 0;
        }
    }

    /// How many sites were given up so far. As long as this does not change, every trampoline that stood stands.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// The site into whose jump `instruction` points, behind its first byte.
    #[must_use]
    pub fn jumped_into(&self, instruction: u64) -> Option<u64> {
        let mut near = self.sites.range(instruction.checked_sub(JUMP as u64 - 1)?..instruction);
        near.next_back().map(|(site, _)| *site)
    }

    /// Counts a jump into a site. Says whether the copy of the instruction that was meant does for it; else no instruction started there, or it comes too often.
    pub fn allows_jump(&mut self, site: u64, instruction: u64) -> bool {
        let has_copy = self.copy(instruction).is_some();
        self.sites.get_mut(&site).is_some_and(|patched| {
            patched.jumps = patched.jumps.saturating_add(1);
            has_copy && patched.jumps <= JUMPS
        })
    }

    /// Where the copy of an instruction stands that a patch covers.
    #[must_use]
    pub fn copy(&self, instruction: u64) -> Option<u64> {
        let site = self.jumped_into(instruction)?;
        let patched = self.sites.get(&site)?;
        let place = patched.places.iter().find(|place| site + u64::from(place.original) == instruction)?;
        Some(patched.trampoline.start + u64::from(place.copy))
    }

    /// What an address in a trampoline stands for in the program: on the way in, the site itself. `None`: no trampoline lies here.
    #[must_use]
    pub fn original(&self, instruction: u64) -> Option<u64> {
        let (start, site) = self.trampolines.range(..=instruction).next_back()?;
        let patched = self.sites.get(site).filter(|patched| patched.trampoline.contains(&instruction))?;
        if self.way_in(instruction).is_some() {
            return Some(*site);
        }
        let offset = instruction - start;
        // Each copy is one instruction, so nothing ever stands inside one.
        patched.places.iter().find(|place| u64::from(place.copy) == offset).map(|place| site + u64::from(place.original))
    }

    /// The site whose trampoline's way in this address is a part of.
    #[must_use]
    pub fn way_in(&self, instruction: u64) -> Option<u64> {
        let (start, site) = self.trampolines.range(..=instruction).next_back()?;
        Some(*site).filter(|_| instruction - start < WAY_IN.into())
    }

    /// The site from which a context comes that stands before the first instruction of the libOS's entry. `after` is what the registers say lies behind it, for either entry.
    #[must_use]
    pub fn arriving(&self, instruction: u64, after: [u64; 2]) -> Option<u64> {
        let entries = self.entries?;
        let (_, after) = entries.into_iter().zip(after).find(|(entry, _)| *entry == instruction)?;
        Some(after.wrapping_sub(INSTRUCTION as u64)).filter(|site| self.sites.contains_key(site))
    }
}
