// SPDX-License-Identifier: MIT OR Apache-2.0
//! Futexes (`man 2 futex`): waking waiters, and releasing the locks of threads that end.
//!
//! The only state of a futex is its waiters. Waking a waiter completes its call, so it never reads its word again, and exactly the
//! requested number wakes.

use alloc::vec::Vec;

use pando_abi::PAGE_SIZE;
use pando_rt::memory::PageRange;

use super::System;
use crate::memory::layout::is_shared;
use crate::memory::regions::NodePages;
use crate::uapi::{FUTEX_BITSET_MATCH_ANY, FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS, ROBUST_LIST_LIMIT};
use crate::user::{set_word32, word32, words};
use crate::wait::{Channel, Tid};

impl System {
    /// The channel on which threads wait for a word of the running process's memory.
    #[must_use]
    pub fn word(&self, address: u64) -> Channel {
        let file = if self.memory.shows_nodes() { self.memory.shared_file_at(address) } else { None };
        match file {
            Some(file) => Channel::FileWord(file.node.key(), file.at(address) + address % PAGE_SIZE),
            None if is_shared(address) => Channel::Word(None, address),
            None => Channel::Word(Some(self.process.space.0), address),
        }
    }

    /// Lets the threads that wait on words in some pages wait on them as words of a file, which the pages have become.
    pub(crate) fn requeue_words(&mut self, pages: PageRange, file: NodePages) {
        let space = if is_shared(pages.start()) { None } else { Some(self.process.space.0) };
        for (address, thread) in self.others.waiters.in_words(space, pages.start()..pages.end()) {
            self.requeue(thread, Channel::FileWord(file.node.key(), file.at(address) + address % PAGE_SIZE));
        }
    }

    /// Wakes at most `count` waiters on a word of the running process's memory whose bits match. Returns how many.
    pub fn wake_word(&mut self, word: u64, count: u32, bits: u32) -> u64 {
        let waiting = self.waiters_on(self.word(word));
        let fitting = waiting.into_iter().filter(|thread| self.thread_of(*thread).is_some_and(|thread| thread.futex_bits & bits != 0));
        let woken: Vec<Tid> = fitting.take(count as usize).collect();
        for thread in &woken {
            self.finish_call(*thread, Ok(0));
        }
        woken.len() as u64
    }

    /// Marks the robust futexes of the running thread as orphaned, and wakes one waiter of each. A malformed list is followed up to its
    /// first error.
    pub(super) fn release_robust(&mut self) {
        let head = core::mem::take(&mut self.thread.robust_list);
        if head == 0 {
            return;
        }
        let Ok([mut entry, offset, pending]) = words::<3>(head) else { return };
        for _ in 0..ROBUST_LIST_LIMIT {
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

    /// Marks in a lock that its owner, the running thread, has ended.
    fn orphan(&mut self, word: u64) {
        let Ok(value) = word32(word) else { return };
        if word.is_multiple_of(4)
            && value & FUTEX_TID_MASK == self.thread.number
            && set_word32(word, value & FUTEX_WAITERS | FUTEX_OWNER_DIED).is_ok()
        {
            self.wake_word(word, 1, FUTEX_BITSET_MATCH_ANY);
        }
    }
}
