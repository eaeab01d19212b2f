// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rewriting of segments that smoltcp would drop although they are partly new.
//!
//! smoltcp drops a segment whose bytes are all old, together with its acknowledgement, and a segment with an old
//! acknowledgement, together with its bytes. If both sides retransmit after a loss, each waits forever for an
//! acknowledgement that it drops. So the new part is passed on alone, in a segment that smoltcp accepts.

use alloc::vec::Vec;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpAddress, IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};

use crate::Tuple;
use crate::packet::{Packet, compose};
use crate::segment::empty_segment;
use crate::sequence::{SequenceNumbers, is_before};

/// The segments that smoltcp gets in place of a received one, or before it.
#[derive(Debug)]
pub(crate) enum Rewrite {
    /// The segment is passed on unchanged.
    Unchanged,
    /// This packet, and then the segment itself if it needs an answer.
    Preceded(Vec<u8>, bool),
    /// This packet.
    Replaced(Vec<u8>),
}

/// Whether a segment is a duplicate acknowledgement, possibly with a new window.
pub(crate) fn is_duplicate_ack(segment: &TcpRepr, progress: SequenceNumbers) -> bool {
    segment.ack_number == Some(progress.unacknowledged)
        && segment.segment_len() == 0
        && segment.control != TcpControl::Rst
        && !is_before(segment.seq_number, progress.expected)
}

/// Returns how a segment must be rewritten for smoltcp, with this window.
pub(crate) fn rewrite(
    packet: &Packet,
    segment: &TcpRepr,
    progress: SequenceNumbers,
    window: u16,
    checksums: &ChecksumCapabilities,
) -> Rewrite {
    let Some(number) = segment.ack_number.filter(|_| !matches!(segment.control, TcpControl::Rst | TcpControl::Syn)) else {
        return Rewrite::Unchanged;
    };
    let length = segment.segment_len() as i32;
    let end = TcpSeqNumber(segment.seq_number.0.wrapping_add(length));
    let is_old = is_before(segment.seq_number, progress.expected) && !is_before(progress.expected, end);
    if is_old && is_before(progress.unacknowledged, number) && !is_before(progress.sent, number) {
        let ack_only = TcpRepr { seq_number: progress.expected, control: TcpControl::None, window_len: window, payload: &[], ..*segment };
        return Rewrite::Preceded(build_packet(packet, &ack_only, checksums), length > 0);
    }
    if length == 0 && !is_before(segment.seq_number, progress.expected) && !is_before(number, progress.unacknowledged) {
        let replaced = TcpRepr { seq_number: progress.expected, window_len: window, sack_ranges: [None; 3], ..*segment };
        return Rewrite::Replaced(build_packet(packet, &replaced, checksums));
    }
    if !is_old && length > 0 && is_before(number, progress.unacknowledged) {
        let replaced = TcpRepr { ack_number: Some(progress.unacknowledged), window_len: window, ..*segment };
        return Rewrite::Replaced(build_packet(packet, &replaced, checksums));
    }
    if !is_old && segment.window_len < window {
        // A window smaller than the data in flight stops smoltcp's timer.
        return Rewrite::Replaced(build_packet(packet, &TcpRepr { window_len: window, ..*segment }, checksums));
    }
    Rewrite::Unchanged
}

/// Cuts a segment to the `room` bytes from the next expected one on; `None` if all of it fits. If nothing fits, the
/// segment becomes an old one, which is answered too.
pub(crate) fn fit<'a>(segment: &TcpRepr<'a>, expected: TcpSeqNumber, room: usize) -> Option<TcpRepr<'a>> {
    let length = segment.payload.len();
    let offset = segment.seq_number.0.wrapping_sub(expected.0);
    let most = usize::try_from(i64::try_from(room).ok()? - i64::from(offset)).unwrap_or(0);
    if length <= most {
        return None;
    }
    let control = if matches!(segment.control, TcpControl::Fin | TcpControl::Psh) { TcpControl::None } else { segment.control };
    Some(match most {
        0 => TcpRepr { control, seq_number: TcpSeqNumber(expected.0.wrapping_sub(length as i32)), ..*segment },
        _ => TcpRepr { control, payload: &segment.payload[..most], ..*segment },
    })
}

/// A packet from the peer that repeats its last acknowledgement, with a new window.
pub(crate) fn duplicate_ack(tuple: &Tuple, progress: SequenceNumbers, window: u16, checksums: &ChecksumCapabilities) -> Vec<u8> {
    let (from, to) = (IpAddress::from(tuple.remote.ip()), IpAddress::from(tuple.local.ip()));
    let reverse = Tuple { local: tuple.remote, remote: tuple.local };
    let segment =
        TcpRepr { seq_number: progress.expected, ack_number: Some(progress.unacknowledged), window_len: window, ..empty_segment(&reverse) };
    let header = IpRepr::new(from, to, IpProtocol::Tcp, segment.buffer_len(), 64);
    compose(&header, checksums, |room| segment.emit(&mut TcpPacket::new_unchecked(room), &from, &to, checksums))
}

/// The same packet with another segment.
pub(crate) fn build_packet(packet: &Packet, segment: &TcpRepr, checksums: &ChecksumCapabilities) -> Vec<u8> {
    let (from, to) = (IpAddress::from(packet.source), IpAddress::from(packet.destination));
    let header = IpRepr::new(from, to, IpProtocol::Tcp, segment.buffer_len(), packet.hops);
    compose(&header, checksums, |room| segment.emit(&mut TcpPacket::new_unchecked(room), &from, &to, checksums))
}
