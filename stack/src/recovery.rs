// SPDX-License-Identifier: MIT OR Apache-2.0
//! What may be sent now, and what must be sent again: decided here, and done by smoltcp, which is made to.
//!
//! smoltcp alone notices one loss for each time round, takes three repetitions of an acknowledgement for one although nothing but the order has changed, and
//! sends everything again after a silence. So it has no congestion control here, and is not told of repetitions. Instead:
//!
//! - *The window* that it hears of is the other side's or what the congestion window leaves ([`Window`]), whichever is less.
//! - *Sending again* is going back: its clock is made to run out, so that it says everything again from the first unanswered byte on, and of that only
//!   what is lost ([`Flight`]) gets out ([`Recovery::passes`]). What it says again of its own accord does not.
//! - *Silence* after a last word is broken by saying that once more (RFC 8985's probe), whose answer tells what else is missing, and after a longer
//!   one everything is taken as lost (RFC 6298).

use smoltcp::wire::{TcpControl, TcpRepr, TcpSeqNumber};

use crate::flight::{Flight, distance};
use crate::limits;
use crate::mend::{Progress, is_before};
use crate::window::Window;

/// How long answers take.
#[derive(Debug, Clone, Copy)]
struct Round {
    smoothed: u64,
    deviation: u64,
    least: u64,
}

/// What may be sent, and what must be sent again.
#[derive(Debug)]
pub(crate) struct Recovery {
    flight: Flight,
    window: Window,
    piece: usize,
    round: Option<Round>,
    /// When the other side was asked to open the connection, if it was asked once.
    asked: Option<u64>,
    /// The other side opened it: what is sent counts.
    is_open: bool,
    /// The room that it told of, in bytes, and the scale in which it tells.
    room: usize,
    scale: u8,
    /// What smoltcp believes of that, if it is known.
    told: Option<usize>,
    /// Where smoltcp goes on to send.
    position: TcpSeqNumber,
    /// Links were seen to reorder; and how late something may be before it is lost, in quarters of the shortest time round.
    is_reordered: bool,
    quarters: u64,
    /// Something has happened since smoltcp went back last: it goes back once for each acknowledgement and each time that a clock runs out, whatever that brings.
    may_go_back: bool,
    /// When to look again what is lost.
    settles: Option<u64>,
    /// Something may be sent again although the window is full.
    is_urgent: bool,
    /// Segments that were sent again for the last loss, and how many of them in vain.
    again: u32,
    spurious: u32,
    /// When something was sent last, and when something last changed for the better.
    spoke: u64,
    since: u64,
    is_probed: bool,
    /// How often time has run out since then.
    timeouts: u32,
}

impl Recovery {
    pub(crate) const fn new() -> Self {
        let none = TcpSeqNumber(0);
        Self {
            flight: Flight::new(none),
            window: Window::new(536),
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

    /// The other side's first word, and how long segments may be.
    pub(crate) fn agree(&mut self, syn: &TcpRepr, piece: usize) {
        (self.piece, self.window) = (piece, Window::new(piece));
        self.scale = syn.window_scale.unwrap_or(0).min(14);
    }

    /// The other side is asked to open the connection, for the first time or once more.
    pub(crate) fn asks(&mut self, is_again: bool, now: u64) {
        self.asked = (!is_again).then_some(now);
    }

    /// It answers.
    pub(crate) fn is_answered(&mut self, segment: &TcpRepr, now: u64) {
        let is_syn = segment.control == TcpControl::Syn;
        self.room = usize::from(segment.window_len) << if is_syn { 0 } else { self.scale };
        if let Some(round) = self.asked.take().map(|asked| now.saturating_sub(asked)).filter(|round| *round > 0) {
            self.measure(round);
        }
    }

    /// It is open, and everything up to here is acknowledged.
    pub(crate) fn open(&mut self, unanswered: TcpSeqNumber) {
        (self.is_open, self.position, self.flight) = (true, unanswered, Flight::new(unanswered));
    }

    fn measure(&mut self, round: u64) {
        self.round = Some(self.round.map_or(Round { smoothed: round, deviation: round / 2, least: round }, |before| {
            let deviation = before.deviation - before.deviation / 4 + before.smoothed.abs_diff(round) / 4;
            Round { smoothed: before.smoothed - before.smoothed / 8 + round / 8, deviation, least: before.least.min(round) }
        }));
    }

    /// A segment came while the connection is open.
    pub(crate) fn hear(&mut self, segment: &TcpRepr, before: Progress, now: u64) {
        let Some(number) = segment.ack_number.filter(|_| !matches!(segment.control, TcpControl::Rst | TcpControl::Syn)) else {
            return;
        };
        if is_before(number, before.unanswered) || is_before(self.flight.end(), number) {
            return;
        }
        self.room = usize::from(segment.window_len) << self.scale;
        let was_full = self.flight.under_way() + 2 * self.piece > self.window.size() / 2;
        let least = self.round.map_or(0, |round| round.least);
        let heard = self.flight.hear(number, &segment.sack_ranges, now, least);
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
                self.flight.find_all();
            }
        }
        self.window.grow(heard.acknowledged, number, was_full, limits::WINDOW);
        self.may_go_back = true;
        self.find_lost(now);
    }

