// SPDX-License-Identifier: MIT OR Apache-2.0
//! The in-flight scoreboard: each sent and unacknowledged segment, its send time, and its state.
//!
//! Selective acknowledgements report the segments beyond a hole. The arrival of a segment that was sent later shows when the
//! earlier ones should have arrived (RFC 8985, RACK). Both together identify losses, and leave time for links that reorder.

use alloc::collections::VecDeque;

use smoltcp::wire::TcpSeqNumber;

use crate::limits;
use crate::sequence::{distance, is_before};

/// The state of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SegmentState {
    InFlight,
    /// The peer has it, though not everything before it.
    Sacked,
    /// It has to be retransmitted.
    Lost,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    end: TcpSeqNumber,
    /// When it was sent last.
    sent: u64,
    state: SegmentState,
    is_retransmitted: bool,
}

/// The result of an acknowledgement.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct AckSummary {
    /// Bytes that are newly acknowledged cumulatively.
    pub(crate) acknowledged: usize,
    /// The shortest RTT of the newly acknowledged segments that were sent once.
    pub(crate) rtt: Option<u64>,
    /// Newly acknowledged retransmissions that were answered too soon: the first transmission was not lost.
    pub(crate) spurious: u32,
    /// A segment arrived after one that was sent later.
    pub(crate) is_reordered: bool,
}

/// The last-sent segment of those that have arrived.
#[derive(Debug, Clone, Copy)]
struct NewestArrival {
    sent: u64,
    end: TcpSeqNumber,
    rtt: u64,
}

/// All sent and unacknowledged segments, without gaps.
#[derive(Debug)]
pub(crate) struct Scoreboard {
    segments: VecDeque<Segment>,
    /// Where the first begins.
    begin: TcpSeqNumber,
    /// Bytes of the segments in flight, and of the lost ones.
    in_flight: usize,
    lost: usize,
    /// The number of segments that have arrived, and the end of the last one.
    sacked: usize,
    highest: TcpSeqNumber,
    newest: Option<NewestArrival>,
}

impl Scoreboard {
    pub(crate) const fn new(begin: TcpSeqNumber) -> Self {
        Self { segments: VecDeque::new(), begin, in_flight: 0, lost: 0, sacked: 0, highest: begin, newest: None }
    }

    /// The first unacknowledged sequence number.
    pub(crate) const fn begin(&self) -> TcpSeqNumber {
        self.begin
    }

    /// The end of the sent data.
    pub(crate) fn end(&self) -> TcpSeqNumber {
        self.segments.back().map_or(self.begin, |last| last.end)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bytes in flight: neither arrived nor lost.
    pub(crate) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) const fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Segments that have arrived beyond a hole.
    pub(crate) const fn sacked(&self) -> usize {
        self.sacked
    }

    /// The end of the first lost segment.
    pub(crate) fn first_lost(&self) -> Option<TcpSeqNumber> {
        self.segments.iter().find(|segment| segment.state == SegmentState::Lost).map(|segment| segment.end)
    }

    /// The index of the segment that holds this number: the first that ends after it.
    fn find(&self, number: TcpSeqNumber) -> usize {
        self.segments.partition_point(|segment| !is_before(number, segment.end))
    }

    /// The start of a segment.
    fn begin_of(&self, index: usize) -> TcpSeqNumber {
        index.checked_sub(1).and_then(|before| self.segments.get(before)).map_or(self.begin, |before| before.end)
    }

    /// Whether a part of this range is lost. A segment that was sent at this very time is not: nothing is sent twice
    /// without time for an answer.
    pub(crate) fn is_lost(&self, from: TcpSeqNumber, to: TcpSeqNumber, now: u64) -> bool {
        let first = self.find(from);
        let mut begin = self.begin_of(first);
        for segment in self.segments.range(first..) {
            if !is_before(begin, to) {
                break;
            }
            if segment.state == SegmentState::Lost && segment.sent < now {
                return true;
            }
            begin = segment.end;
        }
        false
    }

