// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell that is a stack driven by a test, behind a gateway that runs on a thread of its own.

use crate::wire::{End, cable};
use pando_gateway::{Forward, Gateway, Handle, Inside, Outlet, Report, Rule, Station};
use pando_stack::{
    Config, ConnectionId, Datagram, Doorkeeper, Failure, Happening, Hearing, Message, Obstacle, Stack, TcpOptions, Tuple, Verdict,
};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub const CELL: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const GATEWAY6: Ipv6Addr = Ipv6Addr::new(0xfd70, 0, 0, 0, 0, 0, 0, 1);
const CELL6: Ipv6Addr = Ipv6Addr::new(0xfd70, 0, 0, 0, 0, 0, 0, 2);

/// A test that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a cell knows of a connection.
#[derive(Default)]
pub struct Connection {
    pub open: bool,
    pub failed: Option<Failure>,
    pub closed: bool,
    pub heard: Vec<u8>,
    /// The other side has finished, and all was heard.
    pub finished: bool,
    /// What is still to be said, from the first number on.
    says: (usize, Vec<u8>),
    /// After that it finishes.
    finishes: bool,
    /// It says what it hears, and finishes when the other side has.
    echoes: bool,
    /// It does not listen.
    pub deaf: bool,
}

#[derive(Default)]
struct Ports {
    tcp: HashSet<u16>,
    udp: HashSet<u16>,
    /// How often somebody was told that nobody listens.
    refusals: usize,
}

impl Doorkeeper for Ports {
    fn admits(&mut self, tuple: &Tuple) -> Verdict {
        if self.tcp.contains(&tuple.local.port()) {
            return Verdict::Admit;
        }
        self.refusals += 1;
        Verdict::Refuse(pando_stack::Refusal::Reset)
    }

    fn hears(&mut self, local: SocketAddr, _remote: SocketAddr) -> Hearing {
        if self.udp.contains(&local.port()) { Hearing::Heard } else { Hearing::Nobody }
    }
}

/// A cell, and the gateway that it stands behind.
pub struct Cell {
    stack: Stack,
    end: End,
    start: Instant,
    ports: Ports,
    next_port: u16,
    pub connections: HashMap<ConnectionId, Connection>,
    pub datagrams: Vec<Datagram>,
    pub unreachable: Vec<Obstacle>,
    pub forwards: Vec<SocketAddr>,
    gateway: Option<(Handle, JoinHandle<std::io::Result<Report>>)>,
}

