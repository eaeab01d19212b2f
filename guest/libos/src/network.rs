// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cell's network: connects the stack's connections with remote ends and the card.
//!
//! Nothing here waits. [`NetworkStack::pump`] takes the frames that have arrived, serves the sockets' requests, and posts outgoing
//! frames as one batch. It is called when there is work: after calls that touched remote ends, at the card's event, at the stack's
//! deadlines.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use pando_abi::PAGE_SIZE;
use pando_abi::virtual_registers::Card;
use pando_rt::network::{self as card, Receiver, Sender};
use pando_rt::registers;
use pando_stack::{
    Config, ConnectionId, Datagram, DatagramVerdict, Failure, KeepAlive, Listeners, SocketEvent, Stack, SynRefusal, TcpOptions, Tuple,
    TxSink, Unreachable, Verdict,
};

use crate::errno::Errno;
use crate::files::socket::address::{Address, plain};
use crate::files::socket::inet::{self, InterfaceAddress, NetworkRequest};
use crate::files::socket::names::CARD;
use crate::files::socket::{Socket, SocketId, Sockets};
use crate::uapi::{
    IP_TTL, IPV6_UNICAST_HOPS, SO_KEEPALIVE, SOL_IP, SOL_IPV6, SOL_SOCKET, SOL_TCP, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_NODELAY,
    TCP_USER_TIMEOUT,
};

/// Bytes of a connection's receive buffer, and of its send buffer: four of the largest packets, so that several go in one exit.
const BUFFER: usize = 256 << 10;

/// All connections together may buffer this fraction (one in so many) of the cell's memory.
const MEMORY_DIVISOR: usize = 8;

/// The SYN backlog, and connections in TIME-WAIT, may each take this fraction (one in so many) of it.
const CLOSED_DIVISOR: usize = 16;

/// Ports that are tried for a connection of a socket without a port of its own: more than the stack has connections.
const PORTS_TRIED: usize = 1 << 15;

/// Most bytes that a half-open connection takes, and one in TIME-WAIT.
const HALF_OPEN_SIZE: usize = 2 << 10;
const TIME_WAIT_SIZE: usize = 512;

/// The cell's end of the stack's connections. The stack itself is lent to the sockets except while this code runs.
pub struct NetworkStack {
    sender: Sender,
    receiver: Receiver,
    remote_ends: BTreeMap<ConnectionId, SocketId>,
    connections: BTreeMap<SocketId, Connection>,
}

/// A connection, from the sockets' side.
#[derive(Clone, Copy, Debug)]
struct Connection {
    id: ConnectionId,
    is_open: bool,
    /// The options that the stack was given last.
    options: TcpOptions,
}

/// Transmits frames into the card's batches.
struct CardSink<'a>(&'a mut Sender);

impl TxSink for CardSink<'_> {
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        self.0.room(length)
    }

    fn commit(&mut self, length: usize) {
        self.0.commit(length);
    }
}

/// Admits connection requests for listening sockets.
struct SocketListeners<'a>(&'a Sockets);

impl Listeners for SocketListeners<'_> {
    fn admits(&mut self, tuple: &Tuple) -> Verdict {
        match self.0.listener_at(tuple.local, tuple.remote) {
            Some((_, true)) => Verdict::Admit,
            // The peer retransmits its SYN.
            Some((_, false)) => Verdict::Ignore,
            None => Verdict::Refuse(SynRefusal::Reset),
        }
    }

    fn accepts_datagram(&mut self, local: SocketAddr, remote: SocketAddr) -> DatagramVerdict {
        match self.0.accepts_datagram(local, remote) {
            Some(true) => DatagramVerdict::Accepted,
            Some(false) => DatagramVerdict::Dropped,
            None => DatagramVerdict::Closed,
        }
    }

    fn wants_icmp(&mut self) -> bool {
        self.0.wants_icmp()
    }
}

impl core::fmt::Debug for NetworkStack {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Network").field("connections", &self.connections).finish_non_exhaustive()
    }
}

/// The addresses of a card.
#[must_use]
pub fn hosts(card: &Card) -> Vec<(IpAddr, u8)> {
    let six = Ipv6Addr::from_bits(u128::from(card.address6[0]) << 64 | u128::from(card.address6[1]));
    vec![(Ipv4Addr::from_bits(card.address4 as u32).into(), (card.address4 >> 32) as u8), (six.into(), card.prefix6 as u8)]
}

/// The routers to other networks, from a card.
#[must_use]
pub fn routers(card: &Card) -> Vec<IpAddr> {
    let four = Ipv4Addr::from_bits(card.router4 as u32);
    let six = Ipv6Addr::from_bits(u128::from(card.router6[0]) << 64 | u128::from(card.router6[1]));
    [IpAddr::V4(four), IpAddr::V6(six)].into_iter().filter(|router| !router.is_unspecified()).collect()
}

