// SPDX-License-Identifier: MIT OR Apache-2.0
//! A switch: its ports, their owners, and the forwarding of frames.
//!
//! The addresses of cells are known; those of hosts behind host ports are learned from the frames that they send. A frame for an
//! unknown address goes to the host ports, because no cell has it. A group address goes to every port whose cell is not asleep. An ARP
//! request or a neighbour solicitation goes to the cell with the requested address alone, and wakes it up if it is asleep. In an isolated
//! network, frames of cells go to host ports only.

use super::address::{Addresses, Mac};
use super::anti_spoofing::{contains_all_checked, passes_filter};
use super::link::{Forwarding, Link, LinkState};
use super::packet_capture::PacketCaptures;
use super::queue::{PacketScheduler, RoundRobin};
use super::{NetworkConfig, Owner, Wake};
use crate::cell::CellId;
use crate::cell::traffic::Traffic;
use crate::limits::{CARD_STEP, LEARNED_ADDRESSES, MAX_PORTS, PORT_REUSE_QUARANTINE};
use bytes::Bytes;
use pando_abi::frame::ETHERNET_HEADER;
use pando_machine::Nanos;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The index of no port: it is out of range.
const NO_PORT: u32 = u32::MAX;

/// A port in use.
struct Port {
    owner: Owner,
    /// Serial number of this use of the port.
    serial: u64,
    /// The only addresses that it may send from; `None`: any.
    addresses: Option<Addresses>,
    link: LinkState,
    queue: Box<dyn PacketScheduler>,
    traffic: Traffic,
    /// Its cell is asleep, and gets no group frames.
    is_asleep: bool,
}

/// A delayed frame.
pub(super) struct DelayedFrame {
    arrival: Nanos,
    /// Order among frames that arrive at the same time.
    order: u64,
    sender: u32,
    /// Serial number of the sender: a frame outlives its sender.
    serial: u64,
    /// Bytes that it takes on its link; a duplicate takes none.
    taken: usize,
    frame: Bytes,
}

impl DelayedFrame {
    fn key(&self) -> (Nanos, u64) {
        (self.arrival, self.order)
    }
}

impl PartialEq for DelayedFrame {
    fn eq(&self, other: &DelayedFrame) -> bool {
        self.key() == other.key()
    }
}

impl Eq for DelayedFrame {}

