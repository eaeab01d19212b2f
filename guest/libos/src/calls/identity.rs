// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on what the process is: numbers, names, limits. The cell's one process is number 1.

use alloc::vec::Vec;

use pando_abi::PAGE_SIZE;
use pando_rt::user::write;
use pando_rt::{clock, registers, thread_base};

use crate::errno::Errno;
use crate::files::OPEN_MAX;
use crate::memory::STACK_LIMIT;
use crate::process::{self, Process, leave};
use crate::user::{set_words, set_words_unless_null};

const UNLIMITED: u64 = u64::MAX;

/// `getpid`, `gettid`.
pub fn process_number(_: &mut Process, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(process::NUMBER)
}

/// Calls whose answer is zero: its parent, and what was accepted without effect.
pub fn zero(_: &mut Process, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(0)
}

/// `getpgrp`, `getpgid`, `getsid`: the process leads its own.
pub fn group(_: &mut Process, [process, ..]: [u64; 6]) -> Result<u64, Errno> {
    if process <= process::NUMBER { Ok(process::NUMBER) } else { Err(Errno::ESRCH) }
}

/// `getpgrp()`, which has no argument.
pub fn getpgrp(_: &mut Process, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(process::NUMBER)
}

/// The release of Linux that this is like.
pub const RELEASE: &str = "6.12.0-pando";
/// Its version.
pub const VERSION: &str = "#1 SMP Pando";

/// The cell's name.
#[must_use]
pub fn host_name() -> Vec<u8> {
    let identity = registers::identity();
    identity.host_name[..(identity.host_name_length as usize).min(identity.host_name.len())].to_vec()
}

/// `uname(name)`.
pub fn uname(_: &mut Process, [address, ..]: [u64; 6]) -> Result<u64, Errno> {
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
pub fn sysinfo(_: &mut Process, [address, ..]: [u64; 6]) -> Result<u64, Errno> {
    let memory = registers::memory();
    let total = memory.quota.saturating_mul(PAGE_SIZE);
    let free = memory.quota.saturating_sub(memory.used).saturating_mul(PAGE_SIZE);
    // Uptime, three loads, total, free, shared, buffers, swap, free swap, processes, high, free high, unit.
    set_words(address, &[clock::now() / 1_000_000_000, 0, 0, 0, total, free, 0, 0, 0, 0, 1, 0, 0, 1])?;
    Ok(0)
}

/// Current and largest value of a resource.
///
/// # Errors
/// `EINVAL`: there is no such resource.
pub fn limit(resource: u64) -> Result<[u64; 2], Errno> {
    const STACK: u64 = 3;
    const CORE: u64 = 4;
    const PROCESSES: u64 = 6;
    const FILES: u64 = 7;
    const LAST: u64 = 15;
    match resource {
        STACK => Ok([STACK_LIMIT; 2]),
        CORE => Ok([0; 2]),
        PROCESSES => Ok([1; 2]),
        FILES => Ok([OPEN_MAX; 2]),
        0..=LAST => Ok([UNLIMITED; 2]),
        _ => Err(Errno::EINVAL),
    }
}

/// `prlimit64(process, resource, new, old)`: limits can be read; setting them is accepted and changes nothing.
pub fn prlimit64(_: &mut Process, [process, resource, _, old, ..]: [u64; 6]) -> Result<u64, Errno> {
    if process > process::NUMBER {
        return Err(Errno::ESRCH);
    }
    set_words_unless_null(old, &limit(resource)?)?;
    Ok(0)
}

/// `getrlimit(resource, limits)`.
pub fn getrlimit(_: &mut Process, [resource, limits, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_words(limits, &limit(resource)?)?;
    Ok(0)
}

/// `prctl(option, ...)`.
pub fn prctl(process: &mut Process, [option, argument, ..]: [u64; 6]) -> Result<u64, Errno> {
    const PR_SET_NAME: u64 = 15;
    const PR_GET_NAME: u64 = 16;
    const PR_GET_DUMPABLE: u64 = 3;
    const PR_SET_DUMPABLE: u64 = 4;
    const PR_SET_NO_NEW_PRIVS: u64 = 38;
    match option {
        PR_SET_NAME => {
            let name = crate::user::path(argument)?;
            process.set_name(&name);
            Ok(0)
        }
        PR_GET_NAME => {
            write(argument, &process.name)?;
            Ok(0)
        }
        PR_GET_DUMPABLE | PR_SET_DUMPABLE | PR_SET_NO_NEW_PRIVS => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `arch_prctl(code, address)`.
pub fn arch_prctl(_: &mut Process, [code, address, ..]: [u64; 6]) -> Result<u64, Errno> {
    const SET_GS: u64 = 0x1001;
    const SET_FS: u64 = 0x1002;
    const GET_FS: u64 = 0x1003;
    const GET_GS: u64 = 0x1004;
    let set = |done| if done { Ok(0) } else { Err(Errno::EPERM) };
    match code {
        SET_FS => set(thread_base::set_fs(address)),
        SET_GS => set(thread_base::set_gs(address)),
        GET_FS => set_words(address, &[thread_base::fs()]).map(|()| 0),
        GET_GS => set_words(address, &[thread_base::gs()]).map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}

/// `exit(status)`, `exit_group(status)`.
pub fn exit(process: &mut Process, [status, ..]: [u64; 6]) -> Result<u64, Errno> {
    leave(process, status & 0xff)
}
