// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network of stacks in one thread, with a clock of its own and links that lose, double, delay and reorder as a seed says.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fastrand::Rng;
use pando_stack::{
    Config, ConnectionId, Datagram, Doorkeeper, Failure, Happening, Hearing, Message, Notice, Outbox, Stack, TcpOptions, Tuple, Verdict,
};

/// A millisecond.
pub const MS: u64 = 1_000_000;

/// What a link does to frames: chances in a thousand, and spans.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    pub loss: u32,
    pub doubles: u32,
    /// Chance of being held back by up to ten times the delay.
    pub reorders: u32,
    pub delay: u64,
    /// By how much longer each frame may take.
    pub jitter: u64,
    /// Bytes in a second, if it is not any number at once.
    pub rate: Option<u64>,
}

impl Link {
    pub const GOOD: Self = Self { loss: 0, doubles: 0, reorders: 0, delay: 10_000, jitter: 0, rate: None };
}

/// The question for an echo, as the first.
pub fn echo(local: IpAddr, remote: IpAddr, bytes: &[u8]) -> Message {
    let kind = if local.is_ipv4() { 8 } else { 128 };
    let mut bytes = [&[kind, 0, 0, 0, 0, 7, 0, 9], bytes].concat();
    pando_stack::sum(local, remote, &mut bytes);
    Message { local, remote, bytes, hops: 64 }
}

/// Who is let in.
pub struct Door {
    pub tcp: BTreeMap<u16, Verdict>,
    pub udp: BTreeSet<u16>,
    /// Whoever was asked about.
    pub asked: Vec<Tuple>,
}

impl Doorkeeper for Door {
    fn admits(&mut self, tuple: &Tuple) -> Verdict {
        self.asked.push(*tuple);
        *self.tcp.get(&tuple.local.port()).unwrap_or(&Verdict::Refuse(pando_stack::Refusal::Reset))
    }

    fn hears(&mut self, local: SocketAddr, _: SocketAddr) -> Hearing {
        if self.udp.contains(&local.port()) { Hearing::Heard } else { Hearing::Nobody }
    }

    fn overhears(&mut self) -> bool {
        true
    }
}

/// One end of a connection, as a program has it: everything is kept.
#[derive(Debug, Default)]
pub struct End {
    pub received: Vec<u8>,
    pub to_send: Vec<u8>,
    /// Finishes when everything was given.
    pub finishes: bool,
    /// Does not read.
    pub is_deaf: bool,
    pub given: usize,
    pub is_open: bool,
    pub has_finished: bool,
    pub failure: Option<Failure>,
    pub is_closed: bool,
}

pub struct Host {
    pub stack: Stack,
    pub door: Door,
    pub outbox: Outbox,
    pub ends: HashMap<ConnectionId, End>,
    pub accepted: Vec<ConnectionId>,
    /// What those that are let in send, and then finish.
    pub serves: Option<Vec<u8>>,
    /// Those that are let in send back what they get, and finish when the other side has.
    pub echoes: bool,
    pub datagrams: Vec<Datagram>,
    pub notices: Vec<Notice>,
    pub messages: Vec<Message>,
}

impl Host {
    fn do_what_programs_do(&mut self, now: u64) {
        while let Some(happening) = self.stack.next_happening() {
            match happening {
                Happening::Accepted(id) => {
                    self.accepted.push(id);
                    let to_send = self.serves.clone();
                    let finishes = to_send.is_some();
                    self.ends.insert(id, End { is_open: true, to_send: to_send.unwrap_or_default(), finishes, ..End::default() });
                    self.pump(id, now);
                }
                Happening::Opened(id) => {
                    self.ends.entry(id).or_default().is_open = true;
                    self.pump(id, now);
                }
                Happening::Data(id) | Happening::Room(id) => self.pump(id, now),
                Happening::Failed(id, failure) => {
                    self.pump(id, now);
                    self.ends.entry(id).or_default().failure = Some(failure);
                }
                Happening::Closed(id) => {
                    let end = self.ends.entry(id).or_default();
                    assert!(!end.is_closed, "the last word is said once");
                    (end.is_closed, end.has_finished) = (true, true);
                }
                Happening::Datagram(datagram) => self.datagrams.push(datagram),
                Happening::Unreachable(notice) => self.notices.push(notice),
                Happening::Message(message) => self.messages.push(message),
            }
        }
    }

