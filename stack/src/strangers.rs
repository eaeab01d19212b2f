// SPDX-License-Identifier: MIT OR Apache-2.0
//! Those who knock: connections that are half open, each one or two KiB, whatever the size of a connection's buffers.
//!
//! smoltcp has no backlog and cannot change a socket's buffers, so a stranger gets no socket that is kept. Its knock (SYN) is given to a socket almost without buffers, whose
//! answer is sent, with the windows that a real one would have; the socket is thrown away. When the stranger proves that it heard the answer, a
//! real socket is given the same knock, and, drawing the same random numbers, gives the same answer.

use alloc::collections::BTreeMap;

use smoltcp::iface::{Config, Interface};
use smoltcp::phy::{ChecksumCapabilities, DeviceCapabilities};
use smoltcp::wire::{HardwareAddress, IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};

use crate::agenda::Agenda;
use crate::connection::{Connection, paced, scale};
use crate::packet::{Ends, HEADER, Mac, Packet, compose};
use crate::port::Mute;
use crate::sockets::{Single, Sockets};
use crate::{Outlet, Tuple, limits};

/// Somebody who knocked.
#[derive(Debug, Clone)]
pub(crate) struct Stranger {
    /// Its knock.
    pub(crate) syn: TcpRepr<'static>,
    /// What it is answered.
    pub(crate) answer: TcpRepr<'static>,
    /// It waits for the user's word.
    pub(crate) is_held: bool,
    /// Where it knocked from.
    pub(crate) mac: Mac,
    /// What its random numbers are made from.
    seed: u64,
    /// How often it was answered, and when first.
    answers: u32,
    answered: u64,
    serial: u64,
    /// How large its buffers will be.
    buffer: usize,
}

/// How somebody who knocks is received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) is_held: bool,
    pub(crate) seed: u64,
    pub(crate) buffer: usize,
}

#[derive(Debug)]
pub(crate) struct Strangers {
    all: BTreeMap<Tuple, Stranger>,
    /// In the order they came.
    order: BTreeMap<u64, Tuple>,
    agenda: Agenda<Tuple>,
    serial: u64,
    bound: usize,
    /// Bytes of buffers that they will have.
    promised: usize,
    capabilities: DeviceCapabilities,
}