    /// Splits the lost segment that holds this number, because smoltcp may send a part of it when windows shrink. At
    /// the limit of segments it stays whole.
    fn split(&mut self, number: TcpSeqNumber) {
        let index = self.find(number);
        if is_before(self.begin_of(index), number)
            && let Some(&segment) = self.segments.get(index).filter(|segment| segment.state == SegmentState::Lost)
            && self.segments.len() < limits::SEGMENTS
        {
            self.segments.insert(index, Segment { end: number, ..segment });
        }
    }

    /// Records that a segment was sent or retransmitted.
    pub(crate) fn sent(&mut self, from: TcpSeqNumber, to: TcpSeqNumber, now: u64) {
        if self.lost > 0 {
            self.split(from);
            self.split(to);
            let first = self.find(from);
            let mut begin = self.begin_of(first);
            for segment in self.segments.range_mut(first..) {
                if !is_before(begin, to) {
                    break;
                }
                let length = distance(begin, segment.end);
                begin = segment.end;
                if segment.state == SegmentState::Lost {
                    (segment.sent, segment.state, segment.is_retransmitted) = (now, SegmentState::InFlight, true);
                    (self.lost, self.in_flight) = (self.lost - length, self.in_flight + length);
                }
            }
        }
        let end = self.end();
        if !is_before(end, to) {
            return;
        }
        self.in_flight += distance(end, to);
        let is_full = self.segments.len() >= limits::SEGMENTS;
        match self.segments.back_mut().filter(|last| is_full && last.state == SegmentState::InFlight) {
            Some(last) => (last.end, last.sent) = (to, now),
            None => self.segments.push_back(Segment { end: to, sent: now, state: SegmentState::InFlight, is_retransmitted: false }),
        }
    }

    /// Processes an acknowledgement: the peer has everything before `number`, and `ranges` of the rest. No answer
    /// comes sooner than after `min_rtt`.
    pub(crate) fn process(&mut self, number: TcpSeqNumber, ranges: &[Option<(u32, u32)>], now: u64, min_rtt: u64) -> AckSummary {
        let mut summary = AckSummary { acknowledged: distance(self.begin, number), ..AckSummary::default() };
        while let Some(&first) = self.segments.front()
            && is_before(self.begin, number)
        {
            let end = if is_before(number, first.end) { number } else { first.end };
            let length = distance(self.begin, end);
            self.begin = end;
            if end == first.end {
                self.segments.pop_front();
                self.note_arrival(&first, now, min_rtt, &mut summary);
            }
            self.subtract(first.state, length, end == first.end);
        }
        if is_before(self.begin, number) {
            self.begin = number;
        }
        if self.segments.is_empty() && self.segments.capacity() > limits::IDLE_SEGMENTS {
            self.segments = VecDeque::new();
        }
        for &(from, to) in ranges.iter().flatten() {
            let (from, to) = (TcpSeqNumber(from as i32), TcpSeqNumber(to as i32));
            if is_before(self.begin, from) && !is_before(self.end(), to) {
                self.process_range(from, to, now, min_rtt, &mut summary);
            }
        }
        summary
    }

    fn process_range(&mut self, from: TcpSeqNumber, to: TcpSeqNumber, now: u64, min_rtt: u64, summary: &mut AckSummary) {
        let mut begin = self.begin;
        for index in 0..self.segments.len() {
            let segment = self.segments[index];
            if is_before(to, segment.end) {
                break;
            }
            if segment.state != SegmentState::Sacked && !is_before(begin, from) {
                self.note_arrival(&segment, now, min_rtt, summary);
                self.subtract(segment.state, distance(begin, segment.end), true);
                self.segments[index].state = SegmentState::Sacked;
                self.sacked += 1;
                if is_before(self.highest, segment.end) {
                    self.highest = segment.end;
                }
            }
            begin = segment.end;
        }
    }

