// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection: a smoltcp socket alone in its set, and the state that smoltcp does not keep.
//!
//! smoltcp's clock runs [`CLOCK_FACTOR`] times as fast as real time. Its shortest retransmission timeout is one second, too
//! long between cells; at this pace it is Linux's 200 ms.

use core::time::Duration;

use smoltcp::iface::Interface;
use smoltcp::phy::DeviceCapabilities;
use smoltcp::socket::tcp::{Socket, State};
use smoltcp::time::Instant;
use smoltcp::wire::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, TCP_HEADER_LEN, TcpControl, TcpRepr, TcpSeqNumber};

use crate::ack_policy::AckPolicy;
use crate::connection_state::{ConnectionState, OpenMode, UserHold};
use crate::loss_recovery::Recovery;
use crate::packet::{MacPair, Packet};
use crate::segment::window_scale;
use crate::segment_rewrite::{Rewrite, build_packet, duplicate_ack, fit, is_duplicate_ack, rewrite};
use crate::sequence::{SequenceNumbers, is_before};
use crate::smoltcp_device::{IdleDevice, SmoltcpDevice, Transmitter, TxSummary};
use crate::sockets::SingleSocket;
use crate::{Failure, TcpOptions, Tuple, TxSink, limits};

/// How much faster smoltcp's clock runs.
const CLOCK_FACTOR: u64 = 5;

/// An instant at which all of smoltcp's timers have expired.
const LATE: Instant = Instant::from_micros_const(1 << 60);

/// Converts a time to smoltcp's clock.
pub(crate) fn to_smoltcp_time(moment: u64) -> Instant {
    Instant::from_micros((moment / 1000).saturating_mul(CLOCK_FACTOR).min(i64::MAX as u64) as i64)
}

/// Converts an instant of smoltcp's clock to real time, rounded up.
fn from_smoltcp_time(moment: Instant) -> u64 {
    (moment.total_micros().max(0) as u64).saturating_mul(1000).div_ceil(CLOCK_FACTOR)
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts a duration to smoltcp's clock; never zero.
fn paced_span(span: Duration) -> smoltcp::time::Duration {
    smoltcp::time::Duration::from_micros((nanoseconds(span) / 1000).saturating_mul(CLOCK_FACTOR).clamp(1, 1 << 40))
}

/// A change that [`Connection::update`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Opened,
    /// More data to read, or the end of it.
    Readable,
    Writable,
    /// The peer reset it.
    Reset,
    /// Both sides have finished, and this side's last segment may have to be sent again.
    TimeWait,
    /// Both sides have finished.
    Closed,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) tuple: Tuple,
    pub(crate) state: ConnectionState,
    pub(crate) hold: UserHold,
    pub(crate) open_mode: OpenMode,
    pub(crate) options: TcpOptions,
    /// The reason why it failed.
    pub(crate) failure: Failure,
    /// It is in the queue of connections that may have something to send.
    pub(crate) is_tx_ready: bool,
    /// Pending events for the user, as bits in their order. The connection is in the queue of socket events while there are any.
    pub(crate) pending_events: u8,
    pub(crate) tx: TxSummary,
    single: SingleSocket,
    /// The state of smoltcp's socket at the last update.
    socket_state: State,
    /// The user waits for room to send.
    waits_for_room: bool,
    /// Bytes that could be read at the last update.
    readable: usize,
    /// The peer's first sequence number, the number of its bytes that were read, and the last acknowledgement from it.
    peer_start: TcpSeqNumber,
    read_bytes: u32,
    acknowledged: TcpSeqNumber,
    /// The window scale that this side announced.
    window_scale: u8,
    ack_policy: AckPolicy,
    recovery: Recovery,
    /// When the last segment was received.
    last_received: u64,
    /// Since when an acknowledgement is due, or since the last segment if that acknowledged only a part.
    unacknowledged_since: Option<u64>,
}

impl Connection {
    /// Whether all data of the user has been acknowledged, the FIN included.
    pub(crate) fn is_all_acknowledged(&self) -> bool {
        let is_ending = matches!(self.socket_state, State::FinWait1 | State::Closing | State::LastAck)
            || self.state.is_finished() && matches!(self.socket_state, State::Established | State::CloseWait);
        self.socket().send_queue() == 0 && !is_ending
    }