    /// Sees what is lost by now.
    fn find_lost(&mut self, now: u64) {
        let patience = match self.round {
            Some(_) if !self.is_reordered && (self.flight.arrived() >= limits::REPETITIONS || self.window.is_recovering()) => 0,
            Some(round) => (round.least / 4).saturating_mul(self.quarters).min(round.smoothed),
            None => 0,
        };
        let (has_found, settles) = self.flight.find_lost(patience, now);
        self.settles = settles;
        if has_found {
            self.lose();
        }
    }

    fn lose(&mut self) {
        if self.window.shrink(self.flight.end()) {
            (self.is_urgent, self.again, self.spurious) = (true, 0, 0);
        }
    }

    /// Does what is due now.
    pub(crate) fn look(&mut self, now: u64) {
        if self.settles.is_some_and(|moment| moment <= now) {
            self.may_go_back = true;
            self.find_lost(now);
        }
        if self.probes().is_some_and(|moment| moment <= now) {
            (self.is_probed, self.is_urgent, self.may_go_back) = (true, true, true);
            self.flight.lose_last();
        }
        if self.times_out().is_some_and(|moment| moment <= now) {
            self.flight.lose_all(self.timeouts > 0);
            if self.room > 0 {
                self.window.collapse(self.flight.end());
            }
            (self.timeouts, self.since) = ((self.timeouts + 1).min(limits::DOUBLINGS), now);
            (self.is_urgent, self.may_go_back, self.again, self.spurious) = (true, true, 0, 0);
        }
    }

    /// When the silence of the other side means that the last word was lost: once, and then the longer clock counts.
    fn probes(&self) -> Option<u64> {
        let waits = self.flight.under_way() > 0 && !self.is_probed && !self.window.is_recovering();
        let round = self.round.filter(|_| waits)?;
        Some(self.spoke.max(self.since).saturating_add(round.smoothed.saturating_mul(2)).saturating_add(limits::PROBES))
    }

    /// When everything is taken as lost.
    fn times_out(&self) -> Option<u64> {
        if self.flight.is_empty() {
            return None;
        }
        let span = self.round.map_or(limits::TIMES_OUT, |round| (round.smoothed + 4 * round.deviation).max(limits::TIMES_OUT));
        Some(self.since.saturating_add(span << self.timeouts))
    }

    /// When there is something to do, if nothing happens before.
    pub(crate) fn deadline(&self, now: u64) -> Option<u64> {
        if self.must_go_back() {
            return Some(now);
        }
        [self.settles, self.probes(), self.times_out()].into_iter().flatten().min()
    }

    /// Something is lost and may be sent again.
    fn may_repeat(&self) -> bool {
        self.flight.has_lost()
            && (self.is_urgent || self.flight.under_way() == 0 || self.flight.under_way() + self.piece <= self.window.size())
    }

