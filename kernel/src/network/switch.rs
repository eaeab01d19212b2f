// SPDX-License-Identifier: MIT OR Apache-2.0
//! A switch: ports, who is at them, and which way a frame goes.
//!
//! Where cells are it knows; where the hosts behind stations are it learns from what they send. A frame for an address that it does not know goes to the stations, because no cell has it; one for
//! several goes to everybody.

use super::address::{Addresses, Mac};
use super::guard::{is_honest, shows_all};
use super::link::{Crossing, Link, Wire};
use super::listener::Listeners;
use super::queue::{PacketScheduler, RoundRobin};
use super::{NetworkConfig, Owner, Wake};
use crate::cell::CellId;
use crate::cell::traffic::Traffic;
use crate::limits::{CARD_PIECE, LEARNED_ADDRESSES};
use bytes::Bytes;
use pando_abi::frame::ETHERNET_HEADER;
use pando_machine::Nanos;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The index of no port: there are not so many.
const NOBODY: u32 = u32::MAX;

/// What is plugged in somewhere.
struct Port {
    owner: Owner,
    /// Which of those that were ever plugged in it is.
    serial: u64,
    /// What it may send in the name of; `None`: anybody's.
    addresses: Option<Addresses>,
    wire: Wire,
    queue: Box<dyn PacketScheduler>,
    traffic: Traffic,
}

/// A frame that is on its way.
pub(super) struct Delayed {
    arrival: Nanos,
    /// Which of those that arrive at once is first.
    order: u64,
    sender: u32,
    /// Which sender there: frames outlive whoever sent them.
    serial: u64,
    /// Bytes that it takes of its link; a double takes none.
    taken: usize,
    frame: Bytes,
}

impl Delayed {
    fn key(&self) -> (Nanos, u64) {
        (self.arrival, self.order)
    }
}

