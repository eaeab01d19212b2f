// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that poll for what another thread will take. A thread that polls, finds something ready, leaves it, and polls again waits for
//! another thread to take it: Python's pools of processes have such threads. On Linux that thread was woken, too, and soon preempts the
//! one that polls. Here it would wait until the time slice ends.

use syscalls::Sysno;

use super::System;

/// Number of polls after which a thread yields.
const POLLS: u8 = 3;
/// Calls that take nothing, and so leave a poll's answer as it was.
const ASKING: [u64; 12] = [
    Sysno::poll as u64,
    Sysno::ppoll as u64,
    Sysno::select as u64,
    Sysno::pselect6 as u64,
    Sysno::epoll_wait as u64,
    Sysno::epoll_pwait as u64,
    Sysno::wait4 as u64,
    Sysno::waitid as u64,
    Sysno::clock_gettime as u64,
    Sysno::gettimeofday as u64,
    Sysno::getpid as u64,
    Sysno::gettid as u64,
];

impl System {
    /// Notes that the running thread's poll has found something ready. The thread yields if it has polled several times and taken
    /// nothing.
    pub fn note_ready_poll(&mut self) {
        if self.thread.call.again {
            self.thread.idle_polls = 0;
            return;
        }
        self.thread.idle_polls = self.thread.idle_polls.saturating_add(1);
        if self.thread.idle_polls > POLLS && !self.others.queue.is_empty() {
            self.thread.idle_polls = 0;
            self.end_turn_now();
        }
    }

    /// Notes that the running thread has made a call.
    pub fn note_call(&mut self, number: u64) {
        if self.thread.idle_polls > 0 && !ASKING.contains(&number) {
            self.thread.idle_polls = 0;
        }
    }
}
