// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loss recovery and congestion control: they decide what may be sent and what must be retransmitted, and make smoltcp do it.
//!
//! smoltcp alone notices one loss per RTT, takes three duplicate acknowledgements for a loss even if only the order has changed, and
//! retransmits everything after a timeout. So its congestion control is off here, and it gets no duplicate acknowledgements. Instead:
//!
//! - *Window*: the window that smoltcp sees is the peer's or the rest of the congestion window ([`CongestionWindow`]), whichever is less.
//! - *Retransmission* goes back: smoltcp's timer is made to expire, so that it sends everything again from the first unacknowledged
//!   byte on. Only lost segments ([`Scoreboard`]) get out ([`Recovery::passes`]). smoltcp's own retransmissions are suppressed.
//! - *Timeouts*: silence after the last segment triggers a tail loss probe (RFC 8985), whose answer shows what else is
//!   missing. After a longer silence, everything counts as lost (RFC 6298).

use smoltcp::wire::{TcpControl, TcpRepr, TcpSeqNumber};

use crate::congestion_window::CongestionWindow;
use crate::limits;
use crate::scoreboard::{Scoreboard, distance};
use crate::segment_rewrite::{Progress, is_before};

/// The RTT estimate.
#[derive(Debug, Clone, Copy)]
struct RttEstimate {
    smoothed: u64,
    deviation: u64,
    least: u64,
}

/// The state of loss recovery.
#[derive(Debug)]
pub(crate) struct Recovery {
    scoreboard: Scoreboard,
    window: CongestionWindow,
    piece: usize,
    round: Option<RttEstimate>,
    /// When the SYN was sent, if it was sent once.
    asked: Option<u64>,
    /// The connection is open: sent data counts.
    is_open: bool,
    /// The peer's window in bytes, and its window scale.
    room: usize,
    scale: u8,
    /// The window that smoltcp believes in, if it is known.
    told: Option<usize>,
    /// The sequence number at which smoltcp continues to send.
    position: TcpSeqNumber,
    /// Whether the path was seen to reorder, and the reordering window in quarters of the minimum RTT.
    is_reordered: bool,
    quarters: u64,
    /// Whether smoltcp may go back. It does so once for each acknowledgement and each timeout, whatever that brings.
    may_go_back: bool,
    /// When to detect losses again.
    settles: Option<u64>,
    /// A retransmission may exceed the window.
    is_urgent: bool,
    /// Segments that were retransmitted for the last loss, and how many of these were spurious.
    again: u32,
    spurious: u32,
    /// The times of the last transmission and of the last progress.
    spoke: u64,
    since: u64,
    is_probed: bool,
    /// Timeouts since then.
    timeouts: u32,
}

impl Recovery {
    pub(crate) const fn new() -> Self {
        let none = TcpSeqNumber(0);
        Self {
            scoreboard: Scoreboard::new(none),
            window: CongestionWindow::new(536),
            piece: 536,
            round: None,
            asked: None,
            is_open: false,
            room: 0,
            scale: 0,
            told: None,
            position: none,
            is_reordered: false,
            quarters: 1,
            may_go_back: false,
            settles: None,
            is_urgent: false,
            again: 0,
            spurious: 0,
            spoke: 0,
            since: 0,
            is_probed: false,
            timeouts: 0,
        }
    }

    /// Processes the peer's SYN, with the agreed MSS.
    pub(crate) fn agree(&mut self, syn: &TcpRepr, piece: usize) {
        (self.piece, self.window) = (piece, CongestionWindow::new(piece));
        self.scale = syn.window_scale.unwrap_or(0).min(14);
    }

    /// Records that a SYN is sent or retransmitted.
    pub(crate) fn accepts_echo(&mut self, is_again: bool, now: u64) {
        self.asked = (!is_again).then_some(now);
    }

    /// Processes the answer to it.
    pub(crate) fn is_answered(&mut self, segment: &TcpRepr, now: u64) {
        let is_syn = segment.control == TcpControl::Syn;
        self.room = usize::from(segment.window_len) << if is_syn { 0 } else { self.scale };
        if let Some(round) = self.asked.take().map(|asked| now.saturating_sub(asked)).filter(|round| *round > 0) {
            self.measure(round);
        }
    }

    /// Starts tracking: it is open, and everything up to here is acknowledged.
    pub(crate) fn open(&mut self, unanswered: TcpSeqNumber) {
        (self.is_open, self.position, self.scoreboard) = (true, unanswered, Scoreboard::new(unanswered));
    }