impl NetworkStack {
    /// Opens the network of the card that the virtual registers show. `None`: there is no card, or no memory for its rings.
    #[must_use]
    pub fn open(sockets: &mut Sockets, seed: u64, now: u64) -> Option<NetworkStack> {
        let card_registers = registers::card();
        if card_registers.mtu == 0 {
            return None;
        }
        let (sender, receiver) = card::open()?;
        let addresses = hosts(&card_registers);
        let [a, b, c, d, e, f, ..] = card_registers.mac.to_le_bytes();
        let routers = routers(&card_registers);
        let interface_address = |&(address, prefix): &(IpAddr, u8)| {
            let router = routers.iter().copied().find(|router| router.is_ipv4() == address.is_ipv4());
            InterfaceAddress { address, prefix, router, is_set: true, is_routed: router.is_some() }
        };
        let card = inet::NetworkCard { mac: [a, b, c, d, e, f], mtu: card_registers.mtu as usize };
        sockets.set_card(card, addresses.iter().map(interface_address).collect(), seed as u16);
        let memory = (registers::memory().quota * PAGE_SIZE) as usize;
        let most = Config::new([0; 6], 0);
        let config = Config {
            addresses,
            gateway4: routers.iter().find_map(|router| if let IpAddr::V4(router) = router { Some(*router) } else { None }),
            gateway6: routers.iter().find_map(|router| if let IpAddr::V6(router) = router { Some(*router) } else { None }),
            mtu: card_registers.mtu as usize,
            buffer: BUFFER,
            memory: memory / MEMORY_DIVISOR,
            half_open: most.half_open.min(memory / CLOSED_DIVISOR / HALF_OPEN_SIZE),
            time_wait: most.time_wait.min(memory / CLOSED_DIVISOR / TIME_WAIT_SIZE),
            ..Config::new([a, b, c, d, e, f], seed)
        };
        sockets.inet.lend(Box::new(Stack::new(config, now)));
        Some(NetworkStack { sender, receiver, remote_ends: BTreeMap::new(), connections: BTreeMap::new() })
    }

    /// Closes the network because the card is gone: connections break, pending ones fail.
    pub fn close(self, sockets: &mut Sockets) {
        drop(sockets.inet.take_back());
        sockets.forget_card();
        while let Some(request) = sockets.next_request() {
            if let NetworkRequest::Connect { remote_end, .. } = request {
                sockets.failed(remote_end, Errno::ENETUNREACH);
                sockets.remove_remote_end(remote_end);
            }
        }
        for remote_end in self.connections.into_keys() {
            sockets.failed(remote_end, Errno::ECONNRESET);
            sockets.remove_remote_end(remote_end);
        }
        drop(sockets.take_changed());
    }

    /// Whether closed sockets have nothing left to transmit or receive.
    #[must_use]
    pub fn is_all_acknowledged(&self, sockets: &Sockets) -> bool {
        self.connections.is_empty() && sockets.inet.is_all_acknowledged()
    }

    /// Makes the kernel process the transmitted frames, if they have waited long enough.
    pub fn ring_if_overdue(&mut self) {
        self.sender.ring_if_overdue();
    }

    /// Does all pending work. Returns whether anything has changed for waiting threads.
    pub fn pump(&mut self, sockets: &mut Sockets, now: u64) -> bool {
        let changed_ends = sockets.take_changed();
        let Some(mut boxed_stack) = sockets.inet.take_back() else { return false };
        let stack = &mut *boxed_stack;
        let NetworkStack { sender, receiver, .. } = self;
        let mut changed = false;
        receiver.receive(&mut |frame| {
            if sockets.has_packet_socket() {
                sockets.process_frame(frame);
                changed = true;
            }
            stack.receive_frame(frame, now, &mut SocketListeners(sockets), &mut CardSink(sender));
        });
        changed |= self.dispatch_events(stack, sockets, now);
        while let Some(request) = sockets.next_request() {
            self.serve_request(request, stack, sockets, now);
            changed = true;
        }
        for remote_end in changed_ends {
            changed |= self.serve_remote_end(remote_end, stack, sockets, now);
        }
        stack.run(now, &mut CardSink(&mut self.sender));
        // Transmission may have made room, or ended connections.
        changed |= self.dispatch_events(stack, sockets, now);
        sockets.inet.lend(boxed_stack);
        self.sender.post();
        changed
    }

