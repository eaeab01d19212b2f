// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that create, end and wait for processes and threads, and report their numbers.

use pando_rt::user::{self, write};

use crate::errno::Errno;
use crate::files::pidfd::PidState;
use crate::loader::{self, ExecRequest};
use crate::process::{FIRST as FIRST_PROCESS, Pid, Process, Usage};
use crate::signals::Signal;
use crate::system::wait4::{CloneSelection, WaitOptions, WaitStatus, WaitTarget};
use crate::system::{self, System};
use crate::uapi::{
    __WALL, __WCLONE, __WNOTHREAD, AT_FDCWD, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_CLEAR_SIGHAND, CLONE_DETACHED, CLONE_FS,
    CLONE_INTO_CGROUP, CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWTIME, CLONE_NEWUSER, CLONE_NEWUTS,
    CLONE_PARENT, CLONE_PARENT_SETTID, CLONE_PIDFD, CLONE_SETTLS, CLONE_SIGHAND, CLONE_THREAD, CLONE_VFORK, CLONE_VM, P_ALL, P_PGID, P_PID,
    P_PIDFD, WCONTINUED, WEXITED, WNOHANG, WNOWAIT, WUNTRACED,
};
use crate::user::{path, set_word32, set_words, strings, word32, words};

/// Every flag of `clone` except the signal, with `CLONE_NEWTIME`, which only `clone3` accepts.
const KNOWN: u64 = 0xffff_ff00 | CLONE_NEWTIME;
/// ORed into a PID, gives a PID that no process has.
const UNUSED_PID_BIT: u64 = 1 << 22;
/// The flags that create namespaces.
pub(super) const NAMESPACES: u64 =
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWTIME;

/// `fork()`.
pub fn fork(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    system.clone(&system::CloneArgs { end_signal: Signal::SIGCHLD.0, ..system::CloneArgs::default() })
}

/// `vfork()`.
pub fn vfork(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    clone(system, [CLONE_VM | CLONE_VFORK | u64::from(Signal::SIGCHLD.0), 0, 0, 0, 0, 0])
}

/// `clone(flags, stack, parent's number, child's number, base)`.
pub fn clone(system: &mut System, [flags, stack, parent_number, child_number, base, _]: [u64; 6]) -> Result<u64, Errno> {
    // The pidfd is written where the parent's number would be.
    if flags & CLONE_PIDFD != 0 && flags & (CLONE_PARENT_SETTID | CLONE_DETACHED) != 0 {
        return Err(Errno::EINVAL);
    }
    make(system, (flags & !0xff, None), flags as u8, stack, [parent_number, child_number, base, parent_number])
}

