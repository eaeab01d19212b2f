// SPDX-License-Identifier: MIT OR Apache-2.0
//! The UDP proxy: flows between cells and external addresses, each with a host socket. ICMP echo requests are flows, too; their
//! identifier stands for a port.

use crate::GatewayAddresses;
use crate::limits::{ANSWERED, DATAGRAMS, MAX_FLOWS, UNANSWERED};
use crate::listeners::HostListener;
use crate::poll::{Poll, Ready, Token};
use crate::sockets;
use crate::timers::Timers;
use pando_stack::{Datagram, Error, Message, Stack, TxSink, sum};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recvfrom, send, sendto};
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The longest datagram, and one byte to detect longer ones.
const ROOM: usize = 1 << 16;
/// The position of an echo request's identifier.
const NUMBER: std::ops::Range<usize> = 4..6;
/// The TTL of datagrams to cells.
const HOPS: u8 = 64;
/// The gateway's source ports for clients of the host (RFC 6335).
pub(crate) const PORTS: std::ops::RangeInclusive<u16> = 49152..=65535;

/// Both ends of a flow as the stack sees them: the remote side, and the cell. The remote side's port is 0 for echo requests only.
type FlowKey = (SocketAddr, SocketAddr);

/// The flow of echo requests with an identifier.
fn echoes(local: IpAddr, remote: SocketAddr) -> FlowKey {
    (SocketAddr::new(local, 0), remote)
}

/// The host's side of a flow.
#[derive(Debug)]
enum HostSocket {
    /// A UDP socket of its own.
    Socket(OwnedFd),
    /// An ICMP echo socket of its own.
    Echoes(OwnedFd),
    /// A forward's socket, and the client's address.
    Client(usize, SocketAddr),
}

#[derive(Debug)]
struct UdpFlow {
    pair: FlowKey,
    host: HostSocket,
    /// Both sides have sent.
    answered: bool,
    until: u64,
}

/// Datagrams that were carried, echoes among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Datagrams {
    /// From cells.
    pub out: u64,
    /// To cells.
    pub inward: u64,
    /// Datagrams dropped for lack of space.
    pub lost: u64,
}

/// All flows.
#[derive(Debug)]
pub(crate) struct UdpProxy {
    /// Maximal number of flows, each with a descriptor.
    most: usize,
    list: Slab<UdpFlow>,
    pairs: HashMap<FlowKey, usize>,
    clients: HashMap<(usize, SocketAddr), usize>,
    timers: Timers,
    /// The gateway's address, which represents the host's clients, and the address of the cell to which forwards lead.
    own: IpAddr,
    cell: IpAddr,
    port: u16,
    room: Vec<u8>,
    pub(crate) carried: Datagrams,
}

impl UdpProxy {
    pub(crate) fn new(inside: &GatewayAddresses, most: usize) -> UdpProxy {
        let (list, pairs, clients, timers) = (Slab::new(), HashMap::new(), HashMap::new(), Timers::default());
        let (own, cell) = (inside.address4.into(), inside.cell.into());
        UdpProxy { most, list, pairs, clients, timers, own, cell, port: *PORTS.start(), room: vec![0; ROOM], carried: Datagrams::default() }
    }

    /// Whether a flow exists.
    pub(crate) fn knows(&self, pair: &FlowKey) -> bool {
        self.pairs.contains_key(pair)
    }

    fn insert(&mut self, pair: FlowKey, host: HostSocket, now: u64) -> usize {
        if self.list.len() >= self.most
            && let Some(index) = self.timers.first()
        {
            self.remove(index);
        }
        if let HostSocket::Client(listener, client) = host {
            self.clients.insert((listener, client), self.list.vacant_key());
        }
        let until = after(now, UNANSWERED);
        let index = self.list.insert(UdpFlow { pair, host, answered: false, until });
        self.pairs.insert(pair, index);
        self.timers.add(until, index);
        index
    }

