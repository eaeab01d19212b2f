// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on scheduling. Settings are only stored and reported: processes take turns regardless of them.

use alloc::vec::Vec;

use pando_rt::user::read;

use crate::errno::Errno;
use crate::pid::Pid;
use crate::process::scheduling::Scheduling;
use crate::system::System;
use crate::uapi::{
    CAP_SYS_ADMIN, CAP_SYS_NICE, IOPRIO_CLASS_IDLE, IOPRIO_CLASS_NONE, IOPRIO_CLASS_RT, IOPRIO_CLASS_SHIFT, IOPRIO_NR_LEVELS, PRIO_PGRP,
    PRIO_PROCESS, PRIO_USER, SCHED_BATCH, SCHED_DEADLINE, SCHED_FIFO, SCHED_IDLE, SCHED_NORMAL, SCHED_RESET_ON_FORK, SCHED_RR,
};
use crate::user::{set_word32, set_words, word32};

const PRIORITY_MAX: u32 = 99;
/// The highest and the lowest nice value.
const NICE: core::ops::RangeInclusive<i32> = -20..=19;
/// Difference between nice values and the results of `getpriority`.
const NICE_OFFSET: i32 = 20;

/// The process with this number, or with a thread of this number; 0 is the running process.
fn process_named(system: &System, number: u64) -> Result<Pid, Errno> {
    match number as u32 {
        0 => Ok(system.process.number),
        number => system.thread_of(number).map(|thread| thread.process).ok_or(Errno::ESRCH),
    }
}

/// Its settings.
fn scheduling_of(system: &mut System, number: u64) -> Result<&mut Scheduling, Errno> {
    let process = process_named(system, number)?;
    system.process_of_mut(process).map(|process| &mut process.scheduling).ok_or(Errno::ESRCH)
}

/// Checks that the running process may change the settings of another: it has the same user, or `CAP_SYS_NICE`.
fn check_owner(system: &System, process: Pid) -> Result<(), Errno> {
    let credentials = &system.files.current.credentials;
    let Some(other) = system.files.of(process).map(|files| files.credentials.user) else { return Ok(()) };
    let is_owner = [other.real, other.effective].contains(&credentials.user.effective);
    if is_owner || credentials.is_capable(CAP_SYS_NICE) { Ok(()) } else { Err(Errno::EPERM) }
}

/// The same; negative numbers are refused.
fn scheduling_of_checked(system: &mut System, number: u64) -> Result<&mut Scheduling, Errno> {
    if (number as i32) < 0 { Err(Errno::EINVAL) } else { scheduling_of(system, number) }
}

/// The processes that a call selects: by number, group or user.
fn select_processes(system: &System, kind: u64, who: u64) -> Result<Vec<Pid>, Errno> {
    let (who, running) = (who as u32, &system.process);
    let selected = match kind as u32 {
        PRIO_PROCESS if who == 0 => system.processes_where(|process| process.number == running.number),
        PRIO_PROCESS => system.thread_of(who).map(|thread| thread.process).into_iter().collect(),
        PRIO_PGRP => system.processes_where(|process| process.group == if who == 0 { running.group } else { who }),
        PRIO_USER => {
            let user = if who == 0 { system.user() } else { who };
            system.processes_where(|process| system.files.user_of(process.number) == user)
        }
        _ => return Err(Errno::EINVAL),
    };
    if selected.is_empty() { Err(Errno::ESRCH) } else { Ok(selected) }
}

/// The settings of these processes.
fn all<'a>(system: &'a System, selected: &[Pid]) -> impl Iterator<Item = &'a Scheduling> {
    selected.iter().filter_map(|number| system.process_of(*number)).map(|process| &process.scheduling)
}

/// `getpriority(which, who)`: 40 is the highest, 1 the lowest.
pub fn getpriority(system: &mut System, [which, who, ..]: [u64; 6]) -> Result<u64, Errno> {
    let selected = select_processes(system, which, who)?;
    Ok(all(system, &selected).map(|scheduling| NICE_OFFSET - scheduling.nice).max().unwrap_or(NICE_OFFSET) as u64)
}

/// `setpriority(which, who, nice)`.
pub fn setpriority(system: &mut System, [which, who, nice, ..]: [u64; 6]) -> Result<u64, Errno> {
    let selected = select_processes(system, which, who)?;
    let nice = (nice as i32).clamp(*NICE.start(), *NICE.end());
    let is_capable = system.files.current.credentials.is_capable(CAP_SYS_NICE);
    // The others are set nevertheless.
    let mut result = Ok(0);
    for number in selected {
        let checked = check_owner(system, number);
        let Some(process) = system.process_of_mut(number) else { continue };
        match checked {
            Err(error) => result = Err(error),
            Ok(()) if nice < process.scheduling.nice && !is_capable => result = Err(Errno::EACCES),
            Ok(()) => process.scheduling.nice = nice,
        }
    }
    result
}

