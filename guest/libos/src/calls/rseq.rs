// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restartable sequences: code that is not to be interrupted, and is led elsewhere if it is (`man 2 rseq`).
//!
//! A thread says once where it says which sequence it is in. Whoever takes the processor from it, or starts a handler, looks there.

use pando_abi::SavedContext;
use pando_rt::user::{self, UserRange};

use crate::errno::Errno;
use crate::signals::Signal;
use crate::signals::info::Info;
use crate::system::System;
use crate::user::{set_words, word32, words};

/// Bytes of a `struct rseq`, which is aligned to as many.
const SIZE: u64 = 32;
/// Where it says which sequence runs.
const SEQUENCE: u64 = 8;
/// What stands before the code that a sequence is led to.
const SIGNATURE: u64 = 4;
/// Neither processor is known.
const UNREGISTERED: u64 = 0xffff_ffff_0000_0000;

/// Where a thread says which sequence it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    address: u64,
    signature: u32,
}

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

/// Leads the running thread out of the sequence that it is in, because it is being interrupted.
pub fn interrupt(system: &mut System, context: &mut SavedContext) {
    let Some(registered) = system.thread.sequences else { return };
    match redirect(registered, context.rip) {
        Ok(None) => {}
        Ok(Some(instruction)) => context.rip = instruction,
        Err(_) => {
            system.thread.sequences = None;
            system.force(Info::kernel(Signal::SEGV));
        }
    }
}

/// Where a thread goes on that stood at an instruction; `None`: there.
fn redirect(Registered { address, signature }: Registered, instruction: u64) -> Result<Option<u64>, Errno> {
    let [sequence] = words(address + SEQUENCE)?;
    if sequence == 0 {
        return Ok(None);
    }
    let [version_and_flags, start, length, elsewhere] = words(sequence)?;
    let end = start.checked_add(length).filter(|end| *end <= user::END).ok_or(Errno::EINVAL)?;
    let is_in = |address: u64| (start..end).contains(&address);
    if version_and_flags as u32 != 0
        || elsewhere >= user::END
        || is_in(elsewhere)
        || word32(elsewhere.wrapping_sub(SIGNATURE))? != signature
    {
        return Err(Errno::EINVAL);
    }
    let stands_in = is_in(instruction);
    if stands_in && version_and_flags != 0 {
        return Err(Errno::EINVAL);
    }
    set_words(address + SEQUENCE, &[0])?;
    Ok(stands_in.then_some(elsewhere))
}
