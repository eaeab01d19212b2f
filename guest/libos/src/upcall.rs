// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the application's upcalls lead to.

use pando_abi::SavedContext;
use pando_abi::registers::cause;

use crate::errno::Errno;
use crate::process::Process;
use crate::signals::{Interrupted, delivery};
use crate::{exceptions, table};

/// Bytes of the instruction `syscall`.
const SYSCALL_SIZE: u64 = 2;

/// Serves a system call, an exception or events; the context then runs on, perhaps in the handler of a signal.
pub fn handle(process: &mut Process, context: &mut SavedContext) {
    match context.cause {
        cause::SYSCALL => call(process, context),
        // They were noted, and are looked at before anything is delivered.
        cause::EVENTS => {}
        _ => exceptions::handle(process, context),
    }
    delivery::deliver(process, context);
}

fn call(process: &mut Process, context: &mut SavedContext) {
    // A buffer on the stack lies above the stack pointer: with that much mapped, no copy meets a stack that has yet to grow.
    process.memory.grow_stack(context.rsp);
    process.signals.stack_pointer = context.rsp;
    let number = context.rax;
    let arguments = [context.rdi, context.rsi, context.rdx, context.r10, context.r8, context.r9];
    context.rax = table::perform(process, number, arguments);
    if core::mem::take(&mut process.signals.returns) {
        delivery::go_back(process, context);
    } else if context.rax == Errno::ERESTART.to_result() {
        process.signals.interrupted = Some(Interrupted { number, site: context.rip.wrapping_sub(SYSCALL_SIZE) });
    } else if context.rax != Errno::EINTR.to_result() {
        // What only the call unblocked does not interrupt anything any more.
        process.signals.restore_mask();
    }
}
