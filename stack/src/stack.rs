// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stack as its user sees it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use core::net::IpAddr;

use smoltcp::iface::{self, Interface};
use smoltcp::phy::DeviceCapabilities;
use smoltcp::wire::HardwareAddress;

use crate::agenda::Agenda;
use crate::connection::{Connection, Stage, paced};
use crate::lingering::Lingering;
use crate::neighbours::Neighbours;
use crate::network::Network;
use crate::news::News;
use crate::packet::sums;
use crate::port::{Mute, capabilities};
use crate::sockets::Sockets;
use crate::strangers::Strangers;
use crate::{Config, ConnectionId, Counts, Error, Happening, Refusal, TcpOptions, Tuple};

/// A host's end of a network.
pub struct Stack {
    pub(crate) network: Network,
    /// smoltcp's part, without sockets.
    pub(crate) interface: Interface,
    pub(crate) capabilities: DeviceCapabilities,
    pub(crate) neighbours: Neighbours,
    pub(crate) connections: BTreeMap<ConnectionId, Box<Connection>>,
    pub(crate) tuples: BTreeMap<Tuple, ConnectionId>,
    /// Connections that have something to say.
    pub(crate) dirty: VecDeque<ConnectionId>,
    pub(crate) agenda: Agenda<ConnectionId>,
    pub(crate) strangers: Strangers,
    pub(crate) sockets: Sockets,
    pub(crate) lingering: Lingering,
    pub(crate) news: News,
    pub(crate) counts: Counts,
    /// What new connections' numbers are made from.
    pub(crate) seed: u64,
    last_id: u64,
    bound: usize,
}

impl Stack {
    /// A stack that has heard and said nothing yet. Numbers of the configuration that are out of bounds are brought within.
    pub fn new(config: Config, now: u64) -> Self {
        let capabilities = capabilities(config.mtu.clamp(576, 65_535), sums(config.checksums));
        let buffer = config.buffer.clamp(2 << 10, 1 << 30);
        let mut settings = iface::Config::new(HardwareAddress::Ip);
        settings.random_seed = config.seed;
        let mut interface = Interface::new(settings, &mut Mute(&capabilities), paced(now));
        interface.set_any_ip(true);
        Self {
            network: Network::new(&config),
            interface,
            neighbours: Neighbours::new(),
            connections: BTreeMap::new(),
            tuples: BTreeMap::new(),
            dirty: VecDeque::new(),
            agenda: Agenda::new(),
            strangers: Strangers::new(config.half_open, capabilities.clone()),
            sockets: Sockets::new(buffer, config.memory),
            lingering: Lingering::new(config.lingering),
            news: News::new(),
            counts: Counts::default(),
            seed: config.seed,
            last_id: 0,
            bound: config.connections,
            capabilities,
        }
    }

    /// When [`Stack::run`] must be called next, if nothing happens before: a moment that may have passed. Connections at rest have none.
    pub fn deadline(&self) -> Option<u64> {
        if !self.dirty.is_empty() {
            return Some(0);
        }
        [self.agenda.next(), self.strangers.next(), self.neighbours.next()].into_iter().flatten().min()
    }

    /// What happened, in turn.
    pub fn next_happening(&mut self) -> Option<Happening> {
        let happening = self.news.next(&mut self.connections)?;
        if let Happening::Closed(id) = happening {
            self.forget(id);
        }
        Some(happening)
    }

    /// Asks the other side of a tuple for a connection.
    pub fn connect(&mut self, tuple: Tuple, options: TcpOptions, now: u64) -> Result<ConnectionId, Error> {
        let Tuple { local, remote } = tuple;
        let is_sound = self.network.is_sender(remote.ip()) && local.is_ipv4() == remote.is_ipv4() && !local.ip().is_multicast();
        if !is_sound {
            return Err(Error::Unaddressable);
        }
        self.network.hop(remote.ip()).ok_or(Error::NoRoute)?;
        if self.tuples.contains_key(&tuple) || self.lingering.get(&tuple, now).is_some() || self.strangers.get(&tuple).is_some() {
            return Err(Error::InUse);
        }
        if self.is_full() {
            return Err(Error::TooMany);
        }
        let size = self.sockets.size(self.strangers.promised());
        let mut connection = Connection::new(tuple, self.sockets.make(size), now);
        connection.set(options);
        if !connection.connect(&mut self.interface) {
            self.sockets.put_back(connection.into_socket());
            return Err(Error::Unaddressable);
        }
        Ok(self.keep(connection))
    }

    /// Lets a stranger in that was held. Whether it is still there.
    pub fn admit(&mut self, tuple: &Tuple, now: u64) -> bool {
        self.strangers.admit(tuple, now)
    }

    /// Refuses a stranger that was held, if it is still there.
    pub fn refuse(&mut self, tuple: &Tuple, refusal: Refusal, outlet: &mut dyn crate::Outlet) {
        if let Some(stranger) = self.strangers.remove(tuple) {
            self.turn_away(tuple, &stranger.syn, stranger.mac, refusal, outlet);
        }
    }

    /// Whose connection this is. None: it is over and forgotten.
    pub fn tuple(&self, id: ConnectionId) -> Option<Tuple> {
        self.connections.get(&id).map(|connection| connection.tuple)
    }

