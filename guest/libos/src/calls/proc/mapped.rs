// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process has mapped.

use alloc::format;
use alloc::vec::Vec;
use core::fmt::Write;

use pando_abi::PAGE_SIZE;

use crate::files::Files;
use crate::memory::AddressSpace;

/// The mappings of a process; `detailed`: with what each takes.
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
        let name = match memory.shown(region.backing, range.start()) {
            Some((file, offset)) => {
                let status = files.status(files.tree.settle(file.place));
                let (device, number) = status.map_or((0, 0), |status| (status.device, status.number));
                let _ = write!(line, "{offset:08x} 00:{device:02x} {number} ");
                files.path_by(file.name.as_ref(), Some(file.place))
            }
            None => {
                line += "00000000 00:00 0 ";
                memory.name_of(range).as_bytes().to_vec()
            }
        };
        text.extend_from_slice(line.as_bytes());
        if !name.is_empty() {
            text.extend(core::iter::repeat_n(b' ', BEFORE_NAME.saturating_sub(line.len())));
            text.extend_from_slice(&name);
        }
        text.push(b'\n');
        if detailed {
            let kilobytes = (range.end() - range.start()) / 1024;
            let (clean, dirty) = if permissions.writable() { (0, kilobytes) } else { (kilobytes, 0) };
            let sizes = format!(
                "Size:           {kilobytes:8} kB\nKernelPageSize: {0:8} kB\nMMUPageSize:    {0:8} kB\nRss:            {kilobytes:8} kB\n\
                 Pss:            {kilobytes:8} kB\nShared_Clean:   {1:8} kB\nShared_Dirty:   {1:8} kB\nPrivate_Clean:  {clean:8} kB\n\
                 Private_Dirty:  {dirty:8} kB\nReferenced:     {kilobytes:8} kB\nAnonymous:      {dirty:8} kB\nSwap:           {1:8} kB\n",
                PAGE_SIZE / 1024,
                0
            );
            text.extend_from_slice(sizes.as_bytes());
        }
    }
    text
}
