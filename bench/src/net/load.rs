// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client on the network's station that asks many web servers: so many requests at once, each a connection of its own, from server to server in turn.

use super::town::Town;
use crate::BenchError;
use bytes::Bytes;
use pando_kernel::Station;
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_stack::{Config, ConnectionId, Doorkeeper, Happening, Hearing, Outbox, Refusal, Stack, TcpOptions, Tuple, Verdict};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

const PORT: u16 = 80;
const REQUEST: &[u8] = b"GET / HTTP/1.0\r\n\r\n";
/// Frames that are taken at once.
const FRAMES: usize = 64;
/// Bytes of frames that are made before they are sent.
const OUTBOX: usize = 1 << 20;
/// How long all may be silent before something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);
/// Ports that connections come from, one after the other.
const FIRST_PORT: u16 = 1024;

/// A client.
pub(super) struct Load {
    station: Station,
    stack: Stack,
    own: Addresses,
    began: Instant,
    next_port: u16,
}

/// A request under way.
struct Asking {
    received: usize,
}

/// Nobody comes to a client.
struct Closed;

impl Doorkeeper for Closed {
    fn admits(&mut self, _: &Tuple) -> Verdict {
        Verdict::Refuse(Refusal::Reset)
    }

    fn hears(&mut self, _: SocketAddr, _: SocketAddr) -> Hearing {
        Hearing::Nobody
    }
}

impl Load {
    /// A client for the thread that makes it, in the router's place.
    pub(super) fn new(town: &Town) -> Result<Load, BenchError> {
        let (own, mtu) = town.kernel.router(town.network)?;
        let waiting: Thread = thread::current();
        let station = town.kernel.station(town.network, Link::default(), move || waiting.unpark())?;
        let addresses = vec![(own.v4.into(), own.prefix4)];
        let config = Config { addresses, mtu: mtu.into(), ..Config::new(own.mac.0, 1) };
        Ok(Load { station, stack: Stack::new(config, 0), own, began: Instant::now(), next_port: FIRST_PORT })
    }

    /// Asks servers in turn, `at_once` of them at a time, `requests` times; each has to answer with `bytes` and a head. Returns the nanoseconds that each request took of the whole time.
    pub(super) fn ask(&mut self, servers: &[Addresses], at_once: usize, requests: usize, bytes: usize) -> Result<f64, BenchError> {
        let mut under_way: HashMap<ConnectionId, Asking> = HashMap::new();
        let mut outbox = Outbox::new(OUTBOX);
        let (mut begun, mut done) = (0, 0);
        let start = Instant::now();
        let mut last = start;
        while done < requests {
            while under_way.len() < at_once && begun < requests {
                under_way.insert(self.connect(servers[begun % servers.len()])?, Asking { received: 0 });
                begun += 1;
            }
            let arrived = self.station.receive(FRAMES);
            let now = self.now();
            for frame in &arrived {
                self.stack.take(frame, now, &mut Closed, &mut outbox);
            }
            let before = done;
            while let Some(happening) = self.stack.next_happening() {
                done += self.hear(happening, &mut under_way, bytes)?;
            }
            self.stack.run(now, &mut outbox);
            self.say(&mut outbox);
            if !arrived.is_empty() || done > before {
                last = Instant::now();
            } else if last.elapsed() > PATIENCE {
                return Err(BenchError::Failed(format!("{done} of {requests} requests were answered, and then no more")));
            } else {
                let due = self.stack.deadline().map_or(PATIENCE, |due| Duration::from_nanos(due.saturating_sub(self.now())));
                thread::park_timeout(due.min(PATIENCE));
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
                // Its last connection has not been forgotten yet.
                Err(pando_stack::Error::InUse) => {}
                Err(error) => return Err(BenchError::Failed(format!("no connection to {remote}: {error:?}"))),
            }
        }
    }

    /// What a happening means for a request. Returns how many are done.
    fn hear(&mut self, happening: Happening, under_way: &mut HashMap<ConnectionId, Asking>, bytes: usize) -> Result<usize, BenchError> {
        match happening {
            Happening::Opened(id) => {
                let mut left = REQUEST;
                self.stack.send(id, &mut |room| {
                    let count = left.len().min(room.len());
                    room[..count].copy_from_slice(&left[..count]);
                    left = &left[count..];
                    count
                });
            }
            Happening::Data(id) => {
                if let Some(asking) = under_way.get_mut(&id) {
                    asking.received += self.stack.receive(id, &mut |piece| piece.len());
                }
                if self.stack.has_finished(id) && under_way.contains_key(&id) {
                    let received = under_way.remove(&id).map_or(0, |asking| asking.received);
                    self.stack.leave(id, self.now());
                    if received < bytes {
                        return Err(BenchError::Failed(format!("a server said {received} bytes of {bytes}")));
                    }
                    return Ok(1);
                }
            }
            Happening::Failed(id, failure) if under_way.contains_key(&id) => {
                return Err(BenchError::Failed(format!("a connection failed: {failure:?}")));
            }
            _ => {}
        }
        Ok(0)
    }

    /// Sends each frame for itself, as a card would hand them over.
    fn say(&mut self, outbox: &mut Outbox) {
        let station = &self.station;
        outbox.drain(&mut |frame| {
            station.send([Bytes::copy_from_slice(frame)]);
            true
        });
    }
}