    /// Lets `give` write what is to be sent into the room there is, in one or two pieces; it says how much it wrote. Returns how much that was in all.
    ///
    /// Where no room is left, [`Happening::Room`] tells of some. Before the connection is open there is none.
    pub fn send(&mut self, id: ConnectionId, give: &mut dyn FnMut(&mut [u8]) -> usize) -> usize {
        let Some(connection) = self.connections.get_mut(&id) else { return 0 };
        let sent = connection.send(give);
        if sent > 0 {
            self.stir(id);
        }
        sent
    }

    /// Lets `take` read what arrived, in one or two pieces; it says how much it is done with. Returns how much that was in all.
    pub fn receive(&mut self, id: ConnectionId, take: &mut dyn FnMut(&[u8]) -> usize) -> usize {
        let Some(connection) = self.connections.get_mut(&id) else { return 0 };
        let received = connection.receive(take);
        if received > 0 {
            if connection.must_tell_room() {
                self.stir(id);
            }
            self.close_if_done(id);
        }
        received
    }

    /// Bytes that can be read.
    pub fn readable(&self, id: ConnectionId) -> usize {
        self.connections.get(&id).map_or(0, |connection| connection.socket().recv_queue())
    }

    /// Bytes that can be sent at once.
    pub fn writable(&self, id: ConnectionId) -> usize {
        self.connections.get(&id).map_or(0, |connection| connection.writable())
    }

    /// Bytes that were given to be sent and are not known to have arrived.
    pub fn unanswered(&self, id: ConnectionId) -> usize {
        self.connections.get(&id).map_or(0, |connection| connection.socket().send_queue())
    }

    /// Whether all that was given to any connection has arrived, the ends of those that have finished included.
    pub fn is_said(&self) -> bool {
        self.dirty.is_empty() && self.connections.values().all(|connection| connection.is_said())
    }

    /// The other side will send no more than what can be read.
    pub fn has_finished(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_none_or(|connection| connection.has_finished())
    }

    /// Nothing more will be sent (FIN, after all that was given).
    pub fn finish(&mut self, id: ConnectionId, now: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.finish(now);
            self.stir(id);
        }
    }

    /// Nobody will read any more, though there may be more to send: what is unread or still arrives breaks the connection (RST), and so does an other side that
    /// takes nothing for some minutes.
    pub fn desert(&mut self, id: ConnectionId, now: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.desert(now);
        self.look(id, now);
        self.stir(id);
    }

    /// Nobody will read or send any more, and the name is forgotten: what was given is still sent, and what is unread or still arrives breaks the
    /// connection (RST).
    pub fn leave(&mut self, id: ConnectionId, now: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.desert(now);
        connection.is_left = true;
        connection.news = 0;
        if connection.stage == Stage::Over {
            return self.forget(id);
        }
        if connection.stage == Stage::Opening || connection.socket().recv_queue() > 0 {
            return self.abort(id);
        }
        self.finish(id, now);
    }

    /// Breaks the connection (RST), and forgets its name.
    pub fn abort(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        (connection.is_left, connection.news) = (true, 0);
        connection.abort();
        self.unhook(id);
        self.stir(id);
        self.close_if_done(id);
    }

    /// Sets what can be set.
    pub fn set(&mut self, id: ConnectionId, options: TcpOptions) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.set(options);
            self.stir(id);
        }
    }

    /// The address that packets to `remote` should come from. None: no route leads there.
    pub fn address_for(&self, remote: IpAddr) -> Option<IpAddr> {
        self.network.hop(remote)?;
        self.network.address_for(remote)
    }

    /// How much there is of everything.
    pub fn counts(&self) -> Counts {
        Counts {
            connections: self.connections.len(),
            half_open: self.strangers.len(),
            lingering: self.lingering.len(),
            neighbours: self.neighbours.len(),
            buffer_bytes: self.sockets.used(),
            waiting_bytes: self.news.bytes(),
            ..self.counts
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.connections.len() >= self.bound
    }

    /// Gives a connection its name.
    pub(crate) fn keep(&mut self, connection: Connection) -> ConnectionId {
        self.last_id += 1;
        let id = ConnectionId(self.last_id);
        self.tuples.insert(connection.tuple, id);
        self.connections.insert(id, Box::new(connection));
        self.stir(id);
        id
    }

    /// A connection may have something to say.
    pub(crate) fn stir(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !connection.is_dirty
        {
            connection.is_dirty = true;
            self.dirty.push_back(id);
        }
    }

    /// A connection does not speak or hear any more.
    pub(crate) fn unhook(&mut self, id: ConnectionId) {
        self.agenda.set(id, None);
        if let Some(connection) = self.connections.get(&id)
            && self.tuples.get(&connection.tuple) == Some(&id)
        {
            self.tuples.remove(&connection.tuple);
        }
    }

    /// A connection is gone, with its name.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        self.unhook(id);
        if let Some(connection) = self.connections.remove(&id) {
            self.sockets.put_back(connection.into_socket());
        }
    }
}

impl core::fmt::Debug for Stack {
    fn fmt(&self, formatter: &mut core::fmt::Formatter) -> core::fmt::Result {
        formatter.debug_struct("Stack").field("network", &self.network).field("counts", &self.counts()).finish_non_exhaustive()
    }
}
