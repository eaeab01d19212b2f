// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way out: sockets whose other end is not in the cell.
//!
//! A connection to outside is a pair like any other. Its *far* socket is open for nobody: the network sends by it what has arrived. What is to go is written straight into the stack, which is
//! lent here whenever the network is not at work with it, so there is no room but the stack's. Whatever happens to a far socket is noted, so that the network looks at those only. What else it
//! shall do stands in a queue of wishes. Nothing here knows how packets look.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use pando_stack::{ConnectionId, Message, Stack};

use super::address::{Address, in_family, is_here, plain};
use super::names::{CARD, GIVEN};
use super::queue::{Beside, Packet};
use super::transfer::{Sending, gather, giving};
use super::{Family, Socket, SocketId, Sockets, State, Style, Who};
use crate::errno::Errno;

/// Bytes of datagrams, messages and frames that may wait to go out.
const DATAGRAMS_MAX: usize = 1 << 20;

/// What a far socket has beyond others.
#[derive(Debug, Default)]
pub struct Far {
    /// Something has happened to it that the network has not looked at.
    stirred: bool,
    /// The stack's connection, once it is open.
    connection: Option<ConnectionId>,
}

/// Something that the network shall do.
#[derive(Debug)]
pub enum Wish {
    /// Connect, in the name of this far socket.
    Connect {
        /// The far socket.
        far: SocketId,
        /// From here.
        from: SocketAddr,
        /// To there.
        to: SocketAddr,
    },
    /// Send a datagram.
    Datagram {
        /// From here.
        from: SocketAddr,
        /// To there.
        to: SocketAddr,
        /// This.
        bytes: Vec<u8>,
        /// How far it may go.
        hops: u8,
    },
    /// Send a message of ICMP.
    Message(Message),
    /// Send a frame.
    Frame(Vec<u8>),
}

impl Wish {
    /// Bytes that it takes while it waits.
    fn length(&self) -> usize {
        match self {
            Wish::Connect { .. } => 0,
            Wish::Datagram { bytes, .. } | Wish::Message(Message { bytes, .. }) | Wish::Frame(bytes) => bytes.len(),
        }
    }
}

/// The cell's card.
#[derive(Clone, Copy, Debug)]
pub struct Card {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Bytes of the largest packet.
    pub mtu: usize,
}

/// An address of the cell on its network, which the network gives it and programs can set and take away, and no other.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// The address.
    pub address: IpAddr,
    /// Bits of its network's prefix.
    pub prefix: u8,
    /// Who leads to other networks.
    pub router: Option<IpAddr>,
    /// It is set.
    pub is_set: bool,
    /// The way by the router is set.
    pub is_routed: bool,
}

impl Host {
    /// Whether it can be spoken from to another host of its family.
    fn leads_to(&self, host: IpAddr) -> bool {
        let is_near = match (self.address, host) {
            (IpAddr::V4(own), IpAddr::V4(host)) => {
                host.is_multicast()
                    || host.is_broadcast()
                    || begins_alike(own.to_bits().into(), host.to_bits().into(), 32 - u32::from(self.prefix.min(32)))
            }
            (IpAddr::V6(own), IpAddr::V6(host)) => {
                host.is_multicast()
                    || host.is_unicast_link_local()
                    || begins_alike(own.to_bits(), host.to_bits(), 128 - u32::from(self.prefix.min(128)))
            }
            _ => return false,
        };
        self.is_set && (is_near || self.is_routed)
    }
}

/// Whether two addresses are alike but for so many bits.
fn begins_alike(one: u128, other: u128, bits: u32) -> bool {
    (one ^ other).checked_shr(bits).is_none_or(|rest| rest == 0)
}

/// Where outside is, and what is to be done there.
#[derive(Debug, Default)]
pub struct Outside {
    /// The cell's card; `None`: there is no network.
    pub card: Option<Card>,
    /// The cell's own addresses on its network.
    pub hosts: Vec<Host>,
    stirred: Vec<SocketId>,
    /// The stack, while the network is not at work: what that does to far sockets itself it knows.
    stack: Option<Box<Stack>>,
    wishes: VecDeque<Wish>,
    /// Bytes of the datagrams among them.
    waiting: usize,
}

impl Outside {
    /// Whether the network has something to do.
    #[must_use]
    pub fn calls(&self) -> bool {
        !self.stirred.is_empty() || !self.wishes.is_empty()
    }

