// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words of memory that threads wait on (`man 2 futex`): who is woken, and what becomes of the locks of who ends.
//!
//! Nothing is kept of a word but who waits on it. Who is woken has its call finished for it; so a waiter never looks at its word again, and exactly as many as were asked for wake.

use alloc::vec::Vec;

use super::System;
use crate::shared::is_shared;
use crate::user::{set_word32, word32, words};
use crate::wait::{Channel, ThreadNumber};

/// Every bit that waiters on a word can wait for.
pub const ANY: u32 = u32::MAX;

/// In the word of a lock: who holds it.
pub const HOLDER: u32 = 0x3fff_ffff;
/// Its holder has ended.
pub const ORPHANED: u32 = 0x4000_0000;
/// Others wait for it.
pub const CONTENDED: u32 = 0x8000_0000;
/// Robust futexes that a thread may hold.
const ROBUST_MAX: usize = 2048;

impl System {
    /// What a word of the running process's memory is waited on as.
    #[must_use]
    pub fn word(&self, address: u64) -> Channel {
        Channel::Word(if is_shared(address) { None } else { Some(self.process.space.0) }, address)
    }

    /// Wakes so many of those who wait on a word of the running process's memory for any of the bits. Returns how many.
    pub fn wake_word(&mut self, word: u64, count: u32, bits: u32) -> u64 {
        let waiting = self.waiters_on(self.word(word));
        let fitting = waiting.into_iter().filter(|thread| self.thread_of(*thread).is_some_and(|thread| thread.futex_bits & bits != 0));
        let woken: Vec<ThreadNumber> = fitting.take(count as usize).collect();
        for thread in &woken {
            self.finish_call(*thread, Ok(0));
        }
        woken.len() as u64
    }

    /// Marks the robust futexes that the running thread holds as its that has ended, and wakes one waiter of each. A list that makes no sense is followed as far as it does.
    pub(super) fn release_robust(&mut self) {
        let head = core::mem::take(&mut self.thread.robust_list);
        if head == 0 {
            return;
        }
        let Ok([mut entry, offset, pending]) = words::<3>(head) else { return };
        for _ in 0..ROBUST_MAX {
            if entry & !1 == head {
                break;
            }
            if entry != pending {
                self.orphan((entry & !1).wrapping_add(offset));
            }
            match words::<1>(entry & !1) {
                Ok([next]) => entry = next,
                Err(_) => return,
            }
        }
        if pending != 0 {
            self.orphan((pending & !1).wrapping_add(offset));
        }
    }

    /// Says in a lock that its holder, the running thread, has ended.
    fn orphan(&mut self, word: u64) {
        let Ok(value) = word32(word) else { return };
        if word.is_multiple_of(4) && value & HOLDER == self.thread.number && set_word32(word, value & CONTENDED | ORPHANED).is_ok() {
            self.wake_word(word, 1, ANY);
        }
    }
}
