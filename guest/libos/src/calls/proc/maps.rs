// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mappings of a process: `maps` and `smaps`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use pando_abi::PAGE_SIZE;
use pando_rt::memory::{PageRange, ResidentPages};

use crate::files::Files;
use crate::files::status::numbers;
use crate::memory::AddressSpace;
use crate::memory::layout::is_shared;
use crate::memory::regions::Backing;

/// The sizes of a mapping. Its own pages are those that the program has written to; the other pages of a file are unchanged.
fn sizes(range: PageRange, backing: Backing, resident: ResidentPages) -> String {
    let private = if backing.is_shared() || is_shared(range.start()) { 0 } else { resident.own };
    let shared = resident.pages - private;
    let (clean, dirty) = if matches!(backing, Backing::Blocks(_)) { (shared, 0) } else { (0, shared) };
    let anonymous = if backing.is_file() { private } else { resident.pages };
    let rows = [
        ("Size", range.pages()),
        ("KernelPageSize", 1),
        ("MMUPageSize", 1),
        ("Rss", resident.pages),
        // The number of sharers is unknown: at least one other.
        ("Pss", private + shared / 2),
        ("Shared_Clean", clean),
        ("Shared_Dirty", dirty),
        ("Private_Clean", 0),
        ("Private_Dirty", private),
        ("Referenced", resident.pages),
        ("Anonymous", anonymous),
        ("Swap", 0),
    ];
    rows.into_iter().map(|(name, pages)| format!("{:<15} {:8} kB\n", format!("{name}:"), pages * PAGE_SIZE / 1024)).collect()
}

/// The mappings of a process; `detailed`: with their sizes.
pub(super) fn maps(files: &Files, memory: &AddressSpace, detailed: bool) -> Vec<u8> {
    /// Bytes of a line before a name.
    const BEFORE_NAME: usize = 73;
    let mut text = Vec::new();
    for (range, region) in memory.all() {
        let bit = |has, letter| if has { letter } else { '-' };
        let permissions = region.permissions;
        let (read, write, execute) =
            (bit(permissions.readable(), 'r'), bit(permissions.writable(), 'w'), bit(permissions.executable(), 'x'));
        let shared = if region.backing.is_shared() { 's' } else { 'p' };
        let mut line = format!("{:08x}-{:08x} {read}{write}{execute}{shared} ", range.start(), range.end());
        let name = match memory.file_mapping(region.backing, range.start()) {
            Some((file, offset)) => {
                let status = files.status(files.tree.real_inode(file.inode));
                let (device, number) = status.map_or((0, 0), |status| (status.device, status.number));
                let (major, minor) = numbers(device);
                let _ = write!(line, "{offset:08x} {major:02x}:{minor:02x} {number} ");
                files.path_by(file.name.as_ref(), Some(file.inode))
            }
            None => match region.backing.anonymous_offset(range.start()) {
                // Shared anonymous memory is the only file that no name was recorded for.
                Some(offset) => {
                    let _ = write!(line, "{offset:08x} 00:01 1 ");
                    b"/dev/zero (deleted)".to_vec()
                }
                None => {
                    line += "00000000 00:00 0 ";
                    memory.name_of(range).as_bytes().to_vec()
                }
            },
        };
        text.extend_from_slice(line.as_bytes());
        if !name.is_empty() {
            text.extend(core::iter::repeat_n(b' ', BEFORE_NAME.saturating_sub(line.len())));
            text.extend_from_slice(&name);
        }
        text.push(b'\n');
        if detailed {
            text.extend_from_slice(sizes(range, region.backing, memory.resident(range)).as_bytes());
        }
    }
    text
}
