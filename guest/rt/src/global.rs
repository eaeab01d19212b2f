// SPDX-License-Identifier: MIT OR Apache-2.0
//! A global value that all upcalls share.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

/// A global value with one user at a time. A second user does not wait, because it would wait for itself: it panics.
#[repr(C)]
pub struct Global<T> {
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `busy` lets only one user at a time reach the value, and the value may go from one thread to another.
unsafe impl<T: Send> Sync for Global<T> {}

/// Aligns to a page, so that a value whose hot part comes first costs a clone one page copy.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct OnOwnPage<T>(pub T);

impl<T> Global<T> {
    /// Wraps the value.
    pub const fn new(value: T) -> Self {
        Global { busy: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Passes the value to `user`.
    ///
    /// # Panics
    /// It is in use already.
    pub fn with<R>(&self, user: impl FnOnce(&mut T) -> R) -> R {
        assert!(!self.take(), "a global value was used while it was in use");
        // SAFETY: `take` has shown that nobody else holds a reference, and nobody gets one before `busy` is cleared.
        let result = user(unsafe { &mut *self.value.get() });
        self.busy.store(false, Ordering::Release);
        result
    }
    /// Marks the value as in use. Returns whether it was so before.
    fn take(&self) -> bool {
        // A cell has one thread, and an upcall between the two instructions releases the value before the second. An
        // atomic exchange would cost a system call more than all the rest of its entry.
        if cfg!(target_os = "none") {
            let before = self.busy.load(Ordering::Relaxed);
            self.busy.store(true, Ordering::Relaxed);
            return before;
        }
        self.busy.swap(true, Ordering::Acquire)
    }
}
