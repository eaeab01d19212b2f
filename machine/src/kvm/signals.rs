// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that interrupt `KVM_RUN`.
//!
//! A signal that arrives just before `KVM_RUN` would be lost. So its handler sets `immediate_exit` of the vCPU that
//! its thread runs, and KVM returns at once. The handler accesses only thread-local words.

use crate::{HostError, Interrupter};
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, Ordering};

thread_local! {
    /// `immediate_exit` of the vCPU that this thread runs or ran last, or null.
    static IMMEDIATE_EXIT: Cell<*mut u8> = const { Cell::new(std::ptr::null_mut()) };
    /// Whether the thread is inside `KVM_RUN`.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    /// Whether the host lost memory that this thread's cell used.
    static POISONED: Cell<bool> = const { Cell::new(false) };
}

/// The signal that interrupts a vCPU.
pub(super) fn interrupt_signal() -> libc::c_int {
    libc::SIGRTMIN() + 2
}

extern "C" fn on_interrupt(_: libc::c_int) {
    let flag = IMMEDIATE_EXIT.get();
    if !flag.is_null() {
        // SAFETY: set by `enter` from a live vCPU of this thread and cleared by nobody else; a vCPU's page stays mapped until
        // its thread's vCPU is dropped, which `KvmVcpu` does on the thread that runs it, after `leave` has reset the pointer.
        unsafe { flag.write_volatile(1) };
    }
}

extern "C" fn on_bus_error(_: libc::c_int) {
    if RUNNING.get() {
        POISONED.set(true);
        return on_interrupt(0);
    }
    // Not a cell's memory: restore the default action, which ends the process.
    // SAFETY: resets a disposition; the instruction faults again and ends the process.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

/// Installs the handlers, once per process.
pub(super) fn install() -> Result<(), HostError> {
    for (signal, handler) in [(interrupt_signal(), on_interrupt as extern "C" fn(libc::c_int)), (libc::SIGBUS, on_bus_error)] {
        // SAFETY: an all-zero `sigaction` is a valid one with an empty mask and no flags.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as usize;
        // SAFETY: the handler is async-signal-safe: it reads and writes thread-local words that need no initialisation.
        let install = || unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
        HostError::os("install a signal handler", install)?;
    }
    Ok(())
}

/// A thread's time in `KVM_RUN`.
pub(super) struct RunGuard;

/// Marks that this thread enters `KVM_RUN` of the vCPU whose `immediate_exit` lies at `flag`.
pub(super) fn enter(flag: *mut u8) -> RunGuard {
    IMMEDIATE_EXIT.set(flag);
    RUNNING.set(true);
    RunGuard
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        RUNNING.set(false);
    }
}

/// Forgets the vCPU that this thread ran.
pub(super) fn leave(flag: *mut u8) {
    if IMMEDIATE_EXIT.get() == flag {
        IMMEDIATE_EXIT.set(std::ptr::null_mut());
    }
}

/// Returns and resets whether the host lost memory while this thread's cell ran.
pub(super) fn take_poison() -> bool {
    POISONED.replace(false)
}

/// Interrupts the thread that a vCPU is bound to.
#[derive(Default)]
pub(super) struct ThreadInterrupter {
    thread: AtomicI32,
}

impl ThreadInterrupter {
    /// Directs interrupts to the calling thread.
    pub(super) fn bind_to_this_thread(&self) {
        // SAFETY: no preconditions.
        self.thread.store(unsafe { libc::gettid() }, Ordering::Release);
    }

    /// Disables interrupts.
    pub(super) fn unbind(&self) {
        self.thread.store(0, Ordering::Release);
    }
}

impl Interrupter for ThreadInterrupter {
    fn interrupt(&self) {
        let thread = self.thread.load(Ordering::Acquire);
        if thread != 0 {
            // SAFETY: `tgkill` with this process's own id reaches only its own threads; the signal has a handler.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, interrupt_signal()) };
        }
    }
}
