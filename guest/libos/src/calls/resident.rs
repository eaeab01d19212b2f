// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on resident memory. A program cannot see whether its memory is paged out, so mapped memory
//! counts as resident.

use pando_abi::PAGE_SIZE;
use pando_rt::memory::PageRange;
use pando_rt::user::write;

use crate::errno::Errno;
use crate::system::System;
use crate::uapi::{CAP_IPC_LOCK, MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT, MLOCK_ONFAULT};

/// `mlock(address, length)`: the range must be mapped.
pub fn mlock(system: &mut System, [address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_locked(system, address, length, true)
}

/// `munlock(address, length)`.
pub fn munlock(system: &mut System, [address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_locked(system, address, length, false)
}

fn set_locked(system: &mut System, address: u64, length: u64, is_locked: bool) -> Result<u64, Errno> {
    let start = address / PAGE_SIZE * PAGE_SIZE;
    // A length that wraps counts as zero, as on Linux.
    let bytes = length.wrapping_add(address - start).wrapping_add(PAGE_SIZE - 1) / PAGE_SIZE * PAGE_SIZE;
    let end = start.checked_add(bytes).ok_or(Errno::EINVAL)?;
    if start == end {
        return Ok(0);
    }
    let range = PageRange::new(start, end).ok_or(Errno::ENOMEM)?;
    if is_locked {
        check_locking(system, range)?;
    }
    if !system.memory.is_covered(range) {
        return Err(Errno::ENOMEM);
    }
    system.memory.set_locked(range, is_locked);
    Ok(0)
}

/// Checks that the limit permits locking a range.
fn check_locking(system: &System, range: PageRange) -> Result<(), Errno> {
    let Some(limit) = system.process.limits.locked().filter(|_| !system.files.current.credentials.is_capable(CAP_IPC_LOCK)) else {
        return Ok(());
    };
    match system.memory.locked_in(range) {
        _ if limit == 0 => Err(Errno::EPERM),
        there if system.memory.locked_bytes() - there + range.bytes() > limit => Err(Errno::ENOMEM),
        _ => Ok(()),
    }
}

/// Checks that a new mapping of so many bytes may be locked (`MAP_LOCKED`).
///
/// # Errors
/// `EPERM`: nothing may be. `EAGAIN`: it would be too much.
pub fn check_locked_mapping(system: &System, bytes: u64) -> Result<(), Errno> {
    match system.process.limits.locked().filter(|_| !system.files.current.credentials.is_capable(CAP_IPC_LOCK)) {
        Some(0) => Err(Errno::EPERM),
        Some(limit) if system.memory.locked_bytes().saturating_add(bytes) > limit => Err(Errno::EAGAIN),
        _ => Ok(()),
    }
}

/// `mlock2(address, length, flags)`.
pub fn mlock2(system: &mut System, [address, length, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if flags as u32 as u64 & !MLOCK_ONFAULT != 0 {
        return Err(Errno::EINVAL);
    }
    mlock(system, [address, length, 0, 0, 0, 0])
}

/// `mlockall(flags)`.
pub fn mlockall(system: &mut System, [flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    // `MCL_ONFAULT` has no meaning alone.
    const FLAGS: u32 = MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT;
    match flags as u32 {
        0 | MCL_ONFAULT => Err(Errno::EINVAL),
        flags if flags & !FLAGS != 0 => Err(Errno::EINVAL),
        _ => match system.process.limits.locked().filter(|_| !system.files.current.credentials.is_capable(CAP_IPC_LOCK)) {
            Some(0) => Err(Errno::EPERM),
            Some(limit) if system.memory.bytes() > limit => Err(Errno::ENOMEM),
            _ => Ok(0),
        },
    }
}

/// `munlockall()`.
pub fn munlockall(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    system.memory.unlock_all();
    Ok(0)
}

/// `mincore(address, length, pages)`: a byte for each page.
pub fn mincore(system: &mut System, [address, length, pages, ..]: [u64; 6]) -> Result<u64, Errno> {
    const PIECE: u64 = 512;
    if !address.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    let end = length.checked_next_multiple_of(PAGE_SIZE).and_then(|length| address.checked_add(length));
    let range = end.and_then(|end| PageRange::new(address, end)).ok_or(Errno::ENOMEM)?;
    if !system.memory.is_covered(range) {
        return Err(Errno::ENOMEM);
    }
    let count = range.bytes() / PAGE_SIZE;
    let mut done = 0;
    while done < count {
        let here = PIECE.min(count - done);
        write(pages.wrapping_add(done), &[1; PIECE as usize][..here as usize])?;
        done += here;
    }
    Ok(0)
}
