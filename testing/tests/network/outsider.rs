// SPDX-License-Identifier: MIT OR Apache-2.0
//! Somebody of the host's on a network of cells: a stack at a station, in the router's place, driven by the test itself.

use crate::world::World;
use pando_kernel::network::link::Link;
use pando_kernel::{NetworkId, Station};
use pando_stack::{Config, ConnectionId, Doorkeeper, Failure, Happening, Hearing, Outbox, Refusal, Stack, TcpOptions, Tuple, Verdict};
use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

/// A test that waits longer for one thing hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of frames that wait for the station at once.
const OUTBOX: usize = 1 << 20;
/// Frames that are taken from the station at once.
const FRAMES: usize = 512;

/// One end of a connection.
#[derive(Debug, Default)]
pub struct End {
    /// What is still to be said; it finishes after that.
    pub says: Vec<u8>,
    pub heard: Vec<u8>,
    pub is_open: bool,
    /// The other side has finished, and all was heard.
    pub is_whole: bool,
    pub failure: Option<Failure>,
}

impl End {
    pub fn is_over(&self) -> bool {
        self.is_whole || self.failure.is_some()
    }
}

/// Lets nobody in.
struct Nobody;

impl Doorkeeper for Nobody {
    fn admits(&mut self, _: &Tuple) -> Verdict {
        Verdict::Refuse(Refusal::Reset)
    }

    fn hears(&mut self, _: SocketAddr, _: SocketAddr) -> Hearing {
        Hearing::Nobody
    }
}

/// Somebody who connects to cells.
pub struct Outsider {
    pub station: Station,
    stack: Stack,
    outbox: Outbox,
    host: SocketAddr,
    host6: Ipv6Addr,
    pub ends: HashMap<ConnectionId, End>,
}

impl Outsider {
    pub fn new(world: &World, network: NetworkId) -> Outsider {
        let kernel = &world.lab.kernel;
        let (router, mtu) = kernel.router(network).expect("the network is there");
        let station = kernel.station(network, Link::default(), || {}).expect("there is a port");
        let config = Config {
            addresses: vec![(router.v4.into(), router.prefix4), (router.v6.into(), router.prefix6)],
            mtu: mtu.into(),
            ..Config::new(router.mac.0, 7)
        };
        let host = SocketAddr::new(router.v4.into(), 1024);
        Outsider {
            station,
            stack: Stack::new(config, kernel.now().0),
            outbox: Outbox::new(OUTBOX),
            host,
            host6: router.v6,
            ends: HashMap::new(),
        }
    }

    /// Begins to connect, with something to say.
    pub fn connect(&mut self, world: &World, to: SocketAddr, says: &[u8]) -> ConnectionId {
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
                    self.ends.insert(id, End { says: says.to_vec(), ..End::default() });
                    return id;
                }
                // An earlier one from that port is not forgotten.
                Err(pando_stack::Error::InUse) => {}
                Err(error) => panic!("no connection to {to}: {error:?}"),
            }
        }
    }

    /// Hears and says what there is.
    pub fn step(&mut self, world: &World) {
        let now = world.lab.kernel.now().0;
        for frame in self.station.receive(FRAMES) {
            self.stack.take(&frame, now, &mut Nobody, &mut self.outbox);
        }
        self.happenings(now);
        self.stack.run(now, &mut self.outbox);
        self.happenings(now);
        let mut frames = Vec::new();
        self.outbox.drain(&mut |frame| {
            frames.push(bytes::Bytes::copy_from_slice(frame));
            true
        });
        if !frames.is_empty() {
            self.station.send(frames);
        }
    }

    fn happenings(&mut self, now: u64) {
        while let Some(happening) = self.stack.next_happening() {
            match happening {
                Happening::Opened(id) => {
                    self.ends.entry(id).or_default().is_open = true;
                    self.carry(id, now);
                }
                Happening::Data(id) | Happening::Room(id) => self.carry(id, now),
                Happening::Failed(id, failure) => {
                    self.carry(id, now);
                    self.ends.entry(id).or_default().failure = Some(failure);
                }
                Happening::Closed(id) => {
                    let end = self.ends.entry(id).or_default();
                    end.is_whole = end.failure.is_none();
                }
                Happening::Accepted(_) | Happening::Datagram(_) | Happening::Unreachable(_) | Happening::Message(_) => {}
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

    /// Lets the world go on until something is so.
    pub fn until<T>(&mut self, world: &mut World, mut is_so: impl FnMut(&mut Outsider, &mut World) -> Option<T>) -> T {
        let end = world.lab.kernel.now() + PATIENCE;
        loop {
            self.step(world);
            if let Some(found) = is_so(self, world) {
                return found;
            }
            if !world.lab.turn(0) {
                // Only what is due for this stack can go on by itself.
                let due = self.stack.deadline().unwrap_or(end.0).min(end.0);
                std::thread::sleep(Duration::from_nanos(due.saturating_sub(world.lab.kernel.now().0)));
            }
            assert!(world.lab.kernel.now() < end, "it has not come so far: {:?} {:?}", self.stack.counts(), self.station.traffic());
        }
    }

    /// Says something, and hears the answer to its end.
    pub fn ask(&mut self, world: &mut World, to: SocketAddr, says: &[u8]) -> Vec<u8> {
        let id = self.connect(world, to, says);
        let end = self.until(world, |outsider, _| outsider.ends.get(&id)?.is_over().then(|| outsider.ends.remove(&id)).flatten());
        assert_eq!(end.failure, None, "{to}");
        end.heard
    }
}