    fn measure(&mut self, round: u64) {
        self.round = Some(self.round.map_or(RttEstimate { smoothed: round, deviation: round / 2, least: round }, |before| {
            let deviation = before.deviation - before.deviation / 4 + before.smoothed.abs_diff(round) / 4;
            RttEstimate { smoothed: before.smoothed - before.smoothed / 8 + round / 8, deviation, least: before.least.min(round) }
        }));
    }

    /// Processes a segment that was received in an open connection.
    pub(crate) fn process(&mut self, segment: &TcpRepr, before: Progress, now: u64) {
        let Some(number) = segment.ack_number.filter(|_| !matches!(segment.control, TcpControl::Rst | TcpControl::Syn)) else {
            return;
        };
        if is_before(number, before.unanswered) || is_before(self.scoreboard.end(), number) {
            return;
        }
        self.room = usize::from(segment.window_len) << self.scale;
        let was_full = self.scoreboard.under_way() + 2 * self.piece > self.window.size() / 2;
        let least = self.round.map_or(0, |round| round.least);
        let heard = self.scoreboard.process(number, &segment.sack_ranges, now, least);
        if is_before(self.position, number) {
            self.position = number;
        }
        if let Some(round) = heard.round {
            self.measure(round);
        }
        self.is_reordered |= heard.is_reordered;
        if heard.acknowledged > 0 {
            (self.since, self.is_probed, self.timeouts) = (now, false, 0);
        }
        if heard.spurious > 0 {
            self.is_reordered = true;
            self.quarters = (self.quarters + 1).min(limits::QUARTERS);
            self.spurious += heard.spurious;
            if self.spurious >= self.again {
                self.window.undo();
                self.scoreboard.find_all();
            }
        }
        self.window.grow(heard.acknowledged, number, was_full, limits::WINDOW);
        self.may_go_back = true;
        self.find_lost(now);
    }

    /// Detects losses.
    fn find_lost(&mut self, now: u64) {
        let timeout = match self.round {
            Some(_) if !self.is_reordered && (self.scoreboard.arrived() >= limits::REPETITIONS || self.window.is_recovering()) => 0,
            Some(round) => (round.least / 4).saturating_mul(self.quarters).min(round.smoothed),
            None => 0,
        };
        let (has_found, settles) = self.scoreboard.find_lost(timeout, now);
        self.settles = settles;
        if has_found {
            self.lose();
        }
    }

    fn lose(&mut self) {
        if self.window.shrink(self.scoreboard.end()) {
            (self.is_urgent, self.again, self.spurious) = (true, 0, 0);
        }
    }

    /// Handles expired timers.
    pub(crate) fn look(&mut self, now: u64) {
        if self.settles.is_some_and(|moment| moment <= now) {
            self.may_go_back = true;
            self.find_lost(now);
        }
        if self.probes().is_some_and(|moment| moment <= now) {
            (self.is_probed, self.is_urgent, self.may_go_back) = (true, true, true);
            self.scoreboard.lose_last();
        }
        if self.times_out().is_some_and(|moment| moment <= now) {
            self.scoreboard.lose_all(self.timeouts > 0);
            if self.room > 0 {
                self.window.collapse(self.scoreboard.end());
            }
            (self.timeouts, self.since) = ((self.timeouts + 1).min(limits::DOUBLINGS), now);
            (self.is_urgent, self.may_go_back, self.again, self.spurious) = (true, true, 0, 0);
        }
    }

    /// When the last segment is probed. This happens once; after that, the longer timeout counts.
    fn probes(&self) -> Option<u64> {
        let waits = self.scoreboard.under_way() > 0 && !self.is_probed && !self.window.is_recovering();
        let round = self.round.filter(|_| waits)?;
        Some(self.spoke.max(self.since).saturating_add(round.smoothed.saturating_mul(2)).saturating_add(limits::PROBES))
    }

    /// When everything counts as lost.
    fn times_out(&self) -> Option<u64> {
        if self.scoreboard.is_empty() {
            return None;
        }
        let span = self.round.map_or(limits::MIN_RTO, |round| (round.smoothed + 4 * round.deviation).max(limits::MIN_RTO));
        Some(self.since.saturating_add(span << self.timeouts))
    }

    /// The next deadline.
    pub(crate) fn deadline(&self, now: u64) -> Option<u64> {
        if self.must_go_back() {
            return Some(now);
        }
        [self.settles, self.probes(), self.times_out()].into_iter().flatten().min()
    }

