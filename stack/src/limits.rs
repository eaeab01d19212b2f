// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits and timeouts that the user cannot set, each with its reason. Times are in nanoseconds.

/// A second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Entries of the neighbour table: enough for a network of a few thousand cells, half a MiB.
pub(crate) const MAX_NEIGHBOURS: usize = 4096;
/// Lifetime of a neighbour entry without traffic.
pub(crate) const NEIGHBOUR_LIFETIME: u64 = 60 * SECOND;
/// Neighbour requests before giving up: three, as on Linux.
pub(crate) const SOLICITATIONS: u32 = 3;
/// Time between two of them.
pub(crate) const SOLICITATION_INTERVAL: u64 = SECOND;
/// Packets that wait for one neighbour: enough for the first of a conversation, not for a flood.
pub(crate) const PACKETS_PER_NEIGHBOUR: usize = 8;

/// Time before a SYN-ACK is retransmitted; it doubles each time.
pub(crate) const SYN_ACK_INTERVAL: u64 = SECOND;
/// Number of SYN-ACKs for one connection request: half a minute in all.
pub(crate) const SYN_ACKS: u32 = 5;
/// How long a request may be held: as long as a peer retransmits its SYN on Linux.
pub(crate) const HOLD_TIMEOUT: u64 = 130 * SECOND;
/// How long a connection may take to open: Linux's six retries.
pub(crate) const OPEN_TIMEOUT: u64 = 127 * SECOND;

/// Duration of TIME-WAIT: Linux's minute.
pub(crate) const TIME_WAIT: u64 = 60 * SECOND;
/// Time before a tuple in TIME-WAIT may be reused: longer than any packet is in flight here, between cells and to the
/// gateway. Before that, only a SYN whose sequence number is past the end of the old connection is accepted.
pub(crate) const REUSE_DELAY: u64 = SECOND;
/// FIN-WAIT-2 timeout of an orphaned connection: Linux's `tcp_fin_timeout`.
pub(crate) const FIN_WAIT_2_TIMEOUT: u64 = 60 * SECOND;
/// How long the peer of an orphaned connection may acknowledge none of the remaining data, though it answers: some minutes, as on Linux.
pub(crate) const ORPHAN_TIMEOUT: u64 = 300 * SECOND;

/// Delay of an acknowledgement that waits for data to go with it: Linux's shortest.
pub(crate) const DELAYED_ACK: u64 = 40 * SECOND / 1000;
/// Time beyond two RTTs before the last segment is probed. A peer that delays acknowledgements has answered by then.
pub(crate) const TAIL_PROBE: u64 = DELAYED_ACK + 10 * SECOND / 1000;
/// Long segments that are acknowledged at once when a connection is young or after a loss. It opens any sender's
/// congestion window, and Linux does the same.
pub(crate) const QUICK_ACKS: u32 = 16;
/// Length from which a segment counts as part of a bulk transfer rather than a request: half of a sender's minimum initial window.
pub(crate) const BULK_SEGMENT: usize = 1000;

/// Minimum buffer size in bytes, even without free memory: a few Ethernet packets.
pub(crate) const MIN_BUFFER: usize = 8 << 10;

/// Frames that a connection sends per turn.
pub(crate) const FRAMES_PER_TURN: usize = 16;
/// Turns of a connection per run. A thousand frames exceed most buffers, and the user's loop gets control again.
pub(crate) const TURNS_PER_RUN: usize = 64;
/// Delay before the next poll of a connection that is due at once and has nothing to send.
pub(crate) const MIN_POLL_INTERVAL: u64 = SECOND / 1000;

/// Bytes of datagrams and ICMP messages that wait for the user. More are dropped.
pub(crate) const WAITING_BYTES: usize = 1 << 20;
/// Queue overhead of each, added to its bytes.
pub(crate) const EVENT_OVERHEAD: usize = 128;

/// Segments in flight that are tracked one by one: enough to fill the largest buffer with Ethernet packets. Further
/// ones are merged into the last.
pub(crate) const SEGMENTS: usize = 1024;
/// Capacity for them that an idle connection keeps.
pub(crate) const IDLE_SEGMENTS: usize = 8;
/// Minimum retransmission timeout, and its value before the RTT is known: Linux's 200 ms.
pub(crate) const MIN_RTO: u64 = SECOND / 5;
/// Maximum number of doublings of the timeout while nothing is acknowledged: to 13 s.
pub(crate) const MAX_RTO_DOUBLINGS: u32 = 6;
/// Segments that arrive beyond a hole before it counts as a loss, if nothing was ever reordered (RFC 5681).
pub(crate) const DUPLICATE_ACKS: usize = 3;
/// Maximum reordering window, in quarters of the minimum RTT. The smoothed RTT always bounds it.
pub(crate) const MAX_REORDERING_QUARTERS: u64 = 64;
/// Size in bytes beyond which a congestion window need not grow: more than any buffer of a connection by default.
pub(crate) const MAX_WINDOW: usize = 4 << 20;
