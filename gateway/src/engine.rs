// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gateway as its user sees it, and its loop: hear what has happened, carry what there is to carry, say what there is to say, wait.

use crate::flows::{Datagrams, Flows, PORTS};
use crate::limits::{ACCEPTED, FRAMES, FULL, LAST_WORDS, MAX_CONNECTIONS, MAX_FLOWS, MAX_QUESTIONS, MAX_RESOLVERS};
use crate::listeners::{BindError, Listener, twice};
use crate::poll::{Handle, Poll, Ready, Token};
use crate::questions::{Asking, Means, Questions};
use crate::rules::Rules;
use crate::splices::{Call, Carried, Splices, obstacle};
use crate::world::{Refused, Way, World};
use crate::{Forward, Inside, Protocol, Rule, Station, sockets};
use pando_stack::{Config, Doorkeeper, Happening, Hearing, Obstacle, Refusal, Stack, TcpOptions, Tuple, Verdict};
use rustix::io::Errno;
use rustix::net::accept_with;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// What the gateway did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By connections.
    pub carried: Carried,
    /// By datagrams.
    pub datagrams: Datagrams,
    /// About names.
    pub asking: Asking,
    /// Destinations that no rule opens.
    pub refused: u64,
    /// Connections of the host that the cell did not take.
    pub unanswered: u64,
    /// What its stack did.
    pub stack: pando_stack::Counts,
}

/// What is to be said of a gateway at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What it did.
    pub counts: Counts,
    /// The first few destinations that it refused.
    pub refused: Vec<Refused>,
}

/// A gateway that has all that it needs of the host.
#[derive(Debug)]
pub struct Gateway {
    poll: Poll,
    handle: Handle,
    listeners: Vec<Listener>,
    rules: Rules,
    resolvers: Vec<SocketAddr>,
    /// Descriptors that it may use.
    descriptors: usize,
}

