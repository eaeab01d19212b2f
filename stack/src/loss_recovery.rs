// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loss recovery and congestion control: they decide what may be sent and what must be retransmitted, and make smoltcp do it.
//!
//! smoltcp alone notices one loss per RTT, takes three duplicate acknowledgements for a loss even if only the order has changed, and
//! retransmits everything after a timeout. So its congestion control is off here, and it gets no duplicate acknowledgements. Instead:
//!
//! - *Window*: the window that smoltcp sees is the peer's or the rest of the congestion window ([`CongestionWindow`]), whichever is less.
//! - *Retransmission* goes back: smoltcp's timer is made to expire, so that it sends everything again from the first unacknowledged
//!   byte on. Only lost segments ([`Scoreboard`]) get out ([`Recovery::may_transmit`]). smoltcp's own retransmissions are suppressed.
//! - *Timeouts*: silence after the last segment triggers a tail loss probe (RFC 8985), whose answer shows what else is
//!   missing. After a longer silence, everything counts as lost (RFC 6298).

use smoltcp::wire::{TcpControl, TcpRepr, TcpSeqNumber};

use crate::congestion_window::CongestionWindow;
use crate::limits;
use crate::scoreboard::Scoreboard;
use crate::sequence::{SequenceNumbers, distance, is_before};

/// The RTT estimate.
#[derive(Debug, Clone, Copy)]
struct RttEstimate {
    smoothed: u64,
    deviation: u64,
    min: u64,
}

/// The state of loss recovery.
#[derive(Debug)]
pub(crate) struct Recovery {
    scoreboard: Scoreboard,
    window: CongestionWindow,
    mss: usize,
    rtt: Option<RttEstimate>,
    /// When the SYN was sent, if it was sent once.
    syn_sent_at: Option<u64>,
    /// The connection is open: sent data counts.
    is_open: bool,
    /// The peer's window in bytes, and its window scale.
    peer_window: usize,
    window_scale: u8,
    /// The window that smoltcp believes in, if it is known.
    smoltcp_window: Option<usize>,
    /// The sequence number at which smoltcp continues to send.
    smoltcp_position: TcpSeqNumber,
    /// Whether the path was seen to reorder, and the reordering window in quarters of the minimum RTT.
    is_reordered: bool,
    reordering_quarters: u64,
    /// Whether smoltcp may go back. It does so once for each acknowledgement and each timeout, whatever that brings.
    may_rewind: bool,
    /// When to detect losses again.
    reordering_deadline: Option<u64>,
    /// A retransmission may exceed the window.
    is_urgent: bool,
    /// Segments that were retransmitted for the last loss, and how many of these were spurious.
    retransmitted: u32,
    spurious: u32,
    /// The times of the last transmission and of the last progress.
    last_sent: u64,
    last_progress: u64,
    has_probed: bool,
    /// Timeouts since then.
    timeouts: u32,
}

impl Recovery {
    pub(crate) const fn new() -> Self {
        let none = TcpSeqNumber(0);
        Self {
            scoreboard: Scoreboard::new(none),
            window: CongestionWindow::new(536),
            mss: 536,
            rtt: None,
            syn_sent_at: None,
            is_open: false,
            peer_window: 0,
            window_scale: 0,
            smoltcp_window: None,
            smoltcp_position: none,
            is_reordered: false,
            reordering_quarters: 1,
            may_rewind: false,
            reordering_deadline: None,
            is_urgent: false,
            retransmitted: 0,
            spurious: 0,
            last_sent: 0,
            last_progress: 0,
            has_probed: false,
            timeouts: 0,
        }
    }

    /// Processes the peer's SYN, with the agreed MSS.
    pub(crate) fn process_syn_options(&mut self, syn: &TcpRepr, mss: usize) {
        (self.mss, self.window) = (mss, CongestionWindow::new(mss));
        self.window_scale = syn.window_scale.unwrap_or(0).min(14);
    }

    /// Records that a SYN is sent or retransmitted.
    pub(crate) fn note_syn(&mut self, is_retransmission: bool, now: u64) {
        self.syn_sent_at = (!is_retransmission).then_some(now);
    }

    /// Processes the answer to it.
    pub(crate) fn process_handshake(&mut self, segment: &TcpRepr, now: u64) {
        let is_syn = segment.control == TcpControl::Syn;
        self.peer_window = usize::from(segment.window_len) << if is_syn { 0 } else { self.window_scale };
        if let Some(rtt) = self.syn_sent_at.take().map(|syn_sent_at| now.saturating_sub(syn_sent_at)).filter(|rtt| *rtt > 0) {
            self.measure(rtt);
        }
    }

    /// Starts tracking: it is open, and everything up to here is acknowledged.
    pub(crate) fn open(&mut self, unacknowledged: TcpSeqNumber) {
        (self.is_open, self.smoltcp_position, self.scoreboard) = (true, unacknowledged, Scoreboard::new(unacknowledged));
    }