    /// A connection that has sent nothing yet; its socket must still listen or connect.
    pub(crate) fn new(tuple: Tuple, single: SingleSocket, now: u64) -> Self {
        let mut connection = Self {
            tuple,
            state: ConnectionState::Opening,
            hold: UserHold::Attached,
            open_mode: OpenMode::Active,
            options: TcpOptions::default(),
            failure: Failure::Reset,
            is_tx_ready: false,
            pending_events: 0,
            tx: TxSummary::default(),
            single,
            socket_state: State::Closed,
            waits_for_room: false,
            readable: 0,
            peer_start: TcpSeqNumber(0),
            read_bytes: 0,
            acknowledged: TcpSeqNumber(0),
            window_scale: 0,
            ack_policy: AckPolicy::new(),
            recovery: Recovery::new(),
            last_received: now,
            unacknowledged_since: Some(now),
        };
        connection.set(TcpOptions::default());
        connection
    }

    /// Returns the socket of a closed connection.
    pub(crate) fn into_socket(self) -> SingleSocket {
        self.single
    }

    pub(crate) fn socket(&self) -> &Socket<'static> {
        self.single.get()
    }

    pub(crate) fn socket_mut(&mut self) -> &mut Socket<'static> {
        self.single.get_mut()
    }

    /// Sends a SYN. Returns whether the two ends are valid.
    pub(crate) fn connect(&mut self, interface: &mut Interface) -> bool {
        let Tuple { local, remote } = self.tuple;
        let connected = self.single.get_mut().connect(interface.context(), remote, local).is_ok();
        self.socket_state = self.socket().state();
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

    /// Receives a segment of this connection, cut to the room in its buffer. smoltcp takes the unscaled window of its
    /// SYN as scaled, which is more than the room, and panics on that much data.
    pub(crate) fn process(
        &mut self,
        interface: &mut Interface,
        transmitter: &mut Transmitter,
        packet: &Packet,
        segment: &TcpRepr,
        now: u64,
    ) {
        let socket = self.socket();
        let room = socket.recv_capacity() - socket.recv_queue();
        let is_synchronized = !matches!(self.socket_state, State::Closed | State::Listen | State::SynSent);
        match fit(segment, self.expected(), room).filter(|_| is_synchronized) {
            None => self.process_in_order(interface, transmitter, packet, segment, now),
            Some(segment) => {
                let bytes = build_packet(packet, &segment, &transmitter.capabilities.checksum);
                self.process_in_order(interface, transmitter, &Packet { bytes: &bytes, ..*packet }, &segment, now);
            }
        }
    }

    fn process_in_order(&mut self, interface: &mut Interface, transmitter: &mut Transmitter, packet: &Packet, segment: &TcpRepr, now: u64) {
        self.last_received = now;
        self.unacknowledged_since = self.unacknowledged_since.map(|_| now);
        self.socket_mut().set_keep_alive(None);
        if segment.control == TcpControl::Syn && self.state.is_opening() {
            self.peer_start = segment.seq_number + 1;
            self.window_scale = segment.window_scale.map_or(0, |_| window_scale(self.socket().recv_capacity()));
            let header = if self.tuple.remote.is_ipv4() { IPV4_HEADER_LEN } else { IPV6_HEADER_LEN };
            let mss =
                self.ack_policy.process_syn_options(segment, transmitter.capabilities.max_transmission_unit - header - TCP_HEADER_LEN);
            self.recovery.process_syn_options(segment, mss);
        }
        let Some(progress) = self.progress(&transmitter.tx) else {
            self.acknowledged = segment.ack_number.unwrap_or(self.acknowledged);
            self.recovery.process_handshake(segment, now);
            return self.take(interface, transmitter, packet.bytes, now);
        };
        if segment.ack_number.is_some_and(|number| segment.control != TcpControl::Rst && is_before(progress.sent, number)) {
            // The peer acknowledges data that was not sent (RFC 9293, 3.10.7.4). smoltcp would accept that for all
            // queued data, and for a FIN that it has not sent.
            return;
        }
        self.recovery.process(segment, progress, now);
        self.ack_policy.received(segment, progress);
        if let Some(number) =
            segment.ack_number.filter(|number| is_before(self.acknowledged, *number) && !is_before(progress.sent, *number))
        {
            self.acknowledged = number;
            self.hold.restart_timeout(now);
        }
        let is_in_flight = progress.sent != progress.unacknowledged;
        if is_in_flight && is_duplicate_ack(segment, progress) {
            // smoltcp would retransmit, or stop the timer of a FIN that is in flight alone. Before it transmits, it
            // learns of a larger window.
            return;
        }
        let checksums = transmitter.capabilities.checksum.clone();
        let window = self.recovery.target_window();
        match rewrite(packet, segment, progress, window, &checksums) {
            Rewrite::Unchanged => {
                self.recovery.note_unconfirmed_window(segment.window_len);
                self.take(interface, transmitter, packet.bytes, now);
            }
            Rewrite::Replaced(other) => {
                if segment.segment_len() == 0 {
                    self.recovery.announce_window();
                } else {
                    self.recovery.note_unconfirmed_window(window);
                }
                self.take(interface, transmitter, &other, now);
            }
            Rewrite::Preceded(other, wants_answer) => {
                self.recovery.announce_window();
                self.take(interface, transmitter, &other, now);
                if wants_answer {
                    self.take(interface, transmitter, packet.bytes, now);
                }
            }
        }
    }

    fn take(&mut self, interface: &mut Interface, transmitter: &mut Transmitter, bytes: &[u8], now: u64) {
        let mut port = SmoltcpDevice { transmitter, recovery: &mut self.recovery, now, received: Some(bytes) };
        interface.poll_ingress_single(to_smoltcp_time(now), &mut port, &mut self.single.set);
    }

    /// Sequence numbers of both directions, once it is open.
    fn progress(&self, tx: &TxSummary) -> Option<SequenceNumbers> {
        let sent = tx.last.filter(|_| self.state.is_open())?.sequence;
        Some(SequenceNumbers { expected: self.expected(), unacknowledged: self.acknowledged, sent })
    }

    /// The next sequence number that is expected from the peer.
    fn expected(&self) -> TcpSeqNumber {
        let finished = i32::from(has_finished(self.socket_state));
        let received = (self.read_bytes as i32).wrapping_add(self.socket().recv_queue() as i32).wrapping_add(finished);
        TcpSeqNumber(self.peer_start.0.wrapping_add(received))
    }

    /// The context for transmitting.
    pub(crate) fn transmitter<'a>(&self, capabilities: &'a DeviceCapabilities, sink: &'a mut dyn TxSink, ends: MacPair) -> Transmitter<'a> {
        Transmitter { capabilities, sink, ends, tx: self.tx.without_counts(), window_scale: self.window_scale }
    }

    /// Transmits one packet, if there is one to transmit.
    pub(crate) fn send_queued(&mut self, interface: &mut Interface, transmitter: &mut Transmitter, now: u64) {
        if let Some(keep_alive) = self.options.keep_alive
            && now >= self.last_received.saturating_add(nanoseconds(keep_alive.idle))
            && self.socket().keep_alive().is_none()
        {
            self.socket_mut().set_keep_alive(Some(paced_span(keep_alive.interval)));
        }
        self.ack_policy.note_transmit();
        self.recover(interface, transmitter, now);
        loop {
            let must_delay_small = self.recovery.is_full() || !self.options.no_delay && self.ack_policy.must_delay_small(self.acknowledged);
            let is_resending = self.recovery.is_resending();
            self.socket_mut().set_nagle_enabled(must_delay_small && !is_resending);
            let before = transmitter.tx;
            transmitter.tx.is_suppressed = false;
            let mut port = SmoltcpDevice { transmitter, recovery: &mut self.recovery, now, received: None };
            interface.poll_egress(to_smoltcp_time(now), &mut port, &mut self.single.set);
            let tx = transmitter.tx;
            if let Some(last) = tx.last.filter(|_| tx.frames > before.frames) {
                self.ack_policy.sent(tx.length, last.sequence);
                if self.state.is_opening() {
                    self.recovery.note_syn(tx.retransmitted > before.retransmitted, now);
                }
            }
            // A suppressed segment advances smoltcp, so the loop ends.
            if !tx.is_suppressed {
                if tx.frames == before.frames && !tx.is_out_of_room {
                    self.recovery.note_all_sent();
                }
                break;
            }
        }
    }

    /// Detects losses, and lets smoltcp retransmit them and send as much new data as the window allows.
    fn recover(&mut self, interface: &mut Interface, transmitter: &mut Transmitter, now: u64) {
        let Some(progress) = self.progress(&transmitter.tx) else { return };
        self.recovery.handle_timers(now);
        let has_more = self.socket().send_queue() > 0;
        if if has_more { self.recovery.needs_window_update() } else { self.recovery.sees_closed_window() } {
            let is_window_unknown = self.recovery.is_window_unknown();
            let window = if has_more { self.recovery.announce_window() } else { self.recovery.announce_smallest_window() };
            // Not the same window twice: smoltcp takes a duplicate acknowledgement for a loss.
            for window in is_window_unknown.then_some(window.checked_add(1).unwrap_or(u16::MAX - 1)).into_iter().chain([window]) {
                let update_packet = duplicate_ack(&self.tuple, progress, window, &transmitter.capabilities.checksum);
                self.take(interface, transmitter, &update_packet, now);
            }
        }
        if self.recovery.must_rewind() {
            interface.poll_egress(LATE, &mut IdleDevice(transmitter.capabilities), &mut self.single.set);
            self.recovery.note_rewind();
        }
    }

    /// Whether there may be something to send now. If only an acknowledgement is due, it may be delayed.
    pub(crate) fn must_transmit(&mut self, now: u64) -> bool {
        let is_steady = self.state.is_open() && matches!(self.socket_state, State::Established | State::FinWait2);
        if !is_steady || !self.tx.has_acknowledged || self.socket().send_queue() > 0 {
            return true;
        }
        self.ack_policy.must_ack_now(self.unacknowledged_received(), now)
    }

    /// Whether a window update is due: the room has become twice as much as the peer knows, which is smoltcp's rule.
    pub(crate) fn must_update_window(&self) -> bool {
        let room = self.socket().recv_capacity() - self.socket().recv_queue();
        room / 2 >= self.tx.window.saturating_sub(self.unacknowledged_received())
    }

    /// Bytes that were received and are not acknowledged.
    fn unacknowledged_received(&self) -> usize {
        let (Some(progress), Some(last)) = (self.progress(&self.tx), self.tx.last) else { return 0 };
        progress.expected.0.wrapping_sub(last.acknowledged.0).max(0) as usize
    }

    /// The time of the next update.
    pub(crate) fn deadline(&mut self, interface: &mut Interface, now: u64) -> Option<u64> {
        let poll_at = match self.ack_policy.ack_deadline() {
            Some(moment) => Some(moment),
            None => interface.poll_at(to_smoltcp_time(now), &self.single.set).map(from_smoltcp_time),
        };
        let unanswered_deadline = self.unacknowledged_since.map(|since| since.saturating_add(self.timeout()));
        let keep_alive_deadline = self.options.keep_alive.filter(|_| self.is_idle()).map(|keep_alive| {
            let idle = self.last_received.saturating_add(nanoseconds(keep_alive.idle));
            if now < idle { idle } else { idle.saturating_add(nanoseconds(keep_alive.interval).saturating_mul(keep_alive.count.into())) }
        });
        [poll_at, self.recovery.deadline(now), unanswered_deadline, keep_alive_deadline, self.orphan_deadline()].into_iter().flatten().min()
    }

    /// Whether the peer has not answered for too long.
    pub(crate) fn is_timed_out(&self, now: u64) -> bool {
        let is_unacknowledged = self.unacknowledged_since.is_some_and(|since| now >= since.saturating_add(self.timeout()));
        let is_silent = self.options.keep_alive.filter(|_| self.is_idle()).is_some_and(|keep_alive| {
            let probe_time = nanoseconds(keep_alive.interval).saturating_mul(keep_alive.count.into());
            now >= self.last_received.saturating_add(nanoseconds(keep_alive.idle)).saturating_add(probe_time)
        });
        is_unacknowledged || is_silent || self.orphan_deadline().is_some_and(|moment| now >= moment)
    }

    /// When an orphaned connection is aborted: it has no reader, and the peer neither acknowledges the remaining data
    /// nor finishes. Such a peer may still answer.
    fn orphan_deadline(&self) -> Option<u64> {
        let since = self.hold.orphaned_since().filter(|_| self.state.is_open())?;
        Some(since.saturating_add(if self.socket_state == State::FinWait2 { limits::FIN_WAIT_2_TIMEOUT } else { limits::ORPHAN_TIMEOUT }))
    }

    /// Whether the user has stopped reading.
    pub(crate) const fn is_orphaned(&self) -> bool {
        self.hold.orphaned_since().is_some()
    }

    fn timeout(&self) -> u64 {
        let timeout = nanoseconds(self.options.timeout);
        if self.state.is_opening() { timeout.min(limits::OPEN_TIMEOUT) } else { timeout }
    }

    fn is_idle(&self) -> bool {
        self.state.is_open() && self.unacknowledged_since.is_none()
    }

    /// Compares the state with that of the last update, and calls `report` with each change.
    pub(crate) fn update(&mut self, now: u64, report: &mut dyn FnMut(Change)) {
        let before = self.socket_state;
        let state = self.socket().state();
        self.socket_state = state;
        if self.state.is_opening() && !matches!(state, State::Closed | State::SynSent | State::SynReceived | State::Listen) {
            self.state.establish();
            self.recovery.open(self.acknowledged);
            report(Change::Opened);
        }
        if self.state == ConnectionState::Finishing && matches!(state, State::Established | State::CloseWait) {
            self.close();
        }
        let readable = self.socket().recv_queue();
        if readable > self.readable || (has_finished(state) && !has_finished(before) && state != State::Closed) {
            report(Change::Readable);
        }
        self.readable = readable;
        if self.waits_for_room && self.writable() >= self.socket().send_capacity() / 4 {
            self.waits_for_room = false;
            report(Change::Writable);
        }
        let is_ack_due = !matches!(state, State::Closed | State::TimeWait | State::FinWait2)
            && (self.state.is_opening()
                || self.socket().send_queue() > 0
                || matches!(state, State::FinWait1 | State::Closing | State::LastAck));
        self.unacknowledged_since = is_ack_due.then(|| self.unacknowledged_since.unwrap_or(now));
        if !self.state.is_closed() && matches!(state, State::Closed | State::TimeWait) {
            self.state.close();
            self.unacknowledged_since = None;
            report(match (before, state) {
                (_, State::TimeWait) => Change::TimeWait,
                // A peer that has forgotten the connection had received the FIN.
                (State::LastAck | State::Closing, _) => Change::Closed,
                _ => Change::Reset,
            });
        }
    }

    /// Bytes that can be sent at once.
    pub(crate) fn writable(&self) -> usize {
        let socket = self.socket();
        if socket.may_send() && !self.state.is_finished() { socket.send_capacity() - socket.send_queue() } else { 0 }
    }

    pub(crate) fn send(&mut self, give: &mut dyn FnMut(&mut [u8]) -> usize) -> usize {
        let mut sent = 0;
        // The free part of a ring buffer consists of two chunks at most.
        for _ in 0..2 {
            let room = self.writable();
            if room == 0 {
                break;
            }
            let mut is_taken = true;
            let written = self.socket_mut().send(|chunk| {
                let written = give(chunk).min(chunk.len());
                is_taken = written == chunk.len();
                (written, written)
            });
            sent += written.unwrap_or(0);
            if !is_taken {
                break;
            }
        }
        self.waits_for_room = self.waits_for_room || self.writable() == 0;
        sent
    }

    pub(crate) fn receive(&mut self, take: &mut dyn FnMut(&[u8]) -> usize) -> usize {
        let mut read_bytes = 0;
        for _ in 0..2 {
            if self.socket().recv_queue() == 0 {
                break;
            }
            let mut is_taken = true;
            let read = self.socket_mut().recv(|chunk| {
                let read = take(chunk).min(chunk.len());
                is_taken = read == chunk.len();
                (read, read)
            });
            read_bytes += read.unwrap_or(0);
            if !is_taken {
                break;
            }
        }
        self.readable = self.socket().recv_queue();
        self.read_bytes = self.read_bytes.wrapping_add(read_bytes as u32);
        read_bytes
    }

    pub(crate) fn has_finished(&self) -> bool {
        self.state.is_closed() || has_finished(self.socket_state)
    }

    /// Ends the data to send.
    pub(crate) fn finish(&mut self, now: u64) {
        self.state.finish();
        if self.state.is_open() {
            self.unacknowledged_since.get_or_insert(now);
            self.close();
        }
    }

    /// Sends a FIN. It waits while the peer has finished and data is unacknowledged: smoltcp would ignore window updates
    /// (in LAST-ACK it takes each acknowledgement of nothing new for a stray one), and a closed window would stay closed.
    fn close(&mut self) {
        if self.socket_state != State::CloseWait || self.socket().send_queue() == 0 {
            self.socket_mut().close();
            self.socket_state = self.socket().state();
        }
    }

    /// Aborts it. The peer gets a reset, if it is open.
    pub(crate) fn abort(&mut self) {
        if self.state.is_closed() {
            return;
        }
        self.socket_mut().abort();
        self.state.abort();
        (self.socket_state, self.unacknowledged_since) = (State::Closed, None);
    }

    /// Whether it is in TIME-WAIT: both sides have finished, and this side's last segment may have to be sent again.
    pub(crate) fn is_time_wait(&self) -> bool {
        self.socket_state == State::TimeWait
    }
}

/// Whether the peer will send no more.
fn has_finished(state: State) -> bool {
    matches!(state, State::CloseWait | State::Closing | State::LastAck | State::TimeWait | State::Closed)
}
