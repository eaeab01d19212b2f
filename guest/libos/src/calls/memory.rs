// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on memory: `mmap` and its family, `brk`, `madvise`.

use pando_abi::{PAGE_SIZE, Permissions};
use pando_rt::user::UserRange;

use crate::errno::Errno;
use crate::memory::regions::Backing;
use crate::memory::remap::Target;
use crate::memory::{LOWEST, pages};
use crate::process::Process;

const MAP_SHARED: u64 = 1;
const MAP_SHARED_VALIDATE: u64 = 3;
const MAP_TYPE: u64 = 0xf;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;

const MREMAP_MAYMOVE: u64 = 1;
const MREMAP_FIXED: u64 = 2;

const MADV_DONTNEED: u64 = 4;
/// Advice that needs nothing done: access patterns, huge pages, dumps, forks, lazy freeing, populating.
const HARMLESS_ADVICE: [u64; 15] = [0, 1, 2, 3, 8, 10, 11, 14, 15, 16, 17, 18, 19, 20, 21];

const MREMAP_FLAGS: u64 = MREMAP_MAYMOVE | MREMAP_FIXED;

/// Permissions from `PROT_` bits, which are the abi's.
fn permissions(bits: u64) -> Result<Permissions, Errno> {
    /// `PROT_GROWSDOWN` and `PROT_GROWSUP` do not change what is allowed.
    const GROWS: u64 = 0x0300_0000;
    Permissions::from_bits(bits & !GROWS).ok_or(Errno::EINVAL)
}

/// `mmap(address, length, protection, flags, fd, offset)`.
pub fn mmap(process: &mut Process, [address, length, protection, flags, fd, offset]: [u64; 6]) -> Result<u64, Errno> {
    if !matches!(flags & MAP_TYPE, MAP_SHARED..=MAP_SHARED_VALIDATE) || !offset.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    let permissions = permissions(protection & 7)?;
    let bytes = length.checked_next_multiple_of(PAGE_SIZE).filter(|bytes| *bytes > 0).ok_or(Errno::EINVAL)?;
    let file = if flags & MAP_ANONYMOUS == 0 {
        let shared_writable = flags & MAP_TYPE != 2 && permissions.writable();
        process.files.check_mappable(fd, shared_writable)?
    } else {
        None
    };
    let hint = address / PAGE_SIZE * PAGE_SIZE;
    let range = if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
        let range = if address == hint { pages(hint, bytes).map_err(|_| Errno::ENOMEM)? } else { return Err(Errno::EINVAL) };
        if flags & MAP_FIXED == 0 && !process.memory.is_free(range) {
            return Err(Errno::EEXIST);
        }
        range
    } else {
        let hinted = pages(hint, bytes).ok().filter(|range| range.start() >= LOWEST && process.memory.is_free(*range));
        hinted.map_or_else(|| process.memory.find(bytes), Ok)?
    };
    let Some(()) = file else {
        process.memory.map(range, permissions, Backing::Anonymous)?;
        return Ok(range.start());
    };
    process.memory.map(range, Permissions::READ_WRITE, Backing::Copy)?;
    process.files.copy_mapped(fd, offset, UserRange::new(range.start(), length)?)?;
    if permissions != Permissions::READ_WRITE {
        process.memory.protect(range, permissions)?;
    }
    Ok(range.start())
}

/// `munmap(address, length)`.
pub fn munmap(process: &mut Process, [address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    process.memory.unmap(pages(address, length)?)?;
    Ok(0)
}

/// `mprotect(address, length, protection)`.
pub fn mprotect(process: &mut Process, [address, length, protection, ..]: [u64; 6]) -> Result<u64, Errno> {
    let permissions = permissions(protection)?;
    if length == 0 && address.is_multiple_of(PAGE_SIZE) {
        return Ok(0);
    }
    process.memory.protect(pages(address, length)?, permissions)?;
    Ok(0)
}

/// `brk(address)`.
pub fn brk(process: &mut Process, [address, ..]: [u64; 6]) -> Result<u64, Errno> {
    Ok(process.memory.set_break(address))
}

/// `mremap(address, old_length, new_length, flags, new_address)`.
pub fn mremap(process: &mut Process, [address, old_length, new_length, flags, new_address, _]: [u64; 6]) -> Result<u64, Errno> {
    let fixed = flags & MREMAP_FIXED != 0;
    if flags & !MREMAP_FLAGS != 0 || fixed && flags & MREMAP_MAYMOVE == 0 || old_length == 0 {
        return Err(Errno::EINVAL);
    }
    let (old, bytes) = (pages(address, old_length)?, pages(address, new_length)?.bytes());
    let target = match flags {
        _ if fixed => Target::At(new_address),
        MREMAP_MAYMOVE => Target::Anywhere,
        _ => Target::Stay,
    };
    process.memory.remap(old, bytes, target)
}

/// `madvise(address, length, advice)`.
pub fn madvise(process: &mut Process, [address, length, advice, ..]: [u64; 6]) -> Result<u64, Errno> {
    if length == 0 {
        return Ok(0);
    }
    let range = pages(address, length)?;
    match advice {
        MADV_DONTNEED => process.memory.discard(range)?,
        _ if !HARMLESS_ADVICE.contains(&advice) => return Err(Errno::EINVAL),
        _ if !process.memory.is_covered(range) => return Err(Errno::ENOMEM),
        _ => {}
    }
    Ok(0)
}
