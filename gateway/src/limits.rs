// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gateway's limits, with their reasons.

use std::time::Duration;

/// Maximal number of connections if there are enough descriptors: each takes one of the host's.
pub(crate) const MAX_CONNECTIONS: usize = 4096;
/// Maximal number of UDP flows; beyond it, the flow that was silent longest is dropped.
pub(crate) const MAX_FLOWS: usize = 1024;
/// Timeout of a flow without a response (RFC 4787 requires two minutes for those with one).
pub(crate) const UNANSWERED: Duration = Duration::from_secs(30);
/// Timeout of a flow with a response, after its last datagram.
pub(crate) const ANSWERED: Duration = Duration::from_secs(180);
/// Maximal number of DNS queries at once, and of DNS connections; beyond it, the cell must retry.
pub(crate) const MAX_QUESTIONS: usize = 256;
/// How long to wait for a resolver before the next is asked: programs retry after five seconds themselves.
pub(crate) const RESOLVER_TIME: Duration = Duration::from_secs(2);
/// Resolvers that are asked in turn: as many as resolv.conf may name.
pub(crate) const MAX_RESOLVERS: usize = 3;
/// Maximal number of cached addresses of names; beyond it, those that expire first are dropped.
pub(crate) const MAX_LEARNED: usize = 4096;
/// Minimal lifetime of a cached address: programs use one longer than its time to live.
pub(crate) const LEAST_LEARNED: Duration = Duration::from_secs(600);
/// Maximal lifetime of a cached address.
pub(crate) const MOST_LEARNED: Duration = Duration::from_secs(86_400);
/// How long a half-open connection may take for the rest of its handshake.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(60);
/// Keepalive idle time on the host's side: routers on the path drop connections that are silent for some minutes.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);
/// Keepalive interval.
pub(crate) const SILENCE_ASKED: Duration = Duration::from_secs(15);
/// Unanswered keepalive probes that end the connection.
pub(crate) const SILENCE_QUESTIONS: u32 = 4;
/// How long a forwarded connection is held if the cell does not listen at the port yet: servers take seconds to start.
pub(crate) const HELD: Duration = Duration::from_secs(10);
/// Maximal number of held connections: each takes a slot and retries again and again.
pub(crate) const HELD_MOST: usize = 64;
/// The interval of these retries.
pub(crate) const AGAIN: Duration = Duration::from_millis(50);
/// How long the gateway tries to deliver queued data when it stops.
pub(crate) const DRAIN_TIME: Duration = Duration::from_secs(2);
/// Received frames per turn.
pub(crate) const FRAMES: usize = 256;
/// Datagrams per socket and turn.
pub(crate) const DATAGRAMS: usize = 64;
/// Accepted connections per turn.
pub(crate) const ACCEPTED: usize = 64;
/// Bytes per connection, direction and turn.
pub(crate) const TURN: usize = 512 << 10;
/// Refused destinations that are kept for the report.
pub(crate) const TOLD: usize = 8;
/// The listen backlog of a forwarded port.
pub(crate) const BACKLOG: i32 = 4096;
/// How long to wait when the station's queue is full.
pub(crate) const FULL: Duration = Duration::from_millis(1);
