// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every bound and every span of time that is not the user's to set, with its reason. Spans are in nanoseconds.

/// A second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Neighbours that are remembered: a network of a few thousand cells, half a MiB.
pub(crate) const NEIGHBOURS: usize = 4096;
/// How long a neighbour that says nothing is taken to be there still.
pub(crate) const KNOWN: u64 = 60 * SECOND;
/// Questions for a neighbour before it is given up: Linux asks three times too.
pub(crate) const QUESTIONS: u32 = 3;
/// Between two of them.
pub(crate) const BETWEEN_QUESTIONS: u64 = SECOND;
/// Packets that wait for one neighbour: the first of a talk, not a flood.
pub(crate) const PACKETS_FOR_A_NEIGHBOUR: usize = 8;

/// How long a stranger is waited for before it is answered once more; twice as long each time.
pub(crate) const ANSWER_AGAIN: u64 = SECOND;
/// Answers that a stranger gets: half a minute in all.
pub(crate) const ANSWERS: u32 = 5;
/// How long a stranger may be held: as long as it knocks, on Linux.
pub(crate) const HELD: u64 = 130 * SECOND;
/// How long a connection may take to open: what Linux's six retries come to.
pub(crate) const OPENING: u64 = 127 * SECOND;

/// How long an ended connection answers what was lost at its end: Linux's minute.
pub(crate) const LINGER: u64 = 60 * SECOND;
/// How long before anybody may knock from the same end again: longer than packets are under way here, between cells and to the gateway. Before that, only who begins
/// past where the old connection ended.
pub(crate) const QUIET: u64 = SECOND;
/// How long the other side of a connection that nobody here knows any more may keep its half open: Linux's `tcp_fin_timeout`.
pub(crate) const HALF_CLOSED: u64 = 60 * SECOND;
/// How long the other side of a connection whose end here is closed may take nothing of what is left to be said, though it answers: some minutes, as on Linux.
pub(crate) const DESERTED: u64 = 300 * SECOND;

/// How long an acknowledgement waits for words to go with: Linux's shortest.
pub(crate) const ACKNOWLEDGES: u64 = 40 * SECOND / 1000;
/// How much longer than twice the way a last word may stay unanswered before it is said again: whoever waits for words to go with has answered by then.
pub(crate) const PROBES: u64 = ACKNOWLEDGES + 10 * SECOND / 1000;
/// How many long segments are acknowledged at once when a connection is young, or something was lost: what opens any sender's congestion window,
/// and what Linux does.
pub(crate) const QUICK: u32 = 16;
/// What is a part of something longer rather than a question: half of what a sender's window begins with at least.
pub(crate) const LONG: usize = 1000;

/// Bytes of a connection's buffers that are too many for no memory: a few of Ethernet's usual packets.
pub(crate) const LEAST_BUFFER: usize = 8 << 10;

/// Frames that a connection sends before another has its turn.
pub(crate) const TURN: usize = 16;
/// Turns that a connection has in one run: a thousand frames are more than most buffers hold, and whoever runs the stack looks after everything else again.
pub(crate) const TURNS: usize = 64;
/// How long a connection rests that wants to be looked at and has nothing to say.
pub(crate) const REST: u64 = SECOND / 1000;

/// Bytes of datagrams and messages that wait for the user. More are lost.
pub(crate) const WAITING_BYTES: usize = 1 << 20;
/// Of each, what its place in the queue costs beside its bytes.
pub(crate) const PLACE: usize = 128;

/// Segments under way that are known one by one: as many as fill the largest buffer with Ethernet's packets. More are counted together with the last.
pub(crate) const SEGMENTS: usize = 1024;
/// Places for them that a connection keeps while nothing is under way.
pub(crate) const KEPT_SEGMENTS: usize = 8;
/// How long to wait at least before all that is under way is taken as lost, and when nothing is known of how long answers take: Linux's 200 ms.
pub(crate) const TIMES_OUT: u64 = SECOND / 5;
/// How often that span is doubled, while nothing comes back: to 13 s.
pub(crate) const DOUBLINGS: u32 = 6;
/// Segments that arrive beyond a hole before it is taken for a loss, where nothing was ever reordered (RFC 5681).
pub(crate) const REPETITIONS: usize = 3;
/// How late something may be, in quarters of the shortest time round: not later than a usual time round in any case.
pub(crate) const QUARTERS: u64 = 64;
/// Bytes past which a congestion window need not grow: more than any buffer of a connection that is not asked for.
pub(crate) const WINDOW: usize = 4 << 20;
