// SPDX-License-Identifier: MIT OR Apache-2.0
//! The public interface of the stack.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use core::net::IpAddr;

use smoltcp::iface::{self, Interface};
use smoltcp::phy::DeviceCapabilities;
use smoltcp::wire::HardwareAddress;

use crate::connection::{Connection, to_smoltcp_time};
use crate::neighbours::Neighbours;
use crate::network::NetworkConfig;
use crate::packet::checksums;
use crate::smoltcp_device::{IdleDevice, capabilities};
use crate::socket_events::EventQueue;
use crate::sockets::Sockets;
use crate::syn_backlog::SynBacklog;
use crate::time_wait::TimeWait;
use crate::timer_queue::TimerQueue;
use crate::{Config, ConnectionId, Counts, Error, SocketEvent, SynRefusal, TcpOptions, Tuple};

/// A host's TCP/IP stack.
pub struct Stack {
    pub(crate) network: NetworkConfig,
    /// smoltcp's interface, without sockets.
    pub(crate) interface: Interface,
    pub(crate) capabilities: DeviceCapabilities,
    pub(crate) neighbours: Neighbours,
    pub(crate) connections: BTreeMap<ConnectionId, Box<Connection>>,
    pub(crate) tuples: BTreeMap<Tuple, ConnectionId>,
    /// Connections that may have something to send.
    pub(crate) tx_ready: VecDeque<ConnectionId>,
    pub(crate) timer_queue: TimerQueue<ConnectionId>,
    pub(crate) syn_backlog: SynBacklog,
    pub(crate) sockets: Sockets,
    pub(crate) time_wait: TimeWait,
    pub(crate) events: EventQueue,
    pub(crate) counts: Counts,
    /// The seed of new connections' initial sequence numbers.
    pub(crate) seed: u64,
    last_id: u64,
    bound: usize,
}

impl Stack {
    /// A new stack. Values of the configuration that are out of bounds are clamped.
    pub fn new(config: Config, now: u64) -> Self {
        let capabilities = capabilities(config.mtu.clamp(576, 65_535), checksums(config.checksums));
        let buffer = config.buffer.clamp(2 << 10, 1 << 30);
        let mut settings = iface::Config::new(HardwareAddress::Ip);
        settings.random_seed = config.seed;
        let mut interface = Interface::new(settings, &mut IdleDevice(&capabilities), to_smoltcp_time(now));
        interface.set_any_ip(true);
        Self {
            network: NetworkConfig::new(&config),
            interface,
            neighbours: Neighbours::new(),
            connections: BTreeMap::new(),
            tuples: BTreeMap::new(),
            tx_ready: VecDeque::new(),
            timer_queue: TimerQueue::new(),
            syn_backlog: SynBacklog::new(config.half_open, capabilities.clone()),
            sockets: Sockets::new(buffer, config.memory),
            time_wait: TimeWait::new(config.time_wait),
            events: EventQueue::new(),
            counts: Counts::default(),
            seed: config.seed,
            last_id: 0,
            bound: config.connections,
            capabilities,
        }
    }

