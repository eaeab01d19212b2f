// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restartable sequences: code that is not to be interrupted, and is led elsewhere if it is (`man 2 rseq`).
//!
//! A thread says once where it says which sequence it is in. Whoever takes the processor from it, or starts a handler, looks there.

use pando_rt::user;

use crate::errno::Errno;
use crate::user::{set_words, word32, words};

/// Where it says which sequence runs.
const SEQUENCE: u64 = 8;
/// What stands before the code that a sequence is led to.
const SIGNATURE: u64 = 4;

/// Where a thread says which sequence it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Where its `struct rseq` lies.
    pub address: u64,
    /// What stands before code that sequences are led to.
    pub signature: u32,
}

impl Registered {
    /// Where the thread goes on that is interrupted at an instruction: out of the sequence that it is in.
    ///
    /// # Errors
    /// `EFAULT`, `EINVAL`: what it says makes no sense.
    pub fn leave(self, instruction: u64) -> Result<u64, Errno> {
        let [sequence] = words(self.address + SEQUENCE)?;
        if sequence == 0 {
            return Ok(instruction);
        }
        let [version_and_flags, start, length, elsewhere] = words(sequence)?;
        let end = start.checked_add(length).filter(|end| *end <= user::END).ok_or(Errno::EINVAL)?;
        let is_in = |address: u64| (start..end).contains(&address);
        if version_and_flags as u32 != 0
            || elsewhere >= user::END
            || is_in(elsewhere)
            || word32(elsewhere.wrapping_sub(SIGNATURE))? != self.signature
        {
            return Err(Errno::EINVAL);
        }
        let stands_in = is_in(instruction);
        if stands_in && version_and_flags != 0 {
            return Err(Errno::EINVAL);
        }
        set_words(self.address + SEQUENCE, &[0])?;
        Ok(if stands_in { elsewhere } else { instruction })
    }
}
