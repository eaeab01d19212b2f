// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection: a smoltcp socket alone in its set, and what smoltcp does not know of it.
//!
//! smoltcp's clock runs [`PACE`] times as fast as everybody's, because its shortest time before sending again is a second, which is
//! an age between cells; so it is Linux's 200 ms.

use core::time::Duration;

use smoltcp::iface::Interface;
use smoltcp::phy::DeviceCapabilities;
use smoltcp::socket::tcp::{Socket, State};
use smoltcp::time::Instant;
use smoltcp::wire::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, TCP_HEADER_LEN, TcpControl, TcpRepr, TcpSeqNumber};

use crate::mend::{Mended, Progress, fit, is_before, is_repetition, mend, repetition, rewritten};
use crate::packet::{Ends, Packet};
use crate::port::{Mute, Port, Said, Voice};
use crate::recovery::Recovery;
use crate::sockets::Single;
use crate::steer::Steer;
use crate::{Failure, Outlet, TcpOptions, Tuple, limits};

/// How much faster smoltcp's clock runs.
const PACE: u64 = 5;

/// A moment when every clock of smoltcp's has run out.
const LATE: Instant = Instant::from_micros_const(1 << 60);

/// A moment as smoltcp has it.
pub(crate) fn paced(moment: u64) -> Instant {
    Instant::from_micros((moment / 1000).saturating_mul(PACE).min(i64::MAX as u64) as i64)
}

/// A moment of smoltcp's, not before it.
fn unpaced(moment: Instant) -> u64 {
    (moment.total_micros().max(0) as u64).saturating_mul(1000).div_ceil(PACE)
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A span as smoltcp has it, and not none.
fn paced_span(span: Duration) -> smoltcp::time::Duration {
    smoltcp::time::Duration::from_micros((nanoseconds(span) / 1000).saturating_mul(PACE).clamp(1, 1 << 40))
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It was asked for by this side.
    Opening,
    Open,
    /// It carries nothing any more; what arrived may be unread.
    Over,
}

/// What a look at a connection found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Opened,
    /// More to read, or the end of it.
    Data,
    Room,
    /// The other side broke it.
    Broken,
    /// Both sides have finished, and this side's last word may have to be said again.
    Lingers,
    /// Both sides have finished.
    Ended,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) tuple: Tuple,
    pub(crate) stage: Stage,
    pub(crate) options: TcpOptions,
    /// It was a stranger's wish.
    pub(crate) is_incoming: bool,
    /// Why it broke.
    pub(crate) failure: Failure,
    /// Nobody knows its name any more.
    pub(crate) is_left: bool,
    /// Nobody reads any more: since then, or since the other side took the last of what is left to be said.
    deserted: Option<u64>,
    /// It stands among those that have something to say.
    pub(crate) is_dirty: bool,
    /// What its user will be told, as bits, in their order.
    pub(crate) news: u8,
    /// It stands among those that have news.
    pub(crate) has_news: bool,
    pub(crate) said: Said,
    single: Single,
    state: State,
    /// The user has finished.
    finishing: bool,
    /// It was broken by this side, and the other side does not know yet.
    owes_reset: bool,
    wants_room: bool,
    /// Bytes that could be read at the last look.
    readable: usize,
    /// The first byte of the other side, how many were read of it, and what it acknowledged.
    begin: TcpSeqNumber,
    received: u32,
    answered: TcpSeqNumber,
    /// The scale of the windows that this side tells of.
    scale: u8,
    steer: Steer,
    recovery: Recovery,
    /// When the other side was last heard.
    heard: u64,
    /// Since when it has owed an answer, or been heard without giving all of it.
    waits: Option<u64>,
}

impl Connection {
    /// Whether all that was given has arrived, the end included.
    pub(crate) fn is_said(&self) -> bool {
        let is_ending = matches!(self.state, State::FinWait1 | State::Closing | State::LastAck)
            || self.finishing && matches!(self.state, State::Established | State::CloseWait);
        self.socket().send_queue() == 0 && !is_ending
    }