    /// smoltcp is past what is to be sent again.
    pub(crate) fn must_go_back(&self) -> bool {
        self.may_go_back && self.may_repeat() && self.flight.first_lost().is_some_and(|lost| !is_before(self.position, lost))
    }

    /// smoltcp goes back.
    pub(crate) const fn goes_back(&mut self) {
        (self.position, self.may_go_back) = (self.flight.begin(), false);
    }

    /// smoltcp has nothing to say: it is where everything has been said.
    pub(crate) fn is_through(&mut self) {
        self.position = self.flight.end();
    }

    /// smoltcp says something that it has said before.
    pub(crate) fn is_behind(&self) -> bool {
        is_before(self.position, self.flight.end())
    }

    /// Whether a segment of smoltcp's gets out. If not, it is as if it had.
    pub(crate) fn passes(&mut self, from: TcpSeqNumber, to: TcpSeqNumber, now: u64) -> bool {
        let is_old = !is_before(from, self.flight.begin()) && !is_before(self.flight.end(), to);
        if !self.is_open || from == to || is_before(from, self.flight.begin()) {
            return true;
        }
        self.position = to;
        if is_old && !(self.may_repeat() && self.flight.is_lost(from, to, now)) {
            return false;
        }
        if is_before(from, self.flight.end()) {
            (self.is_urgent, self.again, self.since) = (false, self.again + 1, now);
        } else if self.flight.is_empty() {
            self.since = now;
        }
        self.spoke = now;
        self.flight.sent(from, to, now);
        true
    }

    /// The number that a segment with nothing in it has to have: where everything has been said, or where the other side's room ends, beyond which it believes nothing.
    pub(crate) fn number(&self) -> Option<TcpSeqNumber> {
        let (begin, end) = (self.flight.begin(), self.flight.end());
        self.is_open.then(|| if distance(begin, end) > self.room { TcpSeqNumber(begin.0.wrapping_add(self.room as i32)) } else { end })
    }

    /// The room for what may be sent, as smoltcp is to hear of it. What was sent fits always.
    fn wanted(&self) -> usize {
        let out = distance(self.flight.begin(), self.flight.end());
        let free = self.window.size().saturating_sub(self.flight.under_way());
        // Whole segments, or the rest of the other side's room.
        let most = out.saturating_add(free / self.piece * self.piece);
        let wanted = self.room.min(most).max(out);
        wanted.div_ceil(1 << self.scale).min(usize::from(u16::MAX)) << self.scale
    }

    /// Whether the window is full of what is under way.
    pub(crate) fn is_full(&self) -> bool {
        self.window.size().saturating_sub(self.flight.under_way()) < self.piece
    }

    /// The room for what may be sent, as a segment has it that smoltcp is told with.
    pub(crate) fn telling(&mut self) -> u16 {
        self.told = Some(self.wanted());
        self.wanted_window()
    }

    /// Whether smoltcp may believe that there is no room. Where it has nothing to send it must not: in FIN-WAIT-2 it would probe a closed window without end.
    pub(crate) fn is_believed_closed(&self) -> bool {
        self.is_open && self.told.is_none_or(|told| told == 0)
    }

    /// The least room that is any, as a segment has it that smoltcp is told with.
    pub(crate) const fn opening(&mut self) -> u16 {
        self.told = Some(1 << self.scale);
        1
    }

    /// The room for what may be sent, before smoltcp is told.
    pub(crate) fn wanted_window(&self) -> u16 {
        u16::try_from(self.wanted() >> self.scale).unwrap_or(u16::MAX)
    }

    /// smoltcp heard, or did not believe, that there is so much room.
    pub(crate) fn may_believe(&mut self, window: u16) {
        self.told = self.told.filter(|told| *told == usize::from(window) << self.scale);
    }

    /// What smoltcp believes is not known.
    pub(crate) const fn is_unsure(&self) -> bool {
        self.told.is_none()
    }

    /// Whether smoltcp has to be told.
    pub(crate) fn must_tell(&self) -> bool {
        self.told != Some(self.wanted())
    }
}
