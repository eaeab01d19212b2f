// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that poll for what another thread will take. A thread that polls, finds something ready, leaves it, and polls again waits for
//! another thread to take it: Python's pools of processes have such threads. On Linux that thread was woken, too, and soon preempts the
//! one that polls. Here it would wait until the time slice ends.

use pando_rt::clock;
use syscalls::Sysno;

use super::System;

/// Number of polls after which a thread yields.
const POLLS: u8 = 3;
/// A thread that has run for so many nanoseconds since its last poll has something to do other than to wait.
const BUSY: u64 = 500_000;
/// Calls that take nothing, and so leave a poll's answer as it was.
const ASKING: [u64; 11] = [
    Sysno::poll as u64,
    Sysno::ppoll as u64,
    Sysno::select as u64,
    Sysno::pselect6 as u64,
    Sysno::epoll_wait as u64,
    Sysno::epoll_pwait as u64,
    Sysno::epoll_pwait2 as u64,
    Sysno::clock_gettime as u64,
    Sysno::gettimeofday as u64,
    Sysno::getpid as u64,
    Sysno::gettid as u64,
];

impl System {
    /// Notes that the running thread's poll has found something ready. The thread yields if it has polled several times and taken
    /// nothing.
    pub fn note_ready_poll(&mut self) {
        if self.thread.call.is_restarted {
            self.thread.idle_polls = 0;
            return;
        }
        let now = clock::now();
        let last = core::mem::replace(&mut self.thread.last_poll, now);
        self.thread.idle_polls = if now.saturating_sub(last) < BUSY { self.thread.idle_polls.saturating_add(1) } else { 1 };
        if self.thread.idle_polls > POLLS && !self.others.queue.is_empty() {
            self.thread.idle_polls = 0;
            self.end_turn_now();
        }
    }

    /// Notes that the running thread has made a call, and its result.
    pub fn note_call(&mut self, number: u64, result: u64) {
        if self.thread.idle_polls == 0 || ASKING.contains(&number) {
            return;
        }
        // Python's pools ask whether children have ended, too. Only an answer with a child takes something.
        let takes_nothing = number == Sysno::wait4 as u64 && result.cast_signed() <= 0;
        if !takes_nothing {
            self.thread.idle_polls = 0;
        }
    }
}