impl PartialEq for Delayed {
    fn eq(&self, other: &Delayed) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Delayed {}

impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Delayed) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Delayed {
    fn cmp(&self, other: &Delayed) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// One network.
pub(super) struct Switch {
    config: NetworkConfig,
    ports: Vec<Option<Port>>,
    free: Vec<u32>,
    /// Where stations are: they hear what is for nobody known.
    stations: Vec<u32>,
    /// Who hears everything.
    pub(super) listeners: Listeners,
    /// Where addresses are.
    places: HashMap<Mac, u32>,
    /// How many of them were learned.
    learned: usize,
    delayed: BinaryHeap<Reverse<Delayed>>,
    /// Frames that were delayed so far.
    order: u64,
    /// How many were plugged in so far.
    plugged: u64,
}

impl Switch {
    pub(super) fn new(config: NetworkConfig) -> Switch {
        Switch {
            config,
            ports: Vec::new(),
            free: Vec::new(),
            stations: Vec::new(),
            listeners: Listeners::default(),
            places: HashMap::new(),
            learned: 0,
            delayed: BinaryHeap::new(),
            order: 0,
            plugged: 0,
        }
    }

    /// The addresses that are kept for who leads out, and the bytes of the largest packet.
    pub(super) fn router(&self) -> (Addresses, u16) {
        (self.config.pool.router(), self.config.mtu)
    }

    fn insert(&mut self, owner: Owner, link: Link) -> Option<(u32, Addresses)> {
        let index = self.free.pop().unwrap_or(self.ports.len() as u32);
        let addresses = self.config.pool.port(index)?;
        if index as usize == self.ports.len() {
            self.ports.push(None);
        }
        let guarded = matches!(owner, Owner::Cell(_)).then_some(addresses);
        let wire = Wire::new(link, self.config.seed.wrapping_add(index.into()));
        let queue = Box::<RoundRobin>::default();
        self.plugged += 1;
        let (serial, traffic) = (self.plugged, Traffic::default());
        self.ports[index as usize] = Some(Port { owner, serial, addresses: guarded, wire, queue, traffic });
        Some((index, addresses))
    }

    pub(super) fn plug(&mut self, cell: CellId, link: Link) -> Option<(u32, Addresses)> {
        let (index, addresses) = self.insert(Owner::Cell(cell), link)?;
        if self.places.insert(addresses.mac, index).is_some() {
            // Somebody behind a station had said that it was there.
            self.learned -= 1;
        }
        Some((index, addresses))
    }

    pub(super) fn plug_station(&mut self, wake: Wake, link: Link) -> Option<u32> {
        let (index, _) = self.insert(Owner::Station(wake), link)?;
        self.stations.push(index);
        Some(index)
    }

    pub(super) fn unplug(&mut self, index: u32) -> Traffic {
        let traffic = self.traffic(index);
        let Some(port) = self.ports.get_mut(index as usize).and_then(Option::take) else { return traffic };
        self.free.push(index);
        match port.addresses {
            Some(own) => {
                self.places.remove(&own.mac);
            }
            None => {
                let before = self.places.len();
                self.stations.retain(|station| *station != index);
                self.places.retain(|_, place| *place != index);
                self.learned -= before - self.places.len();
            }
        }
        traffic
    }

    /// Whether nobody is plugged in, and nobody listens.
    pub(super) fn is_idle(&self) -> bool {
        self.ports.iter().all(Option::is_none) && self.listeners.is_empty()
    }

    fn port(&mut self, index: u32) -> Option<&mut Port> {
        self.ports.get_mut(index as usize)?.as_mut()
    }

    pub(super) fn traffic(&self, index: u32) -> Traffic {
        let port = self.ports.get(index as usize).and_then(Option::as_ref);
        port.map(|port| Traffic { waiting: port.queue.waiting(), under_way: port.wire.under_way as u64, ..port.traffic })
            .unwrap_or_default()
    }

    pub(super) fn peek(&self, index: u32) -> Option<&Bytes> {
        self.ports.get(index as usize)?.as_ref()?.queue.peek()
    }

    pub(super) fn take(&mut self, index: u32) -> Option<Bytes> {
        let port = self.port(index)?;
        let frame = port.queue.pop()?;
        port.traffic.received.add(frame.len());
        Some(frame)
    }

    pub(super) fn drop_large(&mut self, index: u32) {
        if let Some(port) = self.port(index)
            && port.queue.pop().is_some()
        {
            port.traffic.overrun += 1;
        }
    }

    /// The cell to whose memory a frame of so many bytes that begins with `head` may go at once, and its port: one frame for one cell, which nothing delays, nobody else hears, and nothing waits before.
    pub(super) fn shortcut(&self, index: u32, head: &[u8], length: usize) -> Option<(u32, &Owner)> {
        let port = |index: u32| self.ports.get(index as usize)?.as_ref();
        let sender = port(index)?;
        let is_sound = (ETHERNET_HEADER..=self.largest()).contains(&length) && shows_all(head);
        let is_honest = sender.addresses.is_some_and(|own| is_honest(head, &own));
        if !is_sound || !is_honest || !sender.wire.is_perfect() || !self.listeners.is_empty() {
            return None;
        }
        let place = *self.places.get(&Mac(*head.first_chunk()?))?;
        let Port { owner, queue, .. } = port(place)?;
        (place != index && matches!(owner, Owner::Cell(_)) && queue.peek().is_none()).then_some((place, owner))
    }

    /// A frame of so many bytes has gone that way. Returns who has it.
    pub(super) fn note_shortcut(&mut self, from: u32, to: u32, length: usize) -> Option<CellId> {
        self.port(from)?.traffic.sent.add(length);
        let Port { owner, traffic, .. } = self.port(to)?;
        traffic.received.add(length);
        if let Owner::Cell(cell) = owner { Some(*cell) } else { None }
    }

    /// Bytes of the largest frame.
    fn largest(&self) -> usize {
        ETHERNET_HEADER + usize::from(self.config.mtu)
    }

    /// A frame comes in at a port: past its guard and over its link. Returns how many ports it may go to.
    pub(super) fn send(&mut self, index: u32, frame: Bytes, now: Nanos, woken: &mut Vec<CellId>) -> usize {
        let goes_to = if frame.first().is_some_and(|first| first & 1 != 0) { self.ports.len() } else { 1 + self.stations.len() };
        let goes_to = goes_to + self.listeners.len();
        self.let_in(index, frame, now, woken);
        goes_to
    }

    fn let_in(&mut self, index: u32, frame: Bytes, now: Nanos, woken: &mut Vec<CellId>) {
        let largest = self.largest();
        let Some(port) = self.port(index) else { return };
        port.traffic.sent.add(frame.len());
        if !(ETHERNET_HEADER..=largest).contains(&frame.len()) {
            port.traffic.lost += 1;
            return;
        }
        if port.addresses.is_some_and(|own| !is_honest(&frame, &own)) {
            port.traffic.spoofed += 1;
            return;
        }
        match port.wire.cross(frame.len(), now) {
            Crossing::Now => self.forward(index, &frame, now, woken),
            Crossing::Later(arrival, again) => {
                port.wire.under_way += frame.len();
                let (serial, taken) = (port.serial, frame.len());
                self.delay(Delayed { arrival, order: 0, sender: index, serial, taken, frame: frame.clone() });
                if let Some(arrival) = again {
                    self.delay(Delayed { arrival, order: 0, sender: index, serial, taken: 0, frame });
                }
            }
            Crossing::Lost | Crossing::Full => port.traffic.lost += 1,
        }
    }

    fn delay(&mut self, delayed: Delayed) {
        self.order += 1;
        self.delayed.push(Reverse(Delayed { order: self.order, ..delayed }));
    }

    pub(super) fn next_arrival(&self) -> Option<Nanos> {
        self.delayed.peek().map(|Reverse(delayed)| delayed.arrival)
    }

    pub(super) fn advance(&mut self, now: Nanos, woken: &mut Vec<CellId>) {
        // What is left is due at once, after a pause for others.
        let mut budget = CARD_PIECE;
        while budget > 0
            && self.next_arrival().is_some_and(|arrival| arrival <= now)
            && let Some(Reverse(Delayed { sender, serial, taken, frame, .. })) = self.delayed.pop()
        {
            budget -= 1;
            match self.port(sender).filter(|port| port.serial == serial) {
                Some(port) => {
                    port.wire.under_way -= taken;
                    self.forward(sender, &frame, now, woken);
                }
                // Whoever sent it has gone, and it may be the last of what it said.
                None => self.forward(NOBODY, &frame, now, woken),
            }
        }
    }

    /// Puts a frame where it is to go.
    fn forward(&mut self, sender: u32, frame: &Bytes, now: Nanos, woken: &mut Vec<CellId>) {
        let Some((target, rest)) = frame.split_first_chunk::<6>() else { return };
        let Some(source) = rest.first_chunk::<6>() else { return };
        let (target, source) = (Mac(*target), Mac(*source));
        self.listeners.hear(frame, now);
        self.learn(source, sender);
        let known = self.places.get(&target).copied().filter(|_| !target.is_group());
        // A question about one cell's address disturbs no other.
        match known.or_else(|| self.asked(frame)) {
            Some(place) => self.deliver(place, sender, frame, woken),
            None if target.is_group() => (0..self.ports.len() as u32).for_each(|index| self.deliver(index, sender, frame, woken)),
            None => (0..self.stations.len()).for_each(|at| self.deliver(self.stations[at], sender, frame, woken)),
        }
    }

    /// The port of the cell that a frame asks for: whose address it has.
    fn asked(&self, frame: &[u8]) -> Option<u32> {
        let index = self.config.pool.index(question(frame)?)?;
        self.ports.get(index as usize)?.as_ref().filter(|port| port.addresses.is_some()).map(|_| index)
    }

    /// Puts a frame into a port's queue, and tells who is there if nothing waited before.
    fn deliver(&mut self, index: u32, sender: u32, frame: &Bytes, woken: &mut Vec<CellId>) {
        if index == sender {
            return;
        }
        let Some(port) = self.port(index) else { return };
        let was_empty = port.queue.peek().is_none();
        port.traffic.overrun += port.queue.push(sender, frame.clone());
        port.traffic.most_waiting.raise(port.queue.waiting());
        match &port.owner {
            _ if !was_empty => {}
            Owner::Cell(cell) => woken.push(*cell),
            Owner::Station(wake) => wake(),
        }
    }

    /// Remembers where an address is, if that is behind a station.
    fn learn(&mut self, source: Mac, sender: u32) {
        if source.is_group() || !self.stations.contains(&sender) {
            return;
        }
        match self.places.get_mut(&source) {
            // Cells stay where they are.
            Some(place) if self.stations.contains(place) => *place = sender,
            Some(_) => {}
            None if self.learned < LEARNED_ADDRESSES => {
                self.learned += 1;
                self.places.insert(source, sender);
            }
            None => {}
        }
    }
}

/// The address that a frame asks after: of ARP, or of IPv6's neighbour solicitations.
fn question(frame: &[u8]) -> Option<IpAddr> {
    const SOLICITATION: u8 = 135;
    const ICMP6: u8 = 58;
    const REQUEST: [u8; 2] = [0, 1];
    let packet = frame.get(ETHERNET_HEADER..)?;
    match frame.get(12..ETHERNET_HEADER)? {
        [0x08, 0x06] if packet.get(6..8)? == REQUEST => Some(Ipv4Addr::from(*packet.get(24..28)?.first_chunk::<4>()?).into()),
        [0x86, 0xdd] if *packet.get(6)? == ICMP6 && *packet.get(40)? == SOLICITATION => {
            Some(Ipv6Addr::from(*packet.get(48..64)?.first_chunk::<16>()?).into())
        }
        _ => None,
    }
}
