// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every bound of the gateway, with its reason.

use std::time::Duration;

/// Connections at once, where there are descriptors enough: each takes one of the host's.
pub(crate) const MAX_CONNECTIONS: usize = 4096;
/// Conversations by datagrams at once; of more, who was silent longest is forgotten.
pub(crate) const MAX_FLOWS: usize = 1024;
/// How long a conversation without an answer is remembered (RFC 4787 speaks of two minutes for those with one).
pub(crate) const UNANSWERED: Duration = Duration::from_secs(30);
/// How long one with an answer is, after its last datagram.
pub(crate) const ANSWERED: Duration = Duration::from_secs(180);
/// Questions to resolvers at once, and connections that ask; of more, the cell asks again.
pub(crate) const MAX_QUESTIONS: usize = 256;
/// How long a resolver is waited for before the next is asked: programs ask again after five seconds themselves.
pub(crate) const RESOLVER_TIME: Duration = Duration::from_secs(2);
/// Resolvers that are asked in turn: as many as resolv.conf may name.
pub(crate) const MAX_RESOLVERS: usize = 3;
/// Addresses that names are remembered to have; of more, those that end first are forgotten.
pub(crate) const MAX_LEARNED: usize = 4096;
/// How long a name is remembered to have an address, at least: programs use one longer than they were told.
pub(crate) const LEAST_LEARNED: Duration = Duration::from_secs(600);
/// How long at most.
pub(crate) const MOST_LEARNED: Duration = Duration::from_secs(86_400);
/// How long a stranger that was let in may take for the rest of its handshake.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(60);
/// How long the host's side of a connection may be silent before it is asked whether it is still there: routers on the way forget who is silent for some minutes.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);
/// Between two questions.
pub(crate) const SILENCE_ASKED: Duration = Duration::from_secs(15);
/// Questions without an answer that end the connection.
pub(crate) const SILENCE_QUESTIONS: u32 = 4;
/// How long a forward's connection is held where the cell has not listened at that port yet: servers take seconds to begin.
pub(crate) const HELD: Duration = Duration::from_secs(10);
/// How many are held at once: each has a place that others want, and calls again and again.
pub(crate) const HELD_MOST: usize = 64;
/// How long until the cell is tried again then.
pub(crate) const AGAIN: Duration = Duration::from_millis(50);
/// How long, at its end, the gateway tries to deliver what it was given.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(2);
/// Frames that are taken in before anything else is done.
pub(crate) const FRAMES: usize = 256;
/// Datagrams that are taken from one socket before anything else is done.
pub(crate) const DATAGRAMS: usize = 64;
/// Connections that are accepted before anything else is done.
pub(crate) const ACCEPTED: usize = 64;
/// Bytes that a connection may carry, each way, before it is another's turn.
pub(crate) const TURN: usize = 512 << 10;
/// Destinations that were refused and are remembered, to be told.
pub(crate) const TOLD: usize = 8;
/// Connections that wait at a forwarded port until they are accepted.
pub(crate) const BACKLOG: i32 = 4096;
/// How long a station that is full is given to take something.
pub(crate) const FULL: Duration = Duration::from_millis(1);
