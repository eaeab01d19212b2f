// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system call by which threads register where they say which [sequence](crate::sequences) they are in.

use pando_rt::user::UserRange;

use crate::errno::Errno;
use crate::sequences::Registered;
use crate::signals::Signal;
use crate::signals::info::Info;
use crate::system::System;
use crate::user::set_words;

/// Bytes of a `struct rseq`, which is aligned to as many.
const SIZE: u64 = 32;
/// Neither processor is known.
const UNREGISTERED: u64 = 0xffff_ffff_0000_0000;

/// `rseq(structure, size, flags, signature)`.
pub fn rseq(system: &mut System, [address, size, flags, signature, ..]: [u64; 6]) -> Result<u64, Errno> {
    const UNREGISTER: u32 = 1;
    let (size, flags, given) = (u64::from(size as u32), flags as u32, Registered { address, signature: signature as u32 });
    let check = |registered: Registered| match registered {
        _ if registered.address != address || size != SIZE => Err(Errno::EINVAL),
        _ if registered != given => Err(Errno::EPERM),
        _ => Ok(()),
    };
    match (system.thread.sequences, flags) {
        (Some(registered), UNREGISTER) => {
            check(registered)?;
            set_words(address, &[UNREGISTERED])?;
            system.thread.sequences = None;
        }
        (Some(registered), 0) => return check(registered).and(Err(Errno::EBUSY)),
        (None, 0) if size == SIZE && address.is_multiple_of(SIZE) => {
            UserRange::new(address, SIZE)?;
            system.thread.sequences = Some(given);
            // Both say processor 0. Who gave no memory is ended by it, as on Linux.
            if set_words(address, &[0]).is_err() {
                system.force(Info::kernel(Signal::SEGV));
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}
