// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where smoltcp is steered, because what it does by itself costs time that can be seen. With each: what was measured (`tests/stack/rates.rs`,
//! `tests/stack/faults.rs`).
//!
//! - *Little pieces* (Nagle). smoltcp keeps one back while anything is unanswered, so the last 34 KiB of an answer wait for the first 64 KiB to
//!   be acknowledged, and the other side waits with that for more. Here only a little piece waits for a little piece (Minshall).
//! - *Late acknowledgements.* smoltcp waits until more than a whole segment of the size it announced is unanswered; a sender whose first words are
//!   2 KiB, because its congestion window begins there, and whose segments may have 64, waits for the clock. Here the size that counts is that of
//!   the segments that came, a young connection's long ones are answered at once, and what has words to go with goes with them.
//! - *Several losses.* smoltcp notices one lost segment for each time round, if at least four are under way, and sends all again after 200 ms for
//!   each other. Here a part of an answer tells of the next loss (NewReno), where few are under way fewer repetitions tell of one (RFC 5827), and so
//!   does the silence after a last word (a probe, as RFC 8985 has it, though of the first word under way and not of the last): smoltcp hears as
//!   many repetitions as it wants to.

use smoltcp::wire::{TcpControl, TcpRepr, TcpSeqNumber};

use crate::limits;
use crate::mend::{Progress, is_before};

/// Repetitions of an acknowledgement after which smoltcp sends again.
pub(crate) const REPETITIONS: u32 = 3;

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
    /// The acknowledgement that came last came so often again.
    repetitions: u32,
    window: u16,
    /// What had been sent when a loss was noticed, if that is not all acknowledged.
    loss: Option<TcpSeqNumber>,
    /// smoltcp has been told of a loss, and will send one segment again.
    is_told: bool,
    /// A segment whose answer is waited for, as its end and when it was sent; and how long answers take.
    timed: Option<(TcpSeqNumber, u64)>,
    round: Option<u64>,
    /// When something was sent last, and that its answer is not waited for any longer.
    spoke: u64,
    is_probed: bool,
}

impl Steer {
    pub(crate) const fn new() -> Self {
        Self {
            piece: 536,
            little: None,
            came: [0; 2],
            quick: limits::QUICK,
            acknowledges: None,
            repetitions: 0,
            window: 0,
            loss: None,
            is_told: false,
            timed: None,
            round: None,
            spoke: 0,
            is_probed: false,
        }
    }

    /// The other side says how long its segments may be; this side's may be `own`.
    pub(crate) fn agree(&mut self, syn: &TcpRepr, own: usize) {
        self.piece = syn.max_seg_size.filter(|size| *size > 0).map_or(536, |size| usize::from(size).max(48)).min(own);
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
    pub(crate) fn sent(&mut self, length: usize, end: TcpSeqNumber, is_again: bool, now: u64) {
        if length > 0 {
            self.spoke = now;
            self.timed = if is_again { None } else { self.timed.or(Some((end, now))) };
        }
        if length > 0 && length < self.piece {
            self.little = Some(end);
        }
        if is_again && !core::mem::take(&mut self.is_told) {
            // Its clock ran out: it sends everything again by itself.
            (self.loss, self.repetitions) = (None, 0);
        }
    }

    /// A segment says again what the one before it said, and nothing else.
    pub(crate) fn is_repetition(&self, segment: &TcpRepr, before: Progress) -> bool {
        segment.ack_number == Some(before.unanswered)
            && segment.segment_len() == 0
            && segment.control != TcpControl::Rst
            && segment.seq_number == before.expected
            && segment.window_len == self.window
    }

    /// A segment came. Whether smoltcp has to be told of a loss.
    pub(crate) fn came(&mut self, segment: &TcpRepr, before: Progress, now: u64) -> bool {
        if !segment.payload.is_empty() {
            self.came = [segment.payload.len(), self.came[0]];
            if segment.seq_number != before.expected {
                // Something was lost or overtaken, and the sender may have to begin anew.
                self.quick = limits::QUICK;
            }
        }
        let Some(number) = segment.ack_number.filter(|_| !matches!(segment.control, TcpControl::Rst | TcpControl::Syn)) else {
            return false;
        };
        // Whoever says what it has beyond a hole repeats itself, though its window may have changed.
        let has_hole = number == before.unanswered && segment.sack_ranges[0].is_some();
        let is_repetition = has_hole || self.is_repetition(segment, before);
        self.window = segment.window_len;
        if is_before(before.unanswered, number) && !is_before(before.sent, number) {
            (self.repetitions, self.is_probed) = (0, false);
            if let Some((_, moment)) = self.timed.take_if(|(end, _)| !is_before(number, *end)) {
                let round = now.saturating_sub(moment);
                self.round = Some(self.round.map_or(round, |before| before - before / 8 + round / 8));
            }
            self.loss = self.loss.filter(|end| is_before(number, *end));
            return self.tell(self.loss.is_some());
        }
        let under_way = before.sent.0.wrapping_sub(before.unanswered.0).max(0) as usize;
        if !is_repetition || under_way == 0 || self.loss.is_some() {
            return false;
        }
        self.repetitions += 1;
        let segments = under_way.div_ceil(self.piece) as u32;
        let is_lost = self.repetitions >= segments.saturating_sub(1).clamp(1, REPETITIONS);
        if is_lost {
            self.loss = Some(before.sent);
        }
        self.tell(is_lost)
    }

    const fn tell(&mut self, is_lost: bool) -> bool {
        self.is_told |= is_lost;
        is_lost
    }

    /// When smoltcp is told of a loss that nothing else tells of: once, and then its own clock counts.
    pub(crate) fn probes(&self) -> Option<u64> {
        let patience = self.round?.saturating_mul(2).saturating_add(limits::PROBES);
        (!self.is_probed && self.loss.is_none()).then(|| self.spoke.saturating_add(patience))
    }

    /// smoltcp is told now.
    pub(crate) const fn probe(&mut self) {
        (self.is_probed, self.is_told) = (true, true);
    }

    /// The window that the other side told of last, unscaled.
    pub(crate) const fn window(&self) -> u16 {
        self.window
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
