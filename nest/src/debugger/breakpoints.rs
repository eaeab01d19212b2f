// SPDX-License-Identifier: MIT OR Apache-2.0
//! Breakpoints: `int3` in the program's private copies of its code.

use super::Space;
use crate::watched_cell::WatchedCell;
use pando_abi::PAGE_SIZE;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Result;

/// The instruction `int3`.
const INT3: u8 = 0xcc;
/// Bytes of code before a breakpoint that are compared.
const CODE_BEFORE: u64 = 63;

/// The breakpoints by their addresses.
#[derive(Debug, Default)]
pub(super) struct Breakpoints {
    inserted: BTreeMap<u64, Breakpoint>,
    /// Those that gdb has removed, or whose memory is gone. Forks may still have them.
    removed: BTreeMap<u64, Breakpoint>,
}

/// The code that a breakpoint replaces, and the code before it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Breakpoint {
    byte: u8,
    /// In the same page.
    before: Vec<u8>,
}

impl Breakpoints {
    /// Adds one. Returns whether there is memory at the address.
    ///
    /// # Errors
    /// The operator does not allow it.
    pub(super) fn add(&mut self, cell: &dyn WatchedCell, space: Space, address: u64) -> Result<bool> {
        let Some(breakpoint) = self.code_at(cell, space, address)? else { return Ok(false) };
        if cell.write(space, address, &[INT3]).is_err() {
            return Ok(false);
        }
        self.inserted.entry(address).or_insert(breakpoint);
        Ok(true)
    }

    /// Removes one. Returns whether it was there.
    ///
    /// `space`: `None` if it is gone.
    pub(super) fn remove(&mut self, cell: &dyn WatchedCell, space: Option<Space>, address: u64) -> bool {
        let Some(breakpoint) = self.inserted.remove(&address) else { return false };
        if let Some(space) = space {
            restore(cell, space, address, breakpoint.byte);
        }
        self.removed.insert(address, breakpoint);
        true
    }

    /// Removes all, also those that other spaces have inherited. `space`: `None` if it is gone.
    pub(super) fn clear(&mut self, cell: &dyn WatchedCell, space: Option<Space>, all: &BTreeSet<Space>) {
        for (address, breakpoint) in self.removed.iter().chain(&self.inserted) {
            for other in all.iter().filter(|other| Some(**other) != space) {
                if self.is_inherited(cell, *other, *address) {
                    restore(cell, *other, *address, breakpoint.byte);
                }
            }
        }
        while let Some((address, breakpoint)) = self.inserted.pop_first() {
            if let Some(space) = space {
                restore(cell, space, address, breakpoint.byte);
            }
        }
        self.removed.clear();
    }

    /// Whether another space has the code before a breakpoint: its process is a fork, or a fork of one.
    pub(super) fn is_inherited(&self, cell: &dyn WatchedCell, other: Space, address: u64) -> bool {
        let known = self.inserted.get(&address).or_else(|| self.removed.get(&address));
        known.is_some_and(|known| self.code_at(cell, other, address).is_ok_and(|code| code.as_ref() == Some(known)))
    }

    /// The program's own code at an address and before it; `None`: there is no memory.
    fn code_at(&self, cell: &dyn WatchedCell, space: Space, address: u64) -> Result<Option<Breakpoint>> {
        // Breakpoints near the start of a page have less code before them.
        let start = address - (address % PAGE_SIZE).min(CODE_BEFORE);
        let mut bytes = vec![0; (address - start + 1) as usize];
        if cell.read(space, start, &mut bytes)? < bytes.len() {
            return Ok(None);
        }
        hide(&self.removed, start, &mut bytes);
        hide(&self.inserted, start, &mut bytes);
        Ok(bytes.pop().map(|byte| Breakpoint { byte, before: bytes }))
    }

    /// The process has other memory now. Forks may still have them.
    pub(super) fn forget(&mut self) {
        self.removed.append(&mut self.inserted);
    }

    /// Whether there is one.
    pub(super) fn contains(&self, address: u64) -> bool {
        self.inserted.contains_key(&address)
    }

    /// Whether there is one, or forks may have one, in place of another instruction.
    pub(super) fn is_known(&self, address: u64) -> bool {
        self.byte(address).is_some_and(|byte| byte != INT3)
    }

    /// The program's own byte at the address of a breakpoint.
    fn byte(&self, address: u64) -> Option<u8> {
        self.inserted.get(&address).or_else(|| self.removed.get(&address)).map(|breakpoint| breakpoint.byte)
    }

    /// Writes the program's own byte to an address of a space, while the breakpoint stays known.
    ///
    /// # Errors
    /// Nothing is mapped there.
    pub(super) fn write_original(&self, cell: &dyn WatchedCell, space: Space, address: u64) -> Result<()> {
        self.byte(address).map_or(Ok(()), |byte| cell.write(space, address, &[byte]))
    }

    /// Writes a breakpoint again whose original byte is there, if it was not removed meanwhile.
    ///
    /// # Errors
    /// Nothing is mapped there.
    pub(super) fn rearm(&self, cell: &dyn WatchedCell, space: Space, address: u64) -> Result<()> {
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
        for (at, breakpoint) in self.inserted.range_mut(address..address.saturating_add(bytes.len() as u64)) {
            breakpoint.byte = bytes[(at - address) as usize];
        }
    }
}

/// Replaces breakpoints in bytes that were read by the program's own.
fn hide(breakpoints: &BTreeMap<u64, Breakpoint>, address: u64, bytes: &mut [u8]) {
    for (at, breakpoint) in breakpoints.range(address..address.saturating_add(bytes.len() as u64)) {
        // Another program may be there by now.
        let byte = &mut bytes[(at - address) as usize];
        if *byte == INT3 {
            *byte = breakpoint.byte;
        }
    }
}

/// Writes the program's own byte if a breakpoint is there: the memory may be gone, or have other content.
fn restore(cell: &dyn WatchedCell, space: Space, address: u64, byte: u8) {
    let mut present = [0];
    if matches!(cell.read(space, address, &mut present), Ok(1)) && present == [INT3] {
        // A page that could be read and had a breakpoint is a private copy, which takes no further memory.
        let _ = cell.write(space, address, &[byte]);
    }
}

#[cfg(test)]
mod tests {
    use super::{Breakpoint, Breakpoints, INT3};

    #[test]
    fn bytes_under_a_breakpoint_change_once_they_are_written() {
        let breakpoint = Breakpoint { byte: 0x55, before: Vec::new() };
        let mut breakpoints = Breakpoints { inserted: [(0x1001, breakpoint)].into(), ..Breakpoints::default() };
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
