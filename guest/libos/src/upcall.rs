// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the application's upcalls lead to.

use pando_abi::registers::cause;
use pando_abi::{Event, EventSet, SavedContext};

use crate::process::{Process, kill};
use crate::signals::Signal;
use crate::{exceptions, table};

/// Serves a system call or an exception; the context then runs on.
pub fn handle(process: &mut Process, context: &mut SavedContext) {
    if context.cause != cause::SYSCALL {
        return exceptions::handle(process, context);
    }
    // A buffer on the stack lies above the stack pointer: with that much mapped, no copy meets a stack that has yet to grow.
    process.memory.grow_stack(context.rsp);
    let arguments = [context.rdi, context.rsi, context.rdx, context.r10, context.r8, context.r9];
    context.rax = table::perform(process, context.rax, arguments);
}

/// Notices events: whoever waits looks for itself; a new generation is noticed by who needs its entropy.
pub fn events(events: EventSet) {
    if events.contains(Event::Terminate) {
        kill(Signal::TERM, 0, 0);
    }
    if events.contains(Event::Interrupt) {
        kill(Signal::INT, 0, 0);
    }
}
