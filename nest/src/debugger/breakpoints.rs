// SPDX-License-Identifier: MIT OR Apache-2.0
//! Breakpoints: `int3` in the program's private copies of its code.

use crate::watched_child::WatchedChild;
use std::collections::BTreeMap;
use std::io::Result;

/// The instruction `int3`.
const INT3: u8 = 0xcc;

/// The breakpoints with the bytes that they replace.
#[derive(Debug, Default)]
pub(super) struct Breakpoints(BTreeMap<u64, u8>);

impl Breakpoints {
    /// Adds one. Returns whether there is memory at the address.
    ///
    /// # Errors
    /// The device does not allow it.
    pub(super) fn add(&mut self, child: &WatchedChild<'_>, space: u64, address: u64) -> Result<bool> {
        let mut byte = [0];
        if child.device.read(space, address, &mut byte)? == 0 || child.device.write_space(space, address, &[INT3]).is_err() {
            return Ok(false);
        }
        self.0.entry(address).or_insert(byte[0]);
        Ok(true)
    }

    /// Removes one. Returns whether it was there.
    pub(super) fn remove(&mut self, child: &WatchedChild<'_>, space: u64, address: u64) -> bool {
        let Some(byte) = self.0.remove(&address) else { return false };
        // The memory may be gone, and the breakpoint with it.
        let _ = child.device.write_space(space, address, &[byte]);
        true
    }

    /// Removes all.
    pub(super) fn clear(&mut self, child: &WatchedChild<'_>, space: u64) {
        while let Some((address, _)) = self.0.first_key_value() {
            let address = *address;
            self.remove(child, space, address);
        }
    }

    /// Forgets all, because their memory is gone.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// Whether there is one.
    pub(super) fn contains(&self, address: u64) -> bool {
        self.0.contains_key(&address)
    }

    /// Writes the program's own byte to an address of a space, while the breakpoint stays known.
    ///
    /// # Errors
    /// Nothing is mapped there.
    pub(super) fn write_original(&self, child: &WatchedChild<'_>, space: u64, address: u64) -> Result<()> {
        self.0.get(&address).map_or(Ok(()), |byte| child.device.write_space(space, address, &[*byte]))
    }

    /// Writes a breakpoint again whose original byte is there, if it was not removed meanwhile.
    ///
    /// # Errors
    /// Nothing is mapped there.
    pub(super) fn rearm(&self, child: &WatchedChild<'_>, space: u64, address: u64) -> Result<()> {
        if self.contains(address) { child.device.write_space(space, address, &[INT3]) } else { Ok(()) }
    }

    /// Replaces breakpoints in bytes that were read by the program's own.
    pub(super) fn hide(&self, address: u64, bytes: &mut [u8]) {
        for (at, byte) in self.0.range(address..address.saturating_add(bytes.len() as u64)) {
            bytes[(at - address) as usize] = *byte;
        }
    }

    /// Inserts the breakpoints into bytes that are to be written.
    pub(super) fn insert_into(&self, address: u64, bytes: &mut [u8]) {
        for (at, _) in self.0.range(address..address.saturating_add(bytes.len() as u64)) {
            bytes[(at - address) as usize] = INT3;
        }
    }

    /// Records bytes that were written: under a breakpoint they take effect once it is removed.
    pub(super) fn note_written(&mut self, address: u64, bytes: &[u8]) {
        for (at, byte) in self.0.range_mut(address..address.saturating_add(bytes.len() as u64)) {
            *byte = bytes[(at - address) as usize];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Breakpoints, INT3};

    #[test]
    fn bytes_under_a_breakpoint_change_once_they_are_written() {
        let mut breakpoints = Breakpoints([(0x1001, 0x55)].into());
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
