// SPDX-License-Identifier: MIT OR Apache-2.0
//! The neighbour table: Ethernet addresses on this network, pending requests, and packets that wait for an answer.
//!
//! Each neighbour is resolved on its own, so a thousand of them are found at once. An entry is valid for [`limits::NEIGHBOUR_LIFETIME`]
//! after the last confirmation. In the second half of that time, its use triggers a new request, and nothing waits.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::mem::take;
use core::net::IpAddr;

use crate::packet::Mac;
use crate::timer_queue::TimerQueue;
use crate::{ConnectionId, limits};

#[derive(Debug, Default)]
struct Neighbour {
    /// Ethernet address, and the time of the last confirmation.
    link_address: Option<(Mac, u64)>,
    /// Requests since then.
    solicitations: u32,
    connections: BTreeSet<ConnectionId>,
    /// Packets to it, in their order.
    packets: Vec<Vec<u8>>,
}

/// Connections and packets that waited for a neighbour.
#[derive(Debug, Default)]
pub(crate) struct QueuedTraffic {
    pub(crate) connections: BTreeSet<ConnectionId>,
    pub(crate) packets: Vec<Vec<u8>>,
}

/// Due work for a neighbour.
#[derive(Debug)]
pub(crate) enum Task {
    /// Send a request for this address.
    Solicit(IpAddr),
    /// No host has answered.
    GiveUp(QueuedTraffic),
}

#[derive(Debug)]
pub(crate) struct Neighbours {
    all: BTreeMap<IpAddr, Neighbour>,
    /// Addresses by the time they were first seen.
    order: VecDeque<IpAddr>,
    timer_queue: TimerQueue<IpAddr>,
}

impl Neighbours {
    pub(crate) const fn new() -> Self {
        Self { all: BTreeMap::new(), order: VecDeque::new(), timer_queue: TimerQueue::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// When the next request or timeout is due.
    pub(crate) fn next(&self) -> Option<u64> {
        self.timer_queue.next()
    }

    /// The Ethernet address of a neighbour, if it is known.
    pub(crate) fn find(&mut self, address: IpAddr, now: u64) -> Option<Mac> {
        let neighbour = self.all.get(&address)?;
        let (mac, learned) = neighbour.link_address?;
        let age = now.saturating_sub(learned);
        if age >= limits::NEIGHBOUR_LIFETIME / 2 && neighbour.solicitations == 0 {
            self.timer_queue.set(address, Some(now));
        }
        (age < limits::NEIGHBOUR_LIFETIME).then_some(mac)
    }

    /// Queues a connection until the neighbour is resolved.
    pub(crate) fn wait(&mut self, address: IpAddr, connection: ConnectionId, now: u64) {
        self.entry(address, now).connections.insert(connection);
    }

    /// Queues a packet until the neighbour is resolved. If the queue is full, the oldest packet is dropped.
    pub(crate) fn wait_packet(&mut self, address: IpAddr, packet: Vec<u8>, now: u64) {
        let packets = &mut self.entry(address, now).packets;
        if packets.len() == limits::PACKETS_PER_NEIGHBOUR {
            packets.remove(0);
        }
        packets.push(packet);
    }

    fn entry(&mut self, address: IpAddr, now: u64) -> &mut Neighbour {
        self.make_room(address);
        let neighbour = self.all.entry(address).or_default();
        if neighbour.solicitations == 0 {
            self.timer_queue.set(address, Some(now));
        }
        neighbour
    }

    /// Records an answer. Returns the connections and packets that waited for it.
    pub(crate) fn learn(&mut self, address: IpAddr, mac: Mac, now: u64) -> QueuedTraffic {
        self.make_room(address);
        self.timer_queue.set(address, None);
        let neighbour = self.all.entry(address).or_default();
        (neighbour.link_address, neighbour.solicitations) = (Some((mac, now)), 0);
        QueuedTraffic { connections: take(&mut neighbour.connections), packets: take(&mut neighbour.packets) }
    }

    /// Whether this address is in the table. Unsolicited advertisements of other addresses are ignored.
    pub(crate) fn is_known(&self, address: IpAddr) -> bool {
        self.all.contains_key(&address)
    }

    /// Confirms a known neighbour.
    pub(crate) fn confirm(&mut self, address: IpAddr, mac: Mac, now: u64) {
        if let Some(link_address) = self.all.get_mut(&address).and_then(|neighbour| neighbour.link_address.as_mut())
            && link_address.0 == mac
        {
            link_address.1 = now;
        }
    }

    /// Removes and returns the next due work.
    pub(crate) fn take_due(&mut self, now: u64) -> Option<Task> {
        loop {
            let address = self.timer_queue.take_due(now)?;
            let Some(neighbour) = self.all.get_mut(&address) else { continue };
            if neighbour.solicitations < limits::SOLICITATIONS {
                neighbour.solicitations += 1;
                self.timer_queue.set(address, Some(now.saturating_add(limits::SOLICITATION_INTERVAL)));
                return Some(Task::Solicit(address));
            }
            self.order.retain(|other| *other != address);
            let neighbour = self.all.remove(&address).unwrap_or_default();
            return Some(Task::GiveUp(QueuedTraffic { connections: neighbour.connections, packets: neighbour.packets }));
        }
    }

    /// Makes room for one more entry. In a full table, the oldest is dropped, with all that waits for it.
    fn make_room(&mut self, address: IpAddr) {
        if self.all.contains_key(&address) {
            return;
        }
        if self.all.len() >= limits::MAX_NEIGHBOURS
            && let Some(oldest) = self.order.pop_front()
        {
            self.timer_queue.set(oldest, None);
            self.all.remove(&oldest);
        }
        self.order.push_back(address);
    }
}
