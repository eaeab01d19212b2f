// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where smoltcp meets the link: it is given one packet at most, and what it writes goes straight into the outlet.

use alloc::vec;

use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, EthernetFrame, EthernetProtocol, IpVersion, Ipv4Packet, Ipv6Packet, TcpPacket};

use crate::Outlet;
use crate::lingering::LastWord;
use crate::packet::{Ends, HEADER};

/// What smoltcp said through a port.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Said {
    /// Frames.
    pub(crate) frames: usize,
    /// Segments that carried something that had been sent before.
    pub(crate) again: u64,
    /// The outlet had no room, so something is unsaid.
    pub(crate) is_cut_short: bool,
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
        Self { frames: 0, again: 0, is_cut_short: false, ..self }
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
    pub(crate) arrived: Option<&'a [u8]>,
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
        Some((Arrived(bytes), Speech(self.voice)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Speech<'_, 'v>> {
        if self.voice.outlet.room(HEADER + self.voice.capabilities.max_transmission_unit).is_none() {
            self.voice.said.is_cut_short = true;
            return None;
        }
        Some(Speech(self.voice))
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
pub(crate) struct Speech<'t, 'v>(&'t mut Voice<'v>);

impl TxToken for Speech<'_, '_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let Voice { outlet, ends, said, scale, .. } = self.0;
        let Some(room) = outlet.room(HEADER + length).and_then(|room| room.get_mut(..HEADER + length)) else {
            // An answer to what just arrived, for which there is no room: lost, as packets are. TCP gets over it.
            return write(&mut vec![0; length]);
        };
        let result = write(&mut room[HEADER..]);
        let packet = &room[HEADER..];
        let (kind, payload) = match IpVersion::of_packet(packet) {
            Ok(IpVersion::Ipv6) => (EthernetProtocol::Ipv6, Ipv6Packet::new_unchecked(packet).payload()),
            _ => (EthernetProtocol::Ipv4, Ipv4Packet::new_unchecked(packet).payload()),
        };
        said.frames += 1;
        if let Ok(segment) = TcpPacket::new_checked(payload) {
            said.note(&segment, *scale);
        }
        let mut frame = EthernetFrame::new_unchecked(room);
        frame.set_src_addr(EthernetAddress(ends.from));
        frame.set_dst_addr(EthernetAddress(ends.to));
        frame.set_ethertype(kind);
        outlet.commit(HEADER + length);
        result
    }
}
