// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that change the machine, which programs in a cell may not. They fail with `EPERM`, after the argument checks that
//! Linux makes for root.

use pando_abi::PAGE_SIZE;
use pando_rt::user::read;

use crate::calls::processes::NAMESPACES;
use crate::errno::Errno;
use crate::files::namei::LookupFlags;
use crate::system::System;
use crate::timers::Clock;
use crate::uapi::{
    AT_FDCWD, CAP_SYS_ADMIN, CAP_SYS_BOOT, CAP_SYS_PACCT, CAP_SYS_TTY_CONFIG, CAP_SYSLOG, CLONE_FILES, CLONE_FS, CLONE_SIGHAND,
    CLONE_SYSVSEM, CLONE_THREAD, CLONE_VM, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_MAGIC2A, LINUX_REBOOT_MAGIC2B,
    LINUX_REBOOT_MAGIC2C, MNT_DETACH, MNT_EXPIRE, MNT_FORCE, O_CLOEXEC, O_NONBLOCK, UFFD_USER_MODE_ONLY, UMOUNT_NOFOLLOW,
};
use crate::user::{NANOSECONDS, path, timespec, words};

type SyscallResult = Result<u64, Errno>;

/// Fails with `EPERM` if the process lacks the capability. Linux checks this before the arguments.
fn check_capable(system: &System, capability: u64) -> Result<(), Errno> {
    if system.files.current.credentials.is_capable(capability) { Ok(()) } else { Err(Errno::EPERM) }
}

/// `vhangup()`: fails with `EPERM` if the session has a terminal, because none is hung up; otherwise succeeds.
pub fn vhangup(system: &mut System, _: [u64; 6]) -> SyscallResult {
    check_capable(system, CAP_SYS_TTY_CONFIG)?;
    if system.controlling().is_some() { Err(Errno::EPERM) } else { Ok(0) }
}

/// `bpf(command, attributes, size)`.
pub fn bpf(_: &mut System, [command, attributes, size, ..]: [u64; 6]) -> SyscallResult {
    /// The last command that Linux has, and bytes of the largest attributes.
    const LAST: u32 = 38;
    const KNOWN: usize = 168;
    if size as u32 as u64 > PAGE_SIZE {
        return Err(Errno::E2BIG);
    }
    let mut bytes = alloc::vec![0; size as u32 as usize];
    read(attributes, &mut bytes)?;
    if bytes.iter().skip(KNOWN).any(|byte| *byte != 0) {
        return Err(Errno::E2BIG);
    }
    einval_or_eperm(command as u32 > LAST)
}

/// Always fails: with `EINVAL` if the arguments are invalid, else with `EPERM`.
const fn einval_or_eperm(is_invalid: bool) -> SyscallResult {
    Err(if is_invalid { Errno::EINVAL } else { Errno::EPERM })
}

/// Checks that a path exists.
fn look_up(system: &System, address: u64) -> Result<(), Errno> {
    system.files.find(AT_FDCWD, &path(address)?, LookupFlags::FOLLOW).map(|_| ())
}

/// `syslog(action, buffer, length)`.
pub fn syslog(system: &mut System, [action, buffer, length, ..]: [u64; 6]) -> SyscallResult {
    const ACTIONS: u32 = 10;
    const READS: [u32; 3] = [2, 3, 4];
    check_capable(system, CAP_SYSLOG)?;
    let reads = READS.contains(&(action as u32));
    einval_or_eperm(action as u32 > ACTIONS || reads && (buffer == 0 || (length as i32) < 0))
}

/// `settimeofday(time, zone)`.
pub fn settimeofday(_: &mut System, [time, zone, ..]: [u64; 6]) -> SyscallResult {
    let [_, microseconds] = if time == 0 { [0; 2] } else { words(time)? };
    if zone != 0 {
        read(zone, &mut [0; 8])?;
    }
    einval_or_eperm(microseconds >= NANOSECONDS / 1000)
}

/// `clock_settime(clock, time)`.
pub fn clock_settime(_: &mut System, [clock, time, ..]: [u64; 6]) -> SyscallResult {
    // Only the wall clock can be set.
    let is_wall = Clock::new(clock)? == Clock::Wall;
    timespec(time)?;
    einval_or_eperm(!is_wall)
}

/// `mount(source, target, type, flags, data)`.
pub fn mount(system: &mut System, [source, target, kind, ..]: [u64; 6]) -> SyscallResult {
    for text in [kind, source] {
        if text != 0 {
            path(text)?;
        }
    }
    look_up(system, target).and(Err(Errno::EPERM))
}

/// `umount2(target, flags)`.
pub fn umount2(system: &mut System, [target, flags, ..]: [u64; 6]) -> SyscallResult {
    const FLAGS: u64 = MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW;
    if flags as u32 as u64 & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    look_up(system, target).and(Err(Errno::EPERM))
}