/// Whether a policy exists and takes this priority.
fn check_policy(policy: u32, priority: u32) -> Result<(), Errno> {
    match policy & !SCHED_RESET_ON_FORK {
        SCHED_FIFO | SCHED_RR if (1..=PRIORITY_MAX).contains(&priority) => Ok(()),
        SCHED_NORMAL | SCHED_BATCH | SCHED_IDLE if priority == 0 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// `sched_setscheduler(process, policy, parameters)`.
pub fn sched_setscheduler(system: &mut System, [number, policy, parameters, ..]: [u64; 6]) -> Result<u64, Errno> {
    let policy = policy as u32;
    if policy.cast_signed() < 0 || parameters == 0 {
        return Err(Errno::EINVAL);
    }
    set_policy(system, number, Some(policy), parameters)
}

/// `sched_setparam(process, parameters)`.
pub fn sched_setparam(system: &mut System, [number, parameters, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_policy(system, number, None, parameters)
}

fn set_policy(system: &mut System, number: u64, policy: Option<u32>, parameters: u64) -> Result<u64, Errno> {
    if parameters == 0 || (number as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let priority = word32(parameters)?;
    let policy = policy.unwrap_or(scheduling_of(system, number)?.policy);
    check_policy(policy, priority)?;
    if matches!(policy & !SCHED_RESET_ON_FORK, SCHED_FIFO | SCHED_RR) && !system.files.current.credentials.is_capable(CAP_SYS_NICE) {
        return Err(Errno::EPERM);
    }
    check_owner(system, process_named(system, number)?)?;
    let scheduling = scheduling_of(system, number)?;
    (scheduling.policy, scheduling.priority) = (policy, priority);
    Ok(0)
}

/// `sched_getscheduler(process)`.
pub fn sched_getscheduler(system: &mut System, [number, ..]: [u64; 6]) -> Result<u64, Errno> {
    Ok(scheduling_of_checked(system, number)?.policy.into())
}

/// `sched_getparam(process, parameters)`.
pub fn sched_getparam(system: &mut System, [number, parameters, ..]: [u64; 6]) -> Result<u64, Errno> {
    if parameters == 0 {
        return Err(Errno::EINVAL);
    }
    let priority = scheduling_of_checked(system, number)?.priority;
    set_word32(parameters, priority)?;
    Ok(0)
}

/// `sched_get_priority_max(policy)`.
pub fn sched_get_priority_max(_: &mut System, [policy, ..]: [u64; 6]) -> Result<u64, Errno> {
    bound(policy, PRIORITY_MAX)
}

/// `sched_get_priority_min(policy)`.
pub fn sched_get_priority_min(_: &mut System, [policy, ..]: [u64; 6]) -> Result<u64, Errno> {
    bound(policy, 1)
}

/// A bound of a policy's priorities: the real-time policies have the same.
fn bound(policy: u64, of_those: u32) -> Result<u64, Errno> {
    match policy as u32 {
        SCHED_FIFO | SCHED_RR => Ok(of_those.into()),
        SCHED_NORMAL | SCHED_BATCH | SCHED_IDLE | SCHED_DEADLINE => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `sched_rr_get_interval(process, interval)`.
pub fn sched_rr_get_interval(system: &mut System, [number, interval, ..]: [u64; 6]) -> Result<u64, Errno> {
    const QUANTUM: u64 = 100_000_000;
    let turns = scheduling_of_checked(system, number)?.policy & !SCHED_RESET_ON_FORK == SCHED_RR;
    set_words(interval, &[0, if turns { QUANTUM } else { 0 }])?;
    Ok(0)
}

/// `sched_setaffinity(process, length, mask)`: the mask must contain the one processor.
pub fn sched_setaffinity(system: &mut System, [number, length, mask, ..]: [u64; 6]) -> Result<u64, Errno> {
    let mut first = [0];
    // A longer mask is truncated, a shorter one padded with zeros.
    if length > 0 {
        read(mask, &mut first)?;
    }
    check_owner(system, process_named(system, number)?)?;
    if first[0] & 1 == 0 { Err(Errno::EINVAL) } else { Ok(0) }
}

/// Checks that the running process may change the I/O priority of another: it has the same user, or `CAP_SYS_NICE`.
fn check_io_owner(system: &System, process: Pid) -> Result<(), Errno> {
    let credentials = &system.files.current.credentials;
    let is_owner = [credentials.user.real, credentials.user.effective].contains(&system.files.user_of(process));
    if is_owner || credentials.is_capable(CAP_SYS_NICE) { Ok(()) } else { Err(Errno::EPERM) }
}

/// `ioprio_get(which, who)`.
pub fn ioprio_get(system: &mut System, [which, who, ..]: [u64; 6]) -> Result<u64, Errno> {
    // The selectors are those of priorities, but counted from 1.
    let selected = select_processes(system, which.wrapping_sub(1), who)?;
    Ok(all(system, &selected).map(|scheduling| scheduling.io).next().unwrap_or_default().into())
}

/// `ioprio_set(which, who, priority)`.
pub fn ioprio_set(system: &mut System, [which, who, priority, ..]: [u64; 6]) -> Result<u64, Errno> {
    let priority = priority as u32;
    let level = priority & 7;
    let own = &system.files.current.credentials;
    match priority >> IOPRIO_CLASS_SHIFT {
        IOPRIO_CLASS_NONE if level > 0 => return Err(Errno::EINVAL),
        IOPRIO_CLASS_RT if ![CAP_SYS_NICE, CAP_SYS_ADMIN].iter().any(|capability| own.is_capable(*capability)) => {
            return Err(Errno::EPERM);
        }
        IOPRIO_CLASS_NONE..=IOPRIO_CLASS_IDLE if priority & 0x1fff < IOPRIO_NR_LEVELS => {}
        _ => return Err(Errno::EINVAL),
    }
    for number in select_processes(system, which.wrapping_sub(1), who)? {
        check_io_owner(system, number)?;
        if let Some(process) = system.process_of_mut(number) {
            process.scheduling.io = priority;
        }
    }
    Ok(0)
}