    /// Whether an address is the cell's.
    #[must_use]
    pub fn is_own(&self, host: IpAddr) -> bool {
        is_here(host) || self.has(host.to_canonical())
    }

    /// Whether an address is one that the cell has on its network.
    fn has(&self, host: IpAddr) -> bool {
        self.hosts.iter().any(|own| own.is_set && own.address == host)
    }

    /// The address from which a host outside is spoken to. `None`: no way leads there.
    #[must_use]
    pub fn host_towards(&self, host: IpAddr) -> Option<IpAddr> {
        self.hosts.iter().find(|own| own.leads_to(host.to_canonical())).map(|own| own.address)
    }

    /// The address from which any host is spoken to.
    #[must_use]
    pub fn source_towards(&self, host: IpAddr) -> IpAddr {
        match host.to_canonical() {
            // Whoever speaks to itself by its own name does so in that name.
            host if self.has(host) => host,
            host if is_here(host) && host.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
            host if is_here(host) => Ipv6Addr::LOCALHOST.into(),
            host => self.host_towards(host).unwrap_or(host),
        }
    }

    /// Lets something be sent, if there is room for it: what finds none is lost, as on any network.
    pub(super) fn wish(&mut self, wish: Wish) {
        if self.waiting + wish.length() <= DATAGRAMS_MAX {
            self.waiting += wish.length();
            self.wishes.push_back(wish);
        }
    }

    /// Lends the stack to those who send.
    pub fn lend(&mut self, stack: Box<Stack>) {
        self.stack = Some(stack);
    }

    /// Takes the stack back, to work with it. `None`: there is no network, or it is at work already.
    pub fn take_back(&mut self) -> Option<Box<Stack>> {
        self.stack.take()
    }

    /// When the network has to look at the stack if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.stack.as_ref()?.deadline()
    }

    /// Whether all that was given to the stack has arrived.
    #[must_use]
    pub fn is_said(&self) -> bool {
        self.stack.as_ref().is_none_or(|stack| stack.is_said())
    }

    /// Bytes that can be sent by a far socket at once.
    pub(super) fn room(&self, far: &Far) -> usize {
        self.stack.as_ref().zip(far.connection).map_or(0, |(stack, connection)| stack.writable(connection))
    }

    /// Takes note that something has happened to a socket, if it is a far one.
    pub(super) fn note(&mut self, id: SocketId, socket: &mut Socket) {
        if let Some(far) = socket.far.as_mut().filter(|_| self.stack.is_some())
            && !mem::replace(&mut far.stirred, true)
        {
            self.stirred.push(id);
        }
    }
}

impl Sockets {
    /// Tells which card and which addresses the cell has on its network, and after which port those begin that nobody chose: elsewhere others remember who had the same addresses before.
    pub fn set_card(&mut self, card: Card, hosts: Vec<Host>, after: u16) {
        (self.outside.card, self.outside.hosts) = (Some(card), hosts);
        self.next_port = GIVEN.start() + after % (GIVEN.end() - GIVEN.start());
    }

    /// Takes note that there is no card any more.
    pub fn forget_card(&mut self) {
        self.outside.card = None;
        self.outside.hosts.clear();
    }

    /// Closes all sockets that somebody in the cell has.
    pub fn close_all(&mut self) {
        let near: Vec<SocketId> = self
            .sockets
            .iter()
            .enumerate()
            .filter_map(|(index, socket)| {
                let socket = socket.as_ref().filter(|socket| socket.far.is_none())?;
                Some(SocketId { index, number: socket.number })
            })
            .collect();
        for id in near {
            self.close(id);
        }
    }

    /// Takes the next thing that the network shall do.
    pub fn next_wish(&mut self) -> Option<Wish> {
        let wish = self.outside.wishes.pop_front()?;
        self.outside.waiting -= wish.length();
        Some(wish)
    }

    /// Takes the far sockets to which something has happened.
    pub fn take_stirred(&mut self) -> Vec<SocketId> {
        let stirred = mem::take(&mut self.outside.stirred);
        for id in &stirred {
            if let Some(far) = self.sockets.get_mut(id.index).and_then(Option::as_mut).and_then(|socket| socket.far.as_mut()) {
                far.stirred = false;
            }
        }
        stirred
    }

