// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is under way: each segment that was sent and not acknowledged, when it was sent, and what is known of it.
//!
//! The other side tells what it has beyond a hole (selective acknowledgement), and whatever was sent later and has arrived tells how long ago the rest
//! should have (RFC 8985, RACK). Both together say what was lost, and links that reorder are waited for.

use alloc::collections::VecDeque;

use smoltcp::wire::TcpSeqNumber;

use crate::limits;
use crate::mend::is_before;

/// What is known of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    UnderWay,
    /// The other side has it, though not all that comes before.
    Arrived,
    /// It has to be sent again.
    Lost,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    end: TcpSeqNumber,
    /// When it was sent last.
    sent: u64,
    fate: Fate,
    is_again: bool,
}

/// What an acknowledgement told.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Heard {
    /// Bytes that the other side has with all that comes before.
    pub(crate) acknowledged: usize,
    /// How long the answer to the segment took that was sent last of those that came now, if it was sent once.
    pub(crate) round: Option<u64>,
    /// Of those that came now and were sent again, how many came too soon for that: nothing was lost.
    pub(crate) spurious: u32,
    /// Something came later than what was sent after it.
    pub(crate) is_reordered: bool,
}

/// The segment that was sent last, of those that have arrived.
#[derive(Debug, Clone, Copy)]
struct Newest {
    sent: u64,
    end: TcpSeqNumber,
    round: u64,
}

/// All segments that were sent and not acknowledged, without a gap.
#[derive(Debug)]
pub(crate) struct Flight {
    segments: VecDeque<Segment>,
    /// Where the first begins.
    begin: TcpSeqNumber,
    /// Bytes of those that are under way, and of those that are lost.
    under_way: usize,
    lost: usize,
    /// How many have arrived, and the end of the last.
    arrived: usize,
    highest: TcpSeqNumber,
    newest: Option<Newest>,
}

/// How far it is from one number to a later one.
pub(crate) const fn distance(from: TcpSeqNumber, to: TcpSeqNumber) -> usize {
    let distance = to.0.wrapping_sub(from.0);
    if distance < 0 { 0 } else { distance as usize }
}

impl Flight {
    pub(crate) const fn new(begin: TcpSeqNumber) -> Self {
        Self { segments: VecDeque::new(), begin, under_way: 0, lost: 0, arrived: 0, highest: begin, newest: None }
    }

    /// The first byte that the other side is not known to have.
    pub(crate) const fn begin(&self) -> TcpSeqNumber {
        self.begin
    }