    /// Subtracts bytes of a segment in this state from the counts.
    const fn subtract(&mut self, state: SegmentState, length: usize, is_whole: bool) {
        match state {
            SegmentState::InFlight => self.in_flight -= length,
            SegmentState::Lost => self.lost -= length,
            SegmentState::Sacked => self.sacked -= is_whole as usize,
        }
    }

    /// Updates the RTT, the reordering and the newest arrival for a segment that has arrived.
    fn note_arrival(&mut self, segment: &Segment, now: u64, min_rtt: u64, summary: &mut AckSummary) {
        if segment.state == SegmentState::Sacked {
            return;
        }
        let rtt = now.saturating_sub(segment.sent);
        if segment.is_retransmitted {
            // An eighth is the margin for clocks and paths that vary.
            if rtt < min_rtt - min_rtt / 8 {
                summary.spurious += 1;
                return;
            }
        } else {
            summary.is_reordered |= is_before(segment.end, self.highest);
            summary.rtt = Some(summary.rtt.map_or(rtt, |before| before.min(rtt)));
        }
        if self.newest.is_none_or(|newest| (newest.sent, newest.end.0.wrapping_sub(segment.end.0)) < (segment.sent, 0)) {
            self.newest = Some(NewestArrival { sent: segment.sent, end: segment.end, rtt });
        }
    }

    /// Marks segments as lost that should have arrived by now, with a reordering window of `timeout`. Returns whether
    /// any was found, and when to check again.
    pub(crate) fn find_lost(&mut self, timeout: u64, now: u64) -> (bool, Option<u64>) {
        let Some(newest) = self.newest else { return (false, None) };
        let (mut begin, mut has_found, mut next_check) = (self.begin, false, None::<u64>);
        for segment in &mut self.segments {
            let length = distance(begin, segment.end);
            begin = segment.end;
            let is_older = segment.sent < newest.sent || segment.sent == newest.sent && is_before(segment.end, newest.end);
            if !is_older && !segment.is_retransmitted {
                break;
            }
            if segment.state != SegmentState::InFlight || !is_older {
                continue;
            }
            let due = segment.sent.saturating_add(newest.rtt).saturating_add(timeout);
            if due <= now {
                segment.state = SegmentState::Lost;
                (self.in_flight, self.lost) = (self.in_flight - length, self.lost + length);
                has_found = true;
            } else {
                next_check = Some(next_check.map_or(due, |before| before.min(due)));
            }
        }
        (has_found, next_check)
    }

    /// Marks everything in flight as lost. With `has_reneged`, also the selectively acknowledged segments, which the
    /// peer may have discarded.
    pub(crate) fn mark_all_lost(&mut self, has_reneged: bool) {
        for segment in &mut self.segments {
            if segment.state == SegmentState::InFlight || has_reneged {
                segment.state = SegmentState::Lost;
            }
        }
        if has_reneged {
            self.sacked = 0;
        }
        self.recount();
    }

    /// Marks the last segment in flight as lost.
    pub(crate) fn mark_last_lost(&mut self) {
        if let Some(last) = self.segments.iter_mut().rev().find(|segment| segment.state == SegmentState::InFlight) {
            last.state = SegmentState::Lost;
        }
        self.recount();
    }

    /// Undoes all losses: nothing was lost after all.
    pub(crate) fn undo_losses(&mut self) {
        for segment in &mut self.segments {
            if segment.state == SegmentState::Lost {
                segment.state = SegmentState::InFlight;
            }
        }
        self.recount();
    }

    fn recount(&mut self) {
        (self.in_flight, self.lost) = (0, 0);
        let mut begin = self.begin;
        for segment in &self.segments {
            let length = distance(begin, segment.end);
            begin = segment.end;
            match segment.state {
                SegmentState::InFlight => self.in_flight += length,
                SegmentState::Lost => self.lost += length,
                SegmentState::Sacked => {}
            }
        }
    }
}