impl Strangers {
    pub(crate) fn new(bound: usize, capabilities: DeviceCapabilities) -> Self {
        Self {
            all: BTreeMap::new(),
            order: BTreeMap::new(),
            agenda: Agenda::new(),
            serial: 0,
            bound: bound.max(1),
            promised: 0,
            capabilities,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Bytes of buffers that they will have.
    pub(crate) const fn promised(&self) -> usize {
        self.promised
    }

    pub(crate) fn next(&self) -> Option<u64> {
        self.agenda.next()
    }

    pub(crate) fn get(&self, tuple: &Tuple) -> Option<&Stranger> {
        self.all.get(tuple)
    }

    /// Somebody knocks. Returns whether another was forgotten for it; none if its knock means nothing.
    pub(crate) fn add(&mut self, tuple: Tuple, syn: TcpRepr<'static>, mac: Mac, manner: Manner, now: u64) -> Option<bool> {
        let Manner { is_held, seed, buffer } = manner;
        self.remove(&tuple);
        let mut answer = self.replay(tuple, &syn, seed, Single::new(1), now).1?;
        answer.window_len = u16::try_from(buffer).unwrap_or(u16::MAX);
        answer.window_scale = syn.window_scale.map(|_| scale(buffer));
        let is_full = self.all.len() >= self.bound;
        if is_full && let Some(oldest) = self.order.first_key_value().map(|(_, oldest)| *oldest) {
            self.remove(&oldest);
        }
        self.promised += 2 * buffer;
        self.serial += 1;
        let serial = self.serial;
        self.order.insert(serial, tuple);
        self.agenda.set(tuple, Some(if is_held { now.saturating_add(limits::HELD) } else { now }));
        self.all.insert(tuple, Stranger { syn, answer, is_held, mac, seed, answers: 0, answered: now, serial, buffer });
        Some(is_full)
    }

    pub(crate) fn remove(&mut self, tuple: &Tuple) -> Option<Stranger> {
        let stranger = self.all.remove(tuple)?;
        self.order.remove(&stranger.serial);
        self.promised -= 2 * stranger.buffer;
        self.agenda.set(*tuple, None);
        Some(stranger)
    }

    /// Whoever was held is to be answered. Whether it is still there.
    pub(crate) fn admit(&mut self, tuple: &Tuple, now: u64) -> bool {
        let Some(stranger) = self.all.get_mut(tuple) else { return false };
        stranger.is_held = false;
        self.agenda.set(*tuple, Some(now));
        true
    }

    /// Whoever knocked again is to be answered again.
    pub(crate) fn answer_again(&mut self, tuple: &Tuple, now: u64) {
        if self.all.get(tuple).is_some_and(|stranger| !stranger.is_held) {
            self.agenda.set(*tuple, Some(now));
        }
    }

    /// Somebody who is to be answered now, and what. Those whose time is over are forgotten.
    pub(crate) fn take_due(&mut self, now: u64) -> Option<(Tuple, Mac, TcpRepr<'static>)> {
        loop {
            let tuple = self.agenda.take_due(now)?;
            let Some(stranger) = self.all.get_mut(&tuple).filter(|stranger| !stranger.is_held && stranger.answers < limits::ANSWERS) else {
                self.remove(&tuple);
                continue;
            };
            if stranger.answers == 0 {
                stranger.answered = now;
            }
            let pause = limits::ANSWER_AGAIN << stranger.answers;
            stranger.answers += 1;
            self.agenda.set(tuple, Some(now.saturating_add(pause)));
            return Some((tuple, stranger.mac, stranger.answer));
        }
    }

    /// Puts somebody back who could not be answered for want of room.
    pub(crate) fn put_back(&mut self, tuple: &Tuple, now: u64) {
        if let Some(stranger) = self.all.get_mut(tuple) {
            stranger.answers -= 1;
            self.agenda.set(*tuple, Some(now));
        }
    }

    /// Makes a real connection of somebody who proved that it heard the answer. Returns what it is, and whether it is as it was answered.
    pub(crate) fn open(&mut self, tuple: &Tuple, sockets: &mut Sockets, now: u64) -> Option<(Connection, bool)> {
        let stranger = self.remove(tuple)?;
        // How long the way takes is told by an answer that was given once.
        let answered = if stranger.answers == 1 { stranger.answered } else { now };
        let (connection, answer) = self.replay(*tuple, &stranger.syn, stranger.seed, sockets.make(stranger.buffer), answered);
        Some((connection, answer == Some(stranger.answer)))
    }

    /// Lets a new socket hear a knock, and returns what it answers too.
    fn replay(&self, tuple: Tuple, syn: &TcpRepr<'static>, seed: u64, single: Single, now: u64) -> (Connection, Option<TcpRepr<'static>>) {
        let mut connection = Connection::new(tuple, single, now);
        let header = IpRepr::new(tuple.remote.ip().into(), tuple.local.ip().into(), IpProtocol::Tcp, syn.buffer_len(), 64);
        let sums = &self.capabilities.checksum;
        let bytes = compose(&header, sums, |room| {
            syn.emit(&mut TcpPacket::new_unchecked(room), &tuple.remote.ip().into(), &tuple.local.ip().into(), sums);
        });
        let listens = connection.socket_mut().listen(tuple.local).is_ok();
        let Some(packet) = Packet::v4(&bytes, false).or_else(|| Packet::v6(&bytes)).filter(|_| listens) else { return (connection, None) };

        let mut note = Note { bytes: [0; NOTE], length: 0 };
        let ends = Ends { from: [0; 6], to: [0; 6] };
        let mut voice = connection.voice(&self.capabilities, &mut note, ends);
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut Mute(&self.capabilities), paced(now));
        interface.set_any_ip(true);
        connection.hear(&mut interface, &mut voice, &packet, syn, now);
        connection.speak(&mut interface, &mut voice, now);
        connection.said = voice.said;
        connection.look(now, &mut |_| {});
        let answer = note.segment(sums);
        (connection, answer)
    }
}

/// Longer than Ethernet, IPv6 and TCP with all its options.
const NOTE: usize = 256;

/// The one packet that a new socket says.
struct Note {
    bytes: [u8; NOTE],
    length: usize,
}

impl Note {
    /// Reads the answer to a knock.
    fn segment(&self, sums: &ChecksumCapabilities) -> Option<TcpRepr<'static>> {
        let bytes = self.bytes[..self.length].get(HEADER..)?;
        let packet = Packet::v4(bytes, false).or_else(|| Packet::v6(bytes))?;
        let segment = read(&packet, sums)?;
        (segment.control == TcpControl::Syn && segment.ack_number.is_some()).then(|| without_payload(&segment))
    }
}

impl Outlet for Note {
    /// Whatever is asked for: only a short packet will be written.
    fn room(&mut self, _: usize) -> Option<&mut [u8]> {
        Some(&mut self.bytes)
    }

    fn commit(&mut self, length: usize) {
        self.length = length;
    }
}

/// Reads a segment, with its sum if that counts.
pub(crate) fn read<'a>(packet: &Packet<'a>, sums: &ChecksumCapabilities) -> Option<TcpRepr<'a>> {
    let segment = TcpPacket::new_checked(packet.payload).ok()?;
    TcpRepr::parse(&segment, &packet.source.into(), &packet.destination.into(), sums).ok()
}

/// A segment's header alone.
pub(crate) fn without_payload(segment: &TcpRepr) -> TcpRepr<'static> {
    TcpRepr {
        src_port: segment.src_port,
        dst_port: segment.dst_port,
        control: segment.control,
        seq_number: segment.seq_number,
        ack_number: segment.ack_number,
        window_len: segment.window_len,
        window_scale: segment.window_scale,
        max_seg_size: segment.max_seg_size,
        sack_permitted: segment.sack_permitted,
        sack_ranges: segment.sack_ranges,
        timestamp: segment.timestamp,
        payload: &[],
    }
}

/// A segment with nothing in it, from this side.
pub(crate) const fn bare(tuple: &Tuple) -> TcpRepr<'static> {
    TcpRepr {
        src_port: tuple.local.port(),
        dst_port: tuple.remote.port(),
        control: TcpControl::None,
        seq_number: TcpSeqNumber(0),
        ack_number: None,
        window_len: 0,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    }
}
