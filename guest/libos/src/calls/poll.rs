// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that wait for files: `poll` and `select`.

use alloc::vec::Vec;

use pando_rt::clock;
use pando_rt::hypercall::NO_DEADLINE;

use crate::calls::signals::set;
use crate::errno::Errno;
use crate::files::readiness::PollQuery;
use crate::system::System;
use crate::uapi::{POLLERR, POLLIN, POLLOUT, POLLPRI};
use crate::user::{set_word32, set_words, timespec, word32, words};
use crate::wait::Channel;

/// Bytes of a `struct pollfd`.
const POLLFD: u64 = 8;

/// `poll(descriptors, count, timeout)`.
pub fn poll(system: &mut System, [descriptors, count, timeout, ..]: [u64; 6]) -> Result<u64, Errno> {
    let deadline = match timeout as i32 {
        milliseconds @ 0.. => clock::now().saturating_add(milliseconds as u64 * 1_000_000),
        _ => NO_DEADLINE,
    };
    poll_until(system, descriptors, count, deadline)
}

/// `ppoll(descriptors, count, timeout, mask, size)`.
pub fn ppoll(system: &mut System, [descriptors, count, timeout, mask, size, _]: [u64; 6]) -> Result<u64, Errno> {
    let deadline = if timeout == 0 { NO_DEADLINE } else { clock::now().saturating_add(timespec(timeout)?) };
    if mask != 0 {
        system.thread.signals.set_mask_for_call(set(mask, size)?);
    }
    poll_until(system, descriptors, count, deadline)
}

fn poll_until(system: &mut System, descriptors: u64, count: u64, deadline: u64) -> Result<u64, Errno> {
    let count = u64::from(count as u32);
    if count > system.files.current.descriptors_max {
        return Err(Errno::EINVAL);
    }
    let mut queries = Vec::with_capacity(count as usize);
    for index in 0..count {
        let address = descriptors.wrapping_add(index * POLLFD);
        let (fd, wanted) = (word32(address)?, word32(address.wrapping_add(4))? as u16);
        // A negative descriptor is ignored.
        queries.push(if fd.cast_signed() < 0 { None } else { Some(PollQuery { fd, wanted }) });
    }
    let active: Vec<PollQuery> = queries.iter().copied().flatten().collect();
    let mut answers = wait(system, &active, deadline, |_| u16::MAX)?.into_iter();
    let mut answered = 0;
    for (index, query) in (0..count).zip(queries) {
        let ready = query.and_then(|_| answers.next()).unwrap_or_default();
        answered += u64::from(ready != 0);
        pando_rt::user::write(descriptors.wrapping_add(index * POLLFD + 6), &ready.to_le_bytes())?;
    }
    Ok(answered)
}

/// Waits until one of the files has an event, or the clock reaches `deadline`. Returns the events. `reported` maps requested events to
/// those that may be returned.
///
/// # Errors
/// `EINTR`: a signal came first.
fn wait(system: &mut System, queries: &[PollQuery], deadline: u64, reported: impl Fn(u16) -> u16) -> Result<Vec<u16>, Errno> {
    let asks_input = system.files.polls_console_input(queries);
    let answers = |system: &mut System| {
        system.refresh_readiness(asks_input);
        let ready = system.files.poll_all(queries);
        ready.iter().zip(queries).map(|(ready, query)| ready & reported(query.wanted)).collect::<Vec<_>>()
    };
    let channels: Vec<Channel> = queries.iter().flat_map(|query| system.files.channels(query.fd.into())).collect();
    let found = system.wait(&channels, deadline, |system| Some(answers(system)).filter(|answers| answers.iter().any(|ready| *ready != 0)));
    let found = found.map_err(Errno::without_restart)?;
    if found.is_some() {
        system.note_ready_poll();
    }
    Ok(found.unwrap_or_else(|| queries.iter().map(|_| 0).collect()))
}

/// `select(count, read, write, except, timeout)`.
pub fn select(system: &mut System, [count, read, write, except, timeout, _]: [u64; 6]) -> Result<u64, Errno> {
    let deadline = if timeout == 0 {
        NO_DEADLINE
    } else {
        let [seconds, microseconds] = words(timeout)?;
        clock::now().saturating_add(seconds.saturating_mul(1_000_000_000).saturating_add(microseconds.saturating_mul(1000)))
    };
    select_until(system, count, [read, write, except], deadline)
}

/// `pselect6(count, read, write, except, timeout, mask)`.
pub fn pselect6(system: &mut System, [count, read, write, except, timeout, mask]: [u64; 6]) -> Result<u64, Errno> {
    let deadline = if timeout == 0 { NO_DEADLINE } else { clock::now().saturating_add(timespec(timeout)?) };
    if mask != 0 {
        // The sixth argument points to the address and the size of the mask.
        let [address, size] = words(mask)?;
        if address != 0 {
            system.thread.signals.set_mask_for_call(set(address, size)?);
        }
    }
    select_until(system, count, [read, write, except], deadline)
}

fn select_until(system: &mut System, count: u64, [read, write, except]: [u64; 3], deadline: u64) -> Result<u64, Errno> {
    if (count as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    // Sets are at most as long as the descriptor table.
    let count = (count as u32).min(system.files.current.table_size() as u32);
    let mut queries = Vec::new();
    for (set, wanted) in [(read, POLLIN), (write, POLLOUT), (except, POLLPRI)] {
        for fd in 0..count {
            if set != 0 && words::<1>(set.wrapping_add(u64::from(fd / 64) * 8))?[0] >> (fd % 64) & 1 != 0 {
                system.files.get(fd.into())?;
                queries.push(PollQuery { fd, wanted });
            }
        }
    }
    let reported = |wanted| match wanted {
        POLLOUT => POLLOUT | POLLERR,
        POLLPRI => POLLPRI,
        _ => u16::MAX,
    };
    let answers = wait(system, &queries, deadline, reported)?;
    for set in [read, write, except].into_iter().filter(|set| *set != 0) {
        for word in 0..u64::from(count.div_ceil(64)) {
            set_words(set.wrapping_add(word * 8), &[0])?;
        }
    }
    let mut answered = 0;
    for (query, _) in queries.iter().zip(answers).filter(|(_, ready)| *ready != 0) {
        let set = match query.wanted {
            POLLIN => read,
            POLLOUT => write,
            _ => except,
        };
        let address = set.wrapping_add(u64::from(query.fd / 32) * 4);
        set_word32(address, word32(address)? | 1 << (query.fd % 32))?;
        answered += 1;
    }
    Ok(answered)
}
