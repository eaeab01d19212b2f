// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gateway's interface, and its event loop: handle events, forward data, transmit frames, wait.

use crate::dns_proxy::{DnsContext, DnsCounts, DnsProxy};
use crate::limits::{ACCEPTED, DRAIN_TIME, FRAMES, FULL, MAX_CONNECTIONS, MAX_FLOWS, MAX_QUESTIONS, MAX_RESOLVERS};
use crate::listeners::{BindError, HostListener, twice};
use crate::poll::{Bell, Handle, Poll, Ready, Token};
use crate::routes::{Destination, Refused, Routes};
use crate::rules::Rules;
use crate::stack_counts::StackCounts;
use crate::tcp_proxy::{IncomingConnection, TcpProxy, TransferCounts, unreachable};
use crate::udp_proxy::{Datagrams, PORTS, UdpProxy};
use crate::{GatewayAddresses, HostPort, PortForward, Protocol, Rule, sockets};
use pando_stack::{Config, DatagramVerdict, Listeners, Refusal, SocketEvent, Stack, TcpOptions, Tuple, Unreachable, Verdict};
use rustix::io::Errno;
use rustix::net::accept_with;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The gateway's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// TCP connections.
    pub carried: TransferCounts,
    /// UDP datagrams.
    pub datagrams: Datagrams,
    /// DNS queries.
    pub asking: DnsCounts,
    /// Refused destinations: no rule allows them.
    pub refused: u64,
    /// Forwarded connections that the cell did not accept.
    pub unanswered: u64,
    /// The counters of its stack.
    #[serde(with = "StackCounts")]
    pub stack: pando_stack::Counts,
}

/// A gateway's final report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayReport {
    /// The counters.
    pub counts: Counts,
    /// The first few destinations that it refused.
    pub refused: Vec<Refused>,
}

/// A gateway with all its host resources.
#[derive(Debug)]
pub struct Gateway {
    handle: Handle,
    listeners: Vec<HostListener>,
    rules: Rules,
    resolvers: Vec<SocketAddr>,
    /// Descriptors that it may use.
    descriptors: usize,
}