impl Cell {
    /// A cell behind a gateway with these rules, forwards and resolvers.
    pub fn new(rules: &[String], forwards: &[&str], resolvers: &[SocketAddr]) -> Cell {
        let rules: Vec<Rule> = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
        let forwards: Vec<Forward> = forwards.iter().map(|forward| forward.parse().expect("a forward")).collect();
        let gateway = Gateway::bind(&forwards, rules, resolvers.to_vec(), 800).expect("the host has room");
        let forwards = gateway.forwards().map(|forward| forward.host).collect();
        let handle = gateway.handle();
        let [end, station] = cable(handle.clone());
        let mac = [2, 0, 0, 0, 0, 1];
        let inside = Inside {
            mac,
            address4: GATEWAY,
            prefix4: 16,
            address6: GATEWAY6,
            prefix6: 64,
            mtu: u16::MAX,
            cell: CELL,
            leases: |_| None,
            seed: 1,
        };
        let thread = std::thread::spawn(move || gateway.run(&inside, station, |_| {}));
        let config = Config {
            addresses: vec![(CELL.into(), 16), (CELL6.into(), 64)],
            gateway4: Some(GATEWAY),
            gateway6: Some(GATEWAY6),
            mtu: 65535,
            ..Config::new([2, 0, 0, 0, 0, 2], 2)
        };
        Cell {
            stack: Stack::new(config, 0),
            end,
            start: Instant::now(),
            ports: Ports::default(),
            next_port: 40_000,
            connections: HashMap::new(),
            datagrams: Vec::new(),
            unreachable: Vec::new(),
            forwards,
            gateway: Some((handle, thread)),
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn own(&mut self, to: SocketAddr) -> SocketAddr {
        self.next_port += 1;
        let address: IpAddr = if to.is_ipv4() { CELL.into() } else { CELL6.into() };
        SocketAddr::new(address, self.next_port)
    }

    /// Starts to connect.
    pub fn connect(&mut self, to: SocketAddr) -> ConnectionId {
        let tuple = Tuple { local: self.own(to), remote: to };
        let now = self.now();
        let id = self.stack.connect(tuple, TcpOptions::default(), now).expect("there is a way");
        self.connections.insert(id, Connection::default());
        id
    }

    /// Connects to a port of the host's loopback.
    pub fn connect_host(&mut self, port: u16) -> ConnectionId {
        self.connect(SocketAddr::new(GATEWAY.into(), port))
    }

    /// Says something, and finishes after it if so.
    pub fn say(&mut self, id: ConnectionId, bytes: &[u8], finishes: bool) {
        let connection = self.connection(id);
        connection.says.1.extend_from_slice(bytes);
        connection.finishes = finishes;
    }

    pub fn connection(&mut self, id: ConnectionId) -> &mut Connection {
        self.connections.get_mut(&id).expect("the test knows it")
    }

    /// Whether all that a connection had to say was said, and the other side knows it.
    pub fn has_said(&mut self, id: ConnectionId) -> bool {
        let unanswered = self.stack.unanswered(id);
        let (said, bytes) = &self.connection(id).says;
        *said == bytes.len() && unanswered == 0
    }

    pub fn tuple(&self, id: ConnectionId) -> Tuple {
        self.stack.tuple(id).expect("it is open")
    }

    pub fn abort(&mut self, id: ConnectionId) {
        self.stack.abort(id);
    }

    /// Answers at a port with what it is told.
    pub fn echo_at(&mut self, port: u16) {
        self.ports.tcp.insert(port);
    }

    /// How often somebody was told that nobody listens.
    pub fn refusals(&self) -> usize {
        self.ports.refusals
    }

    /// Does not answer there any more.
    pub fn refuse_at(&mut self, port: u16) {
        self.ports.tcp.remove(&port);
    }

    /// Hears datagrams at a port.
    pub fn hear_at(&mut self, port: u16) {
        self.ports.udp.insert(port);
    }

    /// Sends a datagram from a port.
    pub fn send(&mut self, port: u16, to: SocketAddr, bytes: &[u8]) {
        let address: IpAddr = if to.is_ipv4() { CELL.into() } else { CELL6.into() };
        let datagram = Datagram { local: SocketAddr::new(address, port), remote: to, bytes: bytes.to_vec(), hops: 64 };
        let now = self.now();
        self.stack.send_datagram(&datagram, now, &mut self.end).expect("there is a way");
    }

    /// Asks for an echo, under a number.
    pub fn ask(&mut self, number: u16, to: IpAddr) {
        let (local, kind): (IpAddr, u8) = if to.is_ipv4() { (CELL.into(), 8) } else { (CELL6.into(), 128) };
        let mut bytes = [&[kind, 0, 0, 0], &number.to_be_bytes()[..], &[0, 1], b"a question"].concat();
        pando_stack::sum(local, to, &mut bytes);
        let now = self.now();
        self.stack.send_message(&Message { local, remote: to, bytes, hops: 64 }, now, &mut self.end).expect("there is a way");
    }

    /// Lives until something is so.
    pub fn until<T>(&mut self, mut is_so: impl FnMut(&mut Cell) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            self.step();
            if let Some(found) = is_so(self) {
                return found;
            }
            assert!(start.elapsed() < PATIENCE, "it has not come so far: {:?}\n{}", self.stack.counts(), self.state());
            let deadline =
                self.stack.deadline().map_or(Duration::from_millis(100), |at| Duration::from_nanos(at.saturating_sub(self.now())));
            // What the test's own threads do is nothing that wakes a cell.
            self.end.hears.wait(deadline.min(Duration::from_millis(5)));
        }
    }

    /// Where each connection stands.
    fn state(&self) -> String {
        let state = |(id, connection): (&ConnectionId, &Connection)| {
            let Connection { open, failed, closed, heard, finished, says: (said, bytes), .. } = connection;
            let [readable, writable, unanswered] = [self.stack.readable(*id), self.stack.writable(*id), self.stack.unanswered(*id)];
            format!(
                "{id:?}: open {open}, {failed:?}, closed {closed}, finished {finished}, heard {}, said {said} of {}; {readable} {writable} {unanswered}\n",
                heard.len(),
                bytes.len()
            )
        };
        self.connections.iter().filter(|(_, connection)| !connection.closed).map(state).collect()
    }

    /// Takes note of the frames that it says from now on.
    pub fn record(&mut self) {
        self.end.recording = Some(Vec::new());
    }

    /// The frames that were noted.
    pub fn recorded(&mut self) -> Vec<Vec<u8>> {
        self.end.recording.take().unwrap_or_default()
    }

    /// Says a frame that it has not made, as soon as there is room for it, and hears no answers.
    pub fn blurt(&mut self, frame: &[u8]) {
        loop {
            while self.end.receive().is_some() {}
            if let Some(room) = self.end.room(frame.len()) {
                room.copy_from_slice(frame);
                return self.end.commit(frame.len());
            }
            // The gateway has its turn.
            std::thread::yield_now();
        }
    }

    /// Lives until a connection is over, in whatever way.
    pub fn until_over(&mut self, id: ConnectionId) -> Option<Failure> {
        self.until(|cell| {
            let connection = cell.connection(id);
            (connection.failed.is_some() || connection.finished).then_some(connection.failed)
        })
    }

    fn step(&mut self) {
        let now = self.now();
        while let Some(frame) = self.end.receive() {
            self.stack.take(&frame, now, &mut self.ports, &mut self.end);
        }
        self.stack.run(now, &mut self.end);
        while let Some(happening) = self.stack.next_happening() {
            self.happened(happening);
        }
        for (id, connection) in &mut self.connections {
            if connection.open && !connection.closed {
                carry(*id, connection, &mut self.stack, now);
            }
        }
        self.stack.run(now, &mut self.end);
    }

    fn happened(&mut self, happening: Happening) {
        match happening {
            Happening::Accepted(id) => {
                self.connections.insert(id, Connection { open: true, echoes: true, ..Connection::default() });
            }
            Happening::Opened(id) => self.connection(id).open = true,
            Happening::Failed(id, failure) => self.connection(id).failed = Some(failure),
            Happening::Closed(id) => {
                let connection = self.connection(id);
                connection.closed = true;
                connection.finished = connection.failed.is_none();
            }
            Happening::Datagram(datagram) => self.datagrams.push(datagram),
            Happening::Unreachable(notice) => self.unreachable.push(notice.obstacle),
            Happening::Data(_) | Happening::Room(_) | Happening::Message(_) => {}
        }
    }

    /// Stops the gateway, and returns what it says of itself.
    pub fn stop(mut self) -> Report {
        let (handle, thread) = self.gateway.take().expect("it runs until now");
        handle.stop();
        thread.join().expect("it does not panic").expect("it can wait")
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if let Some((handle, _)) = &self.gateway {
            handle.stop();
        }
    }
}

/// Hears what there is, and says what is to be said.
fn carry(id: ConnectionId, connection: &mut Connection, stack: &mut Stack, now: u64) {
    if !connection.deaf {
        stack.receive(id, &mut |bytes| {
            connection.heard.extend_from_slice(bytes);
            if connection.echoes {
                connection.says.1.extend_from_slice(bytes);
            }
            bytes.len()
        });
        connection.finished = stack.has_finished(id) && stack.readable(id) == 0;
        connection.finishes |= connection.echoes && connection.finished;
    }
    let (said, bytes) = &mut connection.says;
    stack.send(id, &mut |room| {
        let length = room.len().min(bytes.len() - *said);
        room[..length].copy_from_slice(&bytes[*said..*said + length]);
        *said += length;
        length
    });
    if connection.finishes && *said == bytes.len() {
        connection.finishes = false;
        stack.finish(id, now);
    }
}
