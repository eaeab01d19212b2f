// SPDX-License-Identifier: MIT OR Apache-2.0
//! Breakpoints: `int3` in the program's private copies of its code.

use crate::watched_cell::WatchedCell;
use pando_abi::PAGE_SIZE;
use std::collections::BTreeMap;
use std::io::Result;

/// The instruction `int3`.
const INT3: u8 = 0xcc;
/// Bytes of code before a breakpoint that are compared.
const CODE_BEFORE: u64 = 63;

/// The breakpoints with the bytes that they replace.
#[derive(Debug, Default)]
pub(super) struct Breakpoints {
    inserted: BTreeMap<u64, u8>,
    /// Those that gdb has removed. Forks may still have them.
    removed: BTreeMap<u64, u8>,
}

impl Breakpoints {
    /// Adds one. Returns whether there is memory at the address.
    ///
    /// # Errors
    /// The operator does not allow it.
    pub(super) fn add(&mut self, cell: &dyn WatchedCell, space: Option<u32>, address: u64) -> Result<bool> {
        let mut byte = [0];
        if cell.read(space, address, &mut byte)? == 0 || cell.write(space, address, &[INT3]).is_err() {
            return Ok(false);
        }
        self.inserted.entry(address).or_insert(byte[0]);
        Ok(true)
    }

    /// Removes one. Returns whether it was there.
    pub(super) fn remove(&mut self, cell: &dyn WatchedCell, space: Option<u32>, address: u64) -> bool {
        let Some(byte) = self.inserted.remove(&address) else { return false };
        self.removed.insert(address, byte);
        restore(cell, space, address, byte);
        true
    }

    /// Removes all, also those that other spaces have inherited.
    pub(super) fn clear(&mut self, cell: &dyn WatchedCell, space: Option<u32>, others: &[Option<u32>]) {
        for (address, byte) in self.removed.iter().chain(&self.inserted) {
            for other in others.iter().filter(|other| **other != space) {
                if self.is_inherited(cell, space, *other, *address) {
                    restore(cell, *other, *address, *byte);
                }
            }
        }
        while let Some((address, byte)) = self.inserted.pop_first() {
            restore(cell, space, address, byte);
        }
        self.removed.clear();
    }

    /// Whether another space has the code around a breakpoint of a space: its process is a fork, or a fork of one.
    pub(super) fn is_inherited(&self, cell: &dyn WatchedCell, space: Option<u32>, other: Option<u32>, address: u64) -> bool {
        let around = |space| {
            // Breakpoints near the start of a page have less code before them.
            let start = address - (address % PAGE_SIZE).min(CODE_BEFORE);
            let mut bytes = vec![0; (address - start + 1) as usize];
            let count = cell.read(space, start, &mut bytes).ok()?;
            bytes.truncate(count);
            hide(&self.removed, start, &mut bytes);
            hide(&self.inserted, start, &mut bytes);
            Some(bytes)
        };
        around(space).is_some_and(|code| !code.is_empty() && around(other) == Some(code))
    }

    /// Forgets all, because their memory is gone.
    pub(super) fn forget(&mut self) {
        self.inserted.clear();
        self.removed.clear();
    }

    /// Whether there is one.
    pub(super) fn contains(&self, address: u64) -> bool {
        self.inserted.contains_key(&address)
    }

    /// Whether there is one, or forks may have one.
    pub(super) fn is_known(&self, address: u64) -> bool {
        self.contains(address) || self.removed.contains_key(&address)
    }

    /// Writes the program's own byte to an address of a space, while the breakpoint stays known.
    ///
    /// # Errors
    /// Nothing is mapped there.
    pub(super) fn write_original(&self, cell: &dyn WatchedCell, space: Option<u32>, address: u64) -> Result<()> {
        let byte = self.inserted.get(&address).or_else(|| self.removed.get(&address));
        byte.map_or(Ok(()), |byte| cell.write(space, address, &[*byte]))
    }

    /// Writes a breakpoint again whose original byte is there, if it was not removed meanwhile.
    ///
    /// # Errors
    /// Nothing is mapped there.
    pub(super) fn rearm(&self, cell: &dyn WatchedCell, space: Option<u32>, address: u64) -> Result<()> {
        if self.contains(address) { cell.write(space, address, &[INT3]) } else { Ok(()) }
    }

    /// Replaces breakpoints in bytes that were read by the program's own.
    pub(super) fn hide(&self, address: u64, bytes: &mut [u8]) {
        hide(&self.inserted, address, bytes);
    }

    /// Inserts the breakpoints into bytes that are to be written.
    pub(super) fn insert_into(&self, address: u64, bytes: &mut [u8]) {
        for (at, _) in self.inserted.range(address..address.saturating_add(bytes.len() as u64)) {
            bytes[(at - address) as usize] = INT3;
        }
    }

    /// Records bytes that were written: under a breakpoint they take effect once it is removed.
    pub(super) fn note_written(&mut self, address: u64, bytes: &[u8]) {
        for (at, byte) in self.inserted.range_mut(address..address.saturating_add(bytes.len() as u64)) {
            *byte = bytes[(at - address) as usize];
        }
    }
}

/// Replaces breakpoints in bytes that were read by the program's own.
fn hide(breakpoints: &BTreeMap<u64, u8>, address: u64, bytes: &mut [u8]) {
    for (at, byte) in breakpoints.range(address..address.saturating_add(bytes.len() as u64)) {
        bytes[(at - address) as usize] = *byte;
    }
}

/// Writes the program's own byte if a breakpoint is there: the memory may be gone, or have other content.
fn restore(cell: &dyn WatchedCell, space: Option<u32>, address: u64, byte: u8) {
    let mut present = [0];
    if matches!(cell.read(space, address, &mut present), Ok(1)) && present == [INT3] {
        // A page that could be read and had a breakpoint is a private copy, which takes no further memory.
        let _ = cell.write(space, address, &[byte]);
    }
}

#[cfg(test)]
mod tests {
    use super::{Breakpoints, INT3};

    #[test]
    fn bytes_under_a_breakpoint_change_once_they_are_written() {
        let mut breakpoints = Breakpoints { inserted: [(0x1001, 0x55)].into(), ..Breakpoints::default() };
        let shown = |breakpoints: &Breakpoints| {
            let mut bytes = [1, INT3, 3];
            breakpoints.hide(0x1000, &mut bytes);
            bytes
        };
        let mut bytes = [7, 8, 9];
        breakpoints.insert_into(0x1000, &mut bytes);
        assert_eq!(bytes, [7, INT3, 9]);
        assert_eq!(shown(&breakpoints), [1, 0x55, 3], "a write that fails changes nothing");
        breakpoints.note_written(0x1000, &[7, 8, 9]);
        assert_eq!(shown(&breakpoints), [1, 8, 3]);
    }
}
