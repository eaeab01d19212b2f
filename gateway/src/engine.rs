// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gateway's interface, and its event loop: handle events, forward data, transmit frames, wait.

use crate::dns_proxy::{DnsContext, DnsCounts, DnsProxy};
use crate::limits::{DRAIN_TIMEOUT, FULL_QUEUE_DELAY, MAX_ACCEPTS, MAX_CONNECTIONS, MAX_DNS_QUERIES, MAX_FLOWS, MAX_FRAMES, MAX_RESOLVERS};
use crate::listeners::{BindError, HostListener, find_duplicate};
use crate::poll::{Handle, Poll, Ready, Token, Wakeup};
use crate::proxy_state::IncomingConnection;
use crate::request_name::ClientProtocol;
use crate::routes::{Destination, RefusedDestination, Routes};
use crate::rules::Rules;
use crate::stack_counts::StackCounts;
use crate::tcp_proxy::{TcpProxy, TransferCounts, unreachable};
use crate::udp_proxy::{DatagramCounts, EPHEMERAL_PORTS, UdpProxy};
use crate::virtual_hosts::{RoutedClient, VirtualHostListener, VirtualHostProxy};
use crate::{FramePort, GatewayAddresses, NameDirectory, PortForward, Protocol, Rule, VirtualHosts, sockets};
use pando_stack::{Config, DatagramVerdict, Listeners, SocketEvent, Stack, SynRefusal, TcpOptions, Tuple, Unreachable, Verdict};
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
    pub tcp: TransferCounts,
    /// UDP datagrams.
    pub udp: DatagramCounts,
    /// DNS queries.
    pub dns: DnsCounts,
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
    pub refused: Vec<RefusedDestination>,
}

/// A gateway with all its host resources.
#[derive(Debug)]
pub struct Gateway {
    handle: Handle,
    listeners: Vec<HostListener>,
    virtual_hosts: Option<VirtualHostListener>,
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
        find_duplicate(forwards).map_or(Ok(()), Err)?;
        let listeners = forwards.iter().map(HostListener::bind).collect::<Result<Vec<_>, _>>()?;
        let handle = Handle::new().map_err(host)?;
        let resolvers = resolvers.into_iter().take(MAX_RESOLVERS).collect();
        Ok(Gateway { handle, listeners, virtual_hosts: None, rules: Rules::new(rules), resolvers, descriptors })
    }

    /// Listens for clients that choose their cell by name. [`Gateway::run_with_wakeup`] needs a directory for them.
    ///
    /// # Errors
    /// The host does not listen at this address.
    pub fn bind_virtual_hosts(&mut self, config: VirtualHosts) -> Result<(), BindError> {
        self.virtual_hosts = Some(VirtualHostListener::bind(config)?);
        Ok(())
    }

    /// The address of its virtual hosts, with the port that the host chose.
    #[must_use]
    pub fn virtual_hosts(&self) -> Option<SocketAddr> {
        self.virtual_hosts.as_ref().map(|listener| listener.config.address)
    }

    /// A handle that wakes and stops it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Its open descriptors, which a process that runs it must keep.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let named = self.virtual_hosts.iter().map(|listener| listener.socket.as_fd());
        self.listeners.iter().map(|listener| listener.socket.as_fd()).chain(named).chain([self.handle.event()])
    }

    /// Duplicates the gateway with its listening sockets, for a forked process.
    ///
    /// # Errors
    /// The host has no descriptors.
    pub fn duplicate(&self) -> std::io::Result<Gateway> {
        let Gateway { handle, listeners, virtual_hosts, rules, resolvers, descriptors } = self;
        let listeners = listeners.iter().map(HostListener::duplicate).collect::<Result<_, _>>()?;
        let virtual_hosts = virtual_hosts.as_ref().map(VirtualHostListener::duplicate).transpose()?;
        let (handle, rules, resolvers) = (handle.clone(), rules.clone(), resolvers.clone());
        Ok(Gateway { handle, listeners, virtual_hosts, rules, resolvers, descriptors: *descriptors })
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

    /// Runs until it is stopped. Reports the first few refused destinations and names to `report`, each once.
    ///
    /// # Errors
    /// Waiting for events fails.
    pub fn run(
        self,
        addresses: &GatewayAddresses,
        host_port: impl FramePort,
        report: impl FnMut(RefusedDestination),
    ) -> std::io::Result<GatewayReport> {
        let handle = self.handle.clone();
        self.run_with_wakeup(&handle, addresses, host_port, None, report)
    }

    /// [`Gateway::run`] for a gateway that `wakeup` wakes and stops, instead of its handle. `directory` knows the cells of virtual hosts.
    ///
    /// # Errors
    /// Those of [`Gateway::run`].
    pub fn run_with_wakeup(
        self,
        wakeup: &impl Wakeup,
        addresses: &GatewayAddresses,
        host_port: impl FramePort,
        directory: Option<&mut dyn NameDirectory>,
        report: impl FnMut(RefusedDestination),
    ) -> std::io::Result<GatewayReport> {
        let Gateway { handle: _, listeners, virtual_hosts, rules, resolvers, descriptors } = self;
        let poll = poll(&listeners, wakeup)?;
        let max_connections = MAX_CONNECTIONS.min(descriptors / 2);
        let virtual_hosts = VirtualHostProxy::new(&poll, virtual_hosts, directory, max_connections / 2)?;
        let host_side = HostSide {
            poll,
            routes: Routes::new(rules, addresses),
            tcp_proxy: TcpProxy::default(),
            udp_proxy: UdpProxy::new(addresses, MAX_FLOWS.min(descriptors / 4)),
            dns_proxy: DnsProxy::new(resolvers, MAX_DNS_QUERIES.min(descriptors / 8)),
            may_accept: listeners.iter().map(|listener| listener.protocol == Protocol::Tcp).collect(),
            listeners,
            max_connections,
            port: *EPHEMERAL_PORTS.start(),
            accepted_ports: BTreeSet::new(),
            unanswered: 0,
            now: 0,
        };
        let config = Config {
            addresses: vec![(addresses.address4.into(), addresses.prefix4), (addresses.address6.into(), addresses.prefix6)],
            mtu: addresses.mtu.into(),
            any_address: true,
            connections: max_connections,
            ..Config::new(addresses.mac, addresses.seed)
        };
        let mut engine = Engine {
            stack: Stack::new(config, 0),
            host_port,
            host_side,
            virtual_hosts,
            addresses: addresses.clone(),
            start: Instant::now(),
            is_tx_full: false,
            report,
        };
        engine.run(wakeup)?;
        engine.host_side.tcp_proxy.close();
        let HostSide { routes, tcp_proxy, udp_proxy, dns_proxy, unanswered, .. } = &engine.host_side;
        let (refused, first_refused) = routes.refused();
        let stack = engine.stack.counts();
        let counts =
            Counts { tcp: tcp_proxy.counts, udp: udp_proxy.counts, dns: dns_proxy.counts, refused, unanswered: *unanswered, stack };
        Ok(GatewayReport { counts, refused: first_refused })
    }
}