    /// Whether a segment is lost and may be retransmitted.
    fn may_repeat(&self) -> bool {
        self.scoreboard.has_lost()
            && (self.is_urgent || self.scoreboard.under_way() == 0 || self.scoreboard.under_way() + self.piece <= self.window.size())
    }

    /// Whether smoltcp is past the data to retransmit.
    pub(crate) fn must_go_back(&self) -> bool {
        self.may_go_back && self.may_repeat() && self.scoreboard.first_lost().is_some_and(|lost| !is_before(self.position, lost))
    }

    /// Records that smoltcp goes back.
    pub(crate) const fn goes_back(&mut self) {
        (self.position, self.may_go_back) = (self.scoreboard.begin(), false);
    }

    /// Records that smoltcp has nothing to send: it has reached the end.
    pub(crate) fn is_through(&mut self) {
        self.position = self.scoreboard.end();
    }

    /// Whether smoltcp is sending old data.
    pub(crate) fn is_behind(&self) -> bool {
        is_before(self.position, self.scoreboard.end())
    }

    /// Whether a segment of smoltcp gets out. If not, it is suppressed, and smoltcp takes it for sent.
    pub(crate) fn passes(&mut self, from: TcpSeqNumber, to: TcpSeqNumber, now: u64) -> bool {
        let is_old = !is_before(from, self.scoreboard.begin()) && !is_before(self.scoreboard.end(), to);
        if !self.is_open || from == to || is_before(from, self.scoreboard.begin()) {
            return true;
        }
        self.position = to;
        if is_old && !(self.may_repeat() && self.scoreboard.is_lost(from, to, now)) {
            return false;
        }
        if is_before(from, self.scoreboard.end()) {
            (self.is_urgent, self.again, self.since) = (false, self.again + 1, now);
        } else if self.scoreboard.is_empty() {
            self.since = now;
        }
        self.spoke = now;
        self.scoreboard.sent(from, to, now);
        true
    }

    /// The sequence number of a segment without data: the end of the sent data, or the end of the peer's window,
    /// beyond which the peer accepts nothing.
    pub(crate) fn number(&self) -> Option<TcpSeqNumber> {
        let (begin, end) = (self.scoreboard.begin(), self.scoreboard.end());
        self.is_open.then(|| if distance(begin, end) > self.room { TcpSeqNumber(begin.0.wrapping_add(self.room as i32)) } else { end })
    }

    /// The window that smoltcp should see. It always covers the sent data.
    fn wanted(&self) -> usize {
        let out = distance(self.scoreboard.begin(), self.scoreboard.end());
        let free = self.window.size().saturating_sub(self.scoreboard.under_way());
        // Whole segments, or the rest of the peer's window.
        let most = out.saturating_add(free / self.piece * self.piece);
        let wanted = self.room.min(most).max(out);
        wanted.div_ceil(1 << self.scale).min(usize::from(u16::MAX)) << self.scale
    }

    /// Whether the window is full of data in flight.
    pub(crate) fn is_full(&self) -> bool {
        self.window.size().saturating_sub(self.scoreboard.under_way()) < self.piece
    }

    /// The window that smoltcp should see, as the field of a segment that it gets now.
    pub(crate) fn telling(&mut self) -> u16 {
        self.told = Some(self.wanted());
        self.wanted_window()
    }

    /// Whether smoltcp believes in a closed window. Without data to send it must not: in FIN-WAIT-2 it would probe a closed window forever.
    pub(crate) fn is_believed_closed(&self) -> bool {
        self.is_open && self.told.is_none_or(|told| told == 0)
    }

    /// The smallest open window, as the field of a segment that smoltcp gets now.
    pub(crate) const fn opening(&mut self) -> u16 {
        self.told = Some(1 << self.scale);
        1
    }

    /// The window that smoltcp should see, as the field of a segment.
    pub(crate) fn wanted_window(&self) -> u16 {
        u16::try_from(self.wanted() >> self.scale).unwrap_or(u16::MAX)
    }

    /// Records that smoltcp may or may not have accepted this window.
    pub(crate) fn may_believe(&mut self, window: u16) {
        self.told = self.told.filter(|told| *told == usize::from(window) << self.scale);
    }

    /// Whether smoltcp's window is unknown.
    pub(crate) const fn is_unsure(&self) -> bool {
        self.told.is_none()
    }

    /// Whether smoltcp needs a window update.
    pub(crate) fn must_tell(&self) -> bool {
        self.told != Some(self.wanted())
    }
}
