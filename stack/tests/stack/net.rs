// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network of stacks in one thread, with a simulated clock and links that lose, duplicate, delay and reorder as a seed decides.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fastrand::Rng;
use pando_stack::{
    Config, ConnectionId, Datagram, DatagramVerdict, Failure, IcmpError, IcmpMessage, Listeners, SocketEvent, Stack, TcpOptions, Tuple,
    TxQueue, Verdict,
};

/// A millisecond.
pub const MS: u64 = 1_000_000;

/// The faults of a link: chances in a thousand, and durations.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    pub loss: u32,
    pub doubles: u32,
    /// Chance of an additional delay, up to ten times `delay`.
    pub reorders: u32,
    pub delay: u64,
    /// Maximum additional delay of each frame.
    pub jitter: u64,
    /// Bytes per second, if the rate is limited.
    pub rate: Option<u64>,
}

impl Link {
    pub const GOOD: Self = Self { loss: 0, doubles: 0, reorders: 0, delay: 10_000, jitter: 0, rate: None };
}

/// An echo request.
pub fn echo(local: IpAddr, remote: IpAddr, bytes: &[u8]) -> IcmpMessage {
    let kind = if local.is_ipv4() { 8 } else { 128 };
    let mut bytes = [&[kind, 0, 0, 0, 0, 7, 0, 9], bytes].concat();
    pando_stack::fill_icmp_checksum(local, remote, &mut bytes);
    IcmpMessage { local, remote, bytes, hops: 64 }
}

/// The decisions on requests.
pub struct TestListeners {
    pub tcp: BTreeMap<u16, Verdict>,
    pub udp: BTreeSet<u16>,
    /// All requests that were decided.
    pub asked: Vec<Tuple>,
}

impl Listeners for TestListeners {
    fn admits(&mut self, tuple: &Tuple) -> Verdict {
        self.asked.push(*tuple);
        *self.tcp.get(&tuple.local.port()).unwrap_or(&Verdict::Refuse(pando_stack::SynRefusal::Reset))
    }

    fn accepts_datagram(&mut self, local: SocketAddr, _: SocketAddr) -> DatagramVerdict {
        if self.udp.contains(&local.port()) { DatagramVerdict::Accepted } else { DatagramVerdict::Closed }
    }

    fn wants_icmp(&mut self) -> bool {
        true
    }
}

/// One end of a connection, as a program sees it: all data is kept.
#[derive(Debug, Default)]
pub struct LinkEnd {
    pub received: Vec<u8>,
    pub to_send: Vec<u8>,
    /// Finishes when all data is given.
    pub finishes: bool,
    /// Does not read.
    pub discards_input: bool,
    pub given: usize,
    pub is_open: bool,
    pub has_finished: bool,
    pub failure: Option<Failure>,
    pub is_closed: bool,
}

pub struct Host {
    pub stack: Stack,
    pub listeners: TestListeners,
    pub tx_queue: TxQueue,
    pub ends: HashMap<ConnectionId, LinkEnd>,
    pub accepted: Vec<ConnectionId>,
    /// Data that is sent on each accepted connection, which then finishes.
    pub serves: Option<Vec<u8>>,
    /// Accepted connections echo everything, and finish when the peer has.
    pub echoes: bool,
    pub datagrams: Vec<Datagram>,
    pub notices: Vec<IcmpError>,
    pub messages: Vec<IcmpMessage>,
}

impl Host {
    fn run_programs(&mut self, now: u64) {
        while let Some(event) = self.stack.next_event() {
            match event {
                SocketEvent::Accepted(id) => {
                    self.accepted.push(id);
                    let to_send = self.serves.clone();
                    let finishes = to_send.is_some();
                    self.ends.insert(id, LinkEnd { is_open: true, to_send: to_send.unwrap_or_default(), finishes, ..LinkEnd::default() });
                    self.pump(id, now);
                }
                SocketEvent::Opened(id) => {
                    self.ends.entry(id).or_default().is_open = true;
                    self.pump(id, now);
                }
                SocketEvent::Readable(id) | SocketEvent::Writable(id) => self.pump(id, now),
                SocketEvent::Failed(id, failure) => {
                    self.pump(id, now);
                    self.ends.entry(id).or_default().failure = Some(failure);
                }
                SocketEvent::Closed(id) => {
                    let end = self.ends.entry(id).or_default();
                    assert!(!end.is_closed, "a connection closes once");
                    (end.is_closed, end.has_finished) = (true, true);
                }
                SocketEvent::Datagram(datagram) => self.datagrams.push(datagram),
                SocketEvent::Unreachable(notice) => self.notices.push(notice),
                SocketEvent::Message(message) => self.messages.push(message),
            }
        }
    }

