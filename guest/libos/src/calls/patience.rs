// SPDX-License-Identifier: MIT OR Apache-2.0
//! What calls on files have in common that may wait: an attempt is made, and once something has changed, another.

use alloc::vec::Vec;

use pando_rt::hypercall::NO_DEADLINE;

use crate::errno::Errno;
use crate::system::System;
use crate::wait::Channel;

/// Makes an attempt, and waits for the files if it may and there was nothing to be done, until a signal comes.
pub fn patiently(
    system: &mut System,
    on: &[u64],
    waits: bool,
    mut attempt: impl FnMut(&mut System) -> Result<u64, Errno>,
) -> Result<u64, Errno> {
    let first = attempt(system);
    if first != Err(Errno::EAGAIN) || !waits {
        return first;
    }
    let channels: Vec<Channel> = on.iter().flat_map(|fd| system.files.channels(*fd)).collect();
    system.wait(&channels, NO_DEADLINE, |_| None::<()>).and(Err(Errno::EAGAIN))
}
