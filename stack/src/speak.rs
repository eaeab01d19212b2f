// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the stack says without having been asked just now: what connections have to say, what is due, who has which address.

use core::net::IpAddr;

use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetProtocol, Icmpv6Packet, Icmpv6Repr, IpProtocol, IpRepr, NdiscRepr,
};

use crate::connection::Stage;
use crate::messages::Complaint;
use crate::neighbours::{Task, Waiting};
use crate::packet::{Ends, Mac, Packet};
use crate::port::Said;
use crate::{ConnectionId, Failure, Obstacle, Outlet, Stack, limits, network, news};

impl Stack {
    /// Says everything that there is to say, as far as the outlet has room, and does what is due. Whether nothing is left to be said.
    pub fn run(&mut self, now: u64, outlet: &mut dyn Outlet) -> bool {
        self.lingering.expire(now);
        while let Some(id) = self.agenda.take_due(now) {
            self.stir(id);
        }
        // Each connection that has something to say has its turn; who has more than a turn's comes again, but not without end.
        for _ in 0..limits::TURNS {
            for _ in 0..self.dirty.len() {
                let Some(id) = self.dirty.pop_front() else { break };
                if self.speak(id, now, outlet) {
                    return false;
                }
            }
        }
        while let Some((tuple, mac, answer)) = self.strangers.take_due(now) {
            if !self.say_segment(&tuple, &answer, mac, outlet) {
                self.strangers.put_back(&tuple, now);
                return false;
            }
        }
        while let Some(task) = self.neighbours.take_due(now) {
            match task {
                Task::Ask(address) => self.ask_for(address, outlet),
                Task::GiveUp(waiting) => self.give_up(waiting),
            }
        }
        self.dirty.is_empty()
    }

    /// Lets a connection say something. Whether it was cut short.
    fn speak(&mut self, id: ConnectionId, now: u64, outlet: &mut dyn Outlet) -> bool {
        // What the user did has changed what is waited for.
        self.look(id, now);
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        connection.is_dirty = false;
        if connection.stage == Stage::Over && !connection.owes_reset() {
            return false;
        }
        if connection.stage != Stage::Over && connection.is_given_up(now) {
            self.break_off(id, Failure::TimedOut);
        }
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let Some(hop) = self.network.hop(connection.tuple.remote.ip()) else { return false };
        let Some(to) = self.neighbours.find(hop, now) else {
            self.neighbours.wait(hop, id, now);
            self.agenda.set(id, Some(now.saturating_add(limits::BETWEEN_QUESTIONS)));
            return false;
        };
        let ends = Ends { from: self.network.mac, to };
        let mut voice = connection.voice(&self.capabilities, outlet, ends);
        for turn in 1..=limits::TURN {
            connection.speak(&mut self.interface, &mut voice, now);
            if voice.said.frames < turn {
                break;
            }
        }
        let said = voice.said;
        self.counts.looks += 1;
        self.counts.sent += said.frames as u64;
        self.counts.sent_again += said.again;
        connection.said = said;
        if connection.socket().local_endpoint().is_none() {
            connection.forgive_reset();
        }
        self.look(id, now);
        self.close_if_done(id);
        self.plan(id, now, said);
        said.is_cut_short
    }

