// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that may wait: attempt, wait for a change, attempt again.

use alloc::vec::Vec;

use pando_rt::hypercall::NO_DEADLINE;

use crate::errno::Errno;
use crate::system::System;
use crate::wait::Channel;

/// Makes an attempt. On `EAGAIN`, waits on the channels of `on` up to the deadline `until`, if there is one; the call is then made
/// again.
///
/// # Errors
/// Those of the attempt; `EAGAIN`: the attempt failed and the call may not wait, or the time is up. `WAITS`, `ERESTART`.
pub fn with_timeout<T>(
    system: &mut System,
    on: impl FnOnce(&System) -> Vec<Channel>,
    until: Option<u64>,
    mut attempt: impl FnMut(&mut System) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let first = attempt(system);
    let Some(deadline) = until.filter(|_| matches!(first, Err(Errno::EAGAIN))) else { return first };
    match system.wait(&on(system), deadline, |_| None::<()>) {
        Ok(_) => Err(Errno::EAGAIN),
        // A call with a timeout is not restarted.
        Err(error) if deadline != NO_DEADLINE => Err(error.without_restart()),
        Err(error) => Err(error),
    }
}

/// The deadline of a call without a timeout, if it waits.
#[must_use]
pub fn forever(waits: bool) -> Option<u64> {
    waits.then_some(NO_DEADLINE)
}

/// The channels that are woken when these files change.
pub fn files(all: &[u64]) -> impl FnOnce(&System) -> Vec<Channel> + '_ {
    |system| all.iter().flat_map(|fd| system.files.channels(*fd)).collect()
}