    /// Reads and writes as much as possible.
    pub fn pump(&mut self, id: ConnectionId, now: u64) {
        let end = self.ends.entry(id).or_default();
        if !end.discards_input {
            self.stack.receive(id, &mut |piece| {
                end.received.extend_from_slice(piece);
                if self.echoes {
                    end.to_send.extend_from_slice(piece);
                }
                piece.len()
            });
            end.has_finished = self.stack.has_finished(id) && self.stack.readable(id) == 0;
        }
        if end.is_open {
            self.stack.send(id, &mut |room| {
                let rest = &end.to_send[end.given..];
                let length = rest.len().min(room.len());
                room[..length].copy_from_slice(&rest[..length]);
                end.given += length;
                length
            });
            let answers_end = self.echoes && end.has_finished;
            if (end.finishes || answers_end) && end.given == end.to_send.len() {
                self.stack.finish(id, now);
            }
        }
    }
}

pub struct Net {
    pub now: u64,
    pub hosts: Vec<Host>,
    pub link: Link,
    pub rng: Rng,
    /// Frames in flight: time of arrival, order, receiver.
    under_way: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    serial: u64,
    /// When each host's link has carried the last byte of its last frame.
    free_at: Vec<u64>,
    pub frames: u64,
    /// Frames to an address that no host has.
    pub astray: u64,
    /// Every frame that was sent, if it is recorded.
    pub recording: Option<Vec<Vec<u8>>>,
    /// Hosts that receive no frames: they are lost on the way.
    pub discarding: BTreeSet<usize>,
}

pub fn mac(host: usize) -> [u8; 6] {
    [2, 0, 0, 0, (host >> 8) as u8, host as u8]
}

pub fn address(host: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 1, (host >> 8) as u8, (host & 255) as u8 + 1))
}

pub fn address6(host: usize) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host as u16 + 1))
}

/// A host's configuration for most tests.
pub fn config(host: usize) -> Config {
    let mut config = Config::new(mac(host), 0x5eed + host as u64);
    config.addresses = vec![(address(host), 16), (address6(host), 64)];
    config.buffer = 64 << 10;
    config
}

impl Net {
    pub fn new(configs: Vec<Config>, link: Link, seed: u64) -> Self {
        let hosts: Vec<Host> = configs
            .into_iter()
            .map(|config| Host {
                stack: Stack::new(config, 0),
                listeners: TestListeners { tcp: BTreeMap::new(), udp: BTreeSet::new(), asked: Vec::new() },
                tx_queue: TxQueue::new(256 << 10),
                ends: HashMap::new(),
                accepted: Vec::new(),
                serves: None,
                echoes: false,
                datagrams: Vec::new(),
                notices: Vec::new(),
                messages: Vec::new(),
            })
            .collect();
        let rng = Rng::with_seed(seed);
        Self {
            now: 1_000 * MS,
            free_at: vec![0; hosts.len()],
            hosts,
            link,
            rng,
            under_way: BTreeMap::new(),
            serial: 0,
            frames: 0,
            astray: 0,
            recording: None,
            discarding: BTreeSet::new(),
        }
    }

    pub fn pair(link: Link, seed: u64) -> Self {
        Self::new(vec![config(0), config(1)], link, seed)
    }

    /// Puts a frame onto the link.
    pub fn post(&mut self, from: usize, frame: &[u8]) {
        self.frames += 1;
        if let Some(recording) = &mut self.recording {
            recording.push(frame.to_vec());
        }
        let to = <[u8; 6]>::try_from(&frame[..6]).unwrap();
        let receivers: Vec<usize> = if to[0] & 1 == 1 {
            (0..self.hosts.len()).filter(|host| *host != from).collect()
        } else {
            (0..self.hosts.len()).filter(|host| mac(*host) == to).collect()
        };
        self.astray += u64::from(receivers.is_empty());
        for receiver in receivers {
            let copies = if self.rng.u32(..1000) < self.link.doubles { 2 } else { 1 };
            for _ in 0..copies {
                if self.rng.u32(..1000) < self.link.loss || self.discarding.contains(&receiver) {
                    continue;
                }
                let sent = &mut self.free_at[from];
                *sent = self.now.max(*sent) + self.link.rate.map_or(0, |rate| frame.len() as u64 * 1000 * MS / rate);
                let mut arrives = *sent + self.link.delay + self.rng.u64(..=self.link.jitter);
                if self.rng.u32(..1000) < self.link.reorders {
                    arrives += self.rng.u64(..self.link.delay * 10);
                }
                self.serial += 1;
                self.under_way.insert((arrives, self.serial), (receiver, frame.to_vec()));
            }
        }
    }

