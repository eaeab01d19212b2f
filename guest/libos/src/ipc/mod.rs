// SPDX-License-Identifier: MIT OR Apache-2.0
//! System V IPC objects: shared memory, semaphores and message queues. All processes of the cell find them by key or number, and they
//! exist until they are removed.

pub mod objects;
pub mod queue;
pub mod semaphores;

use pando_rt::memory::PageRange;

use crate::pid::Pid;
use objects::Objects;
use queue::Queue;
use semaphores::Semaphores;

/// Upper limit on segments of shared memory.
pub const SEGMENTS_MAX: usize = 4096;
/// Upper limit on semaphore sets.
pub const SETS_MAX: usize = 32_000;
/// Upper limit on message queues.
pub const QUEUES_MAX: usize = 32_000;

/// A segment of shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Its size in bytes, as it was requested.
    pub bytes: u64,
    /// Its pages, the same in all processes that attach it.
    pub pages: PageRange,
    /// It is freed when no process has it attached any more.
    pub is_removed: bool,
    /// It was locked in memory (`SHM_LOCK`).
    pub is_locked: bool,
    /// Times of the last attach and the last detach, in seconds since 1970; 0: never.
    pub times: [u64; 2],
    /// The process that created it, and the one that attached or detached it last.
    pub processes: [Pid; 2],
}

/// All System V IPC objects of the cell.
#[derive(Debug, Default)]
pub struct Ipc {
    /// Shared memory.
    pub segments: Objects<Segment>,
    /// Sets of semaphores.
    pub semaphores: Objects<Semaphores>,
    /// Queues of messages.
    pub queues: Objects<Queue>,
}
