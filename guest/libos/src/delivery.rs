// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signal delivery: starting a handler, and returning from it.

use pando_abi::SavedContext;
use pando_rt::user::{self, Fault};
use pando_rt::vector;

use crate::errno::Errno;
use crate::signals::action::{Action, Disposition};
use crate::signals::frame::{self, CONTEXT, FrameLayout, INFORMATION, SavedSignalState};
use crate::signals::info::{Cause, SigInfo};
use crate::signals::{InterruptedCall, Signal, SignalSet};
use crate::system::System;
use crate::trace;
use crate::uapi::{SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_RESTORER};
use crate::user::words;

/// Offset of the software's record of the vector state (`struct _fpx_sw_bytes`): the end of the legacy part.
const SW_BYTES_OFFSET: usize = 464;
/// `FP_XSTATE_MAGIC1` and `FP_XSTATE_MAGIC2`: there is more than the legacy part, and it is whole.
const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
const FP_XSTATE_MAGIC2: u32 = 0x4650_5845;
/// Bytes of the legacy part and the header.
const HEAD: usize = vector::LEGACY_SIZE + 64;
/// Components x87 and SSE.
const LEGACY_COMPONENTS: u64 = 3;
/// Flags that a handler starts without: TF DF RF.
const NOT_IN_HANDLERS: u64 = 0x1_0500;
/// The end of the addresses that an instruction pointer can have.
const CODE_END: u64 = 1 << 47;

/// Prepares the context that the application runs next: in a handler of a signal that it does not block, or at its end.
pub fn deliver(system: &mut System, context: &mut SavedContext) {
    loop {
        system.process_events();
        while let Some(info) = system.take_signal(system.deliverable()) {
            let signal = info.signal();
            let action = system.process.signals.action(signal);
            let info = system.delivered_info(info);
            trace::signal(system, &info);
            if !system.report_signal(signal, context) {
                continue;
            }
            match action.disposition(signal) {
                Disposition::Ignore => {}
                Disposition::End => return end(system, &info, context),
                Disposition::Stop if system.may_stop(signal) => return system.stop(signal),
                Disposition::Stop => {}
                Disposition::Handle => start(system, context, &info, action),
            }
        }
        if let Some(call) = system.thread.signals.interrupted.take() {
            // The interrupted call has come to nothing.
            restart_call(context, call);
        }
        system.thread.signals.restore_mask();
        if context.rip < CODE_END {
            return;
        }
        // The context cannot run on there.
        system.force(SigInfo::kernel(Signal::SIGSEGV));
    }
}

/// Ends the program; reports where it faulted and, for a page fault, at which address.
fn end(system: &mut System, info: &SigInfo, context: &SavedContext) {
    trace::end(system, info.signal());
    match info.cause() {
        Cause::Touched => system.kill_by_signal(info.signal(), info.address(), context.rip),
        Cause::Instruction => system.kill_by_signal(info.signal(), context.rip, context.rip),
        Cause::Other => system.kill_by_signal(info.signal(), 0, 0),
    }
}

fn restart_call(context: &mut SavedContext, call: InterruptedCall) {
    context.rax = call.number;
    context.rip = call.site;
}

/// Starts a handler, with a frame on its stack from which `rt_sigreturn` restores the context.
fn start(system: &mut System, context: &mut SavedContext, info: &SigInfo, action: Action) {
    let signal = info.signal();
    if system.memory.has_late_protections() {
        system.memory.set_late_protections();
    }
    if let Some(call) = system.thread.signals.interrupted.take() {
        if action.flags & SA_RESTART != 0 {
            restart_call(context, call);
        } else {
            context.rax = Errno::EINTR.to_result();
        }
    }
    if action.flags & SA_RESETHAND != 0 {
        system.process.signals.set_action(signal, Action { handler: 0, ..action });
    }
    system.abort_rseq(context);
    if push(system, context, info, action).is_err() {
        if signal == Signal::SIGSEGV {
            system.process.signals.set_action(signal, Action::default());
        }
        return system.force(SigInfo::kernel(Signal::SIGSEGV));
    }
    let signals = &mut system.thread.signals;
    signals.stack = signals.stack.entered();
    let itself = if action.flags & SA_NODEFER == 0 { SignalSet::default().with(signal) } else { SignalSet::default() };
    signals.set_mask(SignalSet(signals.mask().0 | action.mask.0 | itself.0));
    vector::reset();
}