impl Gateway {
    /// Opens the sockets of port forwards. Nothing is accepted before [`Gateway::run`]. It uses at most `descriptors` descriptors besides
    /// those of forwards: half of them for TCP connections, a quarter for UDP flows, an eighth for DNS queries.
    ///
    /// # Errors
    /// A forward cannot listen, or the host has no descriptors left.
    pub fn bind(forwards: &[PortForward], rules: Vec<Rule>, resolvers: Vec<SocketAddr>, descriptors: usize) -> Result<Gateway, BindError> {
        let host = |error: std::io::Error| BindError::Host(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        twice(forwards).map_or(Ok(()), Err)?;
        let listeners = forwards.iter().map(HostListener::bind).collect::<Result<Vec<_>, _>>()?;
        let handle = Handle::new().map_err(host)?;
        let resolvers = resolvers.into_iter().take(MAX_RESOLVERS).collect();
        Ok(Gateway { handle, listeners, rules: Rules::new(rules), resolvers, descriptors })
    }

    /// A handle that wakes and stops it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Its open descriptors. A process that runs it must keep them.
    pub fn kept(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listeners.iter().map(|listener| listener.socket.as_fd()).chain([self.handle.event()])
    }

    /// Duplicates the gateway with its listening sockets, for a forked process.
    ///
    /// # Errors
    /// The host has no descriptors.
    pub fn duplicate(&self) -> std::io::Result<Gateway> {
        let Gateway { handle, listeners, rules, resolvers, descriptors } = self;
        let listeners = listeners.iter().map(HostListener::duplicate).collect::<Result<_, _>>()?;
        Ok(Gateway { handle: handle.clone(), listeners, rules: rules.clone(), resolvers: resolvers.clone(), descriptors: *descriptors })
    }

    /// The forwards, in their order, each with its listening address.
    pub fn forwards(&self) -> impl Iterator<Item = PortForward> {
        self.listeners.iter().map(|&HostListener { address: host, cell, protocol, .. }| PortForward { host, cell, protocol })
    }

    /// The TCP ports to which the process must be able to connect; `None` if any.
    #[must_use]
    pub fn ports(&self) -> Option<Vec<u16>> {
        let mut ports = self.rules.ports()?;
        ports.extend(self.resolvers.iter().map(SocketAddr::port));
        Some(ports)
    }

    /// Runs until it is stopped. Reports the first few refused destinations and names to `told`, each once.
    ///
    /// # Errors
    /// Waiting for events fails.
    pub fn run(self, inside: &GatewayAddresses, host_port: impl HostPort, told: impl FnMut(Refused)) -> std::io::Result<GatewayReport> {
        let handle = self.handle.clone();
        self.run_woken_by(&handle, inside, host_port, told)
    }

    /// [`Gateway::run`] for a gateway that `bell` wakes and stops, instead of its handle.
    ///
    /// # Errors
    /// Those of [`Gateway::run`].
    pub fn run_woken_by(
        self,
        bell: &impl Bell,
        inside: &GatewayAddresses,
        host_port: impl HostPort,
        told: impl FnMut(Refused),
    ) -> std::io::Result<GatewayReport> {
        let Gateway { handle: _, listeners, rules, resolvers, descriptors } = self;
        let poll = poll(&listeners, bell)?;
        let most = MAX_CONNECTIONS.min(descriptors / 2);
        let outside = HostSide {
            poll,
            routes: Routes::new(rules, inside),
            tcp_proxy: TcpProxy::default(),
            udp_proxy: UdpProxy::new(inside, MAX_FLOWS.min(descriptors / 4)),
            questions: DnsProxy::new(resolvers, MAX_QUESTIONS.min(descriptors / 8)),
            may_accept: listeners.iter().map(|listener| listener.protocol == Protocol::Tcp).collect(),
            listeners,
            most,
            port: *PORTS.start(),
            answered: BTreeSet::new(),
            unanswered: 0,
            now: 0,
        };
        let config = Config {
            addresses: vec![(inside.address4.into(), inside.prefix4), (inside.address6.into(), inside.prefix6)],
            mtu: inside.mtu.into(),
            any_address: true,
            connections: most,
            ..Config::new(inside.mac, inside.seed)
        };
        let mut engine =
            Engine { stack: Stack::new(config, 0), host_port, outside, inside: inside.clone(), start: Instant::now(), full: false, told };
        engine.run(bell)?;
        engine.outside.tcp_proxy.close();
        let HostSide { routes, tcp_proxy, udp_proxy, questions, unanswered, .. } = &engine.outside;
        let (refused, told) = routes.refused();
        let stack = engine.stack.counts();
        let counts = Counts {
            carried: tcp_proxy.carried,
            datagrams: udp_proxy.carried,
            asking: questions.asking,
            refused,
            unanswered: *unanswered,
            stack,
        };
        Ok(GatewayReport { counts, refused: told })
    }
}

/// An epoll instance that watches the forwards and the wakeup event.
fn poll(listeners: &[HostListener], bell: &impl Bell) -> std::io::Result<Poll> {
    let poll = Poll::new()?;
    for (listener, index) in listeners.iter().zip(0..) {
        let (token, ready) = match listener.protocol {
            Protocol::Tcp => (Token::Listener(index), Ready::IN | Ready::ET),
            Protocol::Udp => (Token::Datagrams(index), Ready::IN),
        };
        poll.add(&listener.socket, token, ready)?;
    }
    // Each write is an edge, so the event need not be read.
    poll.add(bell.event(), Token::Waker, Ready::IN | Ready::ET)?;
    Ok(poll)
}

/// The gateway's state besides the stack and its host port.
struct HostSide {
    poll: Poll,
    routes: Routes,
    tcp_proxy: TcpProxy,
    udp_proxy: UdpProxy,
    questions: DnsProxy,
    listeners: Vec<HostListener>,
    /// Whether each listener may have pending connections.
    may_accept: Vec<bool>,
    most: usize,
    /// The source port of the last connection to a cell.
    port: u16,
    /// Ports at which the cell has accepted a connection before.
    answered: BTreeSet<u16>,
    unanswered: u64,
    now: u64,
}

struct Engine<S, T> {
    stack: Stack,
    host_port: S,
    outside: HostSide,
    inside: GatewayAddresses,
    start: Instant,
    /// The host port's queue was full.
    full: bool,
    /// The callback for refused destinations.
    told: T,
}

impl Listeners for HostSide {
    fn admits(&mut self, tuple: &Tuple) -> Verdict {
        match self.tcp_proxy.unaccepted(tuple) {
            Some(true) => return Verdict::Admit,
            Some(false) => return Verdict::Hold,
            None => {}
        }
        match self.routes.way(tuple.local, self.now) {
            None => Verdict::Refuse(Refusal::Unreachable(Unreachable::Forbidden)),
            Some(_) if self.tcp_proxy.len() + self.questions.len() >= self.most => Verdict::Ignore,
            Some(Destination::Resolver) => Verdict::Admit,
            Some(Destination::Host(to)) => {
                self.tcp_proxy.connect_host(&self.poll, *tuple, to).map_or_else(Verdict::Refuse, |()| Verdict::Hold)
            }
        }
    }

    fn accepts_datagram(&mut self, local: SocketAddr, remote: SocketAddr) -> DatagramVerdict {
        if self.udp_proxy.knows(&(local, remote)) || self.routes.way(local, self.now).is_some() {
            DatagramVerdict::Accepted
        } else {
            DatagramVerdict::Closed
        }
    }