    fn measure(&mut self, rtt: u64) {
        self.rtt = Some(self.rtt.map_or(RttEstimate { smoothed: rtt, deviation: rtt / 2, min: rtt }, |before| {
            let deviation = before.deviation - before.deviation / 4 + before.smoothed.abs_diff(rtt) / 4;
            RttEstimate { smoothed: before.smoothed - before.smoothed / 8 + rtt / 8, deviation, min: before.min.min(rtt) }
        }));
    }

    /// Processes a segment that was received in an open connection.
    pub(crate) fn process(&mut self, segment: &TcpRepr, before: SequenceNumbers, now: u64) {
        let Some(number) = segment.ack_number.filter(|_| !matches!(segment.control, TcpControl::Rst | TcpControl::Syn)) else {
            return;
        };
        if is_before(number, before.unacknowledged) || is_before(self.scoreboard.end(), number) {
            return;
        }
        self.peer_window = usize::from(segment.window_len) << self.window_scale;
        let was_full = self.scoreboard.in_flight() + 2 * self.mss > self.window.size() / 2;
        let min = self.rtt.map_or(0, |rtt| rtt.min);
        let summary = self.scoreboard.process(number, &segment.sack_ranges, now, min);
        if is_before(self.smoltcp_position, number) {
            self.smoltcp_position = number;
        }
        if let Some(rtt) = summary.rtt {
            self.measure(rtt);
        }
        self.is_reordered |= summary.is_reordered;
        if summary.acknowledged > 0 {
            (self.last_progress, self.has_probed, self.timeouts) = (now, false, 0);
        }
        if summary.spurious > 0 {
            self.is_reordered = true;
            self.reordering_quarters = (self.reordering_quarters + 1).min(limits::MAX_REORDERING_QUARTERS);
            self.spurious += summary.spurious;
            if self.spurious >= self.retransmitted {
                self.window.undo();
                self.scoreboard.undo_losses();
            }
        }
        self.window.grow(summary.acknowledged, number, was_full, limits::MAX_WINDOW);
        self.may_rewind = true;
        self.find_lost(now);
    }

    /// Detects losses.
    fn find_lost(&mut self, now: u64) {
        let timeout = match self.rtt {
            Some(_) if !self.is_reordered && (self.scoreboard.sacked() >= limits::DUPLICATE_ACKS || self.window.is_recovering()) => 0,
            Some(rtt) => (rtt.min / 4).saturating_mul(self.reordering_quarters).min(rtt.smoothed),
            None => 0,
        };
        let (has_found, reordering_deadline) = self.scoreboard.find_lost(timeout, now);
        self.reordering_deadline = reordering_deadline;
        if has_found {
            self.lose();
        }
    }

    fn lose(&mut self) {
        if self.window.shrink(self.scoreboard.end()) {
            (self.is_urgent, self.retransmitted, self.spurious) = (true, 0, 0);
        }
    }

    /// Handles expired timers.
    pub(crate) fn handle_timers(&mut self, now: u64) {
        if self.reordering_deadline.is_some_and(|moment| moment <= now) {
            self.may_rewind = true;
            self.find_lost(now);
        }
        if self.probe_deadline().is_some_and(|moment| moment <= now) {
            (self.has_probed, self.is_urgent, self.may_rewind) = (true, true, true);
            self.scoreboard.mark_last_lost();
        }
        if self.rto_deadline().is_some_and(|moment| moment <= now) {
            self.scoreboard.mark_all_lost(self.timeouts > 0);
            if self.peer_window > 0 {
                self.window.collapse(self.scoreboard.end());
            }
            (self.timeouts, self.last_progress) = ((self.timeouts + 1).min(limits::MAX_RTO_DOUBLINGS), now);
            (self.is_urgent, self.may_rewind, self.retransmitted, self.spurious) = (true, true, 0, 0);
        }
    }

    /// When the last segment is probed. This happens once; after that, the longer timeout counts.
    fn probe_deadline(&self) -> Option<u64> {
        let waits = self.scoreboard.in_flight() > 0 && !self.has_probed && !self.window.is_recovering();
        let rtt = self.rtt.filter(|_| waits)?;
        Some(self.last_sent.max(self.last_progress).saturating_add(rtt.smoothed.saturating_mul(2)).saturating_add(limits::TAIL_PROBE))
    }

    /// When everything counts as lost.
    fn rto_deadline(&self) -> Option<u64> {
        if self.scoreboard.is_empty() {
            return None;
        }
        let span = self.rtt.map_or(limits::MIN_RTO, |rtt| (rtt.smoothed + 4 * rtt.deviation).max(limits::MIN_RTO));
        Some(self.last_progress.saturating_add(span << self.timeouts))
    }

    /// The next deadline.
    pub(crate) fn deadline(&self, now: u64) -> Option<u64> {
        if self.must_rewind() {
            return Some(now);
        }
        [self.reordering_deadline, self.probe_deadline(), self.rto_deadline()].into_iter().flatten().min()
    }

