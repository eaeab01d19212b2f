// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system call that registers a thread's area of [restartable sequences](crate::rseq).

use pando_rt::user::UserRange;

use crate::errno::Errno;
use crate::rseq::RseqArea;
use crate::signals::Signal;
use crate::signals::info::SigInfo;
use crate::system::System;
use crate::user::set_words;

/// Bytes of a `struct rseq`, and its alignment.
const SIZE: u64 = 32;
/// `cpu_id_start` 0 and `cpu_id` -1: not registered.
const UNREGISTERED: u64 = 0xffff_ffff_0000_0000;

/// `rseq(structure, size, flags, signature)`.
pub fn rseq(system: &mut System, [address, size, flags, signature, ..]: [u64; 6]) -> Result<u64, Errno> {
    const RSEQ_FLAG_UNREGISTER: u32 = 1;
    let (size, flags, area) = (u64::from(size as u32), flags as u32, RseqArea { address, signature: signature as u32 });
    let check = |registered: RseqArea| match registered {
        _ if registered.address != address || size != SIZE => Err(Errno::EINVAL),
        _ if registered != area => Err(Errno::EPERM),
        _ => Ok(()),
    };
    match (system.thread.rseq, flags) {
        (Some(registered), RSEQ_FLAG_UNREGISTER) => {
            check(registered)?;
            set_words(address, &[UNREGISTERED])?;
            system.thread.rseq = None;
        }
        (Some(registered), 0) => return check(registered).and(Err(Errno::EBUSY)),
        (None, 0) if size == SIZE && address.is_multiple_of(SIZE) => {
            UserRange::new(address, SIZE)?;
            system.thread.rseq = Some(area);
            // Both fields get processor 0. If they cannot be written, the process ends, as on Linux.
            if set_words(address, &[0]).is_err() {
                system.force(SigInfo::kernel(Signal::SIGSEGV));
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}