/// `pivot_root(new, old)`.
pub fn pivot_root(system: &mut System, [new, old, ..]: [u64; 6]) -> SyscallResult {
    check_capable(system, CAP_SYS_ADMIN)?;
    [new, old].into_iter().try_for_each(|path| look_up(system, path)).and(Err(Errno::EPERM))
}

/// `acct(path)`: fails with `ENOENT` if the path does not exist, else with `EPERM`.
pub fn acct(system: &mut System, [path, ..]: [u64; 6]) -> SyscallResult {
    on_path(system, path, CAP_SYS_PACCT)
}

/// `swapoff(path)`: fails with `ENOENT` if the path does not exist, else as [`on_path`] says.
pub fn swapoff(system: &mut System, [path, ..]: [u64; 6]) -> SyscallResult {
    on_path(system, path, CAP_SYS_ADMIN)
}

fn on_path(system: &mut System, path: u64, capability: u64) -> SyscallResult {
    check_capable(system, capability)?;
    if path != 0 {
        look_up(system, path)?;
    }
    Err(Errno::EPERM)
}

/// `swapon(path, flags)`.
pub fn swapon(system: &mut System, [path, flags, ..]: [u64; 6]) -> SyscallResult {
    const FLAGS: u64 = 0x7_ffff;
    if flags as u32 as u64 & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    check_capable(system, CAP_SYS_ADMIN)?;
    look_up(system, path).and(Err(Errno::EPERM))
}

/// `reboot(magic, second magic, command, argument)`.
pub fn reboot(system: &mut System, [magic, second, ..]: [u64; 6]) -> SyscallResult {
    const SECOND: [u32; 4] = [LINUX_REBOOT_MAGIC2, LINUX_REBOOT_MAGIC2A, LINUX_REBOOT_MAGIC2B, LINUX_REBOOT_MAGIC2C];
    check_capable(system, CAP_SYS_BOOT)?;
    einval_or_eperm(magic as u32 != LINUX_REBOOT_MAGIC1 || !SECOND.contains(&(second as u32)))
}

/// `sethostname(name, length)`, `setdomainname(name, length)`.
pub fn set_name(system: &mut System, [name, length, ..]: [u64; 6]) -> SyscallResult {
    const NAME_MAX: u64 = 64;
    check_capable(system, CAP_SYS_ADMIN)?;
    if length as u32 as u64 > NAME_MAX {
        return Err(Errno::EINVAL);
    }
    read(name, &mut [0; NAME_MAX as usize][..length as u32 as usize])?;
    Err(Errno::EPERM)
}

/// `iopl(level)`.
pub fn iopl(_: &mut System, [level, ..]: [u64; 6]) -> SyscallResult {
    einval_or_eperm(level as u32 > 3)
}

/// `ioperm(first, count, on)`.
pub fn ioperm(_: &mut System, [first, count, ..]: [u64; 6]) -> SyscallResult {
    const PORTS: u64 = 0x1_0000;
    einval_or_eperm(first.checked_add(count).is_none_or(|end| end <= first || end > PORTS))
}

/// `unshare(flags)`: a process with one thread has its own state for itself already. There is one namespace of each kind.
pub fn unshare(system: &mut System, [flags, ..]: [u64; 6]) -> SyscallResult {
    /// Working directory and root, descriptors, undo values of semaphores.
    const OWN: u64 = CLONE_FS | CLONE_FILES | CLONE_SYSVSEM;
    /// Memory, signal handlers, the process itself: only with a single thread.
    const OF_PROCESS: u64 = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
    let is_alone = system.process.threads.len() == 1;
    match flags {
        _ if flags & !(OWN | OF_PROCESS | NAMESPACES) != 0 || flags & OF_PROCESS != 0 && !is_alone => Err(Errno::EINVAL),
        _ if flags & NAMESPACES != 0 || flags & OWN != 0 && !is_alone => Err(Errno::EPERM),
        _ => Ok(0),
    }
}

/// `setns(fd, kind)`: no file is a namespace.
pub fn setns(system: &mut System, [fd, ..]: [u64; 6]) -> SyscallResult {
    system.files.file(fd)?;
    Err(Errno::EINVAL)
}

/// `userfaultfd(flags)`.
pub fn userfaultfd(_: &mut System, [flags, ..]: [u64; 6]) -> SyscallResult {
    const FLAGS: u64 = O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY;
    einval_or_eperm(flags as u32 as u64 & !FLAGS != 0)
}

/// `perf_event_open(attributes, process, processor, group, flags)`.
pub fn perf_event_open(_: &mut System, [attributes, _, _, _, flags, _]: [u64; 6]) -> SyscallResult {
    const FLAGS: u64 = 0xf;
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    read(attributes, &mut [0; 8])?;
    Err(Errno::EPERM)
}