    /// Whether a segment is lost and may be retransmitted.
    fn may_retransmit(&self) -> bool {
        self.scoreboard.has_lost()
            && (self.is_urgent || self.scoreboard.in_flight() == 0 || self.scoreboard.in_flight() + self.mss <= self.window.size())
    }

    /// Whether smoltcp is past the data to retransmit.
    pub(crate) fn must_rewind(&self) -> bool {
        self.may_rewind && self.may_retransmit() && self.scoreboard.first_lost().is_some_and(|lost| !is_before(self.smoltcp_position, lost))
    }

    /// Records that smoltcp goes back.
    pub(crate) const fn note_rewind(&mut self) {
        (self.smoltcp_position, self.may_rewind) = (self.scoreboard.begin(), false);
    }

    /// Records that smoltcp has nothing to send: it has reached the end.
    pub(crate) fn note_all_sent(&mut self) {
        self.smoltcp_position = self.scoreboard.end();
    }

    /// Whether smoltcp is sending old data.
    pub(crate) fn is_resending(&self) -> bool {
        is_before(self.smoltcp_position, self.scoreboard.end())
    }

    /// Whether a segment of smoltcp gets out. If not, it is suppressed, and smoltcp takes it for sent.
    pub(crate) fn may_transmit(&mut self, from: TcpSeqNumber, to: TcpSeqNumber, now: u64) -> bool {
        let is_old = !is_before(from, self.scoreboard.begin()) && !is_before(self.scoreboard.end(), to);
        if !self.is_open || from == to || is_before(from, self.scoreboard.begin()) {
            return true;
        }
        self.smoltcp_position = to;
        if is_old && !(self.may_retransmit() && self.scoreboard.is_lost(from, to, now)) {
            return false;
        }
        if is_before(from, self.scoreboard.end()) {
            (self.is_urgent, self.retransmitted, self.last_progress) = (false, self.retransmitted + 1, now);
        } else if self.scoreboard.is_empty() {
            self.last_progress = now;
        }
        self.last_sent = now;
        self.scoreboard.sent(from, to, now);
        true
    }

    /// The sequence number of a segment without data: the end of the sent data, or the end of the peer's window,
    /// beyond which the peer accepts nothing.
    pub(crate) fn bare_ack_sequence(&self) -> Option<TcpSeqNumber> {
        let (begin, end) = (self.scoreboard.begin(), self.scoreboard.end());
        self.is_open.then(|| {
            if distance(begin, end) > self.peer_window { TcpSeqNumber(begin.0.wrapping_add(self.peer_window as i32)) } else { end }
        })
    }

    /// The window that smoltcp should see. It always covers the sent data.
    fn target_window_bytes(&self) -> usize {
        let out = distance(self.scoreboard.begin(), self.scoreboard.end());
        let free = self.window.size().saturating_sub(self.scoreboard.in_flight());
        // Whole segments, or the rest of the peer's window.
        let most = out.saturating_add(free / self.mss * self.mss);
        let target_window_bytes = self.peer_window.min(most).max(out);
        target_window_bytes.div_ceil(1 << self.window_scale).min(usize::from(u16::MAX)) << self.window_scale
    }

    /// Whether the window is full of data in flight.
    pub(crate) fn is_full(&self) -> bool {
        self.window.size().saturating_sub(self.scoreboard.in_flight()) < self.mss
    }

    /// The window that smoltcp should see, as the field of a segment that it gets now.
    pub(crate) fn announce_window(&mut self) -> u16 {
        self.smoltcp_window = Some(self.target_window_bytes());
        self.target_window()
    }

    /// Whether smoltcp believes in a closed window. Without data to send it must not: in FIN-WAIT-2 it would probe a closed window forever.
    pub(crate) fn sees_closed_window(&self) -> bool {
        self.is_open && self.smoltcp_window.is_none_or(|smoltcp_window| smoltcp_window == 0)
    }

    /// The smallest open window, as the field of a segment that smoltcp gets now.
    pub(crate) const fn announce_smallest_window(&mut self) -> u16 {
        self.smoltcp_window = Some(1 << self.window_scale);
        1
    }

    /// The window that smoltcp should see, as the field of a segment.
    pub(crate) fn target_window(&self) -> u16 {
        u16::try_from(self.target_window_bytes() >> self.window_scale).unwrap_or(u16::MAX)
    }

    /// Records that smoltcp may or may not have accepted this window.
    pub(crate) fn note_unconfirmed_window(&mut self, window: u16) {
        self.smoltcp_window = self.smoltcp_window.filter(|smoltcp_window| *smoltcp_window == usize::from(window) << self.window_scale);
    }

    /// Whether smoltcp's window is unknown.
    pub(crate) const fn is_window_unknown(&self) -> bool {
        self.smoltcp_window.is_none()
    }

    /// Whether smoltcp needs a window update.
    pub(crate) fn needs_window_update(&self) -> bool {
        self.smoltcp_window != Some(self.target_window_bytes())
    }
}
