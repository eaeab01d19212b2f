// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's side of a cell's virtual registers: copied in and out, never referenced.

use super::Cell;
use super::end::Report;
use crate::memory::{CopyAuthority, CopyError, Frames, MemoryError};
use pando_abi::layout::{CONSOLE_RINGS, CPUID_TABLE, CPUID_TABLE_PAGES, SYSTEM, VIRTUAL_REGISTERS};
use pando_abi::limits::{ENTROPY_BYTES, HOST_NAME_BYTES, MISSING_CALLS};
use pando_abi::virtual_registers::{Card, Control, MissingCall, offset};
use pando_abi::{EventSet, MapFlags, PAGE_SIZE, Permissions, SavedContext, SpaceIndex, cpuid};
use std::time::Duration;

/// Pages at the start of the system segment that the kernel keeps for the cell: the cell uses them and cannot remap them.
pub(crate) const RESERVED_PAGES: u64 = (CPUID_TABLE - SYSTEM) / PAGE_SIZE + CPUID_TABLE_PAGES;

/// Bytes of those pages that the cell can write: virtual registers and rings.
pub(crate) const RESERVED_BYTES: usize = (CPUID_TABLE - SYSTEM) as usize;

fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(chunk.try_into().expect("chunks of eight"));
    }
    words
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The parts of a sleeping cell's virtual registers that others read.
#[derive(Clone, Debug)]
pub(crate) struct SleepingRegisters {
    pending: u64,
    mask: u64,
    calls: u64,
    missing_calls: u64,
    /// The used entries of the report: most cells have none.
    missing: Box<[MissingCall]>,
}

impl Cell {
    /// Maps and fills the pages that the kernel keeps: virtual registers, rings, CPUID table.
    ///
    /// # Errors
    /// The quota is too small.
    pub(crate) fn map_reserved_pages(&mut self, frames: &mut Frames) -> Result<(), MemoryError> {
        for (address, pages, permissions) in [
            (VIRTUAL_REGISTERS, 1, Permissions::READ_WRITE),
            (CONSOLE_RINGS, 1, Permissions::READ_WRITE),
            (CPUID_TABLE, CPUID_TABLE_PAGES, Permissions::READ),
        ] {
            let range = self.memory.check(SpaceIndex(0), address, pages)?;
            self.memory.map(frames, &range, MapFlags::lazy(permissions))?;
        }
        self.write_machine(frames)?;
        // A libOS starts inside itself, without a timer.
        self.set_word(frames, offset::LEVEL, 1)?;
        self.set_word(frames, offset::CRITICAL, 1)?;
        Ok(self.set_word(frames, offset::TIMER, u64::MAX)?)
    }

    /// Writes the machine's CPUID table and clock parameters.
    fn write_machine(&mut self, frames: &mut Frames) -> Result<(), CopyError> {
        let end = cpuid::Entry { leaf: cpuid::END, ..Default::default() };
        let room = (CPUID_TABLE_PAGES * PAGE_SIZE) as usize / cpuid::Entry::SIZE - 1;
        let table: Vec<u8> = frames.machine().cpuid().into_iter().take(room).chain([end]).flat_map(cpuid::Entry::to_bytes).collect();
        self.poke(frames, CPUID_TABLE, &table)?;
        let clock = frames.machine().clock();
        let time = [clock.scale, clock.tsc_base, clock.base, clock.wall_base, clock.frequency];
        self.poke(frames, VIRTUAL_REGISTERS + offset::TIME as u64, &bytes_of(&time))
    }

    /// Copies out the pages that the cell can write, without the values that belong to the machine or are new for each clone.
    pub(crate) fn copy_reserved_pages(&mut self, frames: &Frames) -> Result<Vec<u8>, CopyError> {
        let mut bytes = vec![0; RESERVED_BYTES];
        self.memory.read(frames, VIRTUAL_REGISTERS, &mut bytes, CopyAuthority::Operator)?;
        bytes[offset::TIME..offset::SAVES].fill(0);
        bytes[offset::CARD..offset::CARD + size_of::<Card>()].fill(0);
        Ok(bytes)
    }

    /// Overwrites those pages, and fills in this machine's values.
    pub(crate) fn restore_reserved_pages(&mut self, frames: &mut Frames, bytes: &[u8]) -> Result<(), CopyError> {
        self.poke(frames, VIRTUAL_REGISTERS, bytes)?;
        self.write_machine(frames)
    }

    fn poke(&mut self, frames: &mut Frames, address: u64, bytes: &[u8]) -> Result<(), CopyError> {
        self.memory.write(frames, address, bytes, CopyAuthority::Operator)
    }

    /// Reads the pending events that the page shows, and the mask. Those of a sleeping cell were kept.
    pub(crate) fn shown_events(&mut self, frames: &Frames) -> (EventSet, EventSet) {
        let (pending, mask) = match &self.sleeping_registers {
            Some(kept) => (kept.pending, kept.mask),
            None => {
                let Control { pending, mask, .. } = self.control(frames);
                (pending, mask)
            }
        };
        (EventSet(pending), EventSet(mask))
    }

