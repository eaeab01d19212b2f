// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls of programs that have, or could have, threads. There is one thread and one processor.

use pando_rt::{clock, hypercall};

use crate::errno::Errno;
use crate::process::Process;
use crate::user::{set_word32, set_words, timespec, word32};

/// `sched_getaffinity(process, length, mask)`: one processor.
pub fn sched_getaffinity(_: &mut Process, [_, length, mask, ..]: [u64; 6]) -> Result<u64, Errno> {
    const MASK: u64 = 8;
    if length < MASK || !length.is_multiple_of(MASK) {
        return Err(Errno::EINVAL);
    }
    set_words(mask, &[1])?;
    Ok(MASK)
}

/// `sched_yield()`.
pub fn sched_yield(_: &mut Process, _: [u64; 6]) -> Result<u64, Errno> {
    hypercall::relinquish();
    Ok(0)
}

/// `getcpu(processor, node)`.
pub fn getcpu(_: &mut Process, [processor, node, ..]: [u64; 6]) -> Result<u64, Errno> {
    for address in [processor, node] {
        if address != 0 {
            set_word32(address, 0)?;
        }
    }
    Ok(0)
}

/// `futex(word, operation, value, timeout, ...)`: with one thread nobody is woken, and only a timeout ends a wait.
pub fn futex(process: &mut Process, [word, operation, value, timeout, ..]: [u64; 6]) -> Result<u64, Errno> {
    const WAIT: u64 = 0;
    const WAKE: u64 = 1;
    const WAIT_BITSET: u64 = 9;
    const WAKE_BITSET: u64 = 10;
    const OPERATION: u64 = 0x7f;
    const REALTIME: u64 = 0x100;
    match operation & OPERATION {
        WAKE | WAKE_BITSET => Ok(0),
        kind @ (WAIT | WAIT_BITSET) => {
            if word32(word)? != value as u32 {
                return Err(Errno::EAGAIN);
            }
            let now = clock::now();
            let deadline = match timeout {
                0 => hypercall::NO_DEADLINE,
                // Relative for the plain wait; else absolute, on the clock that the flag names.
                _ if kind == WAIT => now.saturating_add(timespec(timeout)?),
                _ if operation & REALTIME != 0 => now.saturating_add(timespec(timeout)?.saturating_sub(clock::wall())),
                _ => timespec(timeout)?,
            };
            match process.wait(deadline, |_| None::<()>) {
                Ok(_) => Err(Errno::ETIMEDOUT),
                // Made again, it would wait too long.
                Err(error) if timeout != 0 => Err(error.without_restart()),
                Err(error) => Err(error),
            }
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// `membarrier(command, ...)`: with one thread every barrier is there already.
pub fn membarrier(_: &mut Process, [command, ..]: [u64; 6]) -> Result<u64, Errno> {
    if command == 0 { Ok(0) } else { Err(Errno::EINVAL) }
}
