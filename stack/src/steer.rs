// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where smoltcp is steered, because what it does by itself costs time that can be seen. With each: what was measured (`tests/stack/rates.rs`,
//! `tests/stack/faults.rs`).
//!
//! - *Little pieces* (Nagle). smoltcp keeps one back while anything is unanswered, so the last 34 KiB of an answer wait for the first 64 KiB to
//!   be acknowledged, and the other side waits with that for more. Here only a little piece waits for a little piece (Minshall).
//! - *Late acknowledgements.* smoltcp waits until more than a whole segment of the size it announced is unanswered; a sender whose first words are
//!   2 KiB, because its congestion window begins there, and whose segments may have 64, waits for the clock. Here the size that counts is that of
//!   the segments that came, a young connection's long ones are answered at once, and what has words to go with goes with them.

use smoltcp::wire::{TcpRepr, TcpSeqNumber};

use crate::limits;
use crate::mend::{Progress, is_before};

/// What is known of a connection to steer it by.
#[derive(Debug)]
pub(crate) struct Steer {
    /// The longest payload that both sides take.
    piece: usize,
    /// The end of the last one sent that was shorter.
    little: Option<TcpSeqNumber>,
    /// Payload lengths of the last two segments that came with one.
    came: [usize; 2],
    /// How many long ones are still acknowledged at once.
    quick: u32,
    /// When what came must be acknowledged at the latest.
    acknowledges: Option<u64>,
}

impl Steer {
    pub(crate) const fn new() -> Self {
        Self { piece: 536, little: None, came: [0; 2], quick: limits::QUICK, acknowledges: None }
    }

    /// The other side says how long its segments may be; this side's may be `own`. Returns the length that both take.
    pub(crate) fn agree(&mut self, syn: &TcpRepr, own: usize) -> usize {
        self.piece = syn.max_seg_size.filter(|size| *size > 0).map_or(536, |size| usize::from(size).max(48)).min(own);
        self.piece
    }

    /// A little piece has to wait.
    pub(crate) fn holds_back(&self, unanswered: TcpSeqNumber) -> bool {
        self.little.is_some_and(|end| is_before(unanswered, end))
    }

    /// It has its turn, and acknowledges what there is.
    pub(crate) const fn speaks(&mut self) {
        self.acknowledges = None;
    }

    /// A segment was sent, with so long a payload; its end is `end`.
    pub(crate) const fn sent(&mut self, length: usize, end: TcpSeqNumber) {
        if length > 0 && length < self.piece {
            self.little = Some(end);
        }
    }

    /// A segment came.
    pub(crate) fn came(&mut self, segment: &TcpRepr, before: Progress) {
        if !segment.payload.is_empty() {
            self.came = [segment.payload.len(), self.came[0]];
            if segment.seq_number != before.expected {
                // Something was lost or overtaken, and the sender may have to begin anew.
                self.quick = limits::QUICK;
            }
        }
    }

    /// Whether so many bytes that came are to be acknowledged at once, and not when there is something to say.
    pub(crate) fn acknowledges_now(&mut self, owed: usize, now: u64) -> bool {
        if owed == 0 {
            self.acknowledges = None;
            return false;
        }
        let [last, before] = self.came;
        if last >= limits::LONG && self.quick > 0 {
            self.quick -= 1;
            return true;
        }
        if owed >= 2 * last.max(before) {
            return true;
        }
        let moment = *self.acknowledges.get_or_insert(now.saturating_add(limits::ACKNOWLEDGES));
        moment <= now
    }

    /// When what came must be acknowledged at the latest.
    pub(crate) const fn acknowledges(&self) -> Option<u64> {
        self.acknowledges
    }
}
