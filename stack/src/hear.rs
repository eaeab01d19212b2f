// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames that arrive: whom they are for, and for TCP whose connection. An answer goes back where the frame came from.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use smoltcp::wire::{EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr};

use crate::connection::{Change, Stage};
use crate::lingering::LastWord;
use crate::network::Audience;
use crate::news;
use crate::packet::{Ends, Mac, Packet};
use crate::port::Said;
use crate::strangers::{Manner, bare, read, without_payload};
use crate::{ConnectionId, Doorkeeper, Failure, Happening, Message, Outlet, Refusal, Stack, Tuple, Verdict};

/// What is known of a frame beside its packet, and what is needed to answer it.
pub(crate) struct Context<'a> {
    pub(crate) now: u64,
    pub(crate) from: Mac,
    pub(crate) audience: Audience,
    pub(crate) doorkeeper: &'a mut dyn Doorkeeper,
    pub(crate) outlet: &'a mut dyn Outlet,
}

impl Stack {
    /// Hears an Ethernet frame that arrived. What must be answered at once is; the rest says [`Stack::run`].
    pub fn take(&mut self, frame: &[u8], now: u64, doorkeeper: &mut dyn Doorkeeper, outlet: &mut dyn Outlet) {
        self.counts.taken += 1;
        if self.hear(frame, now, doorkeeper, outlet).is_none() {
            self.counts.ignored += 1;
        }
    }

    /// None: it says nothing to this stack.
    fn hear(&mut self, frame: &[u8], now: u64, doorkeeper: &mut dyn Doorkeeper, outlet: &mut dyn Outlet) -> Option<()> {
        let frame = EthernetFrame::new_checked(frame).ok()?;
        let EthernetAddress(from) = frame.src_addr();
        let is_own = frame.dst_addr() == EthernetAddress(self.network.mac);
        if !frame.src_addr().is_unicast() || !(is_own || frame.dst_addr().is_multicast() || frame.dst_addr().is_broadcast()) {
            return None;
        }
        let packet = match frame.ethertype() {
            EthernetProtocol::Arp => return self.hear_arp(frame.payload(), from, now, outlet),
            EthernetProtocol::Ipv4 => Packet::v4(frame.payload(), self.capabilities.checksum.ipv4.rx())?,
            EthernetProtocol::Ipv6 => Packet::v6(frame.payload())?,
            EthernetProtocol::Unknown(_) => return None,
        };
        let audience = self.network.audience(packet.destination)?;
        // What is for this stack alone is not told to everybody.
        if !self.network.is_sender(packet.source) || (audience == Audience::Own && !is_own) {
            return None;
        }
        if self.network.is_near(packet.source) {
            self.neighbours.confirm(packet.source, from, now);
        }
        if matches!(packet.protocol, IpProtocol::Icmp | IpProtocol::Icmpv6) && doorkeeper.overhears() {
            let (local, remote, hops) = (packet.destination, packet.source, packet.hops);
            self.news.post(Happening::Message(Message { local, remote, bytes: Vec::from(packet.payload), hops }));
        }
        let mut context = Context { now, from, audience, doorkeeper, outlet };
        match (packet.protocol, packet.source) {
            (IpProtocol::Tcp, _) if audience == Audience::Own => self.hear_segment(&packet, &mut context),
            (IpProtocol::Tcp, _) => None,
            (IpProtocol::Udp, _) => self.hear_datagram(&packet, &mut context),
            (IpProtocol::Icmp, IpAddr::V4(_)) => self.hear_icmp4(&packet, &mut context),
            (IpProtocol::Icmpv6, IpAddr::V6(_)) => self.hear_icmp6(&packet, &mut context),
            _ if audience == Audience::Own => self.say_unreachable(&packet, crate::Obstacle::Port, &mut context),
            _ => None,
        }
    }