    /// When [`Stack::run`] must be called next, unless something happens before. The time may have passed. Idle
    /// connections have no deadline.
    pub fn deadline(&self) -> Option<u64> {
        if !self.tx_ready.is_empty() {
            return Some(0);
        }
        [self.timer_queue.next(), self.syn_backlog.next(), self.neighbours.next()].into_iter().flatten().min()
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> Option<SocketEvent> {
        let event = self.events.next(&mut self.connections)?;
        if let SocketEvent::Closed(id) = event {
            self.remove_connection(id);
        }
        Some(event)
    }

    /// Opens a connection (active open).
    pub fn connect(&mut self, tuple: Tuple, options: TcpOptions, now: u64) -> Result<ConnectionId, Error> {
        let Tuple { local, remote } = tuple;
        let is_valid = self.network.is_valid_source(remote.ip()) && local.is_ipv4() == remote.is_ipv4() && !local.ip().is_multicast();
        if !is_valid {
            return Err(Error::Unaddressable);
        }
        self.network.next_hop(remote.ip()).ok_or(Error::NoRoute)?;
        if self.tuples.contains_key(&tuple) || self.time_wait.get(&tuple, now).is_some() || self.syn_backlog.get(&tuple).is_some() {
            return Err(Error::InUse);
        }
        if self.is_full() {
            return Err(Error::TooMany);
        }
        let size = self.sockets.size(self.syn_backlog.reserved());
        let mut connection = Connection::new(tuple, self.sockets.make(size), now);
        connection.set(options);
        if !connection.connect(&mut self.interface) {
            self.sockets.put_back(connection.into_socket());
            return Err(Error::Unaddressable);
        }
        Ok(self.insert(connection))
    }

    /// Admits a connection request that was held. Returns whether it is still there.
    pub fn admit(&mut self, tuple: &Tuple, now: u64) -> bool {
        self.syn_backlog.admit(tuple, now)
    }

    /// Refuses a connection request that was held, if it is still there.
    pub fn refuse(&mut self, tuple: &Tuple, refusal: SynRefusal, sink: &mut dyn crate::TxSink) {
        if let Some(half_open) = self.syn_backlog.remove(tuple) {
            self.refuse_half_open(tuple, &half_open.syn, half_open.mac, refusal, sink);
        }
    }

    /// The two ends of a connection. `None`: it is closed and forgotten.
    pub fn tuple(&self, id: ConnectionId) -> Option<Tuple> {
        self.connections.get(&id).map(|connection| connection.tuple)
    }

    /// Lets `give` write data into the free send buffer, in one or two pieces; it returns the number of bytes written. Returns the total.
    ///
    /// When the buffer is full, [`SocketEvent::Writable`] follows later. Before the connection is open, there is no room.
    pub fn send(&mut self, id: ConnectionId, give: &mut dyn FnMut(&mut [u8]) -> usize) -> usize {
        let Some(connection) = self.connections.get_mut(&id) else { return 0 };
        let sent = connection.send(give);
        if sent > 0 {
            self.queue_for_tx(id);
        }
        sent
    }

    /// Lets `take` read received data, in one or two pieces; it returns the number of bytes consumed. Returns the total.
    pub fn receive(&mut self, id: ConnectionId, take: &mut dyn FnMut(&[u8]) -> usize) -> usize {
        let Some(connection) = self.connections.get_mut(&id) else { return 0 };
        let received = connection.receive(take);
        if received > 0 {
            if connection.must_update_window() {
                self.queue_for_tx(id);
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

    /// Bytes in the send buffer that are not acknowledged.
    pub fn unacknowledged(&self, id: ConnectionId) -> usize {
        self.connections.get(&id).map_or(0, |connection| connection.socket().send_queue())
    }

    /// Whether all data of all connections has been acknowledged, the FINs of finished ones included.
    pub fn is_all_acknowledged(&self) -> bool {
        self.tx_ready.is_empty() && self.connections.values().all(|connection| connection.is_all_acknowledged())
    }

    /// Whether the peer will send no more than what can be read.
    pub fn has_finished(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_none_or(|connection| connection.has_finished())
    }

    /// Ends the data to send (a FIN follows all queued data).
    pub fn finish(&mut self, id: ConnectionId, now: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.finish(now);
            self.queue_for_tx(id);
        }
    }

    /// Whether there is a connection between two addresses, which may be released, and whether there is one in TIME-WAIT.
    #[must_use]
    pub fn tuple_states(&self, tuple: &Tuple) -> (bool, bool) {
        (self.tuples.contains_key(tuple), self.time_wait.contains(tuple))
    }

    /// Ends reading, while there may be more to send. Unread or new data resets the connection (RST), and so does a
    /// peer that acknowledges nothing for some minutes.
    pub fn orphan(&mut self, id: ConnectionId, now: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.hold.orphan(now);
        self.update(id, now);
        self.queue_for_tx(id);
    }

    /// Closes the connection and releases its id. Queued data is still sent; unread or new data resets the connection (RST).
    pub fn release(&mut self, id: ConnectionId, now: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.hold.orphan(now);
        connection.hold.release();
        connection.pending_events = 0;
        if connection.state.is_closed() {
            return self.remove_connection(id);
        }
        if connection.state.is_opening() || connection.socket().recv_queue() > 0 {
            return self.abort(id);
        }
        self.finish(id, now);
    }

    /// Aborts the connection (RST), and releases its id.
    pub fn abort(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.hold.release();
        connection.pending_events = 0;
        connection.abort();
        self.detach(id);
        self.queue_for_tx(id);
        self.close_if_done(id);
    }

    /// Sets the options of a connection.
    pub fn set(&mut self, id: ConnectionId, options: TcpOptions) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.set(options);
            self.queue_for_tx(id);
        }
    }

    /// The source address of packets to `remote`. `None`: there is no route.
    pub fn address_for(&self, remote: IpAddr) -> Option<IpAddr> {
        self.network.next_hop(remote)?;
        self.network.address_for(remote)
    }

    /// The current sizes of all tables, and the counters.
    pub fn counts(&self) -> Counts {
        Counts {
            connections: self.connections.len(),
            half_open: self.syn_backlog.len(),
            time_wait: self.time_wait.len(),
            neighbours: self.neighbours.len(),
            buffer_bytes: self.sockets.used(),
            waiting_bytes: self.events.bytes(),
            ..self.counts
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.connections.len() >= self.bound
    }

    /// Adds a connection under a new id.
    pub(crate) fn insert(&mut self, connection: Connection) -> ConnectionId {
        self.last_id += 1;
        let id = ConnectionId(self.last_id);
        self.tuples.insert(connection.tuple, id);
        self.connections.insert(id, Box::new(connection));
        self.queue_for_tx(id);
        id
    }

    /// Queues a connection that may have something to send.
    pub(crate) fn queue_for_tx(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !connection.is_tx_ready
        {
            connection.is_tx_ready = true;
            self.tx_ready.push_back(id);
        }
    }

    /// Removes a connection from the timers and from the lookup of received segments.
    pub(crate) fn detach(&mut self, id: ConnectionId) {
        self.timer_queue.set(id, None);
        if let Some(connection) = self.connections.get(&id)
            && self.tuples.get(&connection.tuple) == Some(&id)
        {
            self.tuples.remove(&connection.tuple);
        }
    }

    /// Removes a connection and its id.
    pub(crate) fn remove_connection(&mut self, id: ConnectionId) {
        self.detach(id);
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