    /// Passes the stack's events on to the sockets. Returns whether there was any.
    fn dispatch_events(&mut self, stack: &mut Stack, sockets: &mut Sockets, now: u64) -> bool {
        let mut changed = false;
        while let Some(event) = stack.next_event() {
            changed = true;
            match event {
                SocketEvent::Accepted(id) => self.accept(id, stack, sockets),
                SocketEvent::Opened(id) => {
                    if let Some(remote_end) = self.remote_ends.get(&id).copied() {
                        if let Some(connection) = self.connections.get_mut(&remote_end) {
                            connection.is_open = true;
                        }
                        sockets.set_connection(remote_end, id);
                        sockets.opened(remote_end);
                        self.serve_remote_end(remote_end, stack, sockets, now);
                    }
                }
                SocketEvent::Readable(id) => {
                    if let Some(remote_end) = self.remote_ends.get(&id).copied() {
                        self.serve_remote_end(remote_end, stack, sockets, now);
                    }
                }
                SocketEvent::Writable(id) => {
                    if let Some(remote_end) = self.remote_ends.get(&id).copied() {
                        sockets.report_room(remote_end);
                    }
                }
                SocketEvent::Failed(id, failure) => {
                    if let Some(remote_end) = self.remote_ends.get(&id).copied() {
                        let _ = self.carry_in(remote_end, id, stack, sockets, now);
                        sockets.failed(remote_end, error_of(failure));
                    }
                }
                SocketEvent::Closed(id) => {
                    if let Some(remote_end) = self.remote_ends.remove(&id) {
                        self.connections.remove(&remote_end);
                        sockets.remove_remote_end(remote_end);
                    }
                }
                SocketEvent::Datagram(Datagram { local, remote, bytes, hops }) => sockets.receive_datagram(local, remote, &bytes, hops),
                SocketEvent::Unreachable(notice) => sockets.unreachable(&notice),
                SocketEvent::Message(message) => sockets.process_message(&message, CARD),
            }
        }
        changed
    }

    /// Queues a new connection at its listener.
    fn accept(&mut self, id: ConnectionId, stack: &mut Stack, sockets: &mut Sockets) {
        let arrived = stack.tuple(id).and_then(|Tuple { local, remote }| sockets.arrive(local, remote).ok());
        match arrived {
            Some(remote_end) => {
                sockets.set_connection(remote_end, id);
                self.register(id, remote_end, true);
            }
            None => stack.abort(id),
        }
    }

    fn register(&mut self, id: ConnectionId, remote_end: SocketId, is_open: bool) {
        self.remote_ends.insert(id, remote_end);
        self.connections.insert(remote_end, Connection { id, is_open, options: TcpOptions::default() });
    }

    fn serve_request(&mut self, request: NetworkRequest, stack: &mut Stack, sockets: &mut Sockets, now: u64) {
        match request {
            NetworkRequest::Connect { remote_end, from, to } => {
                let options =
                    sockets.local_end(remote_end).and_then(|local_end| sockets.get(local_end).ok()).map(options).unwrap_or_default();
                let (mut local, mut begun) = (from, stack.connect(Tuple { local: from, remote: to }, options, now));
                for _ in 0..PORTS_TRIED {
                    if begun != Err(pando_stack::Error::InUse) {
                        break;
                    }
                    let Some(other) = sockets.change_port(remote_end).filter(|other| *other != local) else { break };
                    local = other;
                    begun = stack.connect(Tuple { local, remote: to }, options, now);
                }
                match begun {
                    Ok(id) => self.register(id, remote_end, false),
                    Err(error) => {
                        sockets.failed(remote_end, refusal_of(error));
                        sockets.remove_remote_end(remote_end);
                    }
                }
            }
            NetworkRequest::Datagram { from, to, bytes, hops } => {
                let datagram = Datagram { local: from, remote: to, bytes, hops };
                // A datagram that cannot be transmitted is lost.
                let _ = stack.send_datagram(&datagram, now, &mut CardSink(&mut self.sender));
            }
            NetworkRequest::Frame(frame) => {
                let mut out = CardSink(&mut self.sender);
                if let Some(room) = out.room(frame.len()).and_then(|room| room.get_mut(..frame.len())) {
                    room.copy_from_slice(&frame);
                    out.commit(frame.len());
                }
            }
            NetworkRequest::Message(message) => {
                let _ = stack.send_message(&message, now, &mut CardSink(&mut self.sender));
            }
        }
    }

