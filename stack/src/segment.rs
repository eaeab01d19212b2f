// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers of TCP segments: parsing, empty segments, and the window scale.

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};

use crate::Tuple;
use crate::packet::Packet;

/// Parses a segment, and verifies its checksum if that is enabled.
pub(crate) fn parse_segment<'a>(packet: &Packet<'a>, checksums: &ChecksumCapabilities) -> Option<TcpRepr<'a>> {
    let segment = TcpPacket::new_checked(packet.payload).ok()?;
    TcpRepr::parse(&segment, &packet.source.into(), &packet.destination.into(), checksums).ok()
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

/// An empty segment from this side.
pub(crate) const fn empty_segment(tuple: &Tuple) -> TcpRepr<'static> {
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

/// The window scale for a buffer of this size, as smoltcp computes it.
pub(crate) const fn window_scale(buffer: usize) -> u8 {
    (usize::BITS - buffer.leading_zeros()).saturating_sub(16) as u8
}