/// Puts the frame on the stack and the handler into the context.
fn push(system: &mut System, context: &mut SavedContext, info: &SigInfo, action: Action) -> Result<(), Fault> {
    let extended = vector::components() != 0;
    let stack = system.thread.signals.stack;
    let other = if action.flags & SA_ONSTACK != 0 { stack.top(context.rsp) } else { None };
    let vector_bytes = vector::size() + if extended { size_of_val(&FP_XSTATE_MAGIC2) } else { 0 };
    let layout = FrameLayout::below(context.rsp, other, vector_bytes as u64);
    // A frame that overflows the alternate stack must not overwrite the memory below it.
    let confined = other.is_some() || stack.in_use(context.rsp);
    if action.flags & SA_RESTORER == 0 || confined && !stack.holds(layout.frame) {
        return Err(Fault);
    }
    system.memory.grow_stack(layout.frame, system.process.limits.stack());
    let mask = system.thread.signals.mask_afterwards.take().unwrap_or(system.thread.signals.mask());
    let signal_state =
        SavedSignalState { mask, stack: stack.to_words(), trap: system.thread.signals.trap, vectors: layout.vectors, extended };
    push_vectors(layout.vectors, extended)?;
    let mut bytes = [0; frame::SIZE as usize];
    let words = core::iter::once(action.restorer).chain(frame::to_words(context, &signal_state));
    for (room, word) in bytes.chunks_exact_mut(8).zip(words) {
        room.copy_from_slice(&word.to_le_bytes());
    }
    bytes[INFORMATION as usize..].copy_from_slice(info.bytes());
    user::write(layout.frame, &bytes)?;
    context.rdi = info.signal().0.into();
    context.rsi = layout.frame + INFORMATION;
    context.rdx = layout.frame + CONTEXT;
    context.rax = 0;
    context.rsp = layout.frame;
    context.rip = action.handler;
    context.rflags &= !NOT_IN_HANDLERS;
    Ok(())
}

/// Writes the vector state with the software's record of it.
fn push_vectors(address: u64, extended: bool) -> Result<(), Fault> {
    vector::current(|state| {
        if !extended {
            return user::write(address, state);
        }
        let mut head = [0; HEAD];
        head.copy_from_slice(&state[..HEAD]);
        let size = state.len() as u32;
        let components = vector::components();
        let sw_bytes = [FP_XSTATE_MAGIC1, size + size_of_val(&FP_XSTATE_MAGIC2) as u32, components as u32, (components >> 32) as u32, size];
        let room = &mut head[SW_BYTES_OFFSET..vector::LEGACY_SIZE];
        room.fill(0);
        for (room, word) in room.chunks_exact_mut(4).zip(sw_bytes) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        // Readers of the legacy part need not know about the initial state of components.
        head[vector::LEGACY_SIZE] |= LEGACY_COMPONENTS as u8;
        user::write(address, &head)?;
        user::write(address + HEAD as u64, &state[HEAD..])?;
        user::write(address + u64::from(size), &FP_XSTATE_MAGIC2.to_le_bytes())
    })
}

/// Restores the context from a handler's frame (`rt_sigreturn`). An invalid frame is a fault.
pub fn sigreturn(system: &mut System, context: &mut SavedContext) {
    // The handler's `ret` has popped the return address.
    let address = context.rsp;
    let restored = words(address).ok().and_then(|words| frame::apply(&words, context));
    let loaded = restored.and_then(|restored| {
        system.thread.signals.set_mask(restored.mask);
        load_vectors(restored.vectors).ok().map(|()| restored)
    });
    match loaded {
        // An invalid alternate stack leaves the present one as it is.
        Some(restored) => {
            let stack = system.thread.signals.stack.replaced(restored.stack, context.rsp);
            system.thread.signals.stack = stack.unwrap_or(system.thread.signals.stack);
        }
        None => system.force(SigInfo::kernel(Signal::SIGSEGV)),
    }
}

/// Loads the vector state of a frame.
fn load_vectors(address: u64) -> Result<(), vector::Malformed> {
    if address == 0 {
        vector::reset();
        return Ok(());
    }
    let bad = |_| vector::Malformed;
    let mut legacy = [0; vector::LEGACY_SIZE];
    user::read(address, &mut legacy).map_err(bad)?;
    let word = |index: usize| {
        let at = SW_BYTES_OFFSET + index * 4;
        u32::from_le_bytes([legacy[at], legacy[at + 1], legacy[at + 2], legacy[at + 3]])
    };
    let size = vector::size() as u32;
    let claims_more =
        vector::components() != 0 && word(0) == FP_XSTATE_MAGIC1 && word(4) >= HEAD as u32 && word(4) <= size && word(1) >= word(4);
    let whole = claims_more && {
        let mut end = [0; size_of::<u32>()];
        user::read(address.wrapping_add(size.into()), &mut end).map_err(bad)?;
        u32::from_le_bytes(end) == FP_XSTATE_MAGIC2
    };
    if !whole {
        return vector::load(LEGACY_COMPONENTS, |room| {
            room[..legacy.len()].copy_from_slice(&legacy);
            Ok(())
        });
    }
    let components = (u64::from(word(2)) | u64::from(word(3)) << 32) & vector::components();
    vector::load(components, |room| user::read(address, room).map_err(bad))
}
