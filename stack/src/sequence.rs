// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequence number arithmetic, and the sequence numbers of a connection.

use smoltcp::wire::TcpSeqNumber;

/// Whether one sequence number comes before another, modulo 2^32.
pub(crate) const fn is_before(one: TcpSeqNumber, other: TcpSeqNumber) -> bool {
    one.0.wrapping_sub(other.0) < 0
}

/// The distance from a sequence number to a later one; 0 if it is not later.
pub(crate) const fn distance(from: TcpSeqNumber, to: TcpSeqNumber) -> usize {
    let distance = to.0.wrapping_sub(from.0);
    if distance < 0 { 0 } else { distance as usize }
}

/// The sequence numbers of a connection, as smoltcp counts them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SequenceNumbers {
    /// The next sequence number that is expected from the peer.
    pub(crate) expected: TcpSeqNumber,
    /// The first unacknowledged sequence number.
    pub(crate) unacknowledged: TcpSeqNumber,
    /// The end of the sent data.
    pub(crate) sent: TcpSeqNumber,
}
