// SPDX-License-Identifier: MIT OR Apache-2.0
//! The walk of a CPU through page tables.

use pando_kernel::memory::Frames;
use pando_machine::{EntryIndex, FrameId, Root};

/// The 4 KiB frame that the CPU finds at an address at CPL 3, and whether it may write it.
pub(super) fn walk(frames: &Frames, root: Root, address: u64) -> Option<(FrameId, bool)> {
    const PRESENT_USER: u64 = 1 | 1 << 2;
    let (mut table, mut writable) = (root.table, true);
    for level in (1..=4).rev() {
        let entry = frames.arena().load(table, EntryIndex::of(address, level));
        if entry & PRESENT_USER != PRESENT_USER {
            return None;
        }
        writable &= entry & 2 != 0;
        let frame = FrameId::at(entry & 0x000f_ffff_ffff_f000).expect("entries point into the arena");
        if level == 1 {
            return Some((frame, writable));
        }
        if entry & 1 << 7 != 0 {
            assert_eq!(level, 2, "large pages have 2 MiB");
            return Some((frame.offset((address >> 12 & 511) as u32), writable));
        }
        table = frame;
    }
    None
}
