// SPDX-License-Identifier: MIT OR Apache-2.0
//! The UDP proxy: flows between cells and external addresses, each with a host socket. ICMP echo requests are flows, too; their
//! identifier stands for a port.

use crate::GatewayAddresses;
use crate::limits::{MAX_DATAGRAMS, MAX_FLOWS, REPLIED_FLOW_TIMEOUT, UNREPLIED_FLOW_TIMEOUT};
use crate::listeners::HostListener;
use crate::poll::{Poll, Ready, Token};
use crate::sockets;
use crate::timers::Timers;
use pando_stack::{Datagram, Error, IcmpMessage, Stack, TxSink, fill_icmp_checksum};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recvfrom, send, sendto};
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The longest datagram, and one byte to detect longer ones.
const BUFFER_SIZE: usize = 1 << 16;
/// The position of an echo request's identifier.
const IDENTIFIER: std::ops::Range<usize> = 4..6;
/// The TTL of datagrams to cells.
const TTL: u8 = 64;
/// The gateway's source ports for clients of the host (RFC 6335).
pub(crate) const EPHEMERAL_PORTS: std::ops::RangeInclusive<u16> = 49152..=65535;

/// Both ends of a flow as the stack sees them: the remote side, and the cell. The remote side's port is 0 for echo requests only.
type FlowKey = (SocketAddr, SocketAddr);

/// The flow of echo requests with an identifier.
fn echo_key(local: IpAddr, remote: SocketAddr) -> FlowKey {
    (SocketAddr::new(local, 0), remote)
}

/// The host's side of a flow.
#[derive(Debug)]
enum HostSocket {
    /// A UDP socket of its own.
    Socket(OwnedFd),
    /// An ICMP echo socket of its own.
    Echo(OwnedFd),
    /// A forward's socket, and the client's address.
    Client(usize, SocketAddr),
}

#[derive(Debug)]
struct UdpFlow {
    key: FlowKey,
    host: HostSocket,
    /// Both sides have sent.
    has_reply: bool,
    expires: u64,
}

/// Counters of datagrams, echo messages among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramCounts {
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
    max_flows: usize,
    list: Slab<UdpFlow>,
    by_key: HashMap<FlowKey, usize>,
    clients: HashMap<(usize, SocketAddr), usize>,
    timers: Timers,
    /// The gateway's address, which represents the host's clients, and the address of the cell to which forwards lead.
    gateway: IpAddr,
    cell: IpAddr,
    port: u16,
    buffer: Vec<u8>,
    pub(crate) counts: DatagramCounts,
}

impl UdpProxy {
    pub(crate) fn new(addresses: &GatewayAddresses, max_flows: usize) -> UdpProxy {
        let (list, by_key, clients, timers) = (Slab::new(), HashMap::new(), HashMap::new(), Timers::default());
        let (gateway, cell) = (addresses.address4.into(), addresses.cell.into());
        UdpProxy {
            max_flows,
            list,
            by_key,
            clients,
            timers,
            gateway,
            cell,
            port: *EPHEMERAL_PORTS.start(),
            buffer: vec![0; BUFFER_SIZE],
            counts: DatagramCounts::default(),
        }
    }

    /// Whether a flow exists.
    pub(crate) fn has_flow(&self, key: &FlowKey) -> bool {
        self.by_key.contains_key(key)
    }

    fn insert(&mut self, key: FlowKey, host: HostSocket, now: u64) -> usize {
        if self.list.len() >= self.max_flows
            && let Some(index) = self.timers.pop_first()
        {
            self.remove(index);
        }
        if let HostSocket::Client(listener, client) = host {
            self.clients.insert((listener, client), self.list.vacant_key());
        }
        let expires = after(now, UNREPLIED_FLOW_TIMEOUT);
        let index = self.list.insert(UdpFlow { key, host, has_reply: false, expires });
        self.by_key.insert(key, index);
        self.timers.add(expires, index);
        index
    }