/// An epoll instance that watches the forwards and the wakeup event.
fn poll(listeners: &[HostListener], wakeup: &impl Wakeup) -> std::io::Result<Poll> {
    let poll = Poll::new()?;
    for (listener, index) in listeners.iter().zip(0..) {
        let (token, ready) = match listener.protocol {
            Protocol::Tcp => (Token::TcpForward(index), Ready::IN | Ready::ET),
            Protocol::Udp => (Token::UdpForward(index), Ready::IN),
        };
        poll.add(&listener.socket, token, ready)?;
    }
    // Each write is an edge, so the event need not be read.
    poll.add(wakeup.event(), Token::Waker, Ready::IN | Ready::ET)?;
    Ok(poll)
}

/// The gateway's state besides the stack and its host port.
struct HostSide {
    poll: Poll,
    routes: Routes,
    tcp_proxy: TcpProxy,
    udp_proxy: UdpProxy,
    dns_proxy: DnsProxy,
    listeners: Vec<HostListener>,
    /// Whether each listener may have connections to accept.
    may_accept: Vec<bool>,
    max_connections: usize,
    /// The source port of the last connection to a cell.
    port: u16,
    /// Ports at which the cell has accepted a connection before.
    accepted_ports: BTreeSet<u16>,
    unanswered: u64,
    now: u64,
}

struct Engine<'a, S, T> {
    stack: Stack,
    host_port: S,
    host_side: HostSide,
    virtual_hosts: VirtualHostProxy<'a>,
    addresses: GatewayAddresses,
    start: Instant,
    /// The host port's queue was full.
    is_tx_full: bool,
    /// The callback for refused destinations.
    report: T,
}

