// SPDX-License-Identifier: MIT OR Apache-2.0
//! What calls have in common that may wait: an attempt is made, and once something has changed, another.

use alloc::vec::Vec;

use pando_rt::hypercall::NO_DEADLINE;

use crate::errno::Errno;
use crate::system::System;
use crate::wait::Channel;

/// Makes an attempt, and again if there was nothing to be done and it may wait until some time: when one of the channels is woken, until a signal comes.
///
/// # Errors
/// Those of the attempt; `EAGAIN`: nothing could be done. `WAITS`, `ERESTART`.
pub fn patiently<T>(
    system: &mut System,
    on: impl FnOnce(&System) -> Vec<Channel>,
    until: Option<u64>,
    mut attempt: impl FnMut(&mut System) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let first = attempt(system);
    let Some(deadline) = until.filter(|_| matches!(first, Err(Errno::EAGAIN))) else { return first };
    match system.wait(&on(system), deadline, |_| None::<()>) {
        Ok(_) => Err(Errno::EAGAIN),
        // What has a time limit is not made again.
        Err(error) if deadline != NO_DEADLINE => Err(error.without_restart()),
        Err(error) => Err(error),
    }
}

/// Until when a call waits that has no time limit, if it waits.
#[must_use]
pub fn forever(waits: bool) -> Option<u64> {
    waits.then_some(NO_DEADLINE)
}

/// What is woken when these files change.
pub fn files(all: &[u64]) -> impl FnOnce(&System) -> Vec<Channel> + '_ {
    |system| all.iter().flat_map(|fd| system.files.channels(*fd)).collect()
}
