// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pager's policy: which pages to take, how many at once, and how many to read ahead.

use pando_abi::PAGE_SIZE;
use pando_abi::layout::SLOT_SIZE;
use pando_abi::limits::MAX_SWAP_PAGES;

/// Most pages that are taken at once: 2 MiB.
const MAX_BATCH: u64 = 512;
/// Fewest pages that are taken at once.
const MIN_BATCH: u64 = 16;
/// The memory divided by this is taken at once.
const BATCH_DIVISOR: u64 = 32;

/// Pages to read at the first fault.
const FIRST_READ: u64 = 32;
/// Fewest pages to read at a fault.
const LEAST_READ: u64 = 4;

/// Pages to take at once of a child that may use `memory` pages: few, so that what it uses stays, but enough that it halts seldom.
pub(super) fn batch(memory: u64) -> u64 {
    (memory / BATCH_DIVISOR).clamp(MIN_BATCH, MAX_BATCH)
}

/// A clock hand that goes over the mounts of all spaces of a child.
#[derive(Debug, Default)]
pub(super) struct ClockHand {
    /// The mounts of this turn: spaces with the addresses of slots.
    mounts: Vec<(u32, u64)>,
    /// The next of them.
    mount: usize,
    /// The next page in its slot.
    page: u64,
    /// Turns without a page since the last one.
    empty_turns: u32,
}

impl ClockHand {
    /// The space and the address that it points to. `None`: it has gone over all mounts.
    pub(super) fn position(&self) -> Option<(u32, u64)> {
        // No cell owns the first page of its address space.
        self.mounts.get(self.mount).map(|(space, slot)| (*space, (slot + self.page * PAGE_SIZE).max(pando_abi::layout::USER_START)))
    }

    /// Moves on by `pages`; `is_found`: some of them were taken.
    pub(super) fn advance(&mut self, pages: u64, is_found: bool) {
        let Some((_, address)) = self.position() else { return };
        if is_found {
            self.empty_turns = 0;
        }
        self.page = address % SLOT_SIZE / PAGE_SIZE + pages;
        if self.page * PAGE_SIZE >= SLOT_SIZE {
            (self.mount, self.page) = (self.mount + 1, 0);
        }
    }

    /// Begins another turn. `false`: two turns in a row have found nothing.
    pub(super) fn turn(&mut self, mounts: Vec<(u32, u64)>) -> bool {
        (self.mounts, self.mount, self.page) = (mounts, 0, 0);
        self.empty_turns += 1;
        if self.empty_turns > 2 || self.mounts.is_empty() {
            self.empty_turns = 0;
            self.mounts.clear();
            return false;
        }
        true
    }
}

/// How many pages to read ahead: more while faults go through the swap file in order, fewer otherwise.
#[derive(Debug)]
pub(super) struct ReadAhead {
    window: u64,
    /// The number after the pages that were given last.
    expected: u64,
}

impl Default for ReadAhead {
    fn default() -> ReadAhead {
        ReadAhead { window: FIRST_READ, expected: 0 }
    }
}

impl ReadAhead {
    /// Pages to read at a fault on the page with this number.
    pub(super) fn after_fault(&mut self, number: u32) -> u64 {
        self.window = if u64::from(number) == self.expected { self.window * 2 } else { self.window / 2 };
        self.window = self.window.clamp(LEAST_READ, MAX_SWAP_PAGES);
        self.window
    }

    /// Notes pages that were given.
    pub(super) fn note_given(&mut self, number: u32, given: u64) {
        self.expected = u64::from(number) + given;
    }
}

#[cfg(test)]
mod tests {
    use super::{ClockHand, ReadAhead};
    use pando_abi::PAGE_SIZE;
    use pando_abi::layout::{SLOT_SIZE, USER_START};

    #[test]
    fn a_hand_goes_over_all_mounts_and_stops_after_two_empty_turns() {
        let mounts = || vec![(0, 0), (0, SLOT_SIZE), (3, 0)];
        let mut hand = ClockHand::default();
        assert_eq!(hand.position(), None);
        assert!(hand.turn(mounts()));
        assert_eq!(hand.position(), Some((0, USER_START)));
        hand.advance(5, true);
        assert_eq!(hand.position(), Some((0, USER_START + 5 * PAGE_SIZE)));
        for wanted in [Some((0, SLOT_SIZE)), Some((3, USER_START)), None] {
            hand.advance(SLOT_SIZE / PAGE_SIZE, false);
            assert_eq!(hand.position(), wanted);
        }
        assert!(hand.turn(mounts()) && hand.turn(mounts()) && !hand.turn(mounts()));
        assert!(hand.turn(mounts()), "later there may be pages again");
    }

    #[test]
    fn a_window_grows_while_faults_are_in_order() {
        let mut read_ahead = ReadAhead::default();
        assert_eq!(read_ahead.after_fault(100), 16);
        read_ahead.note_given(100, 16);
        assert_eq!(read_ahead.after_fault(116), 32);
        read_ahead.note_given(116, 32);
        assert_eq!([read_ahead.after_fault(148), read_ahead.after_fault(7)], [64, 32]);
    }
}
