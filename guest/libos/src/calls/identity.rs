// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on the identity of the process and the system: names, limits, segment bases.

use alloc::vec::Vec;

use pando_abi::PAGE_SIZE;
use pando_rt::user::write;
use pando_rt::{clock, registers, thread_base};

use crate::credentials::IdSet;
use crate::errno::Errno;
use crate::limits::Limit;
use crate::system::System;
use crate::uapi::{ARCH_GET_CPUID, ARCH_GET_FS, ARCH_GET_GS, ARCH_SET_CPUID, ARCH_SET_FS, ARCH_SET_GS, CAP_SYS_RESOURCE};
use crate::user::{set_words, set_words_unless_null, words};

/// Answers zero: calls that are accepted without effect.
pub fn zero(_: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(0)
}

/// The release of Linux that is reported.
pub const RELEASE: &str = "6.12.0-pando";
/// The version that is reported.
pub const VERSION: &str = "#1 SMP Pando";

/// The cell's name.
#[must_use]
pub fn host_name() -> Vec<u8> {
    let identity = registers::identity();
    identity.host_name[..(identity.host_name_length as usize).min(identity.host_name.len())].to_vec()
}

/// `uname(name)`.
pub fn uname(_: &mut System, [address, ..]: [u64; 6]) -> Result<u64, Errno> {
    /// Bytes of each of the six names.
    const NAME: usize = 65;
    let host = host_name();
    let mut bytes = [0; 6 * NAME];
    let names: [&[u8]; 6] = [b"Linux", &host, RELEASE.as_bytes(), VERSION.as_bytes(), b"x86_64", b"(none)"];
    for (room, name) in bytes.chunks_exact_mut(NAME).zip(names) {
        room[..name.len()].copy_from_slice(name);
    }
    write(address, &bytes)?;
    Ok(0)
}

/// `sysinfo(information)`.
pub fn sysinfo(system: &mut System, [address, ..]: [u64; 6]) -> Result<u64, Errno> {
    let memory = registers::memory();
    let total = memory.quota.saturating_mul(PAGE_SIZE);
    let free = memory.quota.saturating_sub(memory.used).saturating_mul(PAGE_SIZE);
    // Uptime, three loads, total, free, shared, buffers, swap, free swap, processes, high, free high, unit.
    set_words(
        address,
        &[clock::now() / 1_000_000_000, 0, 0, 0, total, free, 0, 0, 0, 0, system.processes_where(|_| true).len() as u64, 0, 0, 1],
    )?;
    Ok(0)
}

/// `prlimit64(process, resource, new, old)`.
pub fn prlimit64(system: &mut System, [number, resource, new, old, ..]: [u64; 6]) -> Result<u64, Errno> {
    let resource = u64::from(resource as u32);
    let new_limit = if new == 0 { None } else { Some(words(new)?) };
    let number = match number as u32 {
        0 => system.process.number,
        number => system.thread_of(number).map_or(number, |thread| thread.process),
    };
    let process = system.process_of(number).ok_or(Errno::ESRCH)?;
    let (caller, target) = (&system.files.current.credentials, &system.files.of(number).ok_or(Errno::ESRCH)?.credentials);
    let is = |target: IdSet, caller: IdSet| IdSet { file: caller.real, ..target } == IdSet::all(caller.real);
    let is_same = is(target.user, caller.user) && is(target.group, caller.group);
    if number != system.process.number && !is_same && !caller.is_capable(CAP_SYS_RESOURCE) {
        return Err(Errno::EPERM);
    }
    let old_limit = process.limits.get(resource)?;
    new_limit.map_or(Ok(()), |[soft, hard]| system.set_limit(number, resource, Limit { soft, hard }))?;
    set_words_unless_null(old, &[old_limit.soft, old_limit.hard])?;
    Ok(0)
}

/// `getrlimit(resource, limits)`.
pub fn getrlimit(system: &mut System, [resource, limits, ..]: [u64; 6]) -> Result<u64, Errno> {
    let Limit { soft, hard } = system.process.limits.get(u64::from(resource as u32))?;
    set_words(limits, &[soft, hard])?;
    Ok(0)
}

/// `setrlimit(resource, limits)`.
pub fn setrlimit(system: &mut System, [resource, limits, ..]: [u64; 6]) -> Result<u64, Errno> {
    let [soft, hard] = words(limits)?;
    system.set_limit(system.process.number, u64::from(resource as u32), Limit { soft, hard })?;
    Ok(0)
}

/// `personality(persona)`: stored and reported.
pub fn personality(system: &mut System, [persona, ..]: [u64; 6]) -> Result<u64, Errno> {
    const ASK: u32 = u32::MAX;
    let before = system.process.personality;
    if persona as u32 != ASK {
        system.process.personality = persona as u32;
    }
    Ok(before.into())
}

/// `arch_prctl(code, address)`.
pub fn arch_prctl(_: &mut System, [code, address, ..]: [u64; 6]) -> Result<u64, Errno> {
    let set = |done| if done { Ok(0) } else { Err(Errno::EPERM) };
    match code {
        ARCH_SET_FS => set(thread_base::set_fs(address)),
        ARCH_SET_GS => set(thread_base::set_gs(address)),
        ARCH_GET_FS => set_words(address, &[thread_base::fs()]).map(|()| 0),
        ARCH_GET_GS => set_words(address, &[thread_base::gs()]).map(|()| 0),
        // The instruction `cpuid` works, and cannot be made to fault.
        ARCH_GET_CPUID => Ok(1),
        ARCH_SET_CPUID if address != 0 => Ok(0),
        ARCH_SET_CPUID => Err(Errno::ENODEV),
        _ => Err(Errno::EINVAL),
    }
}
