// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exceptions of the application: stack growth, `cpuid`, and the signals that Linux sends for the rest.

use pando_abi::SavedContext;
use pando_abi::registers::UNREADABLE;
use pando_rt::{cpuid, user, vector};

use crate::patch::code::{INSTRUCTION, TrappingInstruction};
use crate::signals::info::SigInfo;
use crate::signals::{Signal, Trap};
use crate::system::System;
use crate::uapi::{
    BUS_ADRALN, BUS_ADRERR, FPE_FLTDIV, FPE_FLTINV, FPE_FLTOVF, FPE_FLTRES, FPE_FLTUND, FPE_INTDIV, ILL_ILLOPN, SEGV_ACCERR, SEGV_MAPERR,
    TRAP_TRACE,
};

const DIVIDE: u64 = 0;
const DEBUG: u64 = 1;
const BREAKPOINT: u64 = 3;
const INVALID_OPCODE: u64 = 6;
const STACK: u64 = 12;
const GENERAL_PROTECTION: u64 = 13;
const PAGE_FAULT: u64 = 14;
const X87: u64 = 16;
const ALIGNMENT: u64 = 17;
const SIMD: u64 = 19;

/// Bytes that an instruction can have.
const INSTRUCTION_MAX: usize = 15;

/// Handles an exception: the context runs on, or gets a signal.
pub fn handle(system: &mut System, context: &mut SavedContext) {
    let is_handled = system.memory.handle_patch_exception(context);
    system.memory.leave_trampoline(context);
    let resolved = is_handled
        || match context.cause {
            PAGE_FAULT => system.memory.grow_stack(context.address, system.process.limits.stack()),
            GENERAL_PROTECTION => emulate_cpuid(system, context),
            _ => false,
        };
    if !resolved {
        let info = signal(system, context);
        system.thread.signals.trap = Trap {
            number: context.cause,
            // The error code of the CPU.
            error: context.error & !UNREADABLE,
            // As on Linux, it keeps the address of the last page fault.
            address: if context.cause == PAGE_FAULT { context.address } else { system.thread.signals.trap.address },
        };
        system.force(info);
    }
}

/// The signal that Linux sends for an exception.
fn signal(system: &System, context: &SavedContext) -> SigInfo {
    /// Bit of a page fault's error code: it was a write.
    const WRITE: u64 = 2;
    match context.cause {
        DIVIDE => SigInfo::fault(Signal::SIGFPE, FPE_INTDIV, context.rip),
        DEBUG => SigInfo::fault(Signal::SIGTRAP, TRAP_TRACE, context.rip),
        BREAKPOINT => SigInfo::kernel(Signal::SIGTRAP),
        INVALID_OPCODE => SigInfo::fault(Signal::SIGILL, ILL_ILLOPN, context.rip),
        STACK => SigInfo::kernel(Signal::SIGBUS),
        PAGE_FAULT if context.error & UNREADABLE != 0 => SigInfo::fault(Signal::SIGBUS, BUS_ADRERR, context.address),
        PAGE_FAULT if system.memory.is_beyond(context.address, context.error & WRITE != 0) => {
            SigInfo::fault(Signal::SIGBUS, BUS_ADRERR, context.address)
        }
        PAGE_FAULT => {
            let code = if system.memory.is_mapped(context.address) { SEGV_ACCERR } else { SEGV_MAPERR };
            SigInfo::fault(Signal::SIGSEGV, code, context.address)
        }
        X87 => SigInfo::fault(Signal::SIGFPE, vector::current(x87_code), context.rip),
        ALIGNMENT => SigInfo::fault(Signal::SIGBUS, BUS_ADRALN, 0),
        SIMD => SigInfo::fault(Signal::SIGFPE, vector::current(simd_code), context.rip),
        _ => SigInfo::kernel(Signal::SIGSEGV),
    }
}

/// The `si_code` of an x87 exception, from the control and status words of a legacy area.
fn x87_code(state: &[u8]) -> i32 {
    let word = |at: usize| u32::from(u16::from_le_bytes([state[at], state[at + 1]]));
    floating_code(word(2) & !word(0))
}

/// The `si_code` of a SIMD exception, from MXCSR.
fn simd_code(state: &[u8]) -> i32 {
    let word = u32::from_le_bytes([state[24], state[25], state[26], state[27]]);
    floating_code(!(word >> 7) & word)
}

/// The `si_code` for the exceptions that are raised and not masked.
fn floating_code(raised: u32) -> i32 {
    // Invalid; denormal; by zero; overflow; underflow; precision.
    match raised {
        _ if raised & 0x01 != 0 => FPE_FLTINV,
        _ if raised & 0x04 != 0 => FPE_FLTDIV,
        _ if raised & 0x08 != 0 => FPE_FLTOVF,
        _ if raised & 0x12 != 0 => FPE_FLTUND,
        _ if raised & 0x20 != 0 => FPE_FLTRES,
        _ => 0,
    }
}

/// Emulates `cpuid`, which faults where the machine supports that. Returns whether the instruction was one.
fn emulate_cpuid(system: &mut System, context: &mut SavedContext) -> bool {
    let mut code = [0; INSTRUCTION_MAX];
    // The instruction may be the last one on its page.
    let read = (2..=INSTRUCTION_MAX).rev().find(|&length| user::read(context.rip, &mut code[..length]).is_ok());
    let Some(length) = read.and_then(|length| cpuid_length(&code[..length])) else { return false };
    set_cpuid(context);
    let site = context.rip;
    context.rip += length as u64;
    if length == INSTRUCTION && system.thread_table.is_none() {
        system.memory.trapped(site, TrappingInstruction::Cpuid);
    }
    true
}

/// Puts the results of `cpuid` into its registers.
pub fn set_cpuid(context: &mut SavedContext) {
    let [a, b, c, d] = cpuid::lookup(context.rax as u32, context.rcx as u32);
    (context.rax, context.rbx, context.rcx, context.rdx) = (a.into(), b.into(), c.into(), d.into());
}

/// The length of the `cpuid` instruction at the start of `code`, with prefixes that it ignores.
fn cpuid_length(code: &[u8]) -> Option<usize> {
    let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3);
    let prefixes = code.iter().take_while(|byte| is_prefix(byte)).count();
    code[prefixes..].starts_with(&[0x0f, 0xa2]).then_some(prefixes + 2)
}

#[cfg(test)]
mod tests {
    use super::{cpuid_length, simd_code, x87_code};

    #[test]
    fn cpuid_is_recognised_with_its_prefixes_and_nothing_else_is() {
        assert_eq!(cpuid_length(&[0x0f, 0xa2, 0x90]), Some(2));
        assert_eq!(cpuid_length(&[0x66, 0x48, 0x0f, 0xa2]), Some(4));
        assert_eq!(cpuid_length(&[0x0f, 0xa1]), None);
        assert_eq!(cpuid_length(&[0xf0, 0x0f, 0xa2]), None, "locked, it is an invalid opcode");
        assert_eq!(cpuid_length(&[0x66; 15]), None);
    }

    #[test]
    fn floating_point_exceptions_are_distinguished_by_unmasked_flags() {
        let mut state = [0; 32];
        (state[0], state[2]) = (0x7b, 0x05);
        assert_eq!(x87_code(&state), 3, "invalid is masked, division by zero is not");
        (state[24], state[25]) = (0x8c, 0x1d);
        assert_eq!(simd_code(&state), 3, "division by zero is not masked, overflow is");
        state = [0; 32];
        assert_eq!((x87_code(&state), simd_code(&state)), (0, 0));
    }
}
