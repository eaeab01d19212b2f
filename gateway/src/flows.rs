// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conversations by datagrams: who of the cells speaks with whom outside, by which socket of the host's. Questions for echoes are such, and their number is a port.

use crate::Inside;
use crate::limits::{ANSWERED, DATAGRAMS, MAX_FLOWS, UNANSWERED};
use crate::listeners::Listener;
use crate::poll::{Poll, Ready, Token};
use crate::sockets;
use crate::timers::Timers;
use pando_stack::{Datagram, Error, Message, Outlet, Stack, sum};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recvfrom, send, sendto};
use slab::Slab;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The longest datagram, and a byte by which a longer one would be known.
const ROOM: usize = 1 << 16;
/// Where the number of a question for an echo stands in it.
const NUMBER: std::ops::Range<usize> = 4..6;
/// Routers that a datagram to a cell may pass.
const HOPS: u8 = 64;
/// The ports at which the gateway speaks for somebody of the host's (RFC 6335).
pub(crate) const PORTS: std::ops::RangeInclusive<u16> = 49152..=65535;

/// Both ends of a conversation as the stack sees them: this side, and the cell. This side's port is 0 where it is asked for echoes, and no other is.
type Pair = (SocketAddr, SocketAddr);

/// The conversation of questions that bear a number.
fn echoes(local: IpAddr, remote: SocketAddr) -> Pair {
    (SocketAddr::new(local, 0), remote)
}

/// Where the host's side of a conversation is.
#[derive(Debug)]
enum Host {
    /// A socket of its own.
    Socket(OwnedFd),
    /// One of its own that asks for echoes.
    Echoes(OwnedFd),
    /// A forward's socket, and who spoke to it.
    Client(usize, SocketAddr),
}

#[derive(Debug)]
struct Flow {
    pair: Pair,
    host: Host,
    /// Both have spoken.
    answered: bool,
    until: u64,
}

/// Datagrams that were carried, echoes among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Datagrams {
    /// From cells.
    pub out: u64,
    /// To cells.
    pub inward: u64,
    /// Those that found no room.
    pub lost: u64,
}

/// All conversations.
#[derive(Debug)]
pub(crate) struct Flows {
    /// Conversations that there may be, each with a descriptor.
    most: usize,
    list: Slab<Flow>,
    pairs: HashMap<Pair, usize>,
    clients: HashMap<(usize, SocketAddr), usize>,
    timers: Timers,
    /// The gateway's address, by which it speaks for the host, and the address of the cell to which forwards lead.
    own: IpAddr,
    cell: IpAddr,
    port: u16,
    room: Vec<u8>,
    pub(crate) carried: Datagrams,
}

impl Flows {
    pub(crate) fn new(inside: &Inside, most: usize) -> Flows {
        let (list, pairs, clients, timers) = (Slab::new(), HashMap::new(), HashMap::new(), Timers::default());
        let (own, cell) = (inside.address4.into(), inside.cell.into());
        Flows { most, list, pairs, clients, timers, own, cell, port: *PORTS.start(), room: vec![0; ROOM], carried: Datagrams::default() }
    }

    /// Whether a conversation is under way.
    pub(crate) fn knows(&self, pair: &Pair) -> bool {
        self.pairs.contains_key(pair)
    }

    fn insert(&mut self, pair: Pair, host: Host, now: u64) -> usize {
        if self.list.len() >= self.most
            && let Some(index) = self.timers.first()
        {
            self.remove(index);
        }
        if let Host::Client(listener, client) = host {
            self.clients.insert((listener, client), self.list.vacant_key());
        }
        let until = after(now, UNANSWERED);
        let index = self.list.insert(Flow { pair, host, answered: false, until });
        self.pairs.insert(pair, index);
        self.timers.add(until, index);
        index
    }

    fn remove(&mut self, index: usize) {
        if let Some(Flow { pair, host, until, .. }) = self.list.try_remove(index) {
            self.timers.remove(until, index);
            self.pairs.remove(&pair);
            if let Host::Client(listener, client) = host {
                self.clients.remove(&(listener, client));
            }
        }
    }

    /// A datagram was carried, from the side that began or from the other.
    fn touch(&mut self, index: usize, is_answer: bool, now: u64) {
        if let Some(flow) = self.list.get_mut(index) {
            flow.answered |= is_answer;
            self.timers.remove(flow.until, index);
            flow.until = after(now, if flow.answered { ANSWERED } else { UNANSWERED });
            self.timers.add(flow.until, index);
        }
    }

    /// Begins a conversation with what stands behind a datagram's destination. Without a descriptor there is none, and the datagram will be lost.
    pub(crate) fn open(&mut self, poll: &Poll, datagram: &Datagram, to: SocketAddr, now: u64) {
        let socket = sockets::datagrams_with(to);
        let _ = socket.and_then(|socket| self.begin(poll, (datagram.local, datagram.remote), Host::Socket(socket), now));
    }