    /// Makes a far socket at an address outside, for who speaks to it from here.
    fn open_far(&mut self, family: Family, there: SocketAddr, here: SocketAddr) -> Result<SocketId, Errno> {
        const TCP: u32 = 6;
        let far = self.open(family, Style::Stream, TCP, Who::default())?;
        let socket = self.get_mut(far)?;
        socket.local = Address::Internet(in_family(family, there));
        socket.remote = Some(Address::Internet(in_family(family, here)));
        socket.far = Some(Far::default());
        Ok(far)
    }

    /// Begins a connection to outside.
    pub(super) fn connect_outside(&mut self, id: SocketId, to: SocketAddr) -> Result<(), Errno> {
        let socket = self.get(id)?;
        let (family, from) = (socket.family, plain(socket.local.internet().ok_or(Errno::EINVAL)?));
        let far = self.open_far(family, to, from)?;
        self.get_mut(far)?.state = State::Connected(id);
        self.get_mut(id)?.state = State::Connecting(far);
        self.outside.wishes.push_back(Wish::Connect { far, from, to });
        Ok(())
    }

    /// Gives a socket that waits for its connection to begin another port, unless it chose its own: others remember an earlier connection from that one. Returns
    /// where it is now.
    pub fn change_port(&mut self, far: SocketId) -> Option<SocketAddr> {
        let near = self.near(far)?;
        let socket = self.get(near).ok().filter(|socket| !socket.chose_port)?;
        let (family, local) = (socket.family, socket.local.clone());
        self.unbind(near).ok()?;
        self.get_mut(near).ok()?.local = local;
        self.bind_any_port(near).ok()?;
        let from = self.get(near).ok()?.local.internet()?;
        self.get_mut(far).ok()?.remote = Some(Address::Internet(in_family(family, from)));
        Some(plain(from))
    }

    /// The stack's connection of a far socket is open.
    pub fn join_far(&mut self, far: SocketId, connection: ConnectionId) {
        if let Some(far) = self.get_mut(far).ok().and_then(|socket| socket.far.as_mut()) {
            far.connection = Some(connection);
        }
    }

    /// A connection has room again.
    pub fn saw_room(&mut self, far: SocketId) {
        if let Some(near) = self.near(far)
            && let Ok(socket) = self.get_mut(near)
        {
            socket.pulse.output();
        }
    }

    /// A connection that was begun is there.
    pub fn opened(&mut self, far: SocketId) {
        if let Some(near) = self.near(far)
            && let Ok(socket) = self.get_mut(near)
        {
            socket.state = State::Connected(far);
            socket.pulse.other();
        }
    }

    /// A connection has failed: before it was there, or later. What arrived before was sent on already.
    pub fn failed(&mut self, far: SocketId, error: Errno) {
        let Some(near) = self.near(far) else { return };
        match self.get_mut(near) {
            Ok(socket) if matches!(socket.state, State::Connecting(_)) => {
                let error = if error == Errno::ECONNRESET { Errno::ECONNREFUSED } else { error };
                // It is there: it was just looked at.
                let _ = self.refuse(near, error);
            }
            Ok(socket) => socket.reset(if socket.finished && error == Errno::ECONNRESET { Errno::EPIPE } else { error }),
            Err(_) => {}
        }
    }

    /// The socket in the cell that a far one belongs to, if it is still there.
    #[must_use]
    pub fn near(&self, far: SocketId) -> Option<SocketId> {
        let near = self.get(far).ok()?.peer()?;
        let is_its = |socket: &Socket| matches!(socket.state, State::Connected(peer) | State::Connecting(peer) if peer == far);
        self.get(near).ok().filter(|socket| is_its(socket)).map(|_| near)
    }

    /// The listener that a stranger may come to, and whether it has room.
    #[must_use]
    pub fn listener_at(&self, here: SocketAddr, there: SocketAddr) -> Option<(SocketId, bool)> {
        let listener = self.at_address(Style::Stream, CARD, here, Some(there))?;
        Some((listener, !self.is_full(listener)))
    }

    /// Lets a stranger wait at the listener of an address. Returns its far socket.
    ///
    /// # Errors
    /// `ECONNREFUSED`: nobody listens any more, or there is no room. `ENOMEM`.
    pub fn arrive(&mut self, here: SocketAddr, there: SocketAddr) -> Result<SocketId, Errno> {
        let (listener, _) = self.listener_at(here, there).filter(|(_, has_room)| *has_room).ok_or(Errno::ECONNREFUSED)?;
        let family = if here.is_ipv4() { Family::Internet4 } else { Family::Internet6 };
        let far = self.open_far(family, there, here)?;
        match self.join(far, listener) {
            Ok(_) => Ok(far),
            Err(error) => {
                self.remove(far);
                Err(error)
            }
        }
    }

