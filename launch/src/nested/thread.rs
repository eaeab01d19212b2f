// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of nested cells that the calls of the operator share with a thread, and the thread, which carries the bytes.

use super::child::Child;
use pando_abi::limits::MAX_CONSOLE_BYTES;
use pando_kernel::CellId;
use pando_machine::CellsDevice;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, read, write};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Wakes the thread.
pub(super) struct Waker(OwnedFd);

impl Waker {
    fn new() -> io::Result<Waker> {
        Ok(Waker(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes the thread. Takes no lock.
    pub(super) fn wake(&self) {
        // The counter of an eventfd is too large to overflow.
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }

    fn reset(&self) {
        let _ = read(&self.0, &mut [0; 8]);
    }
}

/// State that the thread shares. The lock is held while calls are made, none of which waits.
pub(super) struct DeviceState {
    pub(super) device: CellsDevice,
    children: Mutex<BTreeMap<CellId, Child>>,
    /// A child has ended or frozen.
    changed: Condvar,
    pub(super) waker: Arc<Waker>,
    is_over: AtomicBool,
    /// The number of the next child that is prepared before it is made.
    next: AtomicU32,
}

impl DeviceState {
    pub(super) fn new(device: CellsDevice) -> io::Result<DeviceState> {
        let waker = Arc::new(Waker::new()?);
        Ok(DeviceState {
            device,
            children: Mutex::default(),
            changed: Condvar::new(),
            waker,
            is_over: AtomicBool::new(false),
            next: AtomicU32::new(0),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<CellId, Child>> {
        self.children.lock().expect("no holder of this lock panics")
    }

    /// A number for a child that is not made yet.
    pub(super) fn next_number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The condition that children end and freeze.
    pub(super) fn changed(&self) -> &Condvar {
        &self.changed
    }

    /// Ends the thread.
    pub(super) fn finish(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Carries bytes and watches states until [`finish`](Shared::finish).
    pub(super) fn run(&self) {
        let mut buffer = vec![0; MAX_CONSOLE_BYTES as usize];
        while !self.is_over.load(Ordering::Relaxed) {
            // Clears pending events before it reads the state, so that a later event wakes the next wait.
            self.waker.reset();
            // A device that fails does so in each call about a child, too.
            let _ = self.device.forget_events();
            if self.turn(&mut buffer) {
                continue;
            }
            let mut waits = [PollFd::new(&self.device, PollFlags::IN), PollFd::new(&self.waker.0, PollFlags::IN)];
            match poll(&mut waits, None) {
                Ok(_) | Err(Errno::INTR) => {}
                // Without memory for the call: the next one may have it.
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    /// Serves each child once. Returns whether there may be more to carry now.
    fn turn(&self, buffer: &mut [u8]) -> bool {
        let active: Vec<CellId> = self.lock().iter().filter(|(_, child)| child.is_active()).map(|(id, _)| *id).collect();
        let (mut more, mut is_changed) = (false, false);
        for id in active {
            let mut children = self.lock();
            let Some(child) = children.get_mut(&id) else { continue };
            match child.transfer(&self.device, buffer) {
                Ok(left) => more |= left,
                Err(error) => child.fail(&error),
            }
            is_changed |= !child.is_active();
        }
        if is_changed {
            self.changed.notify_all();
        }
        more
    }
}
