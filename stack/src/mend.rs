// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments that smoltcp would throw away whole, although half of what they say is news.
//!
//! smoltcp drops a segment whose bytes are all old, and with them its acknowledgement; and one whose acknowledgement is old, and with it its
//! bytes. Where both sides send again after a loss, each then waits for an acknowledgement that it throws away, without end. So the part that is
//! news is given to it alone, in a segment that it takes.

use alloc::vec::Vec;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpAddress, IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};

use crate::Tuple;
use crate::packet::{Packet, compose};
use crate::strangers::bare;

/// How far a connection is, as smoltcp counts it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    /// The next byte that the other side has to send.
    pub(crate) expected: TcpSeqNumber,
    /// The first byte that the other side is not known to have.
    pub(crate) unanswered: TcpSeqNumber,
    /// The end of what was sent.
    pub(crate) sent: TcpSeqNumber,
}

/// What is to be heard in place of a segment, or before it.
#[derive(Debug)]
pub(crate) enum Mended {
    /// Nothing: it is sound.
    Sound,
    /// This packet, and then the segment itself if it asks for an answer.
    Before(Vec<u8>, bool),
    /// This packet.
    Instead(Vec<u8>),
}

/// Whether one number comes before another.
pub(crate) const fn is_before(one: TcpSeqNumber, other: TcpSeqNumber) -> bool {
    one.0.wrapping_sub(other.0) < 0
}

/// Whether a segment says again what is acknowledged, and nothing else but how much room there is.
pub(crate) fn is_repetition(segment: &TcpRepr, progress: Progress) -> bool {
    segment.ack_number == Some(progress.unanswered)
        && segment.segment_len() == 0
        && segment.control != TcpControl::Rst
        && !is_before(segment.seq_number, progress.expected)
}

/// What smoltcp should hear of a segment, where it should believe in that window.
pub(crate) fn mend(packet: &Packet, segment: &TcpRepr, progress: Progress, window: u16, sums: &ChecksumCapabilities) -> Mended {
    let Some(number) = segment.ack_number.filter(|_| !matches!(segment.control, TcpControl::Rst | TcpControl::Syn)) else {
        return Mended::Sound;
    };
    let length = segment.segment_len() as i32;
    let end = TcpSeqNumber(segment.seq_number.0.wrapping_add(length));
    let is_old = is_before(segment.seq_number, progress.expected) && !is_before(progress.expected, end);
    if is_old && is_before(progress.unanswered, number) && !is_before(progress.sent, number) {
        let alone = TcpRepr { seq_number: progress.expected, control: TcpControl::None, window_len: window, payload: &[], ..*segment };
        return Mended::Before(rewritten(packet, &alone, sums), length > 0);
    }
    if length == 0 && !is_before(segment.seq_number, progress.expected) && !is_before(number, progress.unanswered) {
        let heard = TcpRepr { seq_number: progress.expected, window_len: window, sack_ranges: [None; 3], ..*segment };
        return Mended::Instead(rewritten(packet, &heard, sums));
    }
    if !is_old && length > 0 && is_before(number, progress.unanswered) {
        let renewed = TcpRepr { ack_number: Some(progress.unanswered), window_len: window, ..*segment };
        return Mended::Instead(rewritten(packet, &renewed, sums));
    }
    if !is_old && segment.window_len < window {
        // A window without room for what is under way stops smoltcp's clock.
        return Mended::Instead(rewritten(packet, &TcpRepr { window_len: window, ..*segment }, sums));
    }
    Mended::Sound
}

/// The part of a segment for which `room` bytes from the next expected one on have room, where that is not all of it. If nothing has, the segment is made an old one, which
/// is answered too.
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

/// A packet from the other side that acknowledges once more what it has acknowledged, with a window.
pub(crate) fn repetition(tuple: &Tuple, progress: Progress, window: u16, sums: &ChecksumCapabilities) -> Vec<u8> {
    let (from, to) = (IpAddress::from(tuple.remote.ip()), IpAddress::from(tuple.local.ip()));
    let back = Tuple { local: tuple.remote, remote: tuple.local };
    let segment = TcpRepr { seq_number: progress.expected, ack_number: Some(progress.unanswered), window_len: window, ..bare(&back) };
    let header = IpRepr::new(from, to, IpProtocol::Tcp, segment.buffer_len(), 64);
    compose(&header, sums, |room| segment.emit(&mut TcpPacket::new_unchecked(room), &from, &to, sums))
}

/// The same packet with another segment.
pub(crate) fn rewritten(packet: &Packet, segment: &TcpRepr, sums: &ChecksumCapabilities) -> Vec<u8> {
    let (from, to) = (IpAddress::from(packet.source), IpAddress::from(packet.destination));
    let header = IpRepr::new(from, to, IpProtocol::Tcp, segment.buffer_len(), packet.hops);
    compose(&header, sums, |room| segment.emit(&mut TcpPacket::new_unchecked(room), &from, &to, sums))
}