    fn remove(&mut self, index: usize) {
        if let Some(UdpFlow { key, host, expires, .. }) = self.list.try_remove(index) {
            self.timers.remove(expires, index);
            self.by_key.remove(&key);
            if let HostSocket::Client(listener, client) = host {
                self.clients.remove(&(listener, client));
            }
        }
    }

    /// Records a forwarded datagram, from the side that began or from the other.
    fn refresh(&mut self, index: usize, is_reply: bool, now: u64) {
        if let Some(flow) = self.list.get_mut(index) {
            flow.has_reply |= is_reply;
            self.timers.remove(flow.expires, index);
            flow.expires = after(now, if flow.has_reply { REPLIED_FLOW_TIMEOUT } else { UNREPLIED_FLOW_TIMEOUT });
            self.timers.add(flow.expires, index);
        }
    }

    /// Opens a flow to a datagram's destination. Without a descriptor there is none, and the datagram is lost.
    pub(crate) fn open(&mut self, poll: &Poll, datagram: &Datagram, to: SocketAddr, now: u64) {
        let socket = sockets::udp_socket_to(to);
        let _ = socket.and_then(|socket| self.watch(poll, (datagram.local, datagram.remote), HostSocket::Socket(socket), now));
    }

    /// Opens a flow of echo requests unless it exists.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn open_echo_flow(&mut self, poll: &Poll, local: IpAddr, remote: SocketAddr, now: u64) -> Result<(), Errno> {
        let key = echo_key(local, remote);
        if self.has_flow(&key) { Ok(()) } else { self.watch(poll, key, HostSocket::Echo(sockets::echo_socket_to(local)?), now) }
    }

    fn watch(&mut self, poll: &Poll, key: FlowKey, host: HostSocket, now: u64) -> Result<(), Errno> {
        let index = self.insert(key, host, now);
        let Some(UdpFlow { host: HostSocket::Socket(socket) | HostSocket::Echo(socket), .. }) = self.list.get(index) else {
            return Ok(());
        };
        let added = poll.add(socket, Token::Flow(index as u32), Ready::IN);
        added.map_err(|error| {
            self.remove(index);
            Errno::from_io_error(&error).unwrap_or(Errno::IO)
        })
    }

    /// Forwards a datagram of a cell.
    pub(crate) fn forward(&mut self, datagram: &Datagram, listeners: &[HostListener], now: u64) {
        self.send_to_host(&(datagram.local, datagram.remote), &datagram.bytes, listeners, now);
    }

    /// Forwards an echo request. The host fills in an identifier of its own and the checksum.
    pub(crate) fn forward_echo(&mut self, message: &IcmpMessage, now: u64) {
        let Some(number) = message.bytes.get(IDENTIFIER).and_then(|number| number.try_into().ok()) else { return };
        let remote = SocketAddr::new(message.remote, u16::from_be_bytes(number));
        self.send_to_host(&echo_key(message.local, remote), &message.bytes, &[], now);
    }

    fn send_to_host(&mut self, key: &FlowKey, bytes: &[u8], listeners: &[HostListener], now: u64) {
        let Some(index) = self.by_key.get(key).copied() else { return self.counts.lost += 1 };
        let Some(flow) = self.list.get(index) else { return };
        let (sent, is_reply) = match &flow.host {
            HostSocket::Socket(socket) | HostSocket::Echo(socket) => (send(socket, bytes, SendFlags::NOSIGNAL).is_ok(), false),
            HostSocket::Client(listener, client) => {
                let socket = listeners.get(*listener).map(|listener| &listener.socket);
                (socket.is_some_and(|socket| sendto(socket, bytes, SendFlags::NOSIGNAL, client).is_ok()), true)
            }
        };
        self.refresh(index, is_reply, now);
        if sent { self.counts.out += 1 } else { self.counts.lost += 1 }
    }

    /// Forwards a flow's received datagrams to its cell.
    pub(crate) fn process_ready(&mut self, index: usize, stack: &mut Stack, sink: &mut dyn TxSink, now: u64) {
        for _ in 0..MAX_DATAGRAMS {
            let Some(UdpFlow { key, host: HostSocket::Socket(socket) | HostSocket::Echo(socket), .. }) = self.list.get(index) else {
                return;
            };
            // An error is a response, too: the port is closed. The cell gets no notice of it.
            let Ok((length, _, from)) = recvfrom(socket, &mut self.buffer[..], RecvFlags::DONTWAIT) else { return };
            let key = *key;
            let is_echo = key.0.port() == 0;
            // The host checks the source of UDP datagrams only.
            if is_echo && from.and_then(|from| SocketAddr::try_from(from).ok()).is_none_or(|from| from.ip() != key.0.ip()) {
                continue;
            }
            self.refresh(index, true, now);
            if is_echo {
                self.echo(key, length, stack, sink, now);
            } else {
                self.send(key, length, stack, sink, now);
            }
        }
    }

    /// Forwards a forward's received datagrams to the cell, from a port of the gateway that represents the client.
    pub(crate) fn process(&mut self, number: usize, listener: &HostListener, stack: &mut Stack, sink: &mut dyn TxSink, now: u64) {
        let remote = SocketAddr::new(self.cell, listener.cell);
        for _ in 0..MAX_DATAGRAMS {
            let Ok((length, _, client)) = recvfrom(&listener.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) else { return };
            let Some(client) = client.and_then(|client| SocketAddr::try_from(client).ok()) else { continue };
            let index = match self.clients.get(&(number, client)) {
                Some(index) => *index,
                None => {
                    let Some(local) = self.free_port(remote) else { return };
                    self.insert((local, remote), HostSocket::Client(number, client), now)
                }
            };
            let Some(key) = self.list.get(index).map(|flow| flow.key) else { continue };
            self.refresh(index, false, now);
            self.send(key, length, stack, sink, now);
        }
    }

    fn send(&mut self, (local, remote): FlowKey, length: usize, stack: &mut Stack, sink: &mut dyn TxSink, now: u64) {
        let bytes = self.buffer.get(..length).unwrap_or_default().to_vec();
        let outcome = stack.send_datagram(&Datagram { local, remote, bytes, hops: TTL }, now, sink);
        self.count(outcome);
    }

    /// Sends an echo reply with the identifier of the cell's request.
    fn echo(&mut self, (local, remote): FlowKey, length: usize, stack: &mut Stack, sink: &mut dyn TxSink, now: u64) {
        let (local, number, remote) = (local.ip(), remote.port(), remote.ip());
        let mut bytes = self.buffer.get(..length).unwrap_or_default().to_vec();
        if let Some(identifier) = bytes.get_mut(IDENTIFIER) {
            identifier.copy_from_slice(&number.to_be_bytes());
        }
        fill_icmp_checksum(local, remote, &mut bytes);
        let outcome = stack.send_message(&IcmpMessage { local, remote, bytes, hops: TTL }, now, sink);
        self.count(outcome);
    }

    fn count(&mut self, outcome: Result<(), Error>) {
        match outcome {
            Ok(()) => self.counts.inward += 1,
            Err(_) => self.counts.lost += 1,
        }
    }

    /// A free source port towards a cell. There are more ports than flows.
    fn free_port(&mut self, remote: SocketAddr) -> Option<SocketAddr> {
        (0..=MAX_FLOWS).find_map(|_| {
            self.port = if self.port == *EPHEMERAL_PORTS.end() { *EPHEMERAL_PORTS.start() } else { self.port + 1 };
            let local = SocketAddr::new(self.gateway, self.port);
            (!self.by_key.contains_key(&(local, remote))).then_some(local)
        })
    }

    pub(crate) fn expire(&mut self, now: u64) {
        while let Some(index) = self.timers.pop_expired(now) {
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