    fn hear_segment(&mut self, packet: &Packet, context: &mut Context) -> Option<()> {
        let repr = read(packet, &self.capabilities.checksum)?;
        let tuple =
            Tuple { local: SocketAddr::new(packet.destination, repr.dst_port), remote: SocketAddr::new(packet.source, repr.src_port) };
        if let Some(&id) = self.tuples.get(&tuple) {
            self.hear_connection(id, packet, &repr, context);
            return Some(());
        }
        let is_knock = repr.control == TcpControl::Syn && repr.ack_number.is_none();
        if self.strangers.get(&tuple).is_some() {
            return self.hear_stranger(&tuple, packet, &repr, context);
        }
        if let Some(word) = self.lingering.get(&tuple, context.now) {
            let is_new = is_knock && (repr.seq_number > word.acknowledged || self.lingering.is_quiet(&tuple, context.now));
            if !is_new {
                if repr.control != TcpControl::Rst && repr.segment_len() > 0 {
                    self.say_last_word(&tuple, word, context.from, context.outlet);
                    self.lingering.add(tuple, word, context.now);
                }
                return Some(());
            }
            self.lingering.remove(&tuple);
        }
        if is_knock {
            return self.hear_knock(&tuple, &repr, context);
        }
        if repr.control != TcpControl::Rst {
            self.say_reset(&tuple, &repr, context.from, context.outlet);
        }
        Some(())
    }

    /// Somebody who is no stranger yet knocks.
    fn hear_knock(&mut self, tuple: &Tuple, syn: &TcpRepr, context: &mut Context) -> Option<()> {
        let is_held = match context.doorkeeper.admits(tuple) {
            Verdict::Admit => false,
            Verdict::Hold => true,
            Verdict::Refuse(refusal) => {
                self.turn_away(tuple, &without_payload(syn), context.from, refusal, context.outlet);
                return Some(());
            }
            Verdict::Ignore => return Some(()),
        };
        let manner = Manner { is_held, seed: self.draw(), buffer: self.sockets.size(self.strangers.promised()) };
        let has_forgotten = self.strangers.add(*tuple, without_payload(syn), context.from, manner, context.now)?;
        self.counts.forgotten += u64::from(has_forgotten);
        Some(())
    }

    fn hear_stranger(&mut self, tuple: &Tuple, packet: &Packet, repr: &TcpRepr, context: &mut Context) -> Option<()> {
        let stranger = self.strangers.get(tuple)?;
        let expected = stranger.syn.seq_number + 1;
        match (repr.control, repr.ack_number) {
            (TcpControl::Syn, None) if repr.seq_number == stranger.syn.seq_number => self.strangers.answer_again(tuple, context.now),
            (TcpControl::Syn, None) => {
                self.strangers.remove(tuple);
                return self.hear_knock(tuple, repr, context);
            }
            (TcpControl::Rst, _) if repr.seq_number == expected => {
                self.strangers.remove(tuple);
            }
            (TcpControl::None | TcpControl::Psh | TcpControl::Fin, Some(number))
                if !stranger.is_held && number == stranger.answer.seq_number + 1 =>
            {
                // It will try again when there is room.
                if !self.is_full() {
                    let (mut connection, is_as_answered) = self.strangers.open(tuple, &mut self.sockets, context.now)?;
                    connection.is_incoming = true;
                    let id = self.keep(connection);
                    if is_as_answered {
                        self.hear_connection(id, packet, repr, context);
                    } else {
                        self.abort(id);
                    }
                }
            }
            (TcpControl::Rst, _) => {}
            _ => self.say_reset(tuple, repr, context.from, context.outlet),
        }
        Some(())
    }

