// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gateway's limits, with their reasons.

use std::time::Duration;

/// Maximal number of connections if there are enough descriptors: each takes one of the host's.
pub(crate) const MAX_CONNECTIONS: usize = 4096;
/// Maximal number of UDP flows; beyond it, the flow that would expire first is dropped.
pub(crate) const MAX_FLOWS: usize = 1024;
/// Timeout of a flow without a response (RFC 4787 requires two minutes for those with one).
pub(crate) const UNREPLIED_FLOW_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a flow with a response, after its last datagram.
pub(crate) const REPLIED_FLOW_TIMEOUT: Duration = Duration::from_secs(180);
/// Maximal number of DNS queries at once, and of DNS connections; beyond it, the cell must retry.
pub(crate) const MAX_DNS_QUERIES: usize = 256;
/// How long to wait for a resolver before the query goes to the next: programs retry after five seconds themselves.
pub(crate) const RESOLVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Resolvers that are used in turn: as many as resolv.conf may name.
pub(crate) const MAX_RESOLVERS: usize = 3;
/// Maximal number of cached addresses of names; beyond it, those that expire first are dropped.
pub(crate) const MAX_RESOLVED_NAMES: usize = 4096;
/// Minimal lifetime of a cached address: programs use one longer than its time to live.
pub(crate) const MIN_NAME_LIFETIME: Duration = Duration::from_secs(600);
/// Maximal lifetime of a cached address.
pub(crate) const MAX_NAME_LIFETIME: Duration = Duration::from_secs(86_400);
/// How long a half-open connection may take for the rest of its handshake.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(60);
/// Keepalive idle time on the host's side: routers on the path drop connections that are silent for some minutes.
pub(crate) const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// Keepalive interval.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Unanswered keepalive probes that end the connection.
pub(crate) const KEEPALIVE_PROBES: u32 = 4;
/// How long a forwarded connection is retried while the cell does not listen at the port: servers take seconds to start.
pub(crate) const RETRY_TIME: Duration = Duration::from_secs(10);
/// Maximal number of connections that are retried.
pub(crate) const MAX_RETRYING: usize = 64;
/// The interval of these retries.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// How long the gateway tries to deliver queued data when it stops.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Received frames per turn.
pub(crate) const MAX_FRAMES: usize = 256;
/// Datagrams per socket and turn.
pub(crate) const MAX_DATAGRAMS: usize = 64;
/// Accepted connections per turn.
pub(crate) const MAX_ACCEPTS: usize = 64;
/// Bytes per connection, direction and turn.
pub(crate) const MAX_TURN_BYTES: usize = 512 << 10;
/// Refused destinations that are kept for the report.
pub(crate) const MAX_REPORTED: usize = 8;
/// The listen backlog of a forwarded port.
pub(crate) const BACKLOG: i32 = 4096;
/// Bytes of a client's first request that may come before its cell is chosen: as much as servers take for a head.
pub(crate) const MAX_HEAD_BYTES: usize = 16 << 10;
/// Headers of a client's first request.
pub(crate) const MAX_HEADERS: usize = 100;
/// Bytes of a cell's name in a host name: DNS allows no more for the whole.
pub(crate) const MAX_NAME_BYTES: usize = 253;
/// How long a client may take for the head of its first request.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client waits for the directory of cells.
pub(crate) const DIRECTORY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a refused client may take to read the reason.
pub(crate) const CLOSING_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of a refused client that are discarded before its connection is reset.
pub(crate) const MAX_DISCARDED_BYTES: usize = 64 << 10;
/// Queries at the directory of cells at a time: their messages fit into the buffers of a socket.
pub(crate) const MAX_NAME_QUERIES: usize = 64;
/// How long to wait when the host port's queue is full.
pub(crate) const FULL_QUEUE_DELAY: Duration = Duration::from_millis(1);