    fn accepts_echo(&mut self, local: IpAddr, remote: SocketAddr) -> Result<(), Unreachable> {
        if !self.routes.admit_echo(local, self.now) {
            return Err(Unreachable::Forbidden);
        }
        self.udp_proxy.open_echoes(&self.poll, local, remote, self.now).map_err(|errno| {
            // The host may return the same error for one destination, such as a broadcast address.
            if errno == Errno::ACCESS && sockets::echoes(local).err() == Some(Errno::ACCESS) {
                self.routes.cannot_ask();
            }
            unreachable(errno).unwrap_or(Unreachable::Host)
        })
    }
}

impl<S: HostPort, T: FnMut(Refused)> Engine<S, T> {
    fn run(&mut self, bell: &impl Bell) -> std::io::Result<()> {
        let mut last_words = None;
        let mut goes_on = true;
        loop {
            let most = if goes_on { Some(Duration::ZERO) } else { self.timeout(last_words) };
            let events = self.outside.poll.wait(most)?;
            let stopped = bell.look();
            self.outside.now = self.start.elapsed().as_nanos() as u64;
            for (token, ready) in events {
                self.process(token, ready);
            }
            goes_on = self.turn();
            while let Some(refused) = self.outside.routes.unreported() {
                (self.told)(refused);
            }
            let now = self.outside.now;
            if stopped && last_words.is_none() {
                last_words = Some(now.saturating_add(DRAIN_TIME.as_nanos() as u64));
            }
            if last_words.is_some_and(|last| !goes_on && self.outside.tcp_proxy.is_idle(&self.stack) || now >= last) {
                return Ok(());
            }
        }
    }

    /// The time until the next timer; `None` if there is none.
    fn timeout(&self, last_words: Option<u64>) -> Option<Duration> {
        let outside = &self.outside;
        let HostSide { tcp_proxy, udp_proxy, questions, .. } = outside;
        let saying = if self.full { Some(outside.now.saturating_add(FULL.as_nanos() as u64)) } else { self.stack.deadline() };
        let deadlines = [saying, tcp_proxy.deadline(), udp_proxy.deadline(), questions.deadline(), last_words];
        let first = deadlines.into_iter().flatten().min()?;
        Some(Duration::from_nanos(first.saturating_sub(self.start.elapsed().as_nanos() as u64)))
    }

    /// Handles a descriptor's events.
    fn process(&mut self, token: Token, ready: Ready) {
        let Engine { stack, host_port, outside, .. } = self;
        let now = outside.now;
        match token {
            Token::Waker => {}
            Token::Listener(index) => outside.may_accept.iter_mut().skip(index as usize).take(1).for_each(|may_accept| *may_accept = true),
            Token::Proxy(index) => outside.tcp_proxy.process(index as usize, ready, stack, host_port, now),
            Token::Flow(index) => outside.udp_proxy.take(index as usize, stack, host_port, now),
            Token::Datagrams(index) => {
                let number = index as usize;
                if let Some(listener) = outside.listeners.get(number) {
                    outside.udp_proxy.process(number, listener, stack, host_port, now);
                }
            }
            Token::Question(index) => {
                let HostSide { poll, routes, questions, .. } = outside;
                questions.take(index as usize, &mut DnsContext { poll, routes, stack, sink: host_port, now });
            }
        }
    }

    /// Does a bounded part of all pending work. Returns whether there is more.
    fn turn(&mut self) -> bool {
        let mut frames = 0;
        while frames < FRAMES
            && let Some(frame) = self.host_port.receive()
        {
            let Engine { stack, host_port, outside, inside, .. } = self;
            if !inside.lease(frame.as_ref(), host_port) {
                stack.receive_frame(frame.as_ref(), outside.now, outside, host_port);
            }
            frames += 1;
        }
        let may_accept = self.accept();
        while let Some((index, incoming)) = self.outside.tcp_proxy.next_retry(self.outside.now) {
            self.connect_cell(index, incoming);
        }
        self.expire();
        self.events();
        let Engine { stack, host_port, outside, .. } = self;
        let carrying = outside.tcp_proxy.run(stack, outside.now);
        let HostSide { poll, routes, questions, now, .. } = outside;
        let answering = questions.run(&mut DnsContext { poll, routes, stack, sink: host_port, now: *now });
        self.full = !stack.run(outside.now, host_port);
        host_port.flush();
        self.events();
        frames == FRAMES || may_accept || carrying || answering || self.outside.tcp_proxy.is_ready()
    }

    fn expire(&mut self) {
        let Engine { stack, host_port, outside, .. } = self;
        let HostSide { poll, routes, tcp_proxy, udp_proxy, questions, now, .. } = outside;
        tcp_proxy.expire(*now);
        udp_proxy.expire(*now);
        questions.expire(&mut DnsContext { poll, routes, stack, sink: host_port, now: *now });
    }