    /// The end of what was sent.
    pub(crate) fn end(&self) -> TcpSeqNumber {
        self.segments.back().map_or(self.begin, |last| last.end)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bytes that are under way: neither arrived nor lost.
    pub(crate) const fn under_way(&self) -> usize {
        self.under_way
    }

    pub(crate) const fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Segments that have arrived beyond a hole.
    pub(crate) const fn arrived(&self) -> usize {
        self.arrived
    }

    /// Where the first lost segment ends.
    pub(crate) fn first_lost(&self) -> Option<TcpSeqNumber> {
        self.segments.iter().find(|segment| segment.fate == Fate::Lost).map(|segment| segment.end)
    }

    /// Which segment holds this number: the first that ends after it.
    fn find(&self, number: TcpSeqNumber) -> usize {
        self.segments.partition_point(|segment| !is_before(number, segment.end))
    }

    /// Where a segment begins.
    fn begin_of(&self, index: usize) -> TcpSeqNumber {
        index.checked_sub(1).and_then(|before| self.segments.get(before)).map_or(self.begin, |before| before.end)
    }

    /// Whether something of these numbers is lost. A segment that was sent at this moment is not: nothing is sent twice without time for an answer.
    pub(crate) fn is_lost(&self, from: TcpSeqNumber, to: TcpSeqNumber, now: u64) -> bool {
        let first = self.find(from);
        let mut begin = self.begin_of(first);
        for segment in self.segments.range(first..) {
            if !is_before(begin, to) {
                break;
            }
            if segment.fate == Fate::Lost && segment.sent < now {
                return true;
            }
            begin = segment.end;
        }
        false
    }

    /// Makes two segments of a lost one that holds this number, because smoltcp may send a part of it: windows shrink. Where there are too many, it stays whole.
    fn split(&mut self, number: TcpSeqNumber) {
        let index = self.find(number);
        if is_before(self.begin_of(index), number)
            && let Some(&segment) = self.segments.get(index).filter(|segment| segment.fate == Fate::Lost)
            && self.segments.len() < limits::SEGMENTS
        {
            self.segments.insert(index, Segment { end: number, ..segment });
        }
    }

    /// A segment was sent, perhaps again.
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
                if segment.fate == Fate::Lost {
                    (segment.sent, segment.fate, segment.is_again) = (now, Fate::UnderWay, true);
                    (self.lost, self.under_way) = (self.lost - length, self.under_way + length);
                }
            }
        }
        let end = self.end();
        if !is_before(end, to) {
            return;
        }
        self.under_way += distance(end, to);
        let is_full = self.segments.len() >= limits::SEGMENTS;
        match self.segments.back_mut().filter(|last| is_full && last.fate == Fate::UnderWay) {
            Some(last) => (last.end, last.sent) = (to, now),
            None => self.segments.push_back(Segment { end: to, sent: now, fate: Fate::UnderWay, is_again: false }),
        }
    }

    /// The other side has everything before `number`, and of what comes later `ranges`. No answer comes sooner than after `least`.
    pub(crate) fn hear(&mut self, number: TcpSeqNumber, ranges: &[Option<(u32, u32)>], now: u64, least: u64) -> Heard {
        let mut heard = Heard { acknowledged: distance(self.begin, number), ..Heard::default() };
        while let Some(&first) = self.segments.front()
            && is_before(self.begin, number)
        {
            let end = if is_before(number, first.end) { number } else { first.end };
            let length = distance(self.begin, end);
            self.begin = end;
            if end == first.end {
                self.segments.pop_front();
                self.note(&first, now, least, &mut heard);
            }
            self.drop(first.fate, length, end == first.end);
        }
        if is_before(self.begin, number) {
            self.begin = number;
        }
        if self.segments.is_empty() && self.segments.capacity() > limits::KEPT_SEGMENTS {
            self.segments = VecDeque::new();
        }
        for &(from, to) in ranges.iter().flatten() {
            let (from, to) = (TcpSeqNumber(from as i32), TcpSeqNumber(to as i32));
            if is_before(self.begin, from) && !is_before(self.end(), to) {
                self.hear_range(from, to, now, least, &mut heard);
            }
        }
        heard
    }

    fn hear_range(&mut self, from: TcpSeqNumber, to: TcpSeqNumber, now: u64, least: u64, heard: &mut Heard) {
        let mut begin = self.begin;
        for index in 0..self.segments.len() {
            let segment = self.segments[index];
            if is_before(to, segment.end) {
                break;
            }
            if segment.fate != Fate::Arrived && !is_before(begin, from) {
                self.note(&segment, now, least, heard);
                self.drop(segment.fate, distance(begin, segment.end), true);
                self.segments[index].fate = Fate::Arrived;
                self.arrived += 1;
                if is_before(self.highest, segment.end) {
                    self.highest = segment.end;
                }
            }
            begin = segment.end;
        }
    }

    /// So many bytes of a segment with this fate are not waited for any more.
    const fn drop(&mut self, fate: Fate, length: usize, is_whole: bool) {
        match fate {
            Fate::UnderWay => self.under_way -= length,
            Fate::Lost => self.lost -= length,
            Fate::Arrived => self.arrived -= is_whole as usize,
        }
    }

    /// Sees what the arrival of a segment tells of others.
    fn note(&mut self, segment: &Segment, now: u64, least: u64, heard: &mut Heard) {
        if segment.fate == Fate::Arrived {
            return;
        }
        let round = now.saturating_sub(segment.sent);
        if segment.is_again {
            // With some room for a clock and a way that vary.
            if round < least - least / 8 {
                heard.spurious += 1;
                return;
            }
        } else {
            heard.is_reordered |= is_before(segment.end, self.highest);
            heard.round = Some(heard.round.map_or(round, |before| before.min(round)));
        }
        if self.newest.is_none_or(|newest| (newest.sent, newest.end.0.wrapping_sub(segment.end.0)) < (segment.sent, 0)) {
            self.newest = Some(Newest { sent: segment.sent, end: segment.end, round });
        }
    }

    /// Takes as lost what should have arrived since, though it may be late by `patience`. Whether something was found, and when to look again.
    pub(crate) fn find_lost(&mut self, patience: u64, now: u64) -> (bool, Option<u64>) {
        let Some(newest) = self.newest else { return (false, None) };
        let (mut begin, mut has_found, mut again) = (self.begin, false, None::<u64>);
        for segment in &mut self.segments {
            let length = distance(begin, segment.end);
            begin = segment.end;
            let is_older = segment.sent < newest.sent || segment.sent == newest.sent && is_before(segment.end, newest.end);
            if !is_older && !segment.is_again {
                break;
            }
            if segment.fate != Fate::UnderWay || !is_older {
                continue;
            }
            let due = segment.sent.saturating_add(newest.round).saturating_add(patience);
            if due <= now {
                segment.fate = Fate::Lost;
                (self.under_way, self.lost) = (self.under_way - length, self.lost + length);
                has_found = true;
            } else {
                again = Some(again.map_or(due, |before| before.min(due)));
            }
        }
        (has_found, again)
    }

    /// Takes everything as lost of which nothing is known; and what the other side said of the rest too, if it may have thrown that away.
    pub(crate) fn lose_all(&mut self, is_forgetful: bool) {
        for segment in &mut self.segments {
            if segment.fate == Fate::UnderWay || is_forgetful {
                segment.fate = Fate::Lost;
            }
        }
        if is_forgetful {
            self.arrived = 0;
        }
        self.recount();
    }

    /// Takes the last segment as lost.
    pub(crate) fn lose_last(&mut self) {
        if let Some(last) = self.segments.iter_mut().rev().find(|segment| segment.fate == Fate::UnderWay) {
            last.fate = Fate::Lost;
        }
        self.recount();
    }

    /// Nothing was lost after all.
    pub(crate) fn find_all(&mut self) {
        for segment in &mut self.segments {
            if segment.fate == Fate::Lost {
                segment.fate = Fate::UnderWay;
            }
        }
        self.recount();
    }

    fn recount(&mut self) {
        (self.under_way, self.lost) = (0, 0);
        let mut begin = self.begin;
        for segment in &self.segments {
            let length = distance(begin, segment.end);
            begin = segment.end;
            match segment.fate {
                Fate::UnderWay => self.under_way += length,
                Fate::Lost => self.lost += length,
                Fate::Arrived => {}
            }
        }
    }
}