    /// Serves a remote end after an event of it or of its connection. Returns whether bytes have moved, or the connection is over.
    fn serve_remote_end(&mut self, remote_end: SocketId, stack: &mut Stack, sockets: &mut Sockets, now: u64) -> bool {
        let Some(Connection { id, is_open, options: old_options }) = self.connections.get(&remote_end).copied() else { return false };
        let Ok(socket) = sockets.get(remote_end) else { return false };
        if socket.error.is_some() {
            self.drop_connection(remote_end, id, stack, sockets, true, now);
            return true;
        }
        let local_end = sockets.local_end(remote_end);
        if !is_open {
            if local_end.is_none() {
                self.drop_connection(remote_end, id, stack, sockets, true, now);
            }
            return local_end.is_none();
        }
        if let Some(local_end) =
            local_end.and_then(|local_end| sockets.get(local_end).ok()).map(options).filter(|options| *options != old_options)
        {
            stack.set(id, local_end);
            if let Some(connection) = self.connections.get_mut(&remote_end) {
                connection.options = local_end;
            }
        }
        if local_end.is_none() {
            // The socket has been closed.
            self.drop_connection(remote_end, id, stack, sockets, false, now);
            return true;
        }
        if sockets.get(remote_end).is_ok_and(|socket| socket.has_peer_finished) {
            stack.finish(id, now);
        }
        self.carry_in(remote_end, id, stack, sockets, now)
    }

    /// Moves received bytes to their socket. Returns whether there were any, or the end of the stream.
    fn carry_in(&mut self, remote_end: SocketId, id: ConnectionId, stack: &mut Stack, sockets: &mut Sockets, now: u64) -> bool {
        let waiting = stack.readable(id);
        if waiting > 0 && sockets.discards_input(remote_end) {
            // A peer that sends to a socket shut down in both directions gets a reset, as from Linux.
            sockets.failed(remote_end, Errno::ECONNRESET);
            self.drop_connection(remote_end, id, stack, sockets, true, now);
            return true;
        }
        let carried = stack.receive(id, &mut |bytes| sockets.deliver_bytes(remote_end, bytes));
        let is_over = stack.readable(id) == 0 && stack.has_finished(id);
        if is_over {
            sockets.finished(remote_end);
        }
        carried > 0 || is_over
    }

    /// Drops a connection that no socket in the cell has any more.
    fn drop_connection(
        &mut self,
        remote_end: SocketId,
        id: ConnectionId,
        stack: &mut Stack,
        sockets: &mut Sockets,
        breaks: bool,
        now: u64,
    ) {
        if breaks {
            stack.abort(id);
        } else {
            stack.release(id, now);
        }
        self.remote_ends.remove(&id);
        self.connections.remove(&remote_end);
        sockets.remove_remote_end(remote_end);
    }
}

/// The connection's options, from those of its socket.
fn options(socket: &Socket) -> TcpOptions {
    let option = |of: u32, name: u32| socket.stored_option(of, name).unwrap_or_default();
    let seconds = |name: u32| Duration::from_secs(option(SOL_TCP, name).max(1).into());
    let keep_alive = (option(SOL_SOCKET, SO_KEEPALIVE) != 0).then(|| KeepAlive {
        idle: seconds(TCP_KEEPIDLE),
        interval: seconds(TCP_KEEPINTVL),
        count: option(SOL_TCP, TCP_KEEPCNT).max(1),
    });
    let defaults = TcpOptions::default();
    let timeout = match option(SOL_TCP, TCP_USER_TIMEOUT) {
        0 => defaults.timeout,
        milliseconds => Duration::from_millis(milliseconds.into()),
    };
    let is_ipv4 = socket.remote.as_ref().and_then(Address::internet).is_none_or(|remote| plain(remote).is_ipv4());
    let hops = if is_ipv4 { option(SOL_IP, IP_TTL) } else { option(SOL_IPV6, IPV6_UNICAST_HOPS) };
    let hops = u8::try_from(hops).ok().filter(|hops| *hops > 0).unwrap_or(defaults.hops);
    TcpOptions { no_delay: option(SOL_TCP, TCP_NODELAY) != 0, keep_alive, timeout, hops }
}

/// Linux's error for a failure.
fn error_of(failure: Failure) -> Errno {
    match failure {
        // A connection that was never open was refused.
        Failure::Reset => Errno::ECONNRESET,
        Failure::TimedOut => Errno::ETIMEDOUT,
        Failure::Unreachable(unreachable) => obstructed(unreachable),
    }
}

fn obstructed(unreachable: Unreachable) -> Errno {
    match unreachable {
        Unreachable::Network => Errno::ENETUNREACH,
        Unreachable::Host | Unreachable::AdminProhibited | Unreachable::TimeExceeded => Errno::EHOSTUNREACH,
        Unreachable::Port => Errno::ECONNREFUSED,
        Unreachable::PacketTooBig => Errno::EMSGSIZE,
    }
}

fn refusal_of(error: pando_stack::Error) -> Errno {
    use pando_stack::Error;
    match error {
        Error::NoRoute => Errno::ENETUNREACH,
        Error::Unaddressable => Errno::EINVAL,
        Error::InUse => Errno::EADDRNOTAVAIL,
        Error::TooMany | Error::TooLong | Error::Full => Errno::ENOBUFS,
    }
}
