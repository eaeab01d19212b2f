// SPDX-License-Identifier: MIT OR Apache-2.0
//! The link of smoltcp: it receives one packet at most, and writes straight into the tx sink.

use alloc::vec;

use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, IpAddress, IpVersion, Ipv4Packet, Ipv6Packet, TcpPacket, TcpSeqNumber,
};

use crate::TxSink;
use crate::loss_recovery::Recovery;
use crate::packet::{HEADER, MacPair};
use crate::time_wait::LastSegment;

/// The segments that smoltcp sent through a port.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct TxSummary {
    /// Frames.
    pub(crate) frames: usize,
    /// Segments that retransmitted something.
    pub(crate) retransmitted: u64,
    /// The tx sink had no room, so data is unsent.
    pub(crate) is_out_of_room: bool,
    /// A segment was suppressed, so smoltcp may have more to send.
    pub(crate) is_suppressed: bool,
    /// Where the sequence numbers of both sides ended in the last segment.
    pub(crate) last: Option<LastSegment>,
    /// An acknowledgement was sent: before that, a connection is not open at the peer.
    pub(crate) has_acknowledged: bool,
    /// Payload length and window of the last segment.
    pub(crate) length: usize,
    pub(crate) window: usize,
}

impl TxSummary {
    /// The state for the next transmission, with all counts reset.
    pub(crate) const fn without_counts(self) -> Self {
        Self { frames: 0, retransmitted: 0, is_out_of_room: false, is_suppressed: false, ..self }
    }

    /// Whether a segment has a new acknowledgement or a larger window.
    fn has_new_ack(&self, segment: &TcpPacket<&[u8]>, window_scale: u8) -> bool {
        self.last.is_none_or(|last| last.acknowledged != segment.ack_number())
            || usize::from(segment.window_len()) << window_scale > self.window
    }

    /// Records a sent segment.
    fn note(&mut self, segment: &TcpPacket<&[u8]>, window_scale: u8) {
        let begin = segment.seq_number();
        let end = begin + segment.segment_len();
        let before = self.last.map_or(begin, |last| last.sequence);
        self.retransmitted += u64::from(end > begin && begin < before);
        self.last = Some(LastSegment { sequence: before.max(end), acknowledged: segment.ack_number() });
        self.has_acknowledged |= segment.ack();
        self.length = segment.payload().len();
        self.window = usize::from(segment.window_len()) << if segment.syn() { 0 } else { window_scale };
    }
}

/// The context in which a connection transmits.
pub(crate) struct Transmitter<'a> {
    pub(crate) capabilities: &'a DeviceCapabilities,
    pub(crate) sink: &'a mut dyn TxSink,
    pub(crate) ends: MacPair,
    pub(crate) tx: TxSummary,
    /// The window scale that this side announced.
    pub(crate) window_scale: u8,
}

/// A link for one poll of one connection.
pub(crate) struct SmoltcpDevice<'a, 'v> {
    pub(crate) transmitter: &'a mut Transmitter<'v>,
    /// Decides which segments are suppressed.
    pub(crate) recovery: &'a mut Recovery,
    pub(crate) now: u64,
    pub(crate) received: Option<&'a [u8]>,
}

/// A device that neither receives nor transmits: smoltcp only checks its timers, and keeps its segments.
pub(crate) struct IdleDevice<'a>(pub(crate) &'a DeviceCapabilities);

impl Device for IdleDevice<'_> {
    type RxToken<'t>
        = PortRxToken<'t>
    where
        Self: 't;
    type TxToken<'t>
        = NullTxToken
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(PortRxToken<'_>, NullTxToken)> {
        None
    }

    fn transmit(&mut self, _: Instant) -> Option<NullTxToken> {
        None
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.0.clone()
    }
}

/// A tx token that discards the packet.
pub(crate) struct NullTxToken;

impl TxToken for NullTxToken {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        write(&mut vec![0; length])
    }
}

/// The link as smoltcp sees it: IP packets without Ethernet.
pub(crate) fn capabilities(mtu: usize, checksums: ChecksumCapabilities) -> DeviceCapabilities {
    let mut capabilities = DeviceCapabilities::default();
    capabilities.medium = Medium::Ip;
    capabilities.max_transmission_unit = mtu;
    capabilities.checksum = checksums;
    capabilities
}