    /// Sends on what has arrived for a far socket's near one, as far as there is room. Returns how much.
    pub fn send_on(&mut self, far: SocketId, bytes: &[u8]) -> usize {
        let Some(near) = self.near(far) else { return 0 };
        // By the measure of `has_room`: what is left behind is asked for again when that says so.
        let Ok(limit) = self.get(far).map(|socket| socket.options.send_limit(true)) else { return 0 };
        let Ok(socket) = self.get(near) else { return 0 };
        let room = limit.saturating_sub(socket.queue.used()).min(bytes.len());
        if room == 0 {
            return 0;
        }
        let Ok(socket) = self.get_mut(near) else { return 0 };
        socket.pulse.input();
        socket.queue.push_bytes(&bytes[..room])
    }

    /// Whether a far socket's near one has ended both directions, though it is still open.
    #[must_use]
    pub fn is_deaf(&self, far: SocketId) -> bool {
        self.near(far).and_then(|near| self.get(near).ok()).is_some_and(|socket| socket.reads_ended && socket.sends_ended)
    }

    /// Sends by a far socket.
    ///
    /// # Errors
    /// `EAGAIN`: there is no room. `EFAULT`.
    pub(super) fn send_far(&mut self, far: SocketId, give: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<usize, Errno> {
        let connection = self.get_mut(far)?.far.as_ref().and_then(|far| far.connection);
        let (Some(stack), Some(connection)) = (&mut self.outside.stack, connection) else { return Err(Errno::EAGAIN) };
        if stack.writable(connection) == 0 {
            return Err(Errno::EAGAIN);
        }
        let sent = stack.send(connection, give);
        if sent == 0 { Err(Errno::EFAULT) } else { Ok(sent) }
    }

    /// The other side of a connection sends nothing more.
    pub fn finished(&mut self, far: SocketId) {
        // Whoever is gone hears nothing.
        let _ = self.shutdown(far, 1);
    }

    /// Forgets a far socket whose connection is over.
    pub fn forget_far(&mut self, far: SocketId) {
        if let Some(near) = self.near(far)
            && let Ok(socket) = self.get_mut(near)
            && socket.sends_ended
        {
            socket.state = State::Closed;
        }
        self.remove(far);
    }

    /// Sends a datagram out.
    pub(super) fn send_outside(&mut self, [from, to]: [SocketAddr; 2], hops: Option<i32>, sending: Sending<'_>) -> Result<usize, Errno> {
        let Sending { length, give, .. } = sending;
        let bytes = gather(length, give)?;
        let hops = hops.and_then(|hops| u8::try_from(hops).ok()).filter(|hops| *hops > 0).unwrap_or(64);
        self.outside.wish(Wish::Datagram { from, to, bytes, hops });
        Ok(length)
    }

    /// Sends a message of ICMP out.
    pub(super) fn carry_out(&mut self, message: Message) {
        self.outside.wish(Wish::Message(message));
    }

    /// Whether somebody has a port of UDP, and whether there is room for a datagram.
    #[must_use]
    pub fn hears(&self, here: SocketAddr, there: SocketAddr) -> Option<bool> {
        let socket = self.get(self.at_address(Style::Datagram, CARD, here, Some(there))?).ok()?;
        Some(socket.queue.used() < socket.options.receive_buffer)
    }

    /// A datagram has arrived.
    pub fn receive_datagram(&mut self, here: SocketAddr, there: SocketAddr, bytes: &[u8], hops: u8) {
        let Some(target) = self.at_address(Style::Datagram, CARD, here, Some(there)) else { return };
        let time = self.time();
        let Ok(socket) = self.get_mut(target) else { return };
        let from = Address::Internet(in_family(socket.family, there));
        let packet = Packet { hops: Some(hops.into()), class: Some(0), to: Some(here.ip()), by: CARD, time };
        // Others of the same batch may have taken the room that there was.
        if socket.queue.used() >= socket.options.receive_buffer {
            return;
        }
        // Without memory it is lost.
        if socket.queue.push_whole(bytes.len(), from, Beside { packet, ..Beside::default() }, &mut giving(bytes)).is_ok() {
            socket.pulse.input();
        }
    }
}