    /// Reads and writes as much as there is.
    pub fn pump(&mut self, id: ConnectionId, now: u64) {
        let end = self.ends.entry(id).or_default();
        if !end.is_deaf {
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
    /// Frames under way: when they arrive, in which order, for whom.
    under_way: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    serial: u64,
    /// When each host's link has carried the last byte of its last frame.
    free_at: Vec<u64>,
    pub frames: u64,
    /// Frames with nobody behind the address that they are for.
    pub astray: u64,
    /// Every frame that was sent, if somebody wants to know.
    pub recording: Option<Vec<Vec<u8>>>,
    /// Frames are lost on the way to these.
    pub deaf: BTreeSet<usize>,
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

/// A host's configuration as most tests want it.
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
                door: Door { tcp: BTreeMap::new(), udp: BTreeSet::new(), asked: Vec::new() },
                outbox: Outbox::new(256 << 10),
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
            deaf: BTreeSet::new(),
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
                if self.rng.u32(..1000) < self.link.loss || self.deaf.contains(&receiver) {
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

    /// Lets everybody speak, and their programs work.
    pub fn settle(&mut self) {
        for host in 0..self.hosts.len() {
            self.settle_host(host);
        }
    }

    fn settle_host(&mut self, index: usize) {
        loop {
            let host = &mut self.hosts[index];
            host.do_what_programs_do(self.now);
            let is_done = host.stack.run(self.now, &mut host.outbox);
            host.do_what_programs_do(self.now);
            let mut frames = Vec::new();
            host.outbox.drain(&mut |frame| {
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

    /// Goes on to the next moment at which something happens, if that is not after `until`. Whether there was one.
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
            host.stack.take(&frame, self.now, &mut host.door, &mut host.outbox);
            touched.insert(receiver);
        }
        true
    }

    /// Goes on until something is so, for at most so long; panics if it is not by then.
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

    /// Goes on until nothing is left to do, or for so long.
    pub fn run_for(&mut self, span: u64) {
        let until = self.now + span;
        while self.step(until) {}
        self.now = until;
    }

    pub fn tuple(&self, from: usize, local_port: u16, to: usize, port: u16) -> Tuple {
        Tuple { local: SocketAddr::new(address(from), local_port), remote: SocketAddr::new(address(to), port) }
    }

    /// Begins to connect, with something to send.
    pub fn connect(&mut self, tuple: Tuple, host: usize, end: End) -> ConnectionId {
        let id = self.hosts[host].stack.connect(tuple, TcpOptions::default(), self.now).expect("it can be asked for");
        self.hosts[host].ends.insert(id, end);
        id
    }

    /// Lets host 0 and host 1 know each other.
    pub fn introduce(&mut self) {
        let now = self.now;
        let host = &mut self.hosts[0];
        host.stack.send_message(&echo(address(0), address(1), &[]), now, &mut host.outbox).expect("there is room");
        self.run_until(100 * MS, "known", |net| !net.hosts[0].messages.is_empty());
    }

    /// A connection from host 0 to port 80 of host 1, opened: its names on both sides.
    pub fn open(&mut self) -> (ConnectionId, ConnectionId) {
        self.hosts[1].door.tcp.insert(80, Verdict::Admit);
        let port = 40_000 + self.hosts[1].accepted.len() as u16;
        let tuple = self.tuple(0, port, 1, 80);
        let id = self.connect(tuple, 0, End::default());
        let before = self.hosts[1].accepted.len();
        self.run_until(60_000 * MS, "opened", |net| net.hosts[0].ends[&id].is_open && net.hosts[1].accepted.len() > before);
        (id, self.hosts[1].accepted[before])
    }

    pub fn end(&self, host: usize, id: ConnectionId) -> &End {
        &self.hosts[host].ends[&id]
    }

    /// Gives a program something to send.
    pub fn say(&mut self, host: usize, id: ConnectionId, bytes: &[u8]) {
        self.hosts[host].ends.get_mut(&id).unwrap().to_send.extend_from_slice(bytes);
        let now = self.now;
        self.hosts[host].pump(id, now);
    }
}

/// So many bytes without a pattern.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Rng::with_seed(seed).fill(&mut bytes);
    bytes
}
