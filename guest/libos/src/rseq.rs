// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restartable sequences (`man 2 rseq`): code that continues at its abort handler if it is interrupted.
//!
//! A thread registers an area once, and names the sequence that it is in there. The area is read when the thread is descheduled,
//! and when a handler starts.

use pando_rt::user;

use crate::errno::Errno;
use crate::user::{set_words, word32, words};

/// Offset of the field `rseq_cs`: the address of the running sequence's description.
const SEQUENCE: u64 = 8;
/// Bytes of the signature before an abort handler.
const SIGNATURE: u64 = 4;

/// A thread's registered `rseq` area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RseqArea {
    /// Address of its `struct rseq`.
    pub address: u64,
    /// The signature that stands before abort handlers.
    pub signature: u32,
}

impl RseqArea {
    /// The address where a thread continues that is interrupted at `instruction`: the abort handler of its sequence, if it is in
    /// one.
    ///
    /// # Errors
    /// `EFAULT`, `EINVAL`: the area is invalid.
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