    /// Reads the control words. The cell is not asleep.
    pub(crate) fn control(&mut self, frames: &Frames) -> Control {
        let mut bytes = [0; Control::WORDS * 8];
        // The page is mapped for the cell's whole life. If it were not, zeros would describe a cell without entries.
        let _ = self.memory.read(frames, VIRTUAL_REGISTERS, &mut bytes, CopyAuthority::Operator);
        Control::from_words(words(&bytes))
    }

    /// Reads the context on save level 0.
    pub(crate) fn saved_context(&mut self, frames: &Frames) -> Result<SavedContext, CopyError> {
        let mut bytes = [0; SavedContext::WORDS * 8];
        self.memory.read(frames, VIRTUAL_REGISTERS + offset::SAVES as u64, &mut bytes, CopyAuthority::Operator)?;
        Ok(SavedContext::from_words(words(&bytes)))
    }

    /// Writes one word of the page.
    pub(crate) fn set_word(&mut self, frames: &mut Frames, offset: usize, value: u64) -> Result<(), CopyError> {
        self.poke(frames, VIRTUAL_REGISTERS + offset as u64, &value.to_le_bytes())
    }

    /// Writes words of the page.
    pub(crate) fn set_words(&mut self, frames: &mut Frames, offset: usize, values: &[u64]) -> Result<(), CopyError> {
        self.poke(frames, VIRTUAL_REGISTERS + offset as u64, &bytes_of(values))
    }

    /// Writes the cell's identity, if the page does not show it yet: fresh entropy for a new generation.
    pub(crate) fn refresh_identity(&mut self, frames: &mut Frames) -> Result<(), CopyError> {
        if !self.identity.is_stale {
            return Ok(());
        }
        let mut entropy = [0; ENTROPY_BYTES];
        frames.machine().entropy(&mut entropy);
        let name = self.identity.host_name.as_bytes();
        let length = name.len().min(HOST_NAME_BYTES);
        let mut bytes = bytes_of(&[self.identity.generation, self.identity.clone_index]);
        bytes.extend(entropy);
        bytes.extend((length as u64).to_le_bytes());
        bytes.extend(&name[..length]);
        bytes.resize(offset::HOST_NAME_LENGTH - offset::IDENTITY + 8 + HOST_NAME_BYTES, 0);
        self.poke(frames, VIRTUAL_REGISTERS + offset::IDENTITY as u64, &bytes)?;
        self.set_words(frames, offset::CARD, &self.identity.card.as_deref().copied().unwrap_or_default().to_words())?;
        self.set_word(frames, offset::SOURCE_FROZEN_AT, self.freeze_history.forced_at().map_or(0, |at| at.0.max(1)))?;
        self.refresh_memory(frames)?;
        self.identity.is_stale = false;
        Ok(())
    }

    /// Writes the cell's quota and memory use.
    pub(crate) fn refresh_memory(&mut self, frames: &mut Frames) -> Result<(), CopyError> {
        let usage = frames.usage(self.memory.account());
        self.set_words(frames, offset::MEMORY, &[usage.quota.0, usage.used.0])
    }

    /// Adds to the cell's steal time. The page has the sum, because clones of the cell continue it.
    pub(crate) fn add_steal_time(&mut self, frames: &mut Frames, time: Duration) -> Result<(), CopyError> {
        let mut bytes = [0; 8];
        self.memory.read(frames, VIRTUAL_REGISTERS + offset::STEAL as u64, &mut bytes, CopyAuthority::Operator)?;
        self.set_word(frames, offset::STEAL, u64::from_le_bytes(bytes).wrapping_add(time.as_nanos() as u64))
    }

    /// Keeps the parts of the page that others read, for a cell that falls asleep.
    pub(crate) fn keep_registers(&mut self, frames: &Frames) {
        let (Control { pending, mask, .. }, Report { calls, missing_calls, missing }) = (self.control(frames), self.report(frames));
        let used = missing.iter().rposition(|call| *call != MissingCall::default()).map_or(0, |last| last + 1);
        self.sleeping_registers =
            Some(Box::new(SleepingRegisters { pending, mask, calls, missing_calls, missing: missing[..used].into() }));
    }

    /// Reads the libOS's report.
    pub(crate) fn report(&mut self, frames: &Frames) -> Report {
        if let Some(kept) = &self.sleeping_registers {
            let mut missing = [MissingCall::default(); MISSING_CALLS];
            missing[..kept.missing.len()].copy_from_slice(&kept.missing);
            return Report { calls: kept.calls, missing_calls: kept.missing_calls, missing };
        }
        const WORDS: usize = 2 + MISSING_CALLS;
        let mut bytes = [0; WORDS * 8];
        let _ = self.memory.read(frames, VIRTUAL_REGISTERS + offset::REPORT as u64, &mut bytes, CopyAuthority::Operator);
        let [calls, missing_calls, missing @ ..] = words::<WORDS>(&bytes);
        let missing = missing.map(|word| MissingCall { number: word as u32, count: (word >> 32) as u32 });
        Report { calls, missing_calls, missing }
    }
}