    /// Lets all hosts transmit, and their programs work.
    pub fn settle(&mut self) {
        for host in 0..self.hosts.len() {
            self.settle_host(host);
        }
    }

    fn settle_host(&mut self, index: usize) {
        loop {
            let host = &mut self.hosts[index];
            host.run_programs(self.now);
            let is_done = host.stack.run(self.now, &mut host.tx_queue);
            host.run_programs(self.now);
            let mut frames = Vec::new();
            host.tx_queue.drain(&mut |frame| {
                frames.push(frame.to_vec());
                true
            });
            let is_quiet = frames.is_empty();
            for frame in frames {
                self.post(index, &frame);
            }
            if is_done && is_quiet {
                break;
            }
        }
    }

    /// Advances to the next event, unless it is after `until`. Returns whether there was one.
    pub fn step(&mut self, until: u64) -> bool {
        self.settle();
        let deadline = self.hosts.iter().filter_map(|host| host.stack.deadline()).min();
        let arrival = self.under_way.keys().next().map(|(moment, _)| *moment);
        let Some(next) = [deadline, arrival].into_iter().flatten().min().filter(|next| *next <= until) else { return false };
        self.now = self.now.max(next);
        let mut touched = BTreeSet::new();
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (receiver, frame) = entry.remove();
            let host = &mut self.hosts[receiver];
            host.stack.receive_frame(&frame, self.now, &mut host.listeners, &mut host.tx_queue);
            touched.insert(receiver);
        }
        true
    }

    /// Runs until a condition holds; panics if it does not within `span`.
    pub fn run_until(&mut self, span: u64, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = self.now + span;
        loop {
            self.settle();
            if is_so(self) {
                return;
            }
            assert!(self.step(until), "not within {} ms: {what}", span / MS);
        }
    }

    /// Runs for this time.
    pub fn run_for(&mut self, span: u64) {
        let until = self.now + span;
        while self.step(until) {}
        self.now = until;
    }

    pub fn tuple(&self, from: usize, local_port: u16, to: usize, port: u16) -> Tuple {
        Tuple { local: SocketAddr::new(address(from), local_port), remote: SocketAddr::new(address(to), port) }
    }

    /// Starts to connect, with something to send.
    pub fn connect(&mut self, tuple: Tuple, host: usize, end: LinkEnd) -> ConnectionId {
        let id = self.hosts[host].stack.connect(tuple, TcpOptions::default(), self.now).expect("it can be asked for");
        self.hosts[host].ends.insert(id, end);
        id
    }

    /// Lets host 0 and host 1 resolve each other.
    pub fn introduce(&mut self) {
        let now = self.now;
        let host = &mut self.hosts[0];
        host.stack.send_message(&echo(address(0), address(1), &[]), now, &mut host.tx_queue).expect("there is room");
        self.run_until(100 * MS, "known", |net| !net.hosts[0].messages.is_empty());
    }

    /// An open connection from host 0 to port 80 of host 1: its ids on both sides.
    pub fn open(&mut self) -> (ConnectionId, ConnectionId) {
        self.hosts[1].listeners.tcp.insert(80, Verdict::Admit);
        let port = 40_000 + self.hosts[1].accepted.len() as u16;
        let tuple = self.tuple(0, port, 1, 80);
        let id = self.connect(tuple, 0, LinkEnd::default());
        let before = self.hosts[1].accepted.len();
        self.run_until(60_000 * MS, "opened", |net| net.hosts[0].ends[&id].is_open && net.hosts[1].accepted.len() > before);
        (id, self.hosts[1].accepted[before])
    }

    pub fn end(&self, host: usize, id: ConnectionId) -> &LinkEnd {
        &self.hosts[host].ends[&id]
    }

    /// Gives a program something to send.
    pub fn send(&mut self, host: usize, id: ConnectionId, bytes: &[u8]) {
        self.hosts[host].ends.get_mut(&id).unwrap().to_send.extend_from_slice(bytes);
        let now = self.now;
        self.hosts[host].pump(id, now);
    }
}

/// Random bytes.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Rng::with_seed(seed).fill(&mut bytes);
    bytes
}
