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
use crate::sequence::{SequenceNumbers, is_before};

/// The state of the ACK policy of a connection.
#[derive(Debug)]
pub(crate) struct AckPolicy {
    /// The longest payload that both sides take (MSS).
    mss: usize,
    /// The end of the last shorter segment that was sent.
    small_segment_end: Option<TcpSeqNumber>,
    /// Lengths of the last two received payloads.
    received: [usize; 2],
    /// Remaining number of long segments that are acknowledged at once (quick ACKs).
    quick_acks: u32,
    /// Deadline of the delayed acknowledgement.
    ack_deadline: Option<u64>,
}

impl AckPolicy {
    pub(crate) const fn new() -> Self {
        Self { mss: 536, small_segment_end: None, received: [0; 2], quick_acks: limits::QUICK_ACKS, ack_deadline: None }
    }

    /// Processes the MSS of the peer's SYN; `own` is this side's. Returns the lesser.
    pub(crate) fn process_syn_options(&mut self, syn: &TcpRepr, own: usize) -> usize {
        self.mss = syn.max_seg_size.filter(|size| *size > 0).map_or(536, |size| usize::from(size).max(48)).min(own);
        self.mss
    }

    /// Whether a small segment has to wait.
    pub(crate) fn must_delay_small(&self, unacknowledged: TcpSeqNumber) -> bool {
        self.small_segment_end.is_some_and(|end| is_before(unacknowledged, end))
    }

    /// Records that the connection transmits, acknowledgements included.
    pub(crate) const fn note_transmit(&mut self) {
        self.ack_deadline = None;
    }

    /// Records that a segment with this payload length and this end was sent.
    pub(crate) const fn sent(&mut self, length: usize, end: TcpSeqNumber) {
        if length > 0 && length < self.mss {
            self.small_segment_end = Some(end);
        }
    }

    /// Records a received segment.
    pub(crate) fn received(&mut self, segment: &TcpRepr, before: SequenceNumbers) {
        if !segment.payload.is_empty() {
            self.received = [segment.payload.len(), self.received[0]];
            if segment.seq_number != before.expected {
                // Loss or reordering: the sender may have to start over.
                self.quick_acks = limits::QUICK_ACKS;
            }
        }
    }

    /// Whether `unacknowledged` received bytes must be acknowledged at once, rather than with the next data.
    pub(crate) fn must_ack_now(&mut self, unacknowledged: usize, now: u64) -> bool {
        if unacknowledged == 0 {
            self.ack_deadline = None;
            return false;
        }
        let [last, before] = self.received;
        if last >= limits::BULK_SEGMENT && self.quick_acks > 0 {
            self.quick_acks -= 1;
            return true;
        }
        if unacknowledged >= 2 * last.max(before) {
            return true;
        }
        let moment = *self.ack_deadline.get_or_insert(now.saturating_add(limits::DELAYED_ACK));
        moment <= now
    }

    /// Deadline of the delayed acknowledgement.
    pub(crate) const fn ack_deadline(&self) -> Option<u64> {
        self.ack_deadline
    }
}