    fn remove(&mut self, index: usize) {
        if let Some(UdpFlow { pair, host, until, .. }) = self.list.try_remove(index) {
            self.timers.remove(until, index);
            self.pairs.remove(&pair);
            if let HostSocket::Client(listener, client) = host {
                self.clients.remove(&(listener, client));
            }
        }
    }

    /// Records a forwarded datagram, from the side that began or from the other.
    fn touch(&mut self, index: usize, is_answer: bool, now: u64) {
        if let Some(flow) = self.list.get_mut(index) {
            flow.answered |= is_answer;
            self.timers.remove(flow.until, index);
            flow.until = after(now, if flow.answered { ANSWERED } else { UNANSWERED });
            self.timers.add(flow.until, index);
        }
    }

    /// Opens a flow to a datagram's destination. Without a descriptor there is none, and the datagram is lost.
    pub(crate) fn open(&mut self, poll: &Poll, datagram: &Datagram, to: SocketAddr, now: u64) {
        let socket = sockets::datagrams_with(to);
        let _ = socket.and_then(|socket| self.begin(poll, (datagram.local, datagram.remote), HostSocket::Socket(socket), now));
    }

    /// Opens a flow of echo requests unless it exists.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn open_echoes(&mut self, poll: &Poll, local: IpAddr, remote: SocketAddr, now: u64) -> Result<(), Errno> {
        let pair = echoes(local, remote);
        if self.knows(&pair) { Ok(()) } else { self.begin(poll, pair, HostSocket::Echoes(sockets::echoes_of(local)?), now) }
    }

    fn begin(&mut self, poll: &Poll, pair: FlowKey, host: HostSocket, now: u64) -> Result<(), Errno> {
        let index = self.insert(pair, host, now);
        let Some(UdpFlow { host: HostSocket::Socket(socket) | HostSocket::Echoes(socket), .. }) = self.list.get(index) else {
            return Ok(());
        };
        let added = poll.add(socket, Token::Flow(index as u32), Ready::IN);
        added.map_err(|error| {
            self.remove(index);
            Errno::from_io_error(&error).unwrap_or(Errno::IO)
        })
    }

    /// Forwards a datagram of a cell.
    pub(crate) fn give(&mut self, datagram: &Datagram, listeners: &[HostListener], now: u64) {
        self.carry(&(datagram.local, datagram.remote), &datagram.bytes, listeners, now);
    }

    /// Forwards an echo request. The host fills in an identifier of its own and the checksum.
    pub(crate) fn ask(&mut self, message: &Message, now: u64) {
        let Some(number) = message.bytes.get(NUMBER).and_then(|number| number.try_into().ok()) else { return };
        let remote = SocketAddr::new(message.remote, u16::from_be_bytes(number));
        self.carry(&echoes(message.local, remote), &message.bytes, &[], now);
    }

    fn carry(&mut self, pair: &FlowKey, bytes: &[u8], listeners: &[HostListener], now: u64) {
        let Some(index) = self.pairs.get(pair).copied() else { return self.carried.lost += 1 };
        let Some(flow) = self.list.get(index) else { return };
        let (sent, is_answer) = match &flow.host {
            HostSocket::Socket(socket) | HostSocket::Echoes(socket) => (send(socket, bytes, SendFlags::NOSIGNAL).is_ok(), false),
            HostSocket::Client(listener, client) => {
                let socket = listeners.get(*listener).map(|listener| &listener.socket);
                (socket.is_some_and(|socket| sendto(socket, bytes, SendFlags::NOSIGNAL, client).is_ok()), true)
            }
        };
        self.touch(index, is_answer, now);
        if sent { self.carried.out += 1 } else { self.carried.lost += 1 }
    }

    /// Forwards a flow's received datagrams to its cell.
    pub(crate) fn take(&mut self, index: usize, stack: &mut Stack, sink: &mut dyn TxSink, now: u64) {
        for _ in 0..DATAGRAMS {
            let Some(UdpFlow { pair, host: HostSocket::Socket(socket) | HostSocket::Echoes(socket), .. }) = self.list.get(index) else {
                return;
            };
            // An error is a response, too: the port is closed. The cell gets no notice of it.
            let Ok((length, _, from)) = recvfrom(socket, &mut self.room[..], RecvFlags::DONTWAIT) else { return };
            let pair = *pair;
            let is_echo = pair.0.port() == 0;
            // The host checks the source of UDP datagrams only.
            if is_echo && from.and_then(|from| SocketAddr::try_from(from).ok()).is_none_or(|from| from.ip() != pair.0.ip()) {
                continue;
            }
            self.touch(index, true, now);
            if is_echo {
                self.echo(pair, length, stack, sink, now);
            } else {
                self.send(pair, length, stack, sink, now);
            }
        }
    }

    /// Forwards a forward's received datagrams to the cell, from a port of the gateway that represents the client.
    pub(crate) fn process(&mut self, number: usize, listener: &HostListener, stack: &mut Stack, sink: &mut dyn TxSink, now: u64) {
        let remote = SocketAddr::new(self.cell, listener.cell);
        for _ in 0..DATAGRAMS {
            let Ok((length, _, client)) = recvfrom(&listener.socket, &mut self.room[..], RecvFlags::DONTWAIT) else { return };
            let Some(client) = client.and_then(|client| SocketAddr::try_from(client).ok()) else { continue };
            let index = match self.clients.get(&(number, client)) {
                Some(index) => *index,
                None => {
                    let Some(local) = self.free_port(remote) else { return };
                    self.insert((local, remote), HostSocket::Client(number, client), now)
                }
            };
            let Some(pair) = self.list.get(index).map(|flow| flow.pair) else { continue };
            self.touch(index, false, now);
            self.send(pair, length, stack, sink, now);
        }
    }

    fn send(&mut self, (local, remote): FlowKey, length: usize, stack: &mut Stack, sink: &mut dyn TxSink, now: u64) {
        let bytes = self.room.get(..length).unwrap_or_default().to_vec();
        let outcome = stack.send_datagram(&Datagram { local, remote, bytes, hops: HOPS }, now, sink);
        self.note(outcome);
    }

    /// Sends an echo reply with the identifier of the cell's request.
    fn echo(&mut self, (local, remote): FlowKey, length: usize, stack: &mut Stack, sink: &mut dyn TxSink, now: u64) {
        let (local, number, remote) = (local.ip(), remote.port(), remote.ip());
        let mut bytes = self.room.get(..length).unwrap_or_default().to_vec();
        if let Some(own) = bytes.get_mut(NUMBER) {
            own.copy_from_slice(&number.to_be_bytes());
        }
        sum(local, remote, &mut bytes);
        let outcome = stack.send_message(&Message { local, remote, bytes, hops: HOPS }, now, sink);
        self.note(outcome);
    }

    fn note(&mut self, outcome: Result<(), Error>) {
        match outcome {
            Ok(()) => self.carried.inward += 1,
            Err(_) => self.carried.lost += 1,
        }
    }

    /// A free source port towards a cell. There are more ports than flows.
    fn free_port(&mut self, remote: SocketAddr) -> Option<SocketAddr> {
        (0..=MAX_FLOWS).find_map(|_| {
            self.port = if self.port == *PORTS.end() { *PORTS.start() } else { self.port + 1 };
            let local = SocketAddr::new(self.own, self.port);
            (!self.pairs.contains_key(&(local, remote))).then_some(local)
        })
    }

    pub(crate) fn expire(&mut self, now: u64) {
        while let Some(index) = self.timers.due(now) {
            self.remove(index);
        }
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.timers.next()
    }
}

fn after(now: u64, time: Duration) -> u64 {
    now.saturating_add(time.as_nanos() as u64)
}