impl Gateway {
    /// Listens where forwards begin. Nothing is taken from there before [`Gateway::run`]. It uses at most so many descriptors of the process besides those of forwards: half of them for connections,
    /// a quarter for conversations by datagrams, an eighth for questions.
    ///
    /// # Errors
    /// A forward cannot listen, or the host has no descriptors.
    pub fn bind(forwards: &[Forward], rules: Vec<Rule>, resolvers: Vec<SocketAddr>, descriptors: usize) -> Result<Gateway, BindError> {
        let host = |error: std::io::Error| BindError::Host(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        twice(forwards).map_or(Ok(()), Err)?;
        let listeners = forwards.iter().map(Listener::bind).collect::<Result<Vec<_>, _>>()?;
        let poll = Poll::new().map_err(host)?;
        for (listener, index) in listeners.iter().zip(0..) {
            let (token, ready) = match listener.protocol {
                Protocol::Tcp => (Token::Listener(index), Ready::IN | Ready::ET),
                Protocol::Udp => (Token::Datagrams(index), Ready::IN),
            };
            poll.add(&listener.socket, token, ready).map_err(host)?;
        }
        let handle = Handle::new().map_err(host)?;
        // Each time that it is written is an edge, so nobody needs to read it.
        poll.add(handle.event(), Token::Waker, Ready::IN | Ready::ET).map_err(host)?;
        let resolvers = resolvers.into_iter().take(MAX_RESOLVERS).collect();
        Ok(Gateway { poll, handle, listeners, rules: Rules::new(rules), resolvers, descriptors })
    }

    /// What wakes and stops it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The forwards, in their order, each with where it listens.
    pub fn forwards(&self) -> impl Iterator<Item = Forward> {
        self.listeners.iter().map(|&Listener { address: host, cell, protocol, .. }| Forward { host, cell, protocol })
    }

    /// The ports to which the process must be able to connect by TCP; nothing if that may be any.
    #[must_use]
    pub fn ports(&self) -> Option<Vec<u16>> {
        let mut ports = self.rules.ports()?;
        ports.extend(self.resolvers.iter().map(SocketAddr::port));
        Some(ports)
    }

    /// Carries, until it is told to stop; says to `told` what it refuses, the first few destinations and names, each once.
    ///
    /// # Errors
    /// The host does not let it wait.
    pub fn run(self, inside: &Inside, station: impl Station, told: impl FnMut(Refused)) -> std::io::Result<Report> {
        let Gateway { poll, handle, listeners, rules, resolvers, descriptors } = self;
        let most = MAX_CONNECTIONS.min(descriptors / 2);
        let outside = Outside {
            poll,
            world: World::new(rules, inside),
            splices: Splices::default(),
            flows: Flows::new(inside, MAX_FLOWS.min(descriptors / 4)),
            questions: Questions::new(resolvers, MAX_QUESTIONS.min(descriptors / 8)),
            ringing: listeners.iter().map(|listener| listener.protocol == Protocol::Tcp).collect(),
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
            Engine { stack: Stack::new(config, 0), station, outside, inside: inside.clone(), start: Instant::now(), full: false, told };
        engine.run(&handle)?;
        engine.outside.splices.close();
        let Outside { world, splices, flows, questions, unanswered, .. } = &engine.outside;
        let (refused, told) = world.refused();
        let stack = engine.stack.counts();
        let counts = Counts {
            carried: splices.carried,
            datagrams: flows.carried,
            asking: questions.asking,
            refused,
            unanswered: *unanswered,
            stack,
        };
        Ok(Report { counts, refused: told })
    }
}

/// All but the stack and its station.
struct Outside {
    poll: Poll,
    world: World,
    splices: Splices,
    flows: Flows,
    questions: Questions,
    listeners: Vec<Listener>,
    /// At which of them connections may wait.
    ringing: Vec<bool>,
    most: usize,
    /// The port from which a cell was called last.
    port: u16,
    /// Ports at which the cell has answered once.
    answered: BTreeSet<u16>,
    unanswered: u64,
    now: u64,
}

struct Engine<S, T> {
    stack: Stack,
    station: S,
    outside: Outside,
    inside: Inside,
    start: Instant,
    /// The station had no room for all that was to be said.
    full: bool,
    /// Whom to tell what is refused.
    told: T,
}

impl Doorkeeper for Outside {
    fn admits(&mut self, tuple: &Tuple) -> Verdict {
        match self.splices.stranger(tuple) {
            Some(true) => return Verdict::Admit,
            Some(false) => return Verdict::Hold,
            None => {}
        }
        match self.world.way(tuple.local, self.now) {
            None => Verdict::Refuse(Refusal::Unreachable(Obstacle::Forbidden)),
            Some(_) if self.splices.len() + self.questions.len() >= self.most => Verdict::Ignore,
            Some(Way::Resolver) => Verdict::Admit,
            Some(Way::Host(to)) => self.splices.call(&self.poll, *tuple, to).map_or_else(Verdict::Refuse, |()| Verdict::Hold),
        }
    }

    fn hears(&mut self, local: SocketAddr, remote: SocketAddr) -> Hearing {
        if self.flows.knows(&(local, remote)) || self.world.way(local, self.now).is_some() { Hearing::Heard } else { Hearing::Nobody }
    }

    fn asks(&mut self, local: IpAddr, remote: SocketAddr) -> Result<(), Obstacle> {
        if !self.world.admit_echo(local, self.now) {
            return Err(Obstacle::Forbidden);
        }
        self.flows.open_echoes(&self.poll, local, remote, self.now).map_err(|errno| {
            // A single destination, like a broadcast address, may be refused by the same name: nothing is amiss with the host then.
            if errno == Errno::ACCESS && sockets::echoes(local).err() == Some(Errno::ACCESS) {
                self.world.cannot_ask();
            }
            obstacle(errno).unwrap_or(Obstacle::Host)
        })
    }
}

impl<S: Station, T: FnMut(Refused)> Engine<S, T> {
    fn run(&mut self, handle: &Handle) -> std::io::Result<()> {
        let mut last_words = None;
        let mut goes_on = true;
        loop {
            let most = if goes_on { Some(Duration::ZERO) } else { self.patience(last_words) };
            let events = self.outside.poll.wait(most)?;
            let stopped = handle.look();
            self.outside.now = self.start.elapsed().as_nanos() as u64;
            for (token, ready) in events {
                self.hear(token, ready);
            }
            goes_on = self.turn();
            while let Some(refused) = self.outside.world.untold() {
                (self.told)(refused);
            }
            let now = self.outside.now;
            if stopped && last_words.is_none() {
                last_words = Some(now.saturating_add(LAST_WORDS.as_nanos() as u64));
            }
            if last_words.is_some_and(|last| !goes_on && self.outside.splices.is_idle(&self.stack) || now >= last) {
                return Ok(());
            }
        }
    }

    /// How long nothing is due; nothing if nothing ever is.
    fn patience(&self, last_words: Option<u64>) -> Option<Duration> {
        let outside = &self.outside;
        let Outside { splices, flows, questions, .. } = outside;
        let saying = if self.full { Some(outside.now.saturating_add(FULL.as_nanos() as u64)) } else { self.stack.deadline() };
        let deadlines = [saying, splices.deadline(), flows.deadline(), questions.deadline(), last_words];
        let first = deadlines.into_iter().flatten().min()?;
        Some(Duration::from_nanos(first.saturating_sub(self.start.elapsed().as_nanos() as u64)))
    }

    /// A descriptor has something to say.
    fn hear(&mut self, token: Token, ready: Ready) {
        let Engine { stack, station, outside, .. } = self;
        let now = outside.now;
        match token {
            Token::Waker => {}
            Token::Listener(index) => outside.ringing.iter_mut().skip(index as usize).take(1).for_each(|ringing| *ringing = true),
            Token::Splice(index) => outside.splices.hear(index as usize, ready, stack, station, now),
            Token::Flow(index) => outside.flows.take(index as usize, stack, station, now),
            Token::Datagrams(index) => {
                let number = index as usize;
                if let Some(listener) = outside.listeners.get(number) {
                    outside.flows.hear(number, listener, stack, station, now);
                }
            }
            Token::Question(index) => {
                let Outside { poll, world, questions, .. } = outside;
                questions.take(index as usize, &mut Means { poll, world, stack, outlet: station, now });
            }
        }
    }

    /// Does what there is to do, each thing for a while. Whether there is more.
    fn turn(&mut self) -> bool {
        let mut frames = 0;
        while frames < FRAMES
            && let Some(frame) = self.station.receive()
        {
            let Engine { stack, station, outside, inside, .. } = self;
            if !inside.lease(frame.as_ref(), station) {
                stack.take(frame.as_ref(), outside.now, outside, station);
            }
            frames += 1;
        }
        let ringing = self.accept();
        while let Some((index, call)) = self.outside.splices.again(self.outside.now) {
            self.ring(index, call);
        }
        self.expire();
        self.happenings();
        let Engine { stack, station, outside, .. } = self;
        let carrying = outside.splices.run(stack, outside.now);
        let Outside { poll, world, questions, now, .. } = outside;
        let answering = questions.run(&mut Means { poll, world, stack, outlet: station, now: *now });
        self.full = !stack.run(outside.now, station);
        station.flush();
        self.happenings();
        frames == FRAMES || ringing || carrying || answering || self.outside.splices.is_ready()
    }

    fn expire(&mut self) {
        let Engine { stack, station, outside, .. } = self;
        let Outside { poll, world, splices, flows, questions, now, .. } = outside;
        splices.expire(*now);
        flows.expire(*now);
        questions.expire(&mut Means { poll, world, stack, outlet: station, now: *now });
    }

    fn happenings(&mut self) {
        while let Some(happening) = self.stack.next_happening() {
            self.happened(happening);
        }
    }

    fn happened(&mut self, happening: Happening) {
        let Engine { stack, station, outside, .. } = self;
        let Outside { poll, world, splices, flows, questions, listeners, unanswered, answered, now, .. } = outside;
        match happening {
            Happening::Accepted(id) => match stack.tuple(id) {
                Some(tuple) if world.is_resolver(tuple.local) => questions.open(id, stack),
                Some(tuple) => splices.accepted(id, &tuple, stack),
                None => {}
            },
            Happening::Opened(id) => answered.extend(splices.opened(id, stack)),
            Happening::Data(id) | Happening::Room(id) => {
                splices.wake(id);
                questions.serve(id, &mut Means { poll, world, stack, outlet: station, now: *now });
            }
            // Its server may be about to begin.
            Happening::Failed(id, _) if splices.hold(id, answered, *now) => {}
            Happening::Failed(id, _) => {
                *unanswered += u64::from(splices.is_ringing(id));
                splices.failed(id, stack, *now);
                questions.close(id, stack);
            }
            Happening::Closed(id) => {
                splices.closed(id);
                questions.close(id, stack);
            }
            Happening::Datagram(datagram) if flows.knows(&(datagram.local, datagram.remote)) => flows.give(&datagram, listeners, *now),
            Happening::Datagram(datagram) => match world.way(datagram.local, *now) {
                Some(Way::Resolver) => questions.hear(&datagram, &mut Means { poll, world, stack, outlet: station, now: *now }),
                Some(Way::Host(to)) => {
                    flows.open(poll, &datagram, to, *now);
                    flows.give(&datagram, listeners, *now);
                }
                None => {}
            },
            Happening::Message(message) => flows.ask(&message, *now),
            // Who spoke to the cell is told by nobody on the host's side that it was not heard, as with any router.
            Happening::Unreachable(_) => {}
        }
    }

    /// Takes connections that wait at forwards. Whether more do.
    fn accept(&mut self) -> bool {
        let mut accepted = 0;
        for index in 0..self.outside.listeners.len() {
            while self.outside.ringing.get(index) == Some(&true) && self.outside.has_room() {
                if accepted == ACCEPTED {
                    return true;
                }
                accepted += 1;
                let Some(Listener { socket, cell, .. }) = self.outside.listeners.get(index) else { break };
                let to = SocketAddr::new(self.inside.cell.into(), *cell);
                match accept_with(socket, sockets::FLAGS) {
                    Ok(socket) => {
                        // Who cannot be told what to do carries bytes all the same.
                        let _ = sockets::prepare(&socket);
                        let Outside { poll, splices, now, .. } = &mut self.outside;
                        let call = Call { to, since: *now };
                        match splices.wait(poll, socket, call) {
                            Ok(index) => self.ring(index, call),
                            Err(_) => self.outside.unanswered += 1,
                        }
                    }
                    // Whoever rang has gone again.
                    Err(Errno::CONNABORTED | Errno::INTR) => {}
                    // Without descriptors they wait until there are some.
                    Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => break,
                    Err(_) => self.outside.ringing.iter_mut().skip(index).take(1).for_each(|ringing| *ringing = false),
                }
            }
        }
        false
    }

    /// Calls the cell for somebody of the host.
    fn ring(&mut self, index: usize, call: Call) {
        let Engine { stack, outside, inside, .. } = self;
        for _ in PORTS {
            outside.port = if outside.port == *PORTS.end() { *PORTS.start() } else { outside.port + 1 };
            let tuple = Tuple { local: SocketAddr::new(inside.address4.into(), outside.port), remote: call.to };
            match stack.connect(tuple, TcpOptions { no_delay: true, ..TcpOptions::default() }, outside.now) {
                Ok(id) => return outside.splices.ring(index, id, call),
                Err(pando_stack::Error::InUse) => {}
                Err(_) => break,
            }
        }
        outside.unanswered += 1;
        outside.splices.give_up(index);
    }
}

impl Outside {
    fn has_room(&self) -> bool {
        self.splices.len() + self.questions.len() < self.most
    }
}
