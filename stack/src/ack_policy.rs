// SPDX-License-Identifier: MIT OR Apache-2.0
//! ACK policy and small segments: corrections to smoltcp's delays, each with its measurement (`tests/stack/rates.rs`,
//! `tests/stack/faults.rs`).
//!
//! - *Small segments* (Nagle). smoltcp holds one back while anything is unacknowledged. So the last 34 KiB of an answer wait for the
//!   acknowledgement of the first 64 KiB, which the peer delays. Here only a small segment waits for a small segment (Minshall).
//! - *Delayed acknowledgements.* smoltcp waits until more than one MSS is unacknowledged. A sender with an MSS of 64 KiB
//!   whose initial congestion window is 2 KiB then waits for the timer. Here the lengths of received segments count, long
//!   segments on a young connection are acknowledged at once, and acknowledgements go with data where there is some.

use smoltcp::wire::{TcpRepr, TcpSeqNumber};

use crate::limits;
use crate::segment_rewrite::{Progress, is_before};

/// The state of the ACK policy of a connection.
#[derive(Debug)]
pub(crate) struct AckPolicy {
    /// The longest payload that both sides take (MSS).
    piece: usize,
    /// The end of the last shorter segment that was sent.
    little: Option<TcpSeqNumber>,
    /// Lengths of the last two received payloads.
    came: [usize; 2],
    /// Remaining number of long segments that are acknowledged at once (quick ACKs).
    quick: u32,
    /// Deadline of the delayed acknowledgement.
    acknowledges: Option<u64>,
}

impl AckPolicy {
    pub(crate) const fn new() -> Self {
        Self { piece: 536, little: None, came: [0; 2], quick: limits::QUICK, acknowledges: None }
    }

    /// Processes the MSS of the peer's SYN; `own` is this side's. Returns the lesser.
    pub(crate) fn agree(&mut self, syn: &TcpRepr, own: usize) -> usize {
        self.piece = syn.max_seg_size.filter(|size| *size > 0).map_or(536, |size| usize::from(size).max(48)).min(own);
        self.piece
    }

    /// Whether a small segment has to wait.
    pub(crate) fn holds_back(&self, unanswered: TcpSeqNumber) -> bool {
        self.little.is_some_and(|end| is_before(unanswered, end))
    }

    /// Records that the connection transmits, acknowledgements included.
    pub(crate) const fn note_transmit(&mut self) {
        self.acknowledges = None;
    }

    /// Records that a segment with this payload length and this end was sent.
    pub(crate) const fn sent(&mut self, length: usize, end: TcpSeqNumber) {
        if length > 0 && length < self.piece {
            self.little = Some(end);
        }
    }

    /// Records a received segment.
    pub(crate) fn came(&mut self, segment: &TcpRepr, before: Progress) {
        if !segment.payload.is_empty() {
            self.came = [segment.payload.len(), self.came[0]];
            if segment.seq_number != before.expected {
                // Loss or reordering: the sender may have to start over.
                self.quick = limits::QUICK;
            }
        }
    }

    /// Whether `owed` received bytes must be acknowledged at once, rather than with the next data.
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

    /// Deadline of the delayed acknowledgement.
    pub(crate) const fn acknowledges(&self) -> Option<u64> {
        self.acknowledges
    }
}
