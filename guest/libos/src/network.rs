// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cell's network: connects the stack's connections with far sockets and the card.
//!
//! Nothing here waits. [`NetworkStack::pump`] takes the frames that have arrived, serves the sockets' requests, and posts outgoing
//! frames as one batch. It is called when there is work: after calls that touched far sockets, at the card's event, at the stack's
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
    Config, ConnectionId, Datagram, DatagramVerdict, Failure, KeepAlive, Listeners, Refusal, SocketEvent, Stack, TcpOptions, Tuple, TxSink,
    Unreachable, Verdict,
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
const MEMORY_PART: usize = 8;

/// The SYN backlog, and connections in TIME-WAIT, may each take this fraction (one in so many) of it.
const OTHERS_PART: usize = 16;

/// Ports that are tried for a connection of a socket without a port of its own: more than the stack has connections.
const PORTS_TRIED: usize = 1 << 15;

/// Most bytes that a half-open connection takes, and one in TIME-WAIT.
const STRANGER: usize = 2 << 10;
const LINGERING: usize = 512;

/// The cell's end of the stack's connections. The stack itself is lent to the sockets except while this code runs.
pub struct NetworkStack {
    sender: Sender,
    receiver: Receiver,
    far: BTreeMap<ConnectionId, SocketId>,
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
            None => Verdict::Refuse(Refusal::Reset),
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
        let shown = registers::card();
        if shown.mtu == 0 {
            return None;
        }
        let (sender, receiver) = card::open()?;
        let addresses = hosts(&shown);
        let [a, b, c, d, e, f, ..] = shown.mac.to_le_bytes();
        let routers = routers(&shown);
        let own = |&(address, prefix): &(IpAddr, u8)| {
            let router = routers.iter().copied().find(|router| router.is_ipv4() == address.is_ipv4());
            InterfaceAddress { address, prefix, router, is_set: true, is_routed: router.is_some() }
        };
        let card = inet::NetworkCard { mac: [a, b, c, d, e, f], mtu: shown.mtu as usize };
        sockets.set_card(card, addresses.iter().map(own).collect(), seed as u16);
        let memory = (registers::memory().quota * PAGE_SIZE) as usize;
        let most = Config::new([0; 6], 0);
        let config = Config {
            addresses,
            gateway4: routers.iter().find_map(|router| if let IpAddr::V4(router) = router { Some(*router) } else { None }),
            gateway6: routers.iter().find_map(|router| if let IpAddr::V6(router) = router { Some(*router) } else { None }),
            mtu: shown.mtu as usize,
            buffer: BUFFER,
            memory: memory / MEMORY_PART,
            half_open: most.half_open.min(memory / OTHERS_PART / STRANGER),
            time_wait: most.time_wait.min(memory / OTHERS_PART / LINGERING),
            ..Config::new([a, b, c, d, e, f], seed)
        };
        sockets.outside.lend(Box::new(Stack::new(config, now)));
        Some(NetworkStack { sender, receiver, far: BTreeMap::new(), connections: BTreeMap::new() })
    }

    /// Closes the network because the card is gone: connections break, pending ones fail.
    pub fn close(self, sockets: &mut Sockets) {
        drop(sockets.outside.take_back());
        sockets.forget_card();
        while let Some(wish) = sockets.next_wish() {
            if let NetworkRequest::Connect { far, .. } = wish {
                sockets.failed(far, Errno::ENETUNREACH);
                sockets.forget_far(far);
            }
        }
        for far in self.connections.into_keys() {
            sockets.failed(far, Errno::ECONNRESET);
            sockets.forget_far(far);
        }
        drop(sockets.take_stirred());
    }

    /// Whether closed sockets have nothing left to transmit or receive.
    #[must_use]
    pub fn is_said(&self, sockets: &Sockets) -> bool {
        self.connections.is_empty() && sockets.outside.is_said()
    }

    /// Makes the kernel process the transmitted frames, if they have waited long enough.
    pub fn hurry(&mut self) {
        self.sender.hurry();
    }

    /// Does all pending work. Returns whether anything has changed for waiting threads.
    pub fn pump(&mut self, sockets: &mut Sockets, now: u64) -> bool {
        let stirred = sockets.take_stirred();
        let Some(mut lent) = sockets.outside.take_back() else { return false };
        let stack = &mut *lent;
        let NetworkStack { sender, receiver, .. } = self;
        let mut changed = false;
        receiver.receive(&mut |frame| {
            if sockets.has_packet_socket() {
                sockets.process_frame(frame);
                changed = true;
            }
            stack.receive_frame(frame, now, &mut SocketListeners(sockets), &mut CardSink(sender));
        });
        changed |= self.hear(stack, sockets, now);
        while let Some(wish) = sockets.next_wish() {
            self.fulfil(wish, stack, sockets, now);
            changed = true;
        }
        for far in stirred {
            changed |= self.look(far, stack, sockets, now);
        }
        stack.run(now, &mut CardSink(&mut self.sender));
        // Transmission may have made room, or ended connections.
        changed |= self.hear(stack, sockets, now);
        sockets.outside.lend(lent);
        self.sender.post();
        changed
    }

    /// Passes the stack's events on to the sockets. Returns whether there was any.
    fn hear(&mut self, stack: &mut Stack, sockets: &mut Sockets, now: u64) -> bool {
        let mut changed = false;
        while let Some(event) = stack.next_event() {
            changed = true;
            match event {
                SocketEvent::Accepted(id) => self.accept(id, stack, sockets),
                SocketEvent::Opened(id) => {
                    if let Some(far) = self.far.get(&id).copied() {
                        if let Some(connection) = self.connections.get_mut(&far) {
                            connection.is_open = true;
                        }
                        sockets.join_far(far, id);
                        sockets.opened(far);
                        self.look(far, stack, sockets, now);
                    }
                }
                SocketEvent::Data(id) => {
                    if let Some(far) = self.far.get(&id).copied() {
                        self.look(far, stack, sockets, now);
                    }
                }
                SocketEvent::Room(id) => {
                    if let Some(far) = self.far.get(&id).copied() {
                        sockets.saw_room(far);
                    }
                }
                SocketEvent::Failed(id, failure) => {
                    if let Some(far) = self.far.get(&id).copied() {
                        let _ = self.carry_in(far, id, stack, sockets, now);
                        sockets.failed(far, error_of(failure));
                    }
                }
                SocketEvent::Closed(id) => {
                    if let Some(far) = self.far.remove(&id) {
                        self.connections.remove(&far);
                        sockets.forget_far(far);
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
            Some(far) => {
                sockets.join_far(far, id);
                self.keep(id, far, true);
            }
            None => stack.abort(id),
        }
    }

    fn keep(&mut self, id: ConnectionId, far: SocketId, is_open: bool) {
        self.far.insert(id, far);
        self.connections.insert(far, Connection { id, is_open, options: TcpOptions::default() });
    }

    fn fulfil(&mut self, wish: NetworkRequest, stack: &mut Stack, sockets: &mut Sockets, now: u64) {
        match wish {
            NetworkRequest::Connect { far, from, to } => {
                let options = sockets.near(far).and_then(|near| sockets.get(near).ok()).map(options).unwrap_or_default();
                let (mut local, mut begun) = (from, stack.connect(Tuple { local: from, remote: to }, options, now));
                for _ in 0..PORTS_TRIED {
                    if begun != Err(pando_stack::Error::InUse) {
                        break;
                    }
                    let Some(other) = sockets.change_port(far).filter(|other| *other != local) else { break };
                    local = other;
                    begun = stack.connect(Tuple { local, remote: to }, options, now);
                }
                match begun {
                    Ok(id) => self.keep(id, far, false),
                    Err(error) => {
                        sockets.failed(far, refusal_of(error));
                        sockets.forget_far(far);
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

    /// Serves a far socket after an event of it or of its connection. Returns whether bytes have moved, or the connection is over.
    fn look(&mut self, far: SocketId, stack: &mut Stack, sockets: &mut Sockets, now: u64) -> bool {
        let Some(Connection { id, is_open, options: told }) = self.connections.get(&far).copied() else { return false };
        let Ok(socket) = sockets.get(far) else { return false };
        if socket.error.is_some() {
            self.drop_connection(far, id, stack, sockets, true, now);
            return true;
        }
        let near = sockets.near(far);
        if !is_open {
            if near.is_none() {
                self.drop_connection(far, id, stack, sockets, true, now);
            }
            return near.is_none();
        }
        if let Some(near) = near.and_then(|near| sockets.get(near).ok()).map(options).filter(|options| *options != told) {
            stack.set(id, near);
            if let Some(connection) = self.connections.get_mut(&far) {
                connection.options = near;
            }
        }
        if near.is_none() {
            // The socket has been closed.
            self.drop_connection(far, id, stack, sockets, false, now);
            return true;
        }
        if sockets.get(far).is_ok_and(|socket| socket.finished) {
            stack.finish(id, now);
        }
        self.carry_in(far, id, stack, sockets, now)
    }

    /// Moves received bytes to their socket. Returns whether there were any, or the end of the stream.
    fn carry_in(&mut self, far: SocketId, id: ConnectionId, stack: &mut Stack, sockets: &mut Sockets, now: u64) -> bool {
        let waiting = stack.readable(id);
        if waiting > 0 && sockets.discards_input(far) {
            // A peer that sends to a socket shut down in both directions gets a reset, as from Linux.
            sockets.failed(far, Errno::ECONNRESET);
            self.drop_connection(far, id, stack, sockets, true, now);
            return true;
        }
        let carried = stack.receive(id, &mut |bytes| sockets.send_on(far, bytes));
        let is_over = stack.readable(id) == 0 && stack.has_finished(id);
        if is_over {
            sockets.finished(far);
        }
        carried > 0 || is_over
    }

    /// Drops a connection that no socket in the cell has any more.
    fn drop_connection(&mut self, far: SocketId, id: ConnectionId, stack: &mut Stack, sockets: &mut Sockets, breaks: bool, now: u64) {
        if breaks {
            stack.abort(id);
        } else {
            stack.release(id, now);
        }
        self.far.remove(&id);
        self.connections.remove(&far);
        sockets.forget_far(far);
    }
}

/// The connection's options, from those of its socket.
fn options(socket: &Socket) -> TcpOptions {
    let kept = |of: u32, name: u32| socket.kept_option(of, name).unwrap_or_default();
    let seconds = |name: u32| Duration::from_secs(kept(SOL_TCP, name).max(1).into());
    let keep_alive = (kept(SOL_SOCKET, SO_KEEPALIVE) != 0).then(|| KeepAlive {
        idle: seconds(TCP_KEEPIDLE),
        interval: seconds(TCP_KEEPINTVL),
        count: kept(SOL_TCP, TCP_KEEPCNT).max(1),
    });
    let usual = TcpOptions::default();
    let timeout = match kept(SOL_TCP, TCP_USER_TIMEOUT) {
        0 => usual.timeout,
        milliseconds => Duration::from_millis(milliseconds.into()),
    };
    let is_ipv4 = socket.remote.as_ref().and_then(Address::internet).is_none_or(|remote| plain(remote).is_ipv4());
    let hops = if is_ipv4 { kept(SOL_IP, IP_TTL) } else { kept(SOL_IPV6, IPV6_UNICAST_HOPS) };
    let hops = u8::try_from(hops).ok().filter(|hops| *hops > 0).unwrap_or(usual.hops);
    TcpOptions { no_delay: kept(SOL_TCP, TCP_NODELAY) != 0, keep_alive, timeout, hops }
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
        Unreachable::Host | Unreachable::Forbidden | Unreachable::TooFar => Errno::EHOSTUNREACH,
        Unreachable::Port => Errno::ECONNREFUSED,
        Unreachable::TooLong => Errno::EMSGSIZE,
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