impl Listeners for HostSide {
    fn admits(&mut self, tuple: &Tuple) -> Verdict {
        match self.tcp_proxy.half_open(tuple) {
            Some(true) => return Verdict::Admit,
            Some(false) => return Verdict::Hold,
            None => {}
        }
        match self.routes.route(tuple.local, self.now) {
            None => Verdict::Refuse(SynRefusal::Unreachable(Unreachable::AdminProhibited)),
            Some(_) if self.tcp_proxy.len() + self.dns_proxy.len() >= self.max_connections => Verdict::Ignore,
            Some(Destination::Resolver) => Verdict::Admit,
            Some(Destination::Host(to)) => {
                self.tcp_proxy.connect_host(&self.poll, *tuple, to).map_or_else(Verdict::Refuse, |()| Verdict::Hold)
            }
        }
    }

    fn accepts_datagram(&mut self, local: SocketAddr, remote: SocketAddr) -> DatagramVerdict {
        if self.udp_proxy.has_flow(&(local, remote)) || self.routes.route(local, self.now).is_some() {
            DatagramVerdict::Accepted
        } else {
            DatagramVerdict::Closed
        }
    }

    fn accepts_echo(&mut self, local: IpAddr, remote: SocketAddr) -> Result<(), Unreachable> {
        if !self.routes.admit_echo(local, self.now) {
            return Err(Unreachable::AdminProhibited);
        }
        self.udp_proxy.open_echo_flow(&self.poll, local, remote, self.now).map_err(|errno| {
            // The host may return the same error for one destination, such as a broadcast address.
            if errno == Errno::ACCESS && sockets::echo_socket(local).err() == Some(Errno::ACCESS) {
                self.routes.note_echo_forbidden();
            }
            unreachable(errno).unwrap_or(Unreachable::Host)
        })
    }
}

