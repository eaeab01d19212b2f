// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exceptions of the application: growing stacks, `cpuid`, and the signals that Linux makes of the rest.

use pando_abi::SavedContext;
use pando_rt::{cpuid, user};

use crate::process::{Process, die};
use crate::signals::Signal;

const DIVIDE: u64 = 0;
const DEBUG: u64 = 1;
const BREAKPOINT: u64 = 3;
const INVALID_OPCODE: u64 = 6;
const GENERAL_PROTECTION: u64 = 13;
const PAGE_FAULT: u64 = 14;
const X87: u64 = 16;
const ALIGNMENT: u64 = 17;
const SIMD: u64 = 19;

/// Bytes that an instruction can have.
const INSTRUCTION_MAX: usize = 15;

/// Handles an exception: the context runs on, or the program ends.
pub fn handle(process: &mut Process, context: &mut SavedContext) {
    let resolved = match context.cause {
        PAGE_FAULT => process.memory.grow_stack(context.address),
        GENERAL_PROTECTION => answer_cpuid(context),
        _ => false,
    };
    if resolved {
        return;
    }
    let signal = match context.cause {
        DIVIDE | X87 | SIMD => Signal::FPE,
        DEBUG | BREAKPOINT => Signal::TRAP,
        INVALID_OPCODE => Signal::ILL,
        ALIGNMENT => Signal::BUS,
        _ => Signal::SEGV,
    };
    // What is wrong with anything but a page fault is the instruction itself.
    let address = if context.cause == PAGE_FAULT { context.address } else { context.rip };
    die(signal, address, context.rip)
}

/// Answers the instruction `cpuid`, which faults where the machine lets it. Says whether it was one.
fn answer_cpuid(context: &mut SavedContext) -> bool {
    let mut code = [0; INSTRUCTION_MAX];
    // The instruction may be the last of its page.
    let read = (2..=INSTRUCTION_MAX).rev().find(|&length| user::read(context.rip, &mut code[..length]).is_ok());
    let Some(length) = read.and_then(|length| cpuid_length(&code[..length])) else { return false };
    let [a, b, c, d] = cpuid::answer(context.rax as u32, context.rcx as u32);
    (context.rax, context.rbx, context.rcx, context.rdx) = (a.into(), b.into(), c.into(), d.into());
    context.rip += length as u64;
    true
}

/// The length of the `cpuid` instruction at the start of `code`, with prefixes that it ignores.
fn cpuid_length(code: &[u8]) -> Option<usize> {
    let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3);
    let prefixes = code.iter().take_while(|byte| is_prefix(byte)).count();
    code[prefixes..].starts_with(&[0x0f, 0xa2]).then_some(prefixes + 2)
}

#[cfg(test)]
mod tests {
    use super::cpuid_length;

    #[test]
    fn cpuid_is_recognised_with_its_prefixes_and_nothing_else_is() {
        assert_eq!(cpuid_length(&[0x0f, 0xa2, 0x90]), Some(2));
        assert_eq!(cpuid_length(&[0x66, 0x48, 0x0f, 0xa2]), Some(4));
        assert_eq!(cpuid_length(&[0x0f, 0xa1]), None);
        assert_eq!(cpuid_length(&[0xf0, 0x0f, 0xa2]), None, "locked, it is an invalid opcode");
        assert_eq!(cpuid_length(&[0x66; 15]), None);
    }
}
