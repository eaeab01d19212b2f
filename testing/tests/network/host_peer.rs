// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host-side peer on a network of cells: a stack at a host port, in the router's place, driven by the test itself.

use crate::world::CellNetwork;
use pando_kernel::network::link::Link;
use pando_kernel::{HostPort, NetworkId};
use pando_stack::{
    Config, ConnectionId, DatagramVerdict, Failure, Listeners, SocketEvent, Stack, SynRefusal, TcpOptions, Tuple, TxQueue, Verdict,
};
use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Timeout for a test that waits for one condition.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The capacity of the port's transmit queue, in bytes.
const OUTBOX: usize = 1 << 20;
/// The maximum number of frames received from the port at once.
const FRAMES: usize = 512;

/// One end of a connection.
#[derive(Debug, Default)]
pub struct PeerConnection {
    /// Bytes still to be sent; it finishes (FIN) after them.
    pub says: Vec<u8>,
    pub heard: Vec<u8>,
    pub is_open: bool,
    /// The peer has finished, and all its data was received.
    pub is_whole: bool,
    pub failure: Option<Failure>,
}

impl PeerConnection {
    pub fn is_over(&self) -> bool {
        self.is_whole || self.failure.is_some()
    }
}

/// Accepts no connections.
struct Nobody;

impl Listeners for Nobody {
    fn admits(&mut self, _: &Tuple) -> Verdict {
        Verdict::Refuse(SynRefusal::Reset)
    }

    fn accepts_datagram(&mut self, _: SocketAddr, _: SocketAddr) -> DatagramVerdict {
        DatagramVerdict::Closed
    }
}

/// A host-side client that connects to cells.
pub struct HostPeer {
    pub host_port: HostPort,
    stack: Stack,
    tx_queue: TxQueue,
    host: SocketAddr,
    host6: Ipv6Addr,
    pub ends: HashMap<ConnectionId, PeerConnection>,
}

impl HostPeer {
    pub fn new(world: &CellNetwork, network: NetworkId) -> HostPeer {
        let kernel = &world.lab.kernel;
        let (router, mtu) = kernel.router(network).expect("the network is there");
        let host_port = kernel.host_port(network, Link::default(), || {}).expect("there is a port");
        let config = Config {
            addresses: vec![(router.v4.into(), router.prefix4), (router.v6.into(), router.prefix6)],
            mtu: mtu.into(),
            ..Config::new(router.mac.0, 7)
        };
        let host = SocketAddr::new(router.v4.into(), 1024);
        HostPeer {
            host_port,
            stack: Stack::new(config, kernel.now().0),
            tx_queue: TxQueue::new(OUTBOX),
            host,
            host6: router.v6,
            ends: HashMap::new(),
        }
    }

    /// Starts a connection, with data to send.
    pub fn connect(&mut self, world: &CellNetwork, to: SocketAddr, says: &[u8]) -> ConnectionId {
        loop {
            let port = self.host.port();
            self.host.set_port(if port == u16::MAX { 1024 } else { port + 1 });
            let own = if to.is_ipv4() { self.host.ip() } else { self.host6.into() };
            match self.stack.connect(
                Tuple { local: SocketAddr::new(own, self.host.port()), remote: to },
                TcpOptions::default(),
                world.lab.kernel.now().0,
            ) {
                Ok(id) => {
                    self.ends.insert(id, PeerConnection { says: says.to_vec(), ..PeerConnection::default() });
                    return id;
                }
                // An earlier connection from that port is still in TIME-WAIT.
                Err(pando_stack::Error::InUse) => {}
                Err(error) => panic!("no connection to {to}: {error:?}"),
            }
        }
    }

    /// Receives and transmits all pending data.
    pub fn step(&mut self, world: &CellNetwork) {
        let now = world.lab.kernel.now().0;
        for frame in self.host_port.receive(FRAMES) {
            self.stack.receive_frame(&frame, now, &mut Nobody, &mut self.tx_queue);
        }
        self.events(now);
        self.stack.run(now, &mut self.tx_queue);
        self.events(now);
        let mut frames = Vec::new();
        self.tx_queue.drain(&mut |frame| {
            frames.push(bytes::Bytes::copy_from_slice(frame));
            true
        });
        if !frames.is_empty() {
            self.host_port.send(frames);
        }
    }

    fn events(&mut self, now: u64) {
        while let Some(event) = self.stack.next_event() {
            match event {
                SocketEvent::Opened(id) => {
                    self.ends.entry(id).or_default().is_open = true;
                    self.carry(id, now);
                }
                SocketEvent::Readable(id) | SocketEvent::Writable(id) => self.carry(id, now),
                SocketEvent::Failed(id, failure) => {
                    self.carry(id, now);
                    self.ends.entry(id).or_default().failure = Some(failure);
                }
                SocketEvent::Closed(id) => {
                    let end = self.ends.entry(id).or_default();
                    end.is_whole = end.failure.is_none();
                }
                SocketEvent::Accepted(_) | SocketEvent::Datagram(_) | SocketEvent::Unreachable(_) | SocketEvent::Message(_) => {}
            }
        }
    }

    fn carry(&mut self, id: ConnectionId, now: u64) {
        let end = self.ends.entry(id).or_default();
        self.stack.receive(id, &mut |piece| {
            end.heard.extend_from_slice(piece);
            piece.len()
        });
        end.is_whole = self.stack.has_finished(id) && self.stack.readable(id) == 0;
        if end.is_open {
            self.stack.send(id, &mut |room| {
                let length = room.len().min(end.says.len());
                room[..length].copy_from_slice(&end.says[..length]);
                end.says.drain(..length);
                length
            });
            if end.says.is_empty() {
                self.stack.finish(id, now);
            }
        }
    }

    /// Drives the world until a condition holds.
    pub fn until<T>(&mut self, world: &mut CellNetwork, mut is_so: impl FnMut(&mut HostPeer, &mut CellNetwork) -> Option<T>) -> T {
        let end = world.lab.kernel.now() + TIMEOUT;
        loop {
            self.step(world);
            if let Some(found) = is_so(self, world) {
                return found;
            }
            if !world.lab.turn(0) {
                // Only this stack's timers can cause progress now.
                let due = self.stack.deadline().unwrap_or(end.0).min(end.0);
                std::thread::sleep(Duration::from_nanos(due.saturating_sub(world.lab.kernel.now().0)));
            }
            assert!(world.lab.kernel.now() < end, "it has not come so far: {:?} {:?}", self.stack.counts(), self.host_port.traffic());
        }
    }

    /// Sends a request and returns the complete response.
    pub fn ask(&mut self, world: &mut CellNetwork, to: SocketAddr, says: &[u8]) -> Vec<u8> {
        let id = self.connect(world, to, says);
        let end = self.until(world, |host_peer, _| host_peer.ends.get(&id)?.is_over().then(|| host_peer.ends.remove(&id)).flatten());
        assert_eq!(end.failure, None, "{to}");
        end.heard
    }
}