impl PartialOrd for DelayedFrame {
    fn partial_cmp(&self, other: &DelayedFrame) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DelayedFrame {
    fn cmp(&self, other: &DelayedFrame) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// One network.
pub(super) struct Switch {
    config: NetworkConfig,
    ports: Vec<Option<Port>>,
    free: VecDeque<u32>,
    /// Indices of the host ports, which receive frames for unknown addresses.
    host_ports: Vec<u32>,
    /// Packet captures.
    pub(super) captures: PacketCaptures,
    /// Port of each Ethernet address.
    mac_table: HashMap<Mac, u32>,
    /// How many of these were learned.
    learned: usize,
    delayed: BinaryHeap<Reverse<DelayedFrame>>,
    /// Number of frames delayed so far.
    order: u64,
    /// Number of ports plugged in so far.
    plugged: u64,
}

impl Switch {
    pub(super) fn new(config: NetworkConfig) -> Switch {
        Switch {
            config,
            ports: Vec::new(),
            free: VecDeque::new(),
            host_ports: Vec::new(),
            captures: PacketCaptures::default(),
            mac_table: HashMap::new(),
            learned: 0,
            delayed: BinaryHeap::new(),
            order: 0,
            plugged: 0,
        }
    }

    /// The router's addresses, and the MTU.
    pub(super) fn router(&self) -> (Addresses, u16) {
        (self.config.pool.router(), self.config.mtu)
    }

    fn insert(&mut self, owner: Owner, link: Link) -> Option<(u32, Addresses)> {
        // Connections to a cell that has ended must not reach the next one.
        let resting = if self.config.is_isolated && (self.ports.len() as u32) < MAX_PORTS { PORT_REUSE_QUARANTINE } else { 0 };
        let free = if self.free.len() > resting { self.free.pop_front() } else { None };
        let index = free.unwrap_or(self.ports.len() as u32);
        let addresses = self.config.pool.port(index)?;
        if index as usize == self.ports.len() {
            self.ports.push(None);
        }
        let filtered = matches!(owner, Owner::Cell(_)).then_some(addresses);
        let link = LinkState::new(link, self.config.seed.wrapping_add(index.into()));
        let queue = Box::<RoundRobin>::default();
        self.plugged += 1;
        let (serial, traffic) = (self.plugged, Traffic::default());
        self.ports[index as usize] = Some(Port { owner, serial, addresses: filtered, link, queue, traffic, is_asleep: false });
        Some((index, addresses))
    }

    pub(super) fn plug(&mut self, cell: CellId, link: Link) -> Option<(u32, Addresses)> {
        let (index, addresses) = self.insert(Owner::Cell(cell), link)?;
        if self.mac_table.insert(addresses.mac, index).is_some() {
            // A host behind a host port had used this address.
            self.learned -= 1;
        }
        Some((index, addresses))
    }

    pub(super) fn attach_host_port(&mut self, wake: Wake, link: Link) -> Option<u32> {
        let (index, _) = self.insert(Owner::HostPort(wake), link)?;
        self.host_ports.push(index);
        Some(index)
    }

    pub(super) fn unplug(&mut self, index: u32) -> Traffic {
        let traffic = self.traffic(index);
        let Some(port) = self.ports.get_mut(index as usize).and_then(Option::take) else { return traffic };
        self.free.push_back(index);
        match port.addresses {
            Some(own) => {
                self.mac_table.remove(&own.mac);
            }
            None => {
                let before = self.mac_table.len();
                self.host_ports.retain(|host_port| *host_port != index);
                self.mac_table.retain(|_, port| *port != index);
                self.learned -= before - self.mac_table.len();
            }
        }
        traffic
    }

    pub(super) fn set_asleep(&mut self, index: u32, is_asleep: bool) {
        if let Some(port) = self.port(index) {
            port.is_asleep = is_asleep;
        }
    }

    /// Whether no port and no packet capture is in use.
    pub(super) fn is_idle(&self) -> bool {
        self.ports.iter().all(Option::is_none) && self.captures.is_empty()
    }

    fn port(&mut self, index: u32) -> Option<&mut Port> {
        self.ports.get_mut(index as usize)?.as_mut()
    }

    pub(super) fn traffic(&self, index: u32) -> Traffic {
        let port = self.ports.get(index as usize).and_then(Option::as_ref);
        port.map(|port| Traffic { waiting: port.queue.waiting(), in_transit: port.link.in_transit as u64, ..port.traffic })
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

    pub(super) fn drop_oversized(&mut self, index: u32) {
        if let Some(port) = self.port(index)
            && port.queue.pop().is_some()
        {
            port.traffic.overrun += 1;
        }
    }

    /// The cell into whose memory a frame of `length` bytes beginning with `head` may be copied at once, and its port. The frame
    /// must be for one cell whose queue is empty; no link delay and no packet capture may apply.
    pub(super) fn shortcut(&self, index: u32, head: &[u8], length: usize) -> Option<(u32, &Owner)> {
        let port = |index: u32| self.ports.get(index as usize)?.as_ref();
        let sender = port(index)?;
        let is_sound = !self.config.is_isolated && (ETHERNET_HEADER..=self.largest()).contains(&length) && contains_all_checked(head);
        let passes_filter = sender.addresses.is_some_and(|own| passes_filter(head, &own));
        if !is_sound || !passes_filter || !sender.link.is_perfect() || !self.captures.is_empty() {
            return None;
        }
        let target = *self.mac_table.get(&Mac(*head.first_chunk()?))?;
        let Port { owner, queue, .. } = port(target)?;
        (target != index && matches!(owner, Owner::Cell(_)) && queue.peek().is_none()).then_some((target, owner))
    }

    /// Counts a frame of `length` bytes that took the shortcut. Returns its receiver.
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

    /// Sends a frame from a port through its anti-spoofing filter and its link. Returns how many ports it may go to.
    pub(super) fn send(&mut self, index: u32, frame: Bytes, now: Nanos, cells_to_notify: &mut Vec<CellId>) -> usize {
        let is_group = frame.first().is_some_and(|first| first & 1 != 0);
        let fan_out = if is_group && !self.is_confined(index) { self.ports.len() } else { 1 + self.host_ports.len() };
        let fan_out = fan_out + self.captures.len();
        self.receive(index, frame, now, cells_to_notify);
        fan_out
    }

    fn receive(&mut self, index: u32, frame: Bytes, now: Nanos, cells_to_notify: &mut Vec<CellId>) {
        let largest = self.largest();
        let Some(port) = self.port(index) else { return };
        port.traffic.sent.add(frame.len());
        if !(ETHERNET_HEADER..=largest).contains(&frame.len()) {
            port.traffic.lost += 1;
            return;
        }
        if port.addresses.is_some_and(|own| !passes_filter(&frame, &own)) {
            port.traffic.spoofed += 1;
            return;
        }
        match port.link.transmit(frame.len(), now) {
            Forwarding::Now => self.forward(index, &frame, now, cells_to_notify),
            Forwarding::Later(arrival, duplicate) => {
                port.link.in_transit += frame.len();
                let (serial, taken) = (port.serial, frame.len());
                self.delay(DelayedFrame { arrival, order: 0, sender: index, serial, taken, frame: frame.clone() });
                if let Some(arrival) = duplicate {
                    self.delay(DelayedFrame { arrival, order: 0, sender: index, serial, taken: 0, frame });
                }
            }
            Forwarding::Lost | Forwarding::Full => port.traffic.lost += 1,
        }
    }

    fn delay(&mut self, delayed: DelayedFrame) {
        self.order += 1;
        self.delayed.push(Reverse(DelayedFrame { order: self.order, ..delayed }));
    }

    pub(super) fn next_arrival(&self) -> Option<Nanos> {
        self.delayed.peek().map(|Reverse(delayed)| delayed.arrival)
    }

    pub(super) fn advance(&mut self, now: Nanos, cells_to_notify: &mut Vec<CellId>) {
        // Frames beyond the budget stay due; others run first.
        let mut budget = CARD_STEP;
        while budget > 0
            && self.next_arrival().is_some_and(|arrival| arrival <= now)
            && let Some(Reverse(DelayedFrame { sender, serial, taken, frame, .. })) = self.delayed.pop()
        {
            budget -= 1;
            match self.port(sender).filter(|port| port.serial == serial) {
                Some(port) => {
                    port.link.in_transit -= taken;
                    self.forward(sender, &frame, now, cells_to_notify);
                }
                // Its sender is unplugged; the frame is still delivered, as it may be a connection's last.
                None => self.forward(NO_PORT, &frame, now, cells_to_notify),
            }
        }
    }

    /// Forwards a frame to its destinations.
    fn forward(&mut self, sender: u32, frame: &Bytes, now: Nanos, cells_to_notify: &mut Vec<CellId>) {
        let Some((target, rest)) = frame.split_first_chunk::<6>() else { return };
        let Some(source) = rest.first_chunk::<6>() else { return };
        let (target, source) = (Mac(*target), Mac(*source));
        self.captures.capture(frame, now);
        self.learn_address(source, sender);
        let known = self.mac_table.get(&target).copied().filter(|_| !target.is_group());
        if self.is_confined(sender) {
            let targets = self.host_ports.clone().into_iter().filter(|host_port| known.is_none_or(|known| known == *host_port));
            return targets.for_each(|host_port| self.deliver(host_port, sender, frame, cells_to_notify));
        }
        // A request for the address of one cell (ARP, neighbour solicitation) disturbs no other cell.
        match known.or_else(|| self.requested_port(frame)) {
            Some(port) => self.deliver(port, sender, frame, cells_to_notify),
            None if target.is_group() => {
                for index in 0..self.ports.len() as u32 {
                    if self.port(index).is_some_and(|port| !port.is_asleep) {
                        self.deliver(index, sender, frame, cells_to_notify);
                    }
                }
            }
            None => (0..self.host_ports.len()).for_each(|at| self.deliver(self.host_ports[at], sender, frame, cells_to_notify)),
        }
    }

    /// Whether the frames of a port reach host ports only. A port that is gone counts as a cell's.
    fn is_confined(&self, sender: u32) -> bool {
        self.config.is_isolated && !self.host_ports.contains(&sender)
    }

    /// The port of the cell whose address a frame requests.
    fn requested_port(&self, frame: &[u8]) -> Option<u32> {
        let index = self.config.pool.index(requested_address(frame)?)?;
        self.ports.get(index as usize)?.as_ref().filter(|port| port.addresses.is_some()).map(|_| index)
    }

    /// Queues a frame at a port, and notifies the owner if the queue was empty.
    fn deliver(&mut self, index: u32, sender: u32, frame: &Bytes, cells_to_notify: &mut Vec<CellId>) {
        if index == sender {
            return;
        }
        let Some(port) = self.port(index) else { return };
        let was_empty = port.queue.peek().is_none();
        port.traffic.overrun += port.queue.push(sender, frame.clone());
        port.traffic.max_waiting.raise(port.queue.waiting());
        match &port.owner {
            _ if !was_empty => {}
            Owner::Cell(cell) => cells_to_notify.push(*cell),
            Owner::HostPort(wake) => wake(),
        }
    }

    /// Learns the port of a source address, if it is a host port.
    fn learn_address(&mut self, source: Mac, sender: u32) {
        if source.is_group() || !self.host_ports.contains(&sender) {
            return;
        }
        match self.mac_table.get_mut(&source) {
            // Addresses of cells do not move.
            Some(port) if self.host_ports.contains(port) => *port = sender,
            Some(_) => {}
            None if self.learned < LEARNED_ADDRESSES => {
                self.learned += 1;
                self.mac_table.insert(source, sender);
            }
            None => {}
        }
    }
}

/// The address that an ARP request or an IPv6 neighbour solicitation asks for.
fn requested_address(frame: &[u8]) -> Option<IpAddr> {
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