    /// Gives a packet to its connection.
    fn hear_connection(&mut self, id: ConnectionId, packet: &Packet, segment: &TcpRepr, context: &mut Context) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let ends = Ends { from: self.network.mac, to: context.from };
        let mut voice = connection.voice(&self.capabilities, context.outlet, ends);
        connection.hear(&mut self.interface, &mut voice, packet, segment, context.now);
        self.counts.looks += 1;
        self.counts.sent += voice.said.frames as u64;
        connection.said = voice.said;
        let end = segment.seq_number + segment.segment_len();
        self.look(id, context.now);
        // Both have finished: what is left is to say so, perhaps more than once.
        if let Some(connection) = self.connections.get(&id)
            && connection.stage == Stage::Over
            && connection.has_lingered()
            && let Some(last) = connection.said.last
        {
            let (tuple, word) = (connection.tuple, LastWord { acknowledged: end, ..last });
            self.say_last_word(&tuple, word, context.from, context.outlet);
            self.lingering.add(tuple, word, context.now);
        }
        self.close_if_done(id);
        if self.connections.get_mut(&id).is_some_and(|connection| connection.must_speak(context.now)) {
            self.stir(id);
        } else {
            self.plan(id, context.now, Said::default());
        }
    }

    /// Sees what has become of a connection.
    pub(crate) fn look(&mut self, id: ConnectionId, now: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut bits = 0;
        let opened = if connection.is_incoming { news::ACCEPTED } else { news::OPENED };
        connection.look(now, &mut |change| {
            bits |= match change {
                Change::Opened => opened,
                Change::Data => news::DATA,
                Change::Room => news::ROOM,
                Change::Broken => news::FAILED,
                Change::Lingers | Change::Ended => 0,
            };
        });
        if bits != 0 {
            self.news.add(id, connection, bits);
        }
        if connection.stage == Stage::Over {
            self.unhook(id);
        } else if connection.is_deserted() && connection.socket().recv_queue() > 0 {
            // Nobody will ever read it.
            self.break_off(id, Failure::Reset);
        }
    }

    /// Tells that a connection is over, or forgets it if nobody wants to know.
    pub(crate) fn close_if_done(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.stage != Stage::Over || connection.owes_reset() {
            return;
        }
        if connection.is_left {
            self.forget(id);
        } else if connection.socket().recv_queue() == 0 || connection.is_deserted() {
            self.news.add(id, connection, news::CLOSED);
        }
    }

    /// Tells a stranger that it may not come in.
    pub(crate) fn turn_away(&mut self, tuple: &Tuple, syn: &TcpRepr, to: Mac, refusal: Refusal, outlet: &mut dyn Outlet) {
        match refusal {
            Refusal::Reset => self.say_reset(tuple, syn, to, outlet),
            Refusal::Unreachable(obstacle) => self.say_unreachable_to(tuple, syn, obstacle, to, outlet),
        }
    }

    /// Answers a segment that belongs to no connection.
    fn say_reset(&mut self, tuple: &Tuple, to_what: &TcpRepr, to: Mac, outlet: &mut dyn Outlet) {
        let knocks = to_what.ack_number.is_none();
        let reset = TcpRepr {
            control: TcpControl::Rst,
            seq_number: to_what.ack_number.unwrap_or_default(),
            ack_number: knocks.then(|| to_what.seq_number + to_what.segment_len()),
            ..bare(tuple)
        };
        self.say_segment(tuple, &reset, to, outlet);
    }

    fn say_last_word(&mut self, tuple: &Tuple, word: LastWord, to: Mac, outlet: &mut dyn Outlet) {
        let repr = TcpRepr { seq_number: word.sequence, ack_number: Some(word.acknowledged), ..bare(tuple) };
        self.say_segment(tuple, &repr, to, outlet);
    }

    /// Says a segment that no connection says. Whether there was room.
    pub(crate) fn say_segment(&mut self, tuple: &Tuple, repr: &TcpRepr, to: Mac, outlet: &mut dyn Outlet) -> bool {
        let (from, remote) = (tuple.local.ip().into(), tuple.remote.ip().into());
        let header = IpRepr::new(from, remote, IpProtocol::Tcp, repr.buffer_len(), 64);
        let sums = &self.capabilities.checksum;
        let is_said = Ends { from: self.network.mac, to }.packet(outlet, &header, sums, |room| {
            repr.emit(&mut TcpPacket::new_unchecked(room), &from, &remote, sums);
        });
        self.counts.sent += u64::from(is_said);
        is_said
    }

    /// A number that strangers cannot guess from those before.
    fn draw(&mut self) -> u64 {
        // SplitMix64: a step, and a mix of it.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