impl<S: FramePort, T: FnMut(RefusedDestination)> Engine<'_, S, T> {
    fn run(&mut self, wakeup: &impl Wakeup) -> std::io::Result<()> {
        let mut drain_deadline = None;
        let mut has_more = true;
        loop {
            let timeout = if has_more { Some(Duration::ZERO) } else { self.timeout(drain_deadline) };
            let events = self.host_side.poll.wait(timeout)?;
            let stopped = wakeup.take_stop_request();
            self.host_side.now = self.start.elapsed().as_nanos() as u64;
            for (token, ready) in events {
                self.process(token, ready)?;
            }
            has_more = self.run_once();
            while let Some(refused) = self.host_side.routes.unreported() {
                (self.report)(refused);
            }
            let now = self.host_side.now;
            if stopped && drain_deadline.is_none() {
                drain_deadline = Some(now.saturating_add(DRAIN_TIMEOUT.as_nanos() as u64));
            }
            if drain_deadline.is_some_and(|last| !has_more && self.host_side.tcp_proxy.is_idle(&self.stack) || now >= last) {
                return Ok(());
            }
        }
    }

    /// The time until the next timer; `None` if there is none.
    fn timeout(&self, drain_deadline: Option<u64>) -> Option<Duration> {
        let host_side = &self.host_side;
        let HostSide { tcp_proxy, udp_proxy, dns_proxy, .. } = host_side;
        let tx_deadline =
            if self.is_tx_full { Some(host_side.now.saturating_add(FULL_QUEUE_DELAY.as_nanos() as u64)) } else { self.stack.deadline() };
        let named_deadline = self.virtual_hosts.deadline();
        let deadlines = [tx_deadline, tcp_proxy.deadline(), udp_proxy.deadline(), dns_proxy.deadline(), named_deadline, drain_deadline];
        let first = deadlines.into_iter().flatten().min()?;
        Some(Duration::from_nanos(first.saturating_sub(self.start.elapsed().as_nanos() as u64)))
    }

    /// Handles a descriptor's events.
    ///
    /// # Errors
    /// The directory of cells cannot be reached any more.
    fn process(&mut self, token: Token, ready: Ready) -> std::io::Result<()> {
        let Engine { stack, host_port, host_side, virtual_hosts, .. } = self;
        let now = host_side.now;
        match token {
            Token::Waker => {}
            Token::TcpForward(index) => {
                host_side.may_accept.iter_mut().skip(index as usize).take(1).for_each(|may_accept| *may_accept = true)
            }
            Token::Proxy(index) => host_side.tcp_proxy.process(index as usize, ready, stack, host_port, now),
            Token::Flow(index) => host_side.udp_proxy.process_ready(index as usize, stack, host_port, now),
            Token::UdpForward(index) => {
                let number = index as usize;
                if let Some(listener) = host_side.listeners.get(number) {
                    host_side.udp_proxy.process(number, listener, stack, host_port, now);
                }
            }
            Token::DnsQuery(index) => {
                let HostSide { poll, routes, dns_proxy, .. } = host_side;
                dns_proxy.process_ready(index as usize, &mut DnsContext { poll, routes, stack, sink: host_port, now });
            }
            Token::VirtualHosts => virtual_hosts.note_connections(),
            Token::VirtualHostClient(index) => virtual_hosts.process(index as usize, ready, now),
            Token::Directory => virtual_hosts.process_answers(&host_side.poll, now)?,
        }
        Ok(())
    }

    /// Does a bounded part of all pending work. Returns whether there is more.
    fn run_once(&mut self) -> bool {
        let mut frames = 0;
        while frames < MAX_FRAMES
            && let Some(frame) = self.host_port.receive()
        {
            let Engine { stack, host_port, host_side, addresses, .. } = self;
            if !addresses.serve_dhcp(frame.as_ref(), host_port) {
                stack.receive_frame(frame.as_ref(), host_side.now, host_side, host_port);
            }
            frames += 1;
        }
        let may_accept = self.accept() | self.accept_by_name();
        while let Some((index, incoming)) = self.host_side.tcp_proxy.next_retry(self.host_side.now) {
            match incoming.by_name {
                None => self.connect_cell(index, incoming),
                Some(protocol) => self.look_up_again(index, protocol, incoming.since),
            }
        }
        self.expire();
        self.process_events();
        let Engine { stack, host_port, host_side, .. } = self;
        let has_tcp_work = host_side.tcp_proxy.run(stack, host_side.now);
        let HostSide { poll, routes, dns_proxy, now, .. } = host_side;
        let has_dns_work = dns_proxy.run(&mut DnsContext { poll, routes, stack, sink: host_port, now: *now });
        self.is_tx_full = !stack.run(host_side.now, host_port);
        host_port.flush();
        self.process_events();
        frames == MAX_FRAMES || may_accept || has_tcp_work || has_dns_work || self.host_side.tcp_proxy.is_ready()
    }

    fn expire(&mut self) {
        let Engine { stack, host_port, host_side, virtual_hosts, .. } = self;
        let HostSide { poll, routes, tcp_proxy, udp_proxy, dns_proxy, now, .. } = host_side;
        virtual_hosts.expire(*now);
        tcp_proxy.expire(*now);
        udp_proxy.expire(*now);
        dns_proxy.expire(&mut DnsContext { poll, routes, stack, sink: host_port, now: *now });
    }

    fn process_events(&mut self) {
        while let Some(event) = self.stack.next_event() {
            self.process_event(event);
        }
    }

    fn process_event(&mut self, event: SocketEvent) {
        let Engine { stack, host_port, host_side, virtual_hosts, .. } = self;
        let HostSide { poll, routes, tcp_proxy, udp_proxy, dns_proxy, listeners, unanswered, accepted_ports, now, .. } = host_side;
        match event {
            SocketEvent::Accepted(id) => match stack.tuple(id) {
                Some(tuple) if routes.is_resolver(tuple.local) => dns_proxy.open(id, stack),
                Some(tuple) => tcp_proxy.handle_accepted(id, &tuple, stack),
                None => {}
            },
            SocketEvent::Opened(id) => accepted_ports.extend(tcp_proxy.handle_opened(id, stack)),
            SocketEvent::Readable(id) | SocketEvent::Writable(id) => {
                tcp_proxy.wake(id);
                dns_proxy.serve(id, &mut DnsContext { poll, routes, stack, sink: host_port, now: *now });
            }
            // Its server may be about to start.
            SocketEvent::Failed(id, _) if tcp_proxy.retry_later(id, accepted_ports, *now) => {}
            SocketEvent::Failed(id, _) => {
                *unanswered += u64::from(tcp_proxy.is_connecting_cell(id));
                match tcp_proxy.take_unaccepted(id, poll) {
                    Some((socket, protocol)) => {
                        stack.abort(id);
                        virtual_hosts.return_client(poll, socket, protocol, *now);
                    }
                    None => tcp_proxy.handle_failed(id, stack, *now),
                }
                dns_proxy.close(id, stack);
            }
            SocketEvent::Closed(id) => {
                tcp_proxy.handle_closed(id);
                dns_proxy.close(id, stack);
            }
            SocketEvent::Datagram(datagram) if udp_proxy.has_flow(&(datagram.local, datagram.remote)) => {
                udp_proxy.forward(&datagram, listeners, *now)
            }
            SocketEvent::Datagram(datagram) => match routes.route(datagram.local, *now) {
                Some(Destination::Resolver) => {
                    dns_proxy.process(&datagram, &mut DnsContext { poll, routes, stack, sink: host_port, now: *now })
                }
                Some(Destination::Host(to)) => {
                    udp_proxy.open(poll, &datagram, to, *now);
                    udp_proxy.forward(&datagram, listeners, *now);
                }
                None => {}
            },
            SocketEvent::Message(message) => udp_proxy.forward_echo(&message, *now),
            // As with any router, a sender on the host gets no error for a lost datagram.
            SocketEvent::Unreachable(_) => {}
        }
    }

    /// Accepts connections at forwards. Returns whether more are pending.
    fn accept(&mut self) -> bool {
        let mut accepted = 0;
        for index in 0..self.host_side.listeners.len() {
            while self.host_side.may_accept.get(index) == Some(&true) && self.host_side.has_room() {
                if accepted == MAX_ACCEPTS {
                    return true;
                }
                accepted += 1;
                let Some(HostListener { socket, cell, .. }) = self.host_side.listeners.get(index) else { break };
                let to = SocketAddr::new(self.addresses.cell.into(), *cell);
                match accept_with(socket, sockets::FLAGS) {
                    Ok(socket) => {
                        // A socket without these options works all the same.
                        let _ = sockets::prepare(&socket);
                        let HostSide { poll, tcp_proxy, now, .. } = &mut self.host_side;
                        let incoming = IncomingConnection { to, since: *now, by_name: None };
                        match tcp_proxy.insert_incoming(poll, socket, incoming) {
                            Ok(index) => self.connect_cell(index, incoming),
                            Err(_) => self.host_side.unanswered += 1,
                        }
                    }
                    // The client has disconnected.
                    Err(Errno::CONNABORTED | Errno::INTR) => {}
                    // Without descriptors they stay in the backlog.
                    Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => break,
                    Err(_) => self.host_side.may_accept.iter_mut().skip(index).take(1).for_each(|may_accept| *may_accept = false),
                }
            }
        }
        false
    }

    /// Accepts clients of virtual hosts, and connects those whose cells are known. Returns whether more are pending.
    fn accept_by_name(&mut self) -> bool {
        let used = self.host_side.connections() + self.virtual_hosts.len();
        let room = self.host_side.max_connections.saturating_sub(used);
        let may_accept = self.virtual_hosts.accept(&self.host_side.poll, room, self.host_side.now);
        while let Some(RoutedClient { socket, to, protocol, since }) = self.virtual_hosts.next_routed() {
            let HostSide { poll, tcp_proxy, now, .. } = &mut self.host_side;
            let incoming = IncomingConnection { to, since: since.unwrap_or(*now), by_name: Some(protocol) };
            match tcp_proxy.insert_incoming(poll, socket, incoming) {
                Ok(index) => self.connect_cell(index, incoming),
                Err(_) => self.host_side.unanswered += 1,
            }
        }
        may_accept
    }

    /// Looks up the cell of a client whose cell has refused it so far: it may have ended, and another one may have its address.
    fn look_up_again(&mut self, index: usize, protocol: ClientProtocol, since: u64) {
        let HostSide { poll, tcp_proxy, now, .. } = &mut self.host_side;
        match tcp_proxy.take_waiting(index, poll) {
            Some(socket) => self.virtual_hosts.retry_client(poll, socket, protocol, since, *now),
            None => tcp_proxy.abandon(index),
        }
    }

    /// Connects to the cell on behalf of a forward's client.
    fn connect_cell(&mut self, index: usize, incoming: IncomingConnection) {
        let Engine { stack, host_side, addresses, .. } = self;
        for _ in EPHEMERAL_PORTS {
            host_side.port = if host_side.port == *EPHEMERAL_PORTS.end() { *EPHEMERAL_PORTS.start() } else { host_side.port + 1 };
            let tuple = Tuple { local: SocketAddr::new(addresses.address4.into(), host_side.port), remote: incoming.to };
            match stack.connect(tuple, TcpOptions { no_delay: true, ..TcpOptions::default() }, host_side.now) {
                Ok(id) => return host_side.tcp_proxy.set_connecting_cell(index, id, incoming),
                Err(pando_stack::Error::InUse) => {}
                Err(_) => break,
            }
        }
        host_side.unanswered += 1;
        host_side.tcp_proxy.abandon(index);
    }
}

impl HostSide {
    fn has_room(&self) -> bool {
        self.connections() < self.max_connections
    }

    fn connections(&self) -> usize {
        self.tcp_proxy.len() + self.dns_proxy.len()
    }
}
