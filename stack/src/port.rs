// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where smoltcp meets the link: it is given one packet at most, and what it writes goes straight into the outlet.

use alloc::vec;

use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, IpAddress, IpVersion, Ipv4Packet, Ipv6Packet, TcpPacket, TcpSeqNumber,
};

use crate::Outlet;
use crate::lingering::LastWord;
use crate::packet::{Ends, HEADER};
use crate::recovery::Recovery;

/// What smoltcp said through a port.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Said {
    /// Frames.
    pub(crate) frames: usize,
    /// Segments that carried something that had been sent before.
    pub(crate) again: u64,
    /// The outlet had no room, so something is unsaid.
    pub(crate) is_cut_short: bool,
    /// smoltcp said something that does not get out, so it may have more to say.
    pub(crate) is_swallowed: bool,
    /// How far it has got: where the numbers of both sides ended in the last segment.
    pub(crate) last: Option<LastWord>,
    /// It has acknowledged something: a connection is not open on the other side before.
    pub(crate) has_acknowledged: bool,
    /// The last segment's payload, and the room it told of.
    pub(crate) length: usize,
    pub(crate) window: usize,
}

impl Said {
    /// What is left of it when something new is to be said.
    pub(crate) const fn anew(self) -> Self {
        Self { frames: 0, again: 0, is_cut_short: false, is_swallowed: false, ..self }
    }

    /// Whether a segment acknowledges something, or tells of more room, that was not said before.
    fn is_news(&self, segment: &TcpPacket<&[u8]>, scale: u8) -> bool {
        self.last.is_none_or(|last| last.acknowledged != segment.ack_number()) || usize::from(segment.window_len()) << scale > self.window
    }

    /// A segment was said.
    fn note(&mut self, segment: &TcpPacket<&[u8]>, scale: u8) {
        let begin = segment.seq_number();
        let end = begin + segment.segment_len();
        let before = self.last.map_or(begin, |last| last.sequence);
        self.again += u64::from(end > begin && begin < before);
        self.last = Some(LastWord { sequence: before.max(end), acknowledged: segment.ack_number() });
        self.has_acknowledged |= segment.ack();
        self.length = segment.payload().len();
        self.window = usize::from(segment.window_len()) << if segment.syn() { 0 } else { scale };
    }
}

/// What a connection speaks with.
pub(crate) struct Voice<'a> {
    pub(crate) capabilities: &'a DeviceCapabilities,
    pub(crate) outlet: &'a mut dyn Outlet,
    pub(crate) ends: Ends,
    pub(crate) said: Said,
    /// The scale of the windows that this side tells of.
    pub(crate) scale: u8,
}

/// A link for as long as one connection is looked at once.
pub(crate) struct Port<'a, 'v> {
    pub(crate) voice: &'a mut Voice<'v>,
    /// What decides what gets out.
    pub(crate) recovery: &'a mut Recovery,
    pub(crate) now: u64,
    pub(crate) arrived: Option<&'a [u8]>,
}

/// A link on which nothing can be said: smoltcp looks at its clock, and keeps what it would say.
pub(crate) struct Mute<'a>(pub(crate) &'a DeviceCapabilities);

impl Device for Mute<'_> {
    type RxToken<'t>
        = Arrived<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Nowhere
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(Arrived<'_>, Nowhere)> {
        None
    }

    fn transmit(&mut self, _: Instant) -> Option<Nowhere> {
        None
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.0.clone()
    }
}

/// The right to say nothing.
pub(crate) struct Nowhere;

impl TxToken for Nowhere {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        write(&mut vec![0; length])
    }
}

/// What smoltcp may know of the link: packets without Ethernet.
pub(crate) fn capabilities(mtu: usize, sums: ChecksumCapabilities) -> DeviceCapabilities {
    let mut capabilities = DeviceCapabilities::default();
    capabilities.medium = Medium::Ip;
    capabilities.max_transmission_unit = mtu;
    capabilities.checksum = sums;
    capabilities
}