    /// One with nothing said yet, whose socket is still to be told to listen or to connect.
    pub(crate) fn new(tuple: Tuple, single: Single, now: u64) -> Self {
        let mut connection = Self {
            tuple,
            stage: Stage::Opening,
            options: TcpOptions::default(),
            is_incoming: false,
            failure: Failure::Reset,
            is_left: false,
            deserted: None,
            is_dirty: false,
            news: 0,
            has_news: false,
            said: Said::default(),
            single,
            state: State::Closed,
            finishing: false,
            owes_reset: false,
            wants_room: false,
            readable: 0,
            begin: TcpSeqNumber(0),
            received: 0,
            answered: TcpSeqNumber(0),
            scale: 0,
            steer: Steer::new(),
            recovery: Recovery::new(),
            heard: now,
            waits: Some(now),
        };
        connection.set(TcpOptions::default());
        connection
    }

    /// What is left when it is over.
    pub(crate) fn into_socket(self) -> Single {
        self.single
    }

    pub(crate) fn socket(&self) -> &Socket<'static> {
        self.single.get()
    }

    pub(crate) fn socket_mut(&mut self) -> &mut Socket<'static> {
        self.single.get_mut()
    }

    /// Asks the other side. Whether the ends can be used.
    pub(crate) fn connect(&mut self, interface: &mut Interface) -> bool {
        let Tuple { local, remote } = self.tuple;
        let connected = self.single.get_mut().connect(interface.context(), remote, local).is_ok();
        self.state = self.socket().state();
        connected
    }

    pub(crate) fn set(&mut self, options: TcpOptions) {
        self.options = options;
        let socket = self.socket_mut();
        socket.set_hop_limit(Some(options.hops.max(1)));
        if options.keep_alive.is_none() {
            socket.set_keep_alive(None);
        }
    }

    /// Receives a packet of this connection with this segment, as far as its buffer has room: smoltcp takes the window that its SYN announced as scaled, which is more than
    /// there is, and panics where that much comes.
    pub(crate) fn hear(&mut self, interface: &mut Interface, voice: &mut Voice, packet: &Packet, segment: &TcpRepr, now: u64) {
        let socket = self.socket();
        let room = socket.recv_capacity() - socket.recv_queue();
        let is_synchronized = !matches!(self.state, State::Closed | State::Listen | State::SynSent);
        match fit(segment, self.expected(), room).filter(|_| is_synchronized) {
            None => self.hear_fitting(interface, voice, packet, segment, now),
            Some(segment) => {
                let bytes = rewritten(packet, &segment, &voice.capabilities.checksum);
                self.hear_fitting(interface, voice, &Packet { bytes: &bytes, ..*packet }, &segment, now);
            }
        }
    }

    fn hear_fitting(&mut self, interface: &mut Interface, voice: &mut Voice, packet: &Packet, segment: &TcpRepr, now: u64) {
        self.heard = now;
        self.waits = self.waits.map(|_| now);
        self.socket_mut().set_keep_alive(None);
        if segment.control == TcpControl::Syn && self.stage == Stage::Opening {
            self.begin = segment.seq_number + 1;
            self.scale = segment.window_scale.map_or(0, |_| scale(self.socket().recv_capacity()));
            let header = if self.tuple.remote.is_ipv4() { IPV4_HEADER_LEN } else { IPV6_HEADER_LEN };
            let piece = self.steer.agree(segment, voice.capabilities.max_transmission_unit - header - TCP_HEADER_LEN);
            self.recovery.agree(segment, piece);
        }
        let Some(progress) = self.progress(&voice.said) else {
            self.answered = segment.ack_number.unwrap_or(self.answered);
            self.recovery.is_answered(segment, now);
            return self.take(interface, voice, packet.bytes, now);
        };
        if segment.ack_number.is_some_and(|number| segment.control != TcpControl::Rst && is_before(progress.sent, number)) {
            // Nobody has that (RFC 9293, 3.10.7.4), but smoltcp would believe it of all that it was given, and of an end that it has not sent.
            return;
        }
        self.recovery.hear(segment, progress, now);
        self.steer.came(segment, progress);
        if let Some(number) = segment.ack_number.filter(|number| is_before(self.answered, *number) && !is_before(progress.sent, *number)) {
            self.answered = number;
            self.deserted = self.deserted.map(|_| now);
        }
        let is_waited_for = progress.sent != progress.unanswered;
        if is_waited_for && is_repetition(segment, progress) {
            // smoltcp would send something again, or stop the clock of an end that is under way alone. Of more room it is told when it speaks.
            return;
        }
        let sums = voice.capabilities.checksum.clone();
        let window = self.recovery.wanted_window();
        match mend(packet, segment, progress, window, &sums) {
            Mended::Sound => {
                self.recovery.may_believe(segment.window_len);
                self.take(interface, voice, packet.bytes, now);
            }
            Mended::Instead(other) => {
                if segment.segment_len() == 0 {
                    self.recovery.telling();
                } else {
                    self.recovery.may_believe(window);
                }
                self.take(interface, voice, &other, now);
            }
            Mended::Before(other, wants_answer) => {
                self.recovery.telling();
                self.take(interface, voice, &other, now);
                if wants_answer {
                    self.take(interface, voice, packet.bytes, now);
                }
            }
        }
    }

    fn take(&mut self, interface: &mut Interface, voice: &mut Voice, bytes: &[u8], now: u64) {
        let mut port = Port { voice, recovery: &mut self.recovery, now, arrived: Some(bytes) };
        interface.poll_ingress_single(paced(now), &mut port, &mut self.single.set);
    }

    /// How far both sides are, once it is open.
    fn progress(&self, said: &Said) -> Option<Progress> {
        let sent = said.last.filter(|_| self.stage == Stage::Open)?.sequence;
        Some(Progress { expected: self.expected(), unanswered: self.answered, sent })
    }

    /// The next byte that the other side has to send.
    fn expected(&self) -> TcpSeqNumber {
        let finished = i32::from(has_finished(self.state));
        let received = (self.received as i32).wrapping_add(self.socket().recv_queue() as i32).wrapping_add(finished);
        TcpSeqNumber(self.begin.0.wrapping_add(received))
    }

    /// What it speaks with.
    pub(crate) fn voice<'a>(&self, capabilities: &'a DeviceCapabilities, outlet: &'a mut dyn Outlet, ends: Ends) -> Voice<'a> {
        Voice { capabilities, outlet, ends, said: self.said.anew(), scale: self.scale }
    }

    /// Says one packet, if there is one to say.
    pub(crate) fn speak(&mut self, interface: &mut Interface, voice: &mut Voice, now: u64) {
        if let Some(keep_alive) = self.options.keep_alive
            && now >= self.heard.saturating_add(nanoseconds(keep_alive.idle))
            && self.socket().keep_alive().is_none()
        {
            self.socket_mut().set_keep_alive(Some(paced_span(keep_alive.interval)));
        }
        self.steer.speaks();
        self.recover(interface, voice, now);
        loop {
            let holds_back = self.recovery.is_full() || !self.options.no_delay && self.steer.holds_back(self.answered);
            let is_behind = self.recovery.is_behind();
            self.socket_mut().set_nagle_enabled(holds_back && !is_behind);
            let before = voice.said;
            voice.said.is_swallowed = false;
            let mut port = Port { voice, recovery: &mut self.recovery, now, arrived: None };
            interface.poll_egress(paced(now), &mut port, &mut self.single.set);
            let said = voice.said;
            if let Some(last) = said.last.filter(|_| said.frames > before.frames) {
                self.steer.sent(said.length, last.sequence);
                if self.stage == Stage::Opening {
                    self.recovery.asks(said.again > before.again, now);
                }
            }
            // What does not get out takes smoltcp further, so this ends.
            if !said.is_swallowed {
                if said.frames == before.frames && !said.is_cut_short {
                    self.recovery.is_through();
                }
                break;
            }
        }
    }

    /// Sees what is lost, and lets smoltcp send that again, and as much more as may be under way.
    fn recover(&mut self, interface: &mut Interface, voice: &mut Voice, now: u64) {
        let Some(progress) = self.progress(&voice.said) else { return };
        self.recovery.look(now);
        let has_more = self.socket().send_queue() > 0;
        if if has_more { self.recovery.must_tell() } else { self.recovery.is_believed_closed() } {
            let is_unsure = self.recovery.is_unsure();
            let window = if has_more { self.recovery.telling() } else { self.recovery.opening() };
            // Not the same twice, which would mean to smoltcp that something is lost.
            for window in is_unsure.then_some(window.checked_add(1).unwrap_or(u16::MAX - 1)).into_iter().chain([window]) {
                let told = repetition(&self.tuple, progress, window, &voice.capabilities.checksum);
                self.take(interface, voice, &told, now);
            }
        }
        if self.recovery.must_go_back() {
            interface.poll_egress(LATE, &mut Mute(voice.capabilities), &mut self.single.set);
            self.recovery.goes_back();
        }
    }

    /// Whether there may be something to say now. If only an acknowledgement is owed, it may wait.
    pub(crate) fn must_speak(&mut self, now: u64) -> bool {
        let is_steady = self.stage == Stage::Open && matches!(self.state, State::Established | State::FinWait2);
        if !is_steady || !self.said.has_acknowledged || self.socket().send_queue() > 0 {
            return true;
        }
        self.steer.acknowledges_now(self.owed(), now)
    }

    /// Whether the other side has to learn that there is room again: twice as much as it knows of, as smoltcp sees it.
    pub(crate) fn must_tell_room(&self) -> bool {
        let room = self.socket().recv_capacity() - self.socket().recv_queue();
        room / 2 >= self.said.window.saturating_sub(self.owed())
    }

    /// Bytes that came and are not acknowledged.
    fn owed(&self) -> usize {
        let (Some(progress), Some(last)) = (self.progress(&self.said), self.said.last) else { return 0 };
        progress.expected.0.wrapping_sub(last.acknowledged.0).max(0) as usize
    }

    /// When it must be looked at next.
    pub(crate) fn deadline(&mut self, interface: &mut Interface, now: u64) -> Option<u64> {
        let asked = match self.steer.acknowledges() {
            Some(moment) => Some(moment),
            None => interface.poll_at(paced(now), &self.single.set).map(unpaced),
        };
        let given_up = self.waits.map(|since| since.saturating_add(self.patience()));
        let silent = self.options.keep_alive.filter(|_| self.is_silence_watched()).map(|keep_alive| {
            let idle = self.heard.saturating_add(nanoseconds(keep_alive.idle));
            if now < idle { idle } else { idle.saturating_add(nanoseconds(keep_alive.interval).saturating_mul(keep_alive.count.into())) }
        });
        [asked, self.recovery.deadline(now), given_up, silent, self.forsaken()].into_iter().flatten().min()
    }

    /// Whether the other side has not answered for too long.
    pub(crate) fn is_given_up(&self, now: u64) -> bool {
        let unanswered = self.waits.is_some_and(|since| now >= since.saturating_add(self.patience()));
        let silent = self.options.keep_alive.filter(|_| self.is_silence_watched()).is_some_and(|keep_alive| {
            let questions = nanoseconds(keep_alive.interval).saturating_mul(keep_alive.count.into());
            now >= self.heard.saturating_add(nanoseconds(keep_alive.idle)).saturating_add(questions)
        });
        unanswered || silent || self.forsaken().is_some_and(|moment| now >= moment)
    }

    /// When it is given up because nobody reads any more, and the other side neither takes what is left to be said nor finishes. Who takes nothing may well answer.
    fn forsaken(&self) -> Option<u64> {
        let since = self.deserted.filter(|_| self.stage == Stage::Open)?;
        Some(since.saturating_add(if self.state == State::FinWait2 { limits::HALF_CLOSED } else { limits::DESERTED }))
    }

    /// Nobody will read any more.
    pub(crate) fn desert(&mut self, now: u64) {
        self.deserted.get_or_insert(now);
    }

    /// Whether nobody will read any more.
    pub(crate) const fn is_deserted(&self) -> bool {
        self.deserted.is_some()
    }

    fn patience(&self) -> u64 {
        let patience = nanoseconds(self.options.patience);
        if self.stage == Stage::Opening { patience.min(limits::OPENING) } else { patience }
    }

    fn is_silence_watched(&self) -> bool {
        self.stage == Stage::Open && self.waits.is_none()
    }

    /// Looks what has changed, and calls `tell` with each change.
    pub(crate) fn look(&mut self, now: u64, tell: &mut dyn FnMut(Change)) {
        let before = self.state;
        let state = self.socket().state();
        self.state = state;
        if self.stage == Stage::Opening && !matches!(state, State::Closed | State::SynSent | State::SynReceived | State::Listen) {
            self.stage = Stage::Open;
            self.recovery.open(self.answered);
            tell(Change::Opened);
        }
        if self.finishing && self.stage == Stage::Open && matches!(state, State::Established | State::CloseWait) {
            self.close();
        }
        let readable = self.socket().recv_queue();
        if readable > self.readable || (has_finished(state) && !has_finished(before) && state != State::Closed) {
            tell(Change::Data);
        }
        self.readable = readable;
        if self.wants_room && self.writable() >= self.socket().send_capacity() / 4 {
            self.wants_room = false;
            tell(Change::Room);
        }
        let owed = !matches!(state, State::Closed | State::TimeWait | State::FinWait2)
            && (self.stage == Stage::Opening
                || self.socket().send_queue() > 0
                || matches!(state, State::FinWait1 | State::Closing | State::LastAck));
        self.waits = owed.then(|| self.waits.unwrap_or(now));
        if self.stage != Stage::Over && matches!(state, State::Closed | State::TimeWait) {
            self.stage = Stage::Over;
            self.waits = None;
            tell(match (before, state) {
                (_, State::TimeWait) => Change::Lingers,
                // Whoever has forgotten an end had heard it.
                (State::LastAck | State::Closing, _) => Change::Ended,
                _ => Change::Broken,
            });
        }
    }

    /// Bytes that can be sent at once.
    pub(crate) fn writable(&self) -> usize {
        let socket = self.socket();
        if socket.may_send() && !self.finishing { socket.send_capacity() - socket.send_queue() } else { 0 }
    }

    pub(crate) fn send(&mut self, give: &mut dyn FnMut(&mut [u8]) -> usize) -> usize {
        let mut sent = 0;
        // The room is a ring: in two pieces at most.
        for _ in 0..2 {
            let room = self.writable();
            if room == 0 {
                break;
            }
            let mut is_taken = true;
            let written = self.socket_mut().send(|piece| {
                let written = give(piece).min(piece.len());
                is_taken = written == piece.len();
                (written, written)
            });
            sent += written.unwrap_or(0);
            if !is_taken {
                break;
            }
        }
        self.wants_room = self.wants_room || self.writable() == 0;
        sent
    }

    pub(crate) fn receive(&mut self, take: &mut dyn FnMut(&[u8]) -> usize) -> usize {
        let mut received = 0;
        for _ in 0..2 {
            if self.socket().recv_queue() == 0 {
                break;
            }
            let mut is_taken = true;
            let read = self.socket_mut().recv(|piece| {
                let read = take(piece).min(piece.len());
                is_taken = read == piece.len();
                (read, read)
            });
            received += read.unwrap_or(0);
            if !is_taken {
                break;
            }
        }
        self.readable = self.socket().recv_queue();
        self.received = self.received.wrapping_add(received as u32);
        received
    }

    pub(crate) fn has_finished(&self) -> bool {
        self.stage == Stage::Over || has_finished(self.state)
    }

    /// Nothing more will be given to be sent.
    pub(crate) fn finish(&mut self, now: u64) {
        self.finishing = true;
        if self.stage == Stage::Open {
            self.waits.get_or_insert(now);
            self.close();
        }
    }

    /// Says that nothing more will be said (FIN). Not after the other side has, as long as something was not answered: smoltcp would not hear of room any more (it takes each
    /// acknowledgement of nothing new for a stray one in LAST-ACK), and a closed window would stay so.
    fn close(&mut self) {
        if self.state != State::CloseWait || self.socket().send_queue() == 0 {
            self.socket_mut().close();
            self.state = self.socket().state();
        }
    }

    /// Breaks it. The other side is told, if there is one.
    pub(crate) fn abort(&mut self) {
        if self.stage == Stage::Over {
            return;
        }
        self.owes_reset = self.stage == Stage::Open;
        self.socket_mut().abort();
        (self.state, self.stage, self.waits) = (State::Closed, Stage::Over, None);
    }

    /// The other side is still to be told that it broke.
    pub(crate) const fn owes_reset(&self) -> bool {
        self.owes_reset
    }

    /// The other side need not be told any more.
    pub(crate) const fn forgive_reset(&mut self) {
        self.owes_reset = false;
    }

    /// Both sides have finished, and this side's last word may have to be said again.
    pub(crate) fn has_lingered(&self) -> bool {
        self.state == State::TimeWait
    }
}

/// The scale of the windows of so large a buffer, as smoltcp reckons it.
pub(crate) const fn scale(buffer: usize) -> u8 {
    (usize::BITS - buffer.leading_zeros()).saturating_sub(16) as u8
}

/// The other side will send no more.
fn has_finished(state: State) -> bool {
    matches!(state, State::CloseWait | State::Closing | State::LastAck | State::TimeWait | State::Closed)
}
