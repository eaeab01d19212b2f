// SPDX-License-Identifier: MIT OR Apache-2.0
//! System V's objects that processes share: memory, semaphores and queues of messages. All processes of the cell find them by key or number, and they stay until
//! somebody removes them.

pub mod objects;
pub mod queue;
pub mod semaphores;

use pando_rt::memory::PageRange;

use crate::process::ProcessNumber;
use objects::Objects;
use queue::Queue;
use semaphores::Semaphores;

/// Segments of shared memory that there may be.
pub const SEGMENTS_MAX: usize = 4096;
/// Sets of semaphores that there may be.
pub const SETS_MAX: usize = 32_000;
/// Queues of messages that there may be.
pub const QUEUES_MAX: usize = 32_000;

/// A segment of shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Bytes, as they were asked for.
    pub bytes: u64,
    /// Where it lies, in all processes that attach it.
    pub pages: PageRange,
    /// It goes when nobody has it attached any more.
    pub is_removed: bool,
    /// It was asked to stay in memory.
    pub is_locked: bool,
    /// Seconds since 1970 when it was attached and detached last; 0: never.
    pub times: [u64; 2],
    /// Who made it, and who attached or detached it last.
    pub processes: [ProcessNumber; 2],
}

/// All of them.
#[derive(Debug, Default)]
pub struct Ipc {
    /// Shared memory.
    pub segments: Objects<Segment>,
    /// Sets of semaphores.
    pub semaphores: Objects<Semaphores>,
    /// Queues of messages.
    pub queues: Objects<Queue>,
}
