// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client at the network's host port that requests pages from many web servers, from server to server in turn. Several
//! requests are in flight, each on a connection of its own.

use super::networked_cells::NetworkedCells;
use crate::BenchError;
use bytes::Bytes;
use pando_kernel::HostPort;
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_stack::{Config, ConnectionId, DatagramVerdict, Listeners, SocketEvent, Stack, SynRefusal, TcpOptions, Tuple, TxQueue, Verdict};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

const PORT: u16 = 80;
const REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";
/// The maximum number of frames received at once.
const FRAMES: usize = 64;
/// The capacity of the transmit queue, in bytes.
const OUTBOX: usize = 1 << 20;
/// The timeout without any progress.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The first source port of connections.
const FIRST_PORT: u16 = 1024;

/// A client.
pub(super) struct Load {
    host_port: HostPort,
    stack: Stack,
    own: Addresses,
    began: Instant,
    next_port: u16,
}

/// A request in flight.
struct PendingRequest {
    received: usize,
}

/// A client accepts no connections.
struct Closed;

impl Listeners for Closed {
    fn admits(&mut self, _: &Tuple) -> Verdict {
        Verdict::Refuse(SynRefusal::Reset)
    }

    fn accepts_datagram(&mut self, _: SocketAddr, _: SocketAddr) -> DatagramVerdict {
        DatagramVerdict::Closed
    }
}

impl Load {
    /// Creates a client for the calling thread, in the router's place.
    pub(super) fn new(network: &NetworkedCells) -> Result<Load, BenchError> {
        let (own, mtu) = network.kernel.router(network.network)?;
        let waiting: Thread = thread::current();
        let host_port = network.kernel.host_port(network.network, Link::default(), move || waiting.unpark())?;
        let addresses = vec![(own.v4.into(), own.prefix4)];
        let config = Config { addresses, mtu: mtu.into(), ..Config::new(own.mac.0, 1) };
        Ok(Load { host_port, stack: Stack::new(config, 0), own, began: Instant::now(), next_port: FIRST_PORT })
    }

    /// Sends `requests` requests to the servers in turn, `at_once` of them in flight. Each response must have `bytes` bytes
    /// after its head. Returns the elapsed nanoseconds per request.
    pub(super) fn ask(&mut self, servers: &[Addresses], at_once: usize, requests: usize, bytes: usize) -> Result<f64, BenchError> {
        let mut under_way: HashMap<ConnectionId, PendingRequest> = HashMap::new();
        let mut tx_queue = TxQueue::new(OUTBOX);
        let (mut begun, mut done) = (0, 0);
        let start = Instant::now();
        let mut last = start;
        while done < requests {
            while under_way.len() < at_once && begun < requests {
                under_way.insert(self.connect(servers[begun % servers.len()])?, PendingRequest { received: 0 });
                begun += 1;
            }
            let arrived = self.host_port.receive(FRAMES);
            let now = self.now();
            for frame in &arrived {
                self.stack.receive_frame(frame, now, &mut Closed, &mut tx_queue);
            }
            let before = done;
            while let Some(event) = self.stack.next_event() {
                done += self.hear(event, &mut under_way, bytes)?;
            }
            self.stack.run(now, &mut tx_queue);
            self.say(&mut tx_queue);
            if !arrived.is_empty() || done > before {
                last = Instant::now();
            } else if last.elapsed() > TIMEOUT {
                return Err(BenchError::Failed(format!("only {done} of {requests} requests were answered before the timeout")));
            } else {
                let due = self.stack.deadline().map_or(TIMEOUT, |due| Duration::from_nanos(due.saturating_sub(self.now())));
                thread::park_timeout(due.min(TIMEOUT));
            }
        }
        Ok(start.elapsed().as_nanos() as f64 / requests as f64)
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn connect(&mut self, server: Addresses) -> Result<ConnectionId, BenchError> {
        let now = self.now();
        let remote = (server.v4, PORT).into();
        loop {
            let local = (self.own.v4, self.next_port).into();
            self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
            match self.stack.connect(Tuple { local, remote }, TcpOptions { no_delay: true, ..TcpOptions::default() }, now) {
                Ok(id) => return Ok(id),
                // Its last connection is still in TIME-WAIT.
                Err(pando_stack::Error::InUse) => {}
                Err(error) => return Err(BenchError::Failed(format!("cannot connect to {remote}: {error:?}"))),
            }
        }
    }

    /// Handles a socket event of a request. Returns how many requests it completes.
    fn hear(
        &mut self,
        event: SocketEvent,
        under_way: &mut HashMap<ConnectionId, PendingRequest>,
        bytes: usize,
    ) -> Result<usize, BenchError> {
        match event {
            SocketEvent::Opened(id) => {
                let mut left = REQUEST;
                self.stack.send(id, &mut |room| {
                    let count = left.len().min(room.len());
                    room[..count].copy_from_slice(&left[..count]);
                    left = &left[count..];
                    count
                });
            }
            SocketEvent::Readable(id) => {
                if let Some(asking) = under_way.get_mut(&id) {
                    asking.received += self.stack.receive(id, &mut |piece| piece.len());
                }
                if self.stack.has_finished(id) && under_way.contains_key(&id) {
                    let received = under_way.remove(&id).map_or(0, |asking| asking.received);
                    self.stack.release(id, self.now());
                    if received < bytes {
                        return Err(BenchError::Failed(format!("a server sent {received} bytes instead of {bytes}")));
                    }
                    return Ok(1);
                }
            }
            SocketEvent::Failed(id, failure) if under_way.contains_key(&id) => {
                return Err(BenchError::Failed(format!("a connection failed: {failure:?}")));
            }
            _ => {}
        }
        Ok(0)
    }

    /// Sends each frame separately, as a network card would.
    fn say(&mut self, tx_queue: &mut TxQueue) {
        let host_port = &self.host_port;
        tx_queue.drain(&mut |frame| {
            host_port.send([Bytes::copy_from_slice(frame)]);
            true
        });
    }
}