    fn events(&mut self) {
        while let Some(event) = self.stack.next_event() {
            self.happened(event);
        }
    }

    fn happened(&mut self, event: SocketEvent) {
        let Engine { stack, host_port, outside, .. } = self;
        let HostSide { poll, routes, tcp_proxy, udp_proxy, questions, listeners, unanswered, answered, now, .. } = outside;
        match event {
            SocketEvent::Accepted(id) => match stack.tuple(id) {
                Some(tuple) if routes.is_resolver(tuple.local) => questions.open(id, stack),
                Some(tuple) => tcp_proxy.accepted(id, &tuple, stack),
                None => {}
            },
            SocketEvent::Opened(id) => answered.extend(tcp_proxy.opened(id, stack)),
            SocketEvent::Data(id) | SocketEvent::Room(id) => {
                tcp_proxy.wake(id);
                questions.serve(id, &mut DnsContext { poll, routes, stack, sink: host_port, now: *now });
            }
            // Its server may be about to start.
            SocketEvent::Failed(id, _) if tcp_proxy.retry_later(id, answered, *now) => {}
            SocketEvent::Failed(id, _) => {
                *unanswered += u64::from(tcp_proxy.is_connecting_cell(id));
                tcp_proxy.failed(id, stack, *now);
                questions.close(id, stack);
            }
            SocketEvent::Closed(id) => {
                tcp_proxy.closed(id);
                questions.close(id, stack);
            }
            SocketEvent::Datagram(datagram) if udp_proxy.knows(&(datagram.local, datagram.remote)) => {
                udp_proxy.give(&datagram, listeners, *now)
            }
            SocketEvent::Datagram(datagram) => match routes.way(datagram.local, *now) {
                Some(Destination::Resolver) => {
                    questions.process(&datagram, &mut DnsContext { poll, routes, stack, sink: host_port, now: *now })
                }
                Some(Destination::Host(to)) => {
                    udp_proxy.open(poll, &datagram, to, *now);
                    udp_proxy.give(&datagram, listeners, *now);
                }
                None => {}
            },
            SocketEvent::Message(message) => udp_proxy.ask(&message, *now),
            // As with any router, a sender on the host gets no error for a lost datagram.
            SocketEvent::Unreachable(_) => {}
        }
    }

    /// Accepts connections at forwards. Returns whether more are pending.
    fn accept(&mut self) -> bool {
        let mut accepted = 0;
        for index in 0..self.outside.listeners.len() {
            while self.outside.may_accept.get(index) == Some(&true) && self.outside.has_room() {
                if accepted == ACCEPTED {
                    return true;
                }
                accepted += 1;
                let Some(HostListener { socket, cell, .. }) = self.outside.listeners.get(index) else { break };
                let to = SocketAddr::new(self.inside.cell.into(), *cell);
                match accept_with(socket, sockets::FLAGS) {
                    Ok(socket) => {
                        // A socket without these options works all the same.
                        let _ = sockets::prepare(&socket);
                        let HostSide { poll, tcp_proxy, now, .. } = &mut self.outside;
                        let incoming = IncomingConnection { to, since: *now };
                        match tcp_proxy.insert_incoming(poll, socket, incoming) {
                            Ok(index) => self.connect_cell(index, incoming),
                            Err(_) => self.outside.unanswered += 1,
                        }
                    }
                    // The client has disconnected.
                    Err(Errno::CONNABORTED | Errno::INTR) => {}
                    // Without descriptors they stay in the backlog.
                    Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => break,
                    Err(_) => self.outside.may_accept.iter_mut().skip(index).take(1).for_each(|may_accept| *may_accept = false),
                }
            }
        }
        false
    }

    /// Connects to the cell on behalf of a forward's client.
    fn connect_cell(&mut self, index: usize, incoming: IncomingConnection) {
        let Engine { stack, outside, inside, .. } = self;
        for _ in PORTS {
            outside.port = if outside.port == *PORTS.end() { *PORTS.start() } else { outside.port + 1 };
            let tuple = Tuple { local: SocketAddr::new(inside.address4.into(), outside.port), remote: incoming.to };
            match stack.connect(tuple, TcpOptions { no_delay: true, ..TcpOptions::default() }, outside.now) {
                Ok(id) => return outside.tcp_proxy.set_connecting_cell(index, id, incoming),
                Err(pando_stack::Error::InUse) => {}
                Err(_) => break,
            }
        }
        outside.unanswered += 1;
        outside.tcp_proxy.abandon(index);
    }
}

impl HostSide {
    fn has_room(&self) -> bool {
        self.tcp_proxy.len() + self.questions.len() < self.most
    }
}
