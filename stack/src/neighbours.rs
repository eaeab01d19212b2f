// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who has which Ethernet address on this network, who is being asked, and what waits for the answer.
//!
//! Each neighbour is asked on its own, so a thousand of them are found at once. Who is known is used for [`KNOWN`] after it was last heard of; in the
//! second half of that it is asked again when it is used, and nothing waits.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::mem::take;
use core::net::IpAddr;

use crate::agenda::Agenda;
use crate::packet::Mac;
use crate::{ConnectionId, limits};

#[derive(Debug, Default)]
struct Neighbour {
    /// Its address, and when it was learned.
    known: Option<(Mac, u64)>,
    /// Questions since then.
    asked: u32,
    connections: BTreeSet<ConnectionId>,
    /// Packets to it, in their order.
    packets: Vec<Vec<u8>>,
}

/// What waited for a neighbour.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) connections: BTreeSet<ConnectionId>,
    pub(crate) packets: Vec<Vec<u8>>,
}

/// What is to be done about a neighbour.
#[derive(Debug)]
pub(crate) enum Task {
    /// Ask who has this address.
    Ask(IpAddr),
    /// Nobody has it.
    GiveUp(Waiting),
}

#[derive(Debug)]
pub(crate) struct Neighbours {
    all: BTreeMap<IpAddr, Neighbour>,
    /// In the order they were first heard of.
    order: VecDeque<IpAddr>,
    agenda: Agenda<IpAddr>,
}

impl Neighbours {
    pub(crate) const fn new() -> Self {
        Self { all: BTreeMap::new(), order: VecDeque::new(), agenda: Agenda::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// When somebody must be asked next, or be given up.
    pub(crate) fn next(&self) -> Option<u64> {
        self.agenda.next()
    }

    /// The Ethernet address of a neighbour, if it is known.
    pub(crate) fn find(&mut self, address: IpAddr, now: u64) -> Option<Mac> {
        let neighbour = self.all.get(&address)?;
        let (mac, learned) = neighbour.known?;
        let age = now.saturating_sub(learned);
        if age >= limits::KNOWN / 2 && neighbour.asked == 0 {
            self.agenda.set(address, Some(now));
        }
        (age < limits::KNOWN).then_some(mac)
    }

    /// A connection waits for a neighbour.
    pub(crate) fn wait(&mut self, address: IpAddr, connection: ConnectionId, now: u64) {
        self.want(address, now).connections.insert(connection);
    }

    /// A packet waits for a neighbour, if it is not one too many: then the oldest is lost.
    pub(crate) fn post(&mut self, address: IpAddr, packet: Vec<u8>, now: u64) {
        let packets = &mut self.want(address, now).packets;
        if packets.len() == limits::PACKETS_FOR_A_NEIGHBOUR {
            packets.remove(0);
        }
        packets.push(packet);
    }

    fn want(&mut self, address: IpAddr, now: u64) -> &mut Neighbour {
        self.make_room(address);
        let neighbour = self.all.entry(address).or_default();
        if neighbour.asked == 0 {
            self.agenda.set(address, Some(now));
        }
        neighbour
    }

    /// A neighbour said who it is. Returns what waited for it.
    pub(crate) fn learn(&mut self, address: IpAddr, mac: Mac, now: u64) -> Waiting {
        self.make_room(address);
        self.agenda.set(address, None);
        let neighbour = self.all.entry(address).or_default();
        (neighbour.known, neighbour.asked) = (Some((mac, now)), 0);
        Waiting { connections: take(&mut neighbour.connections), packets: take(&mut neighbour.packets) }
    }

    /// Somebody waits for a neighbour, or asked it again: nobody else need be believed.
    pub(crate) fn is_wanted(&self, address: IpAddr) -> bool {
        self.all.contains_key(&address)
    }

    /// A neighbour that is known was heard of again.
    pub(crate) fn confirm(&mut self, address: IpAddr, mac: Mac, now: u64) {
        if let Some(known) = self.all.get_mut(&address).and_then(|neighbour| neighbour.known.as_mut())
            && known.0 == mac
        {
            known.1 = now;
        }
    }

    /// Something that is due.
    pub(crate) fn take_due(&mut self, now: u64) -> Option<Task> {
        loop {
            let address = self.agenda.take_due(now)?;
            let Some(neighbour) = self.all.get_mut(&address) else { continue };
            if neighbour.asked < limits::QUESTIONS {
                neighbour.asked += 1;
                self.agenda.set(address, Some(now.saturating_add(limits::BETWEEN_QUESTIONS)));
                return Some(Task::Ask(address));
            }
            self.order.retain(|other| *other != address);
            let neighbour = self.all.remove(&address).unwrap_or_default();
            return Some(Task::GiveUp(Waiting { connections: neighbour.connections, packets: neighbour.packets }));
        }
    }

    /// Sees to it that one more can be remembered: of too many, the one heard of first goes, with what waits for it.
    fn make_room(&mut self, address: IpAddr) {
        if self.all.contains_key(&address) {
            return;
        }
        if self.all.len() >= limits::NEIGHBOURS
            && let Some(oldest) = self.order.pop_front()
        {
            self.agenda.set(oldest, None);
            self.all.remove(&oldest);
        }
        self.order.push_back(address);
    }
}
