// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the application's upcalls lead to.

use pando_abi::SavedContext;
use pando_abi::registers::cause;
use pando_rt::patched;

use crate::errno::Errno;
use crate::patch::code::{INSTRUCTION, Kind};
use crate::process::Process;
use crate::signals::{Interrupted, delivery};
use crate::{exceptions, table};

/// Number of the call that ends handlers.
const RT_SIGRETURN: u64 = 15;

/// Serves a system call, an exception or events; the context then runs on, perhaps in the handler of a signal. Until it does, it stands in the program's own code.
pub fn handle(process: &mut Process, context: &mut SavedContext) {
    let mut copies = None;
    match context.cause {
        patched::SYSCALL => {
            copies = Some((context.rip, context.address, process.memory.patches.given_up()));
            call(process, context);
        }
        patched::CPUID => {
            copies = Some((context.rip, context.address, process.memory.patches.given_up()));
            exceptions::set_cpuid(context);
        }
        cause::SYSCALL => {
            let (site, number) = (site(context), context.rax);
            call(process, context);
            // Unwinders know a handler's return by its bytes.
            if number != RT_SIGRETURN {
                process.memory.trapped(site, Kind::Syscall);
            }
        }
        // They were noted, and are looked at before anything is delivered.
        cause::EVENTS => process.memory.settle(context),
        _ => exceptions::handle(process, context),
    }
    delivery::deliver(process, context);
    match copies {
        // Nearly always: nothing has led elsewhere, and the trampoline stands.
        Some((next, copies, given_up)) if context.rip == next && process.memory.patches.given_up() == given_up => context.rip = copies,
        _ => process.memory.unsettle(context),
    }
}

/// Where the system call stands that a context comes from.
fn site(context: &SavedContext) -> u64 {
    context.rip.wrapping_sub(INSTRUCTION as u64)
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
        process.signals.interrupted = Some(Interrupted { number, site: site(context) });
    } else if context.rax != Errno::EINTR.to_result() {
        // What only the call unblocked does not interrupt anything any more.
        process.signals.restore_mask();
    }
}