    /// Decides when a connection is looked at next.
    pub(crate) fn plan(&mut self, id: ConnectionId, now: u64, said: Said) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.stage == Stage::Over && !connection.owes_reset() {
            return self.agenda.set(id, None);
        }
        let next = connection.deadline(&mut self.interface, now);
        if said.is_cut_short || (said.frames > 0 && next.is_some_and(|moment| moment <= now)) {
            connection.is_dirty = true;
            if said.is_cut_short {
                self.dirty.push_front(id)
            } else {
                self.dirty.push_back(id)
            }
            return self.agenda.set(id, None);
        }
        // Who wants to be looked at and then says nothing is not looked at without end.
        self.agenda.set(id, next.map(|moment| if moment <= now { now.saturating_add(limits::REST) } else { moment }));
    }

    /// Ends a connection that cannot go on.
    pub(crate) fn break_off(&mut self, id: ConnectionId, failure: Failure) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.failure = failure;
        connection.abort();
        self.news.add(id, connection, news::FAILED);
        self.unhook(id);
        self.close_if_done(id);
    }

    /// A neighbour does not answer.
    fn give_up(&mut self, waiting: Waiting) {
        for id in waiting.connections {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            match connection.stage {
                Stage::Opening => self.break_off(id, Failure::Unreachable(Obstacle::Host)),
                Stage::Open => {}
                Stage::Over => {
                    connection.forgive_reset();
                    self.close_if_done(id);
                }
            }
        }
        for packet in waiting.packets {
            let Some(own) = sender(&packet) else { continue };
            self.hear_obstacle(&packet, Complaint::own(own));
        }
    }

    /// What waited for a neighbour goes on.
    pub(crate) fn go_on(&mut self, waiting: Waiting, to: Mac, outlet: &mut dyn Outlet) {
        for id in waiting.connections {
            self.stir(id);
        }
        for packet in waiting.packets {
            let kind = if packet.first().is_some_and(|byte| byte >> 4 == 6) { EthernetProtocol::Ipv6 } else { EthernetProtocol::Ipv4 };
            let is_said = Ends { from: self.network.mac, to }.frame(outlet, kind, packet.len(), |room| room.copy_from_slice(&packet));
            self.counts.sent += u64::from(is_said);
        }
    }

    /// Asks everybody who has an address. A question for which there is no room is asked again later.
    fn ask_for(&mut self, address: IpAddr, outlet: &mut dyn Outlet) {
        let Some(own) = self.network.address_for(address) else { return };
        let from = self.network.mac;
        let is_said = match (address, own) {
            (IpAddr::V4(address), IpAddr::V4(own)) => {
                let question = ArpRepr::EthernetIpv4 {
                    operation: ArpOperation::Request,
                    source_hardware_addr: EthernetAddress(from),
                    source_protocol_addr: own,
                    target_hardware_addr: EthernetAddress([0; 6]),
                    target_protocol_addr: address,
                };
                Ends { from, to: [0xff; 6] }.frame(outlet, EthernetProtocol::Arp, question.buffer_len(), |room| {
                    question.emit(&mut ArpPacket::new_unchecked(room));
                })
            }
            (IpAddr::V6(address), IpAddr::V6(_)) => {
                let group = network::solicited(address);
                let question = NdiscRepr::NeighborSolicit { target_addr: address, lladdr: Some(EthernetAddress(from).into()) };
                let to = self.network.group(group.into()).unwrap_or([0xff; 6]);
                self.say_icmp6(own, group.into(), &Icmpv6Repr::Ndisc(question), 255, to, outlet)
            }
            _ => false,
        };
        self.counts.sent += u64::from(is_said);
    }

    /// Says something of ICMPv6. Whether there was room.
    pub(crate) fn say_icmp6(&self, from: IpAddr, remote: IpAddr, what: &Icmpv6Repr, hops: u8, to: Mac, outlet: &mut dyn Outlet) -> bool {
        let header = IpRepr::new(from.into(), remote.into(), IpProtocol::Icmpv6, what.buffer_len(), hops);
        let sums = &self.capabilities.checksum;
        let (IpAddr::V6(from), IpAddr::V6(remote)) = (from, remote) else { return false };
        Ends { from: self.network.mac, to }.packet(outlet, &header, sums, |room| {
            what.emit(&from, &remote, &mut Icmpv6Packet::new_unchecked(room), sums);
        })
    }
}

/// Who sends a packet that this stack has composed.
fn sender(packet: &[u8]) -> Option<IpAddr> {
    Packet::v4(packet, false).or_else(|| Packet::v6(packet)).map(|packet| packet.source)
}