impl<'v> Device for SmoltcpDevice<'_, 'v> {
    type RxToken<'t>
        = PortRxToken<'t>
    where
        Self: 't;
    type TxToken<'t>
        = PortTxToken<'t, 'v>
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(PortRxToken<'_>, PortTxToken<'_, 'v>)> {
        let bytes = self.received.take()?;
        Some((PortRxToken(bytes), PortTxToken { transmitter: self.transmitter, recovery: self.recovery, now: self.now }))
    }

    fn transmit(&mut self, _: Instant) -> Option<PortTxToken<'_, 'v>> {
        if self.transmitter.sink.room(HEADER + self.transmitter.capabilities.max_transmission_unit).is_none() {
            self.transmitter.tx.is_out_of_room = true;
            return None;
        }
        Some(PortTxToken { transmitter: self.transmitter, recovery: self.recovery, now: self.now })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.transmitter.capabilities.clone()
    }
}

/// The packet that arrived.
pub(crate) struct PortRxToken<'t>(&'t [u8]);

impl RxToken for PortRxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

/// A tx token for one packet.
pub(crate) struct PortTxToken<'t, 'v> {
    transmitter: &'t mut Transmitter<'v>,
    recovery: &'t mut Recovery,
    now: u64,
}

impl TxToken for PortTxToken<'_, '_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let Transmitter { capabilities, sink, ends, tx, window_scale } = self.transmitter;
        let Some(room) = sink.room(HEADER + length).and_then(|room| room.get_mut(..HEADER + length)) else {
            // An answer to the received packet without room: dropped, as packets are. TCP recovers.
            return write(&mut vec![0; length]);
        };
        let (header, packet) = room.split_at_mut(HEADER);
        let result = write(packet);
        let mut length = length;
        if let Some(segment) = segment(packet) {
            let begin = segment.seq_number();
            let end = begin + segment.segment_len();
            let is_admitted = self.recovery.may_transmit(begin, end, self.now);
            tx.is_suppressed |= !is_admitted;
            if !is_admitted && !tx.has_new_ack(&segment, *window_scale) {
                return result;
            }
            if let Some(number) = self.recovery.bare_ack_sequence().filter(|number| !is_admitted || begin == end && begin != *number) {
                length = truncate_to_header(packet, number, capabilities.checksum.tcp.tx());
            }
        }
        if let Some(segment) = segment(packet) {
            tx.note(&segment, *window_scale);
        }
        tx.frames += 1;
        let mut frame = EthernetFrame::new_unchecked(header);
        frame.set_src_addr(EthernetAddress(ends.from));
        frame.set_dst_addr(EthernetAddress(ends.to));
        let is_v6 = IpVersion::of_packet(packet) == Ok(IpVersion::Ipv6);
        frame.set_ethertype(if is_v6 { EthernetProtocol::Ipv6 } else { EthernetProtocol::Ipv4 });
        sink.commit(HEADER + length);
        result
    }
}

/// The TCP segment in a packet that smoltcp has written.
fn segment(packet: &[u8]) -> Option<TcpPacket<&[u8]>> {
    let payload = match IpVersion::of_packet(packet) {
        Ok(IpVersion::Ipv6) => Ipv6Packet::new_unchecked(packet).payload(),
        _ => Ipv4Packet::new_unchecked(packet).payload(),
    };
    TcpPacket::new_checked(payload).ok()
}

/// Turns a packet into a bare acknowledgement with this sequence number. Returns its new length.
fn truncate_to_header(packet: &mut [u8], number: TcpSeqNumber, has_sum: bool) -> usize {
    let write = |payload: &mut [u8]| {
        let mut segment = TcpPacket::new_unchecked(payload);
        segment.set_seq_number(number);
        segment.set_fin(false);
        segment.set_psh(false);
    };
    let fill_icmp_checksum = |payload: &mut [u8], from: IpAddress, to: IpAddress| {
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
        fill_icmp_checksum(packet.payload_mut(), from, to);
        return packet.total_len();
    }
    let mut packet = Ipv4Packet::new_unchecked(packet);
    packet.set_total_len(u16::from(packet.header_len()) + header as u16);
    packet.fill_checksum();
    let (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
    write(packet.payload_mut());
    fill_icmp_checksum(packet.payload_mut(), from, to);
    usize::from(packet.total_len())
}
