// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell that is a stack driven by a test, behind a gateway that runs on a thread of its own.

use crate::wire::{CableEnd, cable};
use pando_gateway::{FramePort, Gateway, GatewayAddresses, GatewayReport, Handle, PortForward, Rule, TxSink};
use pando_stack::{
    Config, ConnectionId, Datagram, DatagramVerdict, Failure, IcmpMessage, Listeners, SocketEvent, Stack, TcpOptions, Tuple, Unreachable,
    Verdict,
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

/// A connection of a cell.
#[derive(Default)]
pub struct TestConnection {
    pub open: bool,
    pub failed: Option<Failure>,
    pub closed: bool,
    pub received: Vec<u8>,
    /// The peer has finished, and all its data was read.
    pub finished: bool,
    /// The bytes to send, and the number of those that were sent.
    says: (usize, Vec<u8>),
    /// It finishes after them.
    finishes: bool,
    /// It echoes what it receives, and finishes when the peer has.
    echoes: bool,
    /// It does not read.
    pub deaf: bool,
}

#[derive(Default)]
struct Ports {
    tcp: HashSet<u16>,
    udp: HashSet<u16>,
    /// The number of connections that were refused.
    refusals: usize,
}

impl Listeners for Ports {
    fn admits(&mut self, tuple: &Tuple) -> Verdict {
        if self.tcp.contains(&tuple.local.port()) {
            return Verdict::Admit;
        }
        self.refusals += 1;
        Verdict::Refuse(pando_stack::SynRefusal::Reset)
    }

    fn accepts_datagram(&mut self, local: SocketAddr, _remote: SocketAddr) -> DatagramVerdict {
        if self.udp.contains(&local.port()) { DatagramVerdict::Accepted } else { DatagramVerdict::Closed }
    }
}

/// A cell and its gateway.
pub struct TestCell {
    stack: Stack,
    end: CableEnd,
    start: Instant,
    ports: Ports,
    next_port: u16,
    pub connections: HashMap<ConnectionId, TestConnection>,
    pub datagrams: Vec<Datagram>,
    pub unreachable: Vec<Unreachable>,
    pub forwards: Vec<SocketAddr>,
    gateway: Option<(Handle, JoinHandle<std::io::Result<GatewayReport>>)>,
}

impl TestCell {
    /// A cell behind a gateway with these rules, forwards and resolvers.
    pub fn new(rules: &[String], forwards: &[&str], resolvers: &[SocketAddr]) -> TestCell {
        let rules: Vec<Rule> = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
        let forwards: Vec<PortForward> = forwards.iter().map(|forward| forward.parse().expect("a forward")).collect();
        let gateway = Gateway::bind(&forwards, rules, resolvers.to_vec(), 800).expect("the host has room");
        let forwards = gateway.forwards().map(|forward| forward.host).collect();
        let handle = gateway.handle();
        let [end, host_port] = cable(handle.clone());
        let mac = [2, 0, 0, 0, 0, 1];
        let inside = GatewayAddresses {
            mac,
            address4: GATEWAY,
            prefix4: 16,
            address6: GATEWAY6,
            prefix6: 64,
            mtu: u16::MAX,
            cell: CELL,
            dhcp_address: |_| None,
            seed: 1,
        };
        let thread = std::thread::spawn(move || gateway.run(&inside, host_port, |_| {}));
        let config = Config {
            addresses: vec![(CELL.into(), 16), (CELL6.into(), 64)],
            gateway4: Some(GATEWAY),
            gateway6: Some(GATEWAY6),
            mtu: 65535,
            ..Config::new([2, 0, 0, 0, 0, 2], 2)
        };
        TestCell {
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
        self.connections.insert(id, TestConnection::default());
        id
    }

    /// Connects to a port of the host's loopback.
    pub fn connect_host(&mut self, port: u16) -> ConnectionId {
        self.connect(SocketAddr::new(GATEWAY.into(), port))
    }

    /// Sends bytes, and then the end if `finishes`.
    pub fn say(&mut self, id: ConnectionId, bytes: &[u8], finishes: bool) {
        let connection = self.connection(id);
        connection.says.1.extend_from_slice(bytes);
        connection.finishes = finishes;
    }

    pub fn connection(&mut self, id: ConnectionId) -> &mut TestConnection {
        self.connections.get_mut(&id).expect("the test knows it")
    }

    /// Whether all bytes of a connection were sent and acknowledged.
    pub fn has_sent(&mut self, id: ConnectionId) -> bool {
        let unanswered = self.stack.unacknowledged(id);
        let (said, bytes) = &self.connection(id).says;
        *said == bytes.len() && unanswered == 0
    }

    pub fn tuple(&self, id: ConnectionId) -> Tuple {
        self.stack.tuple(id).expect("it is open")
    }

    pub fn abort(&mut self, id: ConnectionId) {
        self.stack.abort(id);
    }

    /// Echoes connections to a port.
    pub fn echo_at(&mut self, port: u16) {
        self.ports.tcp.insert(port);
    }

    /// The number of connections that were refused.
    pub fn refusals(&self) -> usize {
        self.ports.refusals
    }

    /// Refuses connections to a port again.
    pub fn refuse_at(&mut self, port: u16) {
        self.ports.tcp.remove(&port);
    }

    /// Receives datagrams at a port.
    pub fn process_at(&mut self, port: u16) {
        self.ports.udp.insert(port);
    }

    /// Sends a datagram from a port.
    pub fn send(&mut self, port: u16, to: SocketAddr, bytes: &[u8]) {
        let address: IpAddr = if to.is_ipv4() { CELL.into() } else { CELL6.into() };
        let datagram = Datagram { local: SocketAddr::new(address, port), remote: to, bytes: bytes.to_vec(), hops: 64 };
        let now = self.now();
        self.stack.send_datagram(&datagram, now, &mut self.end).expect("there is a way");
    }

    /// Sends an echo request with an identifier.
    pub fn ask(&mut self, number: u16, to: IpAddr) {
        let (local, kind): (IpAddr, u8) = if to.is_ipv4() { (CELL.into(), 8) } else { (CELL6.into(), 128) };
        let mut bytes = [&[kind, 0, 0, 0], &number.to_be_bytes()[..], &[0, 1], b"a question"].concat();
        pando_stack::fill_icmp_checksum(local, to, &mut bytes);
        let now = self.now();
        self.stack.send_message(&IcmpMessage { local, remote: to, bytes, hops: 64 }, now, &mut self.end).expect("there is a way");
    }

    /// Runs the cell until a condition holds.
    pub fn until<T>(&mut self, mut is_so: impl FnMut(&mut TestCell) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            self.step();
            if let Some(found) = is_so(self) {
                return found;
            }
            assert!(start.elapsed() < PATIENCE, "it has not come so far: {:?}\n{}", self.stack.counts(), self.state());
            let deadline =
                self.stack.deadline().map_or(Duration::from_millis(100), |at| Duration::from_nanos(at.saturating_sub(self.now())));
            // The test's own threads do not wake the cell.
            self.end.incoming.wait(deadline.min(Duration::from_millis(5)));
        }
    }

    /// The state of each connection.
    fn state(&self) -> String {
        let state = |(id, connection): (&ConnectionId, &TestConnection)| {
            let TestConnection { open, failed, closed, received, finished, says: (said, bytes), .. } = connection;
            let [readable, writable, unanswered] = [self.stack.readable(*id), self.stack.writable(*id), self.stack.unacknowledged(*id)];
            format!(
                "{id:?}: open {open}, {failed:?}, closed {closed}, finished {finished}, received {}, said {said} of {}; {readable} {writable} {unanswered}\n",
                received.len(),
                bytes.len()
            )
        };
        self.connections.iter().filter(|(_, connection)| !connection.closed).map(state).collect()
    }

    /// Records the frames that it sends from now on.
    pub fn record(&mut self) {
        self.end.recording = Some(Vec::new());
    }

    /// The recorded frames.
    pub fn recorded(&mut self) -> Vec<Vec<u8>> {
        self.end.recording.take().unwrap_or_default()
    }

    /// Sends a frame that the stack has not made, as soon as there is space for it, and ignores replies.
    pub fn blurt(&mut self, frame: &[u8]) {
        loop {
            while self.end.receive().is_some() {}
            if let Some(room) = self.end.room(frame.len()) {
                room.copy_from_slice(frame);
                return self.end.commit(frame.len());
            }
            // The gateway runs.
            std::thread::yield_now();
        }
    }

    /// Runs the cell until a connection has ended, normally or not.
    pub fn until_over(&mut self, id: ConnectionId) -> Option<Failure> {
        self.until(|cell| {
            let connection = cell.connection(id);
            (connection.failed.is_some() || connection.finished).then_some(connection.failed)
        })
    }

    fn step(&mut self) {
        let now = self.now();
        while let Some(frame) = self.end.receive() {
            self.stack.receive_frame(&frame, now, &mut self.ports, &mut self.end);
        }
        self.stack.run(now, &mut self.end);
        while let Some(event) = self.stack.next_event() {
            self.happened(event);
        }
        for (id, connection) in &mut self.connections {
            if connection.open && !connection.closed {
                carry(*id, connection, &mut self.stack, now);
            }
        }
        self.stack.run(now, &mut self.end);
    }

    fn happened(&mut self, event: SocketEvent) {
        match event {
            SocketEvent::Accepted(id) => {
                self.connections.insert(id, TestConnection { open: true, echoes: true, ..TestConnection::default() });
            }
            SocketEvent::Opened(id) => self.connection(id).open = true,
            SocketEvent::Failed(id, failure) => self.connection(id).failed = Some(failure),
            SocketEvent::Closed(id) => {
                let connection = self.connection(id);
                connection.closed = true;
                connection.finished = connection.failed.is_none();
            }
            SocketEvent::Datagram(datagram) => self.datagrams.push(datagram),
            SocketEvent::Unreachable(notice) => self.unreachable.push(notice.unreachable),
            SocketEvent::Readable(_) | SocketEvent::Writable(_) | SocketEvent::Message(_) => {}
        }
    }

    /// Stops the gateway, and returns its report.
    pub fn stop(mut self) -> GatewayReport {
        let (handle, thread) = self.gateway.take().expect("it runs until now");
        handle.stop();
        thread.join().expect("it does not panic").expect("it can wait")
    }
}

impl Drop for TestCell {
    fn drop(&mut self) {
        if let Some((handle, _)) = &self.gateway {
            handle.stop();
        }
    }
}

/// Receives and sends what is possible.
fn carry(id: ConnectionId, connection: &mut TestConnection, stack: &mut Stack, now: u64) {
    if !connection.deaf {
        stack.receive(id, &mut |bytes| {
            connection.received.extend_from_slice(bytes);
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
