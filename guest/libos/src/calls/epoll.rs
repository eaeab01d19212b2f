// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for many files at once: `epoll`.

use pando_rt::clock;
use pando_rt::hypercall::NO_DEADLINE;
use pando_rt::user::{self, UserRange};

use crate::calls::signals::set;
use crate::errno::Errno;
use crate::files::epoll::{CollectedEvents, EpollId, Interest};
use crate::files::epoll_file::EpollOperation;
use crate::files::readiness::PollQuery;
use crate::system::System;
use crate::uapi::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, O_CLOEXEC, POLLIN};
use crate::user::timespec;

/// Bytes of a `struct epoll_event`, which is packed: events, data.
const EVENT: u64 = 12;
const EVENTS_MAX: u64 = i32::MAX as u64 / EVENT;
/// Nanoseconds of a millisecond.
const MILLISECOND: u64 = 1_000_000;

/// `epoll_create(size)`; the size is ignored.
pub fn epoll_create(system: &mut System, [size, ..]: [u64; 6]) -> Result<u64, Errno> {
    if size as i32 <= 0 { Err(Errno::EINVAL) } else { system.files.create_epoll(false) }
}

/// `epoll_create1(flags)`.
pub fn epoll_create1(system: &mut System, [flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if flags as u32 as u64 & !O_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    system.files.create_epoll(flags & O_CLOEXEC != 0)
}

/// `epoll_ctl(epoll, operation, fd, event)`.
pub fn epoll_ctl(system: &mut System, [epoll, operation, fd, event, ..]: [u64; 6]) -> Result<u64, Errno> {
    let operation = operation as u32;
    let interest = if operation == EPOLL_CTL_DEL { None } else { Some(interest(event)?) };
    let change = || match (operation, interest) {
        (EPOLL_CTL_DEL, _) => Ok(EpollOperation::Remove),
        (EPOLL_CTL_ADD, Some(interest)) => Ok(EpollOperation::Add(interest)),
        (EPOLL_CTL_MOD, Some(interest)) => Ok(EpollOperation::Modify(interest)),
        _ => Err(Errno::EINVAL),
    };
    let asks_input = system.files.polls_console_input(&[PollQuery { fd: fd as u32, wanted: POLLIN }]);
    system.refresh_readiness(asks_input);
    system.files.control_epoll(epoll, fd, change).map(|()| 0)
}

fn interest(event: u64) -> Result<Interest, Errno> {
    let mut bytes = [0; EVENT as usize];
    user::read(event, &mut bytes)?;
    let [a, b, c, d, data @ ..] = bytes;
    Ok(Interest { events: u32::from_le_bytes([a, b, c, d]), data: u64::from_le_bytes(data) })
}

/// `epoll_wait(epoll, events, count, timeout)`.
pub fn epoll_wait(system: &mut System, [epoll, events, count, timeout, ..]: [u64; 6]) -> Result<u64, Errno> {
    wait(system, epoll, events, count, milliseconds(timeout))
}

/// `epoll_pwait(epoll, events, count, timeout, mask, size)`.
pub fn epoll_pwait(system: &mut System, [epoll, events, count, timeout, mask, size]: [u64; 6]) -> Result<u64, Errno> {
    if mask != 0 {
        system.thread.signals.set_mask_for_call(set(mask, size)?);
    }
    wait(system, epoll, events, count, milliseconds(timeout))
}

/// `epoll_pwait2(epoll, events, count, timeout, mask, size)`.
pub fn epoll_pwait2(system: &mut System, [epoll, events, count, timeout, mask, size]: [u64; 6]) -> Result<u64, Errno> {
    let timeout = if timeout == 0 { None } else { Some(timespec(timeout)?) };
    if mask != 0 {
        system.thread.signals.set_mask_for_call(set(mask, size)?);
    }
    wait(system, epoll, events, count, timeout)
}

/// A timeout in nanoseconds; a negative one is none.
fn milliseconds(timeout: u64) -> Option<u64> {
    u64::try_from(timeout as i32).ok().map(|timeout| timeout * MILLISECOND)
}

fn wait(system: &mut System, epoll: u64, events: u64, count: u64, timeout: Option<u64>) -> Result<u64, Errno> {
    system.files.raw_file(epoll)?;
    if count as i32 <= 0 || count > EVENTS_MAX {
        return Err(Errno::EINVAL);
    }
    UserRange::new(events, count * EVENT)?;
    let id = system.files.epoll(epoll)?;
    let collect = |system: &mut System| match collect(system, id, events, count) {
        Ok(CollectedEvents { count: 0, .. }) => None,
        result => Some(result),
    };
    if timeout == Some(0) {
        system.process_events();
        let found = collect(system);
        return note_ready(system, found);
    }
    let deadline = timeout.map_or(NO_DEADLINE, |timeout| clock::now().saturating_add(timeout));
    let channels = system.files.channels(epoll);
    let found = system.wait(&channels, deadline, collect).map_err(Errno::without_restart)?;
    note_ready(system, found)
}

/// The result of a wait. Events that it has taken count as progress of the thread.
fn note_ready(system: &mut System, found: Option<Result<CollectedEvents, Errno>>) -> Result<u64, Errno> {
    let Some(found) = found.transpose()? else { return Ok(0) };
    if found.takes {
        system.thread.idle_polls = 0;
    } else {
        system.note_ready_poll();
    }
    Ok(found.count as u64)
}

/// Collects the pending events.
fn collect(system: &mut System, id: EpollId, events: u64, count: u64) -> Result<CollectedEvents, Errno> {
    system.refresh_readiness(system.files.epoll_asks_input(id));
    system.files.collect_epoll(id, count as usize, |index, Interest { events: ready, data }| {
        let mut bytes = [0; EVENT as usize];
        bytes[..4].copy_from_slice(&ready.to_le_bytes());
        bytes[4..].copy_from_slice(&data.to_le_bytes());
        Ok(user::write(events + index as u64 * EVENT, &bytes)?)
    })
}
