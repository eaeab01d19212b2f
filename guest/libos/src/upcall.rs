// SPDX-License-Identifier: MIT OR Apache-2.0
//! The entry of the application's upcalls.

use pando_abi::registers::cause;
use pando_abi::{Registers, SavedContext};
use pando_rt::{debug, patched, thread_base, vector};
use syscalls::Sysno;

use crate::errno::Errno;
use crate::patch::code::{INSTRUCTION, TrappingInstruction};
use crate::signals::frame::RT_SIGRETURN;
use crate::signals::{InterruptedCall, Signal};
use crate::system::{Effect, System};
use crate::thread::{Call, ThreadState};
use crate::{delivery, exceptions, table, trace};

/// Serves a system call, an exception or events, and leaves the context that runs next: the same one, perhaps in a signal handler,
/// or another thread's. Until it runs, every saved context stands in the program's own code.
pub fn handle(system: &mut System, context: &mut SavedContext) {
    system.enter_upcall();
    if !matches!(context.cause, patched::SYSCALL | patched::CPUID) {
        // A trap alone takes longer than reading the clock.
        system.measure_upcall();
    }
    if system.memory.linker_start.is_unfinished() {
        follow_linker(system, context);
    }
    let turns = system.others.turns;
    let mut copies = None;
    match context.cause {
        patched::SYSCALL => {
            copies = Some((context.rip, context.address, system.memory.patches.removed_count()));
            call(system, context);
        }
        patched::CPUID => {
            copies = Some((context.rip, context.address, system.memory.patches.removed_count()));
            exceptions::set_cpuid(context);
        }
        cause::SYSCALL => {
            // The site is patched before the call is served, as some never return. Unwinders know a handler's return by its bytes.
            // A debugger sees the program's code as it is in its file.
            if context.rax != RT_SIGRETURN && system.thread_table.is_none() {
                system.memory.trapped(site(context), TrappingInstruction::Syscall);
            }
            call(system, context);
        }
        // Events were noted at their arrival, and are handled before signals are delivered.
        cause::EVENTS => system.memory.leave_trampoline(context),
        _ => exceptions::handle(system, context),
    }
    proceed(system, context);
    match copies {
        // The usual case: the context goes on behind the call, and the trampoline still exists.
        Some((next, copies, given_up))
            if context.rip == next && system.others.turns == turns && system.memory.patches.removed_count() == given_up =>
        {
            context.rip = copies;
        }
        _ => system.memory.enter_trampoline(context),
    }
    system.list_threads();
    system.leave_upcall();
}

/// Leaves the context that runs next in `context`: the running thread's with its signals delivered, or another thread's.
fn proceed(system: &mut System, context: &mut SavedContext) {
    loop {
        if matches!(system.thread.state, ThreadState::Runs) && !system.process.stopped {
            delivery::deliver(system, context);
            if system.run_deferred_work() {
                debug::read_again(context);
                continue;
            }
            if !system.should_yield() {
                return;
            }
        }
        system.switch(context);
        if matches!(system.thread.state, ThreadState::Calls | ThreadState::Starts(_)) {
            let stage = core::mem::take(&mut system.thread.state);
            // A thread that is about to end does not try again.
            match stage {
                _ if system.pending().contains(Signal::SIGKILL) => {}
                ThreadState::Starts(wanted) => {
                    if let Some(registers) = system.begin(*wanted) {
                        start(context, &registers);
                    }
                }
                _ => call(system, context),
            }
        }
    }
}

/// Sets protections that wait, unless an upcall is one of the calls by which a linker ends a program's start. At the first call of other
/// code, no more of them may wait.
// Never part of the usual system call, which should not pay for this frame with another page of stack.
#[inline(never)]
fn follow_linker(system: &mut System, context: &SavedContext) {
    // These calls decide themselves about protections that wait.
    const CALLS: [u64; 2] = [Sysno::mprotect as u64, Sysno::munmap as u64];
    const LIMIT: u64 = 2 * size_of::<u64>() as u64;
    let start = &mut system.memory.linker_start;
    let is_call = matches!(context.cause, patched::SYSCALL | cause::SYSCALL);
    let is_linker = start.contains(context.rip);
    // The linker lets glibc ask for the limit of the stack before it unmaps its cache.
    let asks_limit = context.rax == Sysno::prlimit64 as u64 && context.rdx == 0 && start.has_cache();
    if is_call && !is_linker && !asks_limit {
        start.finish();
    }
    let answer = context.r10..context.r10.saturating_add(LIMIT);
    let waits = is_call && (is_linker && CALLS.contains(&context.rax) || asks_limit && !start.is_late(&answer));
    if !waits && system.memory.has_late_protections() {
        system.memory.set_late_protections();
    }
}

/// The address of the system call instruction that a context comes from.
fn site(context: &SavedContext) -> u64 {
    context.rip.wrapping_sub(INSTRUCTION as u64)
}

/// Makes the system call in the context's registers, for the first time or again.
fn call(system: &mut System, context: &mut SavedContext) {
    // A buffer on the stack lies above the stack pointer. With the stack mapped down to it, no copy faults on unmapped stack.
    system.memory.grow_stack(context.rsp, system.process.limits.stack());
    system.thread.signals.stack_pointer = context.rsp;
    system.thread.call.instruction = context.rip;
    let number = context.rax;
    let arguments = [context.rdi, context.rsi, context.rdx, context.r10, context.r8, context.r9];
    let result = system.thread.call.result.take().unwrap_or_else(|| {
        let perform = if system.traced { trace::call } else { table::perform };
        perform(system, number, arguments)
    });
    system.note_call(number, result);
    system.wake_noted();
    let effect = system.effect.take();
    if result == Errno::WAITS.to_result() {
        system.thread.call.is_restarted = true;
    } else {
        system.thread.call = Call::default();
        context.rax = result;
        if result == Errno::ERESTART.to_result() {
            system.thread.signals.interrupted = Some(InterruptedCall { number, site: site(context) });
        } else if result != Errno::EINTR.to_result() && !matches!(effect, Some(Effect::Return)) {
            // Signals that only the call unblocked do not interrupt anything any more.
            system.thread.signals.restore_mask();
        }
    }
    match effect {
        None => {}
        Some(Effect::Return) => delivery::sigreturn(system, context),
        Some(Effect::Copy { to, stack }) => {
            let copy = SavedContext { rax: 0, rsp: if stack == 0 { context.rsp } else { stack }, ..*context };
            if let Some(thread) = system.thread_of_mut(to) {
                (thread.saved.context, thread.saved.vectors) = (copy, Some(vector::VectorState::save()));
            }
        }
        Some(Effect::Start(registers)) => {
            start(context, &registers);
            system.report_start(context);
        }
    }
}

/// Lets a program start with these registers.
fn start(context: &mut SavedContext, registers: &Registers) {
    *context = SavedContext::new(registers, cause::SYSCALL, 0, 0);
    thread_base::set_fs(0);
    thread_base::set_gs(0);
    vector::reset();
}