impl<'v> Device for Port<'_, 'v> {
    type RxToken<'t>
        = Arrived<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Speech<'t, 'v>
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(Arrived<'_>, Speech<'_, 'v>)> {
        let bytes = self.arrived.take()?;
        Some((Arrived(bytes), Speech { voice: self.voice, recovery: self.recovery, now: self.now }))
    }

    fn transmit(&mut self, _: Instant) -> Option<Speech<'_, 'v>> {
        if self.voice.outlet.room(HEADER + self.voice.capabilities.max_transmission_unit).is_none() {
            self.voice.said.is_cut_short = true;
            return None;
        }
        Some(Speech { voice: self.voice, recovery: self.recovery, now: self.now })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.voice.capabilities.clone()
    }
}

/// The packet that arrived.
pub(crate) struct Arrived<'t>(&'t [u8]);

impl RxToken for Arrived<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

/// The right to say one packet.
pub(crate) struct Speech<'t, 'v> {
    voice: &'t mut Voice<'v>,
    recovery: &'t mut Recovery,
    now: u64,
}

impl TxToken for Speech<'_, '_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let Voice { capabilities, outlet, ends, said, scale } = self.voice;
        let Some(room) = outlet.room(HEADER + length).and_then(|room| room.get_mut(..HEADER + length)) else {
            // An answer to what just arrived, for which there is no room: lost, as packets are. TCP gets over it.
            return write(&mut vec![0; length]);
        };
        let (header, packet) = room.split_at_mut(HEADER);
        let result = write(packet);
        let mut length = length;
        if let Some(segment) = segment(packet) {
            let begin = segment.seq_number();
            let end = begin + segment.segment_len();
            let is_out = self.recovery.passes(begin, end, self.now);
            said.is_swallowed |= !is_out;
            if !is_out && !said.is_news(&segment, *scale) {
                return result;
            }
            if let Some(number) = self.recovery.number().filter(|number| !is_out || begin == end && begin != *number) {
                length = bare(packet, number, capabilities.checksum.tcp.tx());
            }
        }
        if let Some(segment) = segment(packet) {
            said.note(&segment, *scale);
        }
        said.frames += 1;
        let mut frame = EthernetFrame::new_unchecked(header);
        frame.set_src_addr(EthernetAddress(ends.from));
        frame.set_dst_addr(EthernetAddress(ends.to));
        let is_v6 = IpVersion::of_packet(packet) == Ok(IpVersion::Ipv6);
        frame.set_ethertype(if is_v6 { EthernetProtocol::Ipv6 } else { EthernetProtocol::Ipv4 });
        outlet.commit(HEADER + length);
        result
    }
}

/// The segment in a packet that smoltcp has written.
fn segment(packet: &[u8]) -> Option<TcpPacket<&[u8]>> {
    let payload = match IpVersion::of_packet(packet) {
        Ok(IpVersion::Ipv6) => Ipv6Packet::new_unchecked(packet).payload(),
        _ => Ipv4Packet::new_unchecked(packet).payload(),
    };
    TcpPacket::new_checked(payload).ok()
}

/// Makes a packet say what is acknowledged and nothing else, with such a number. Returns how long it is now.
fn bare(packet: &mut [u8], number: TcpSeqNumber, has_sum: bool) -> usize {
    let write = |payload: &mut [u8]| {
        let mut segment = TcpPacket::new_unchecked(payload);
        segment.set_seq_number(number);
        segment.set_fin(false);
        segment.set_psh(false);
    };
    let sum = |payload: &mut [u8], from: IpAddress, to: IpAddress| {
        if has_sum {
            TcpPacket::new_unchecked(payload).fill_checksum(&from, &to);
        }
    };
    let header = segment(packet).map_or(0, |segment| usize::from(segment.header_len()));
    if IpVersion::of_packet(packet) == Ok(IpVersion::Ipv6) {
        let mut packet = Ipv6Packet::new_unchecked(packet);
        packet.set_payload_len(header as u16);
        let (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
        write(packet.payload_mut());
        sum(packet.payload_mut(), from, to);
        return packet.total_len();
    }
    let mut packet = Ipv4Packet::new_unchecked(packet);
    packet.set_total_len(u16::from(packet.header_len()) + header as u16);
    packet.fill_checksum();
    let (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
    write(packet.payload_mut());
    sum(packet.payload_mut(), from, to);
    usize::from(packet.total_len())
}