/// `clone3(arguments, size)`.
pub fn clone3(system: &mut System, [address, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    /// Bytes of the first version, and of a page.
    const SIZES: core::ops::RangeInclusive<u64> = 64..=4096;
    /// Words of the first version.
    const FIRST: u64 = 8;
    /// Most nested PID namespaces.
    const NUMBERS_MAX: u64 = 32;
    if !SIZES.contains(&size) {
        return Err(if size > *SIZES.end() { Errno::E2BIG } else { Errno::EINVAL });
    }
    let [flags, descriptor, child_number, parent_number, signal, stack, stack_size, base] = words(address)?;
    let mut more = [0; 3];
    for (at, word) in (FIRST..size / 8).zip(0..) {
        let [extra] = words(address.wrapping_add(at * 8))?;
        match more.get_mut(word as usize) {
            Some(room) => *room = extra,
            // A field of a later Linux that is not known here.
            None if extra != 0 => return Err(Errno::E2BIG),
            None => {}
        }
    }
    let [numbers, numbers_count, group] = more;
    if numbers_count > NUMBERS_MAX || (numbers == 0) != (numbers_count == 0) || signal > 64 {
        return Err(Errno::EINVAL);
    }
    if flags & CLONE_INTO_CGROUP != 0 && (group > i32::MAX as u64 || size < FIRST * 8 + 24) {
        return Err(Errno::EINVAL);
    }
    let is_known = flags & !(KNOWN | CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP) == 0 && flags & (CLONE_DETACHED | 0x7f) == 0;
    let has_signal = signal != 0 && flags & (CLONE_THREAD | CLONE_PARENT) != 0;
    if !is_known || has_signal || (stack == 0) != (stack_size == 0) || stack.checked_add(stack_size).is_none_or(|end| end > user::END) {
        return Err(Errno::EINVAL);
    }
    if flags & CLONE_INTO_CGROUP != 0 {
        // There are no control groups, so no descriptor is that of one.
        system.files.raw_file(group)?;
        return Err(Errno::EBADF);
    }
    let number = if numbers == 0 { None } else { Some(word32(numbers)?) };
    // There is one PID namespace.
    if numbers_count > 1 {
        return Err(Errno::EINVAL);
    }
    make(system, (flags, number), signal as u8, stack.wrapping_add(stack_size), [parent_number, child_number, base, descriptor])
}

fn make(system: &mut System, (flags, number): (u64, Option<u32>), signal: u8, stack: u64, addresses: [u64; 4]) -> Result<u64, Errno> {
    let [parent_number, child_number, base, descriptor] = addresses;
    let has = |flag: u64| flags & flag != 0;
    // The first process has no siblings.
    if has(CLONE_NEWNS | CLONE_NEWUSER) && has(CLONE_FS) || has(CLONE_PARENT) && system.process.number == FIRST_PROCESS {
        return Err(Errno::EINVAL);
    }
    if has(CLONE_THREAD) && !has(CLONE_SIGHAND) || has(CLONE_SIGHAND) && !has(CLONE_VM) || has(CLONE_CLEAR_SIGHAND) && has(CLONE_SIGHAND) {
        return Err(Errno::EINVAL);
    }
    if has(NAMESPACES) {
        return Err(Errno::EPERM);
    }
    if has(CLONE_PIDFD) && has(CLONE_THREAD) {
        return Err(Errno::EINVAL);
    }
    let if_set = |flag: u64, value: u64| if has(flag) { value } else { 0 };
    system.clone(&system::CloneArgs {
        number,
        is_thread: has(CLONE_THREAD),
        shares_memory: has(CLONE_VM),
        is_vfork: has(CLONE_VFORK) && has(CLONE_VM),
        is_sibling: has(CLONE_PARENT),
        clears_handlers: has(CLONE_CLEAR_SIGHAND),
        end_signal: signal,
        stack,
        base: has(CLONE_SETTLS).then_some(base),
        descriptor: has(CLONE_PIDFD).then_some(descriptor),
        parent_tid: if_set(CLONE_PARENT_SETTID, parent_number),
        set_child_tid: if_set(CLONE_CHILD_SETTID, child_number),
        clear_child_tid: if_set(CLONE_CHILD_CLEARTID, child_number),
    })
}

/// `execve(path, arguments, environment)`.
pub fn execve(system: &mut System, [name, arguments, environment, ..]: [u64; 6]) -> Result<u64, Errno> {
    execveat(system, [AT_FDCWD, name, arguments, environment, 0, 0])
}

/// `execveat(directory, path, arguments, environment, flags)`.
pub fn execveat(system: &mut System, [directory, name, arguments, environment, flags, _]: [u64; 6]) -> Result<u64, Errno> {
    let request = ExecRequest {
        directory,
        path: path(name)?.to_vec(),
        flags,
        arguments: strings(arguments)?,
        environment: strings(environment)?,
        stack_limit: system.process.limits.stack(),
    };
    let prepared = loader::prepare(&system.files, request).map_err(|error| error.errno())?;
    system.execute(prepared)
}

/// `exit(status)`: ends the thread.
pub fn exit(system: &mut System, [status, ..]: [u64; 6]) -> Result<u64, Errno> {
    system.end_thread(status & 0xff);
    Ok(0)
}

/// `exit_group(status)`.
pub fn exit_group(system: &mut System, [status, ..]: [u64; 6]) -> Result<u64, Errno> {
    system.files.await_all_writes()?;
    system.exit_process(status & 0xff);
    Ok(0)
}

fn clones(options: u64) -> CloneSelection {
    match options {
        _ if options & __WALL != 0 => CloneSelection::With,
        _ if options & __WCLONE != 0 => CloneSelection::Only,
        _ => CloneSelection::Without,
    }
}

/// `wait4(process, status, options, usage)`.
pub fn wait4(system: &mut System, [which, status, options, usage, ..]: [u64; 6]) -> Result<u64, Errno> {
    let options = u64::from(options as u32);
    if options & !(WNOHANG | WUNTRACED | WCONTINUED | __WNOTHREAD | __WALL | __WCLONE) != 0 {
        return Err(Errno::EINVAL);
    }
    let which = match which as i32 {
        i32::MIN => return Err(Errno::ESRCH),
        -1 => WaitTarget::Any,
        0 => WaitTarget::Group(system.process.group),
        group if group < 0 => WaitTarget::Group(group.unsigned_abs()),
        process => WaitTarget::Process(process.unsigned_abs()),
    };
    let wanted = WaitOptions {
        which,
        ended: true,
        stopped: options & WUNTRACED != 0,
        continued: options & WCONTINUED != 0,
        no_wait: false,
        no_hang: options & WNOHANG != 0,
        clones: clones(options),
    };
    let Some(WaitStatus { number, change, usage: used, .. }) = system.await_child(&wanted)? else { return Ok(0) };
    if status != 0 {
        set_word32(status, change.status())?;
    }
    if usage != 0 {
        set_words(usage, &used.whole())?;
    }
    Ok(number.into())
}

/// `waitid(which, number, information, options, usage)`.
pub fn waitid(system: &mut System, [which, number, information, options, usage, _]: [u64; 6]) -> Result<u64, Errno> {
    let options = u64::from(options as u32);
    let supported = WNOHANG | WUNTRACED | WEXITED | WCONTINUED | WNOWAIT | __WNOTHREAD | __WALL | __WCLONE;
    if options & !supported != 0 || options & (WUNTRACED | WEXITED | WCONTINUED) == 0 {
        return Err(Errno::EINVAL);
    }
    let number = number as u32;
    let mut no_hang = options & WNOHANG != 0;
    let which = match which as u32 {
        P_PIDFD if number.cast_signed() < 0 => return Err(Errno::EINVAL),
        P_PIDFD => {
            let watched = system.files.watched_process(number.into())?;
            no_hang |= !system.files.raw_file(number.into())?.waits();
            if watched.state == PidState::Gone {
                return Err(Errno::ECHILD);
            }
            WaitTarget::Process(watched.process)
        }
        P_ALL => WaitTarget::Any,
        P_PID if number.cast_signed() > 0 => WaitTarget::Process(number),
        P_PGID if number == 0 => WaitTarget::Group(system.process.group),
        P_PGID if number.cast_signed() > 0 => WaitTarget::Group(number),
        _ => return Err(Errno::EINVAL),
    };
    let wanted = WaitOptions {
        which,
        ended: options & WEXITED != 0,
        stopped: options & WUNTRACED != 0,
        continued: options & WCONTINUED != 0,
        no_wait: options & WNOWAIT != 0,
        no_hang,
        clones: clones(options),
    };
    let child = system.await_child(&wanted)?;
    if child.is_none() && options & WNOHANG == 0 {
        return Err(Errno::EAGAIN);
    }
    if information != 0 {
        let mut bytes = [0; 28];
        if let Some(child) = &child {
            let (code, status) = child.change.code_and_status();
            let words = [u32::from(Signal::SIGCHLD.0), 0, code.cast_unsigned(), 0, child.number, child.user, status];
            for (room, word) in bytes.chunks_exact_mut(4).zip(words) {
                room.copy_from_slice(&word.to_le_bytes());
            }
        }
        write(information, &bytes)?;
    }
    if usage != 0 {
        set_words(usage, &child.map_or_else(Usage::default, |child| child.usage).whole())?;
    }
    Ok(0)
}

/// `getpid()`.
pub fn getpid(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    let number = u64::from(system.process.number);
    Ok(if system.process.fakes_new_pid { number | UNUSED_PID_BIT } else { number })
}

/// `gettid()`.
pub fn gettid(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(system.thread.number.into())
}

/// `getppid()`.
pub fn getppid(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(system.process.parent.into())
}

/// `set_tid_address(address)`.
pub fn set_tid_address(system: &mut System, [address, ..]: [u64; 6]) -> Result<u64, Errno> {
    system.thread.clear_child_tid = address;
    Ok(system.thread.number.into())
}

/// The process with a number; 0 is the running one.
fn find_process(system: &System, number: u64) -> Result<&Process, Errno> {
    let number = if number as u32 == 0 { system.process.number } else { number as u32 };
    system.process_of(number).ok_or(Errno::ESRCH)
}

/// `getpgid(process)`.
pub fn getpgid(system: &mut System, [number, ..]: [u64; 6]) -> Result<u64, Errno> {
    find_process(system, number).map(|process| process.group.into())
}

/// `getpgrp()`.
pub fn getpgrp(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(system.process.group.into())
}

/// `getsid(process)`.
pub fn getsid(system: &mut System, [number, ..]: [u64; 6]) -> Result<u64, Errno> {
    find_process(system, number).map(|process| process.session.into())
}

/// `setpgid(process, group)`.
pub fn setpgid(system: &mut System, [number, group, ..]: [u64; 6]) -> Result<u64, Errno> {
    if (group as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let (caller, session) = (system.process.number, system.process.session);
    let process = find_process(system, number)?;
    let number = process.number;
    if number != caller && process.parent != caller || process.has_ended() {
        return Err(Errno::ESRCH);
    }
    if number != caller && process.executed {
        return Err(Errno::EACCES);
    }
    if process.session != session || process.session == number {
        return Err(Errno::EPERM);
    }
    let group = if group as u32 == 0 { number } else { group as u32 };
    let exists = |other: &Process| other.group == group && other.session == session;
    if group != number && system.processes_where(exists).is_empty() {
        return Err(Errno::EPERM);
    }
    system.process_of_mut(number).ok_or(Errno::ESRCH)?.group = group;
    Ok(0)
}

/// `setsid()`.
pub fn setsid(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    let number: Pid = system.process.number;
    if !system.processes_where(|process| process.group == number).is_empty() {
        return Err(Errno::EPERM);
    }
    (system.process.session, system.process.group) = (number, number);
    Ok(number.into())
}

/// `sched_yield()`.
pub fn sched_yield(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    if system.is_alone() {
        pando_rt::hypercall::relinquish();
    } else {
        system.end_turn_now();
    }
    Ok(0)
}

/// `sched_getaffinity(process, length, mask)`: there is one processor.
pub fn sched_getaffinity(system: &mut System, [thread, length, mask, ..]: [u64; 6]) -> Result<u64, Errno> {
    const MASK: u64 = 8;
    if length < MASK || !length.is_multiple_of(MASK) {
        return Err(Errno::EINVAL);
    }
    if thread as u32 != 0 && system.thread_of(thread as u32).is_none() {
        return Err(Errno::ESRCH);
    }
    set_words(mask, &[1])?;
    Ok(MASK)
}

/// `getcpu(processor, node)`.
pub fn getcpu(_: &mut System, [processor, node, ..]: [u64; 6]) -> Result<u64, Errno> {
    for address in [processor, node] {
        if address != 0 {
            set_word32(address, 0)?;
        }
    }
    Ok(0)
}

/// `membarrier(command, flags)`: with one processor, all memory accesses are ordered.
pub fn membarrier(_: &mut System, [command, ..]: [u64; 6]) -> Result<u64, Errno> {
    /// All commands. Restartable sequences are aborted when a thread is descheduled.
    const COMMANDS: u64 = 0x1ff;
    match command as i32 {
        0 => Ok(COMMANDS),
        command if command > 0 && command as u64 & COMMANDS == command as u64 && command.count_ones() == 1 => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}