    /// Begins a conversation of echoes, if it is not under way.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn open_echoes(&mut self, poll: &Poll, local: IpAddr, remote: SocketAddr, now: u64) -> Result<(), Errno> {
        let pair = echoes(local, remote);
        if self.knows(&pair) { Ok(()) } else { self.begin(poll, pair, Host::Echoes(sockets::echoes_of(local)?), now) }
    }

    fn begin(&mut self, poll: &Poll, pair: Pair, host: Host, now: u64) -> Result<(), Errno> {
        let index = self.insert(pair, host, now);
        let Some(Flow { host: Host::Socket(socket) | Host::Echoes(socket), .. }) = self.list.get(index) else { return Ok(()) };
        let added = poll.add(socket, Token::Flow(index as u32), Ready::IN);
        added.map_err(|error| {
            self.remove(index);
            Errno::from_io_error(&error).unwrap_or(Errno::IO)
        })
    }

    /// Carries a datagram of a cell.
    pub(crate) fn give(&mut self, datagram: &Datagram, listeners: &[Listener], now: u64) {
        self.carry(&(datagram.local, datagram.remote), &datagram.bytes, listeners, now);
    }

    /// Carries a question for an echo. The host gives it a number of its own, and its sum.
    pub(crate) fn ask(&mut self, message: &Message, now: u64) {
        let Some(number) = message.bytes.get(NUMBER).and_then(|number| number.try_into().ok()) else { return };
        let remote = SocketAddr::new(message.remote, u16::from_be_bytes(number));
        self.carry(&echoes(message.local, remote), &message.bytes, &[], now);
    }

    fn carry(&mut self, pair: &Pair, bytes: &[u8], listeners: &[Listener], now: u64) {
        let Some(index) = self.pairs.get(pair).copied() else { return self.carried.lost += 1 };
        let Some(flow) = self.list.get(index) else { return };
        let (sent, is_answer) = match &flow.host {
            Host::Socket(socket) | Host::Echoes(socket) => (send(socket, bytes, SendFlags::NOSIGNAL).is_ok(), false),
            Host::Client(listener, client) => {
                let socket = listeners.get(*listener).map(|listener| &listener.socket);
                (socket.is_some_and(|socket| sendto(socket, bytes, SendFlags::NOSIGNAL, client).is_ok()), true)
            }
        };
        self.touch(index, is_answer, now);
        if sent { self.carried.out += 1 } else { self.carried.lost += 1 }
    }

    /// Carries what a socket of a conversation has heard to its cell.
    pub(crate) fn take(&mut self, index: usize, stack: &mut Stack, outlet: &mut dyn Outlet, now: u64) {
        for _ in 0..DATAGRAMS {
            let Some(Flow { pair, host: Host::Socket(socket) | Host::Echoes(socket), .. }) = self.list.get(index) else { return };
            // An error is an answer too: nobody listens there. A cell that asks again is told no more than by silence.
            let Ok((length, _, from)) = recvfrom(socket, &mut self.room[..], RecvFlags::DONTWAIT) else { return };
            let pair = *pair;
            let is_echo = pair.0.port() == 0;
            // The host checks that of datagrams alone.
            if is_echo && from.and_then(|from| SocketAddr::try_from(from).ok()).is_none_or(|from| from.ip() != pair.0.ip()) {
                continue;
            }
            self.touch(index, true, now);
            if is_echo {
                self.echo(pair, length, stack, outlet, now);
            } else {
                self.say(pair, length, stack, outlet, now);
            }
        }
    }

    /// Carries what a forward's socket has heard to the cell, from a port of the gateway's that stands for who said it.
    pub(crate) fn hear(&mut self, number: usize, listener: &Listener, stack: &mut Stack, outlet: &mut dyn Outlet, now: u64) {
        let remote = SocketAddr::new(self.cell, listener.cell);
        for _ in 0..DATAGRAMS {
            let Ok((length, _, client)) = recvfrom(&listener.socket, &mut self.room[..], RecvFlags::DONTWAIT) else { return };
            let Some(client) = client.and_then(|client| SocketAddr::try_from(client).ok()) else { continue };
            let index = match self.clients.get(&(number, client)) {
                Some(index) => *index,
                None => {
                    let Some(local) = self.free_port(remote) else { return };
                    self.insert((local, remote), Host::Client(number, client), now)
                }
            };
            let Some(pair) = self.list.get(index).map(|flow| flow.pair) else { continue };
            self.touch(index, false, now);
            self.say(pair, length, stack, outlet, now);
        }
    }

    fn say(&mut self, (local, remote): Pair, length: usize, stack: &mut Stack, outlet: &mut dyn Outlet, now: u64) {
        let bytes = self.room.get(..length).unwrap_or_default().to_vec();
        let outcome = stack.send_datagram(&Datagram { local, remote, bytes, hops: HOPS }, now, outlet);
        self.note(outcome);
    }

    /// Says an echo under the number that the cell's question had.
    fn echo(&mut self, (local, remote): Pair, length: usize, stack: &mut Stack, outlet: &mut dyn Outlet, now: u64) {
        let (local, number, remote) = (local.ip(), remote.port(), remote.ip());
        let mut bytes = self.room.get(..length).unwrap_or_default().to_vec();
        if let Some(own) = bytes.get_mut(NUMBER) {
            own.copy_from_slice(&number.to_be_bytes());
        }
        sum(local, remote, &mut bytes);
        let outcome = stack.send_message(&Message { local, remote, bytes, hops: HOPS }, now, outlet);
        self.note(outcome);
    }

    fn note(&mut self, outcome: Result<(), Error>) {
        match outcome {
            Ok(()) => self.carried.inward += 1,
            Err(_) => self.carried.lost += 1,
        }
    }

    /// A port at which nobody speaks with that cell. There are more than conversations.
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
