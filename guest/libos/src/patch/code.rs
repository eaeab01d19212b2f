// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the instructions that a jump over a site would replace, and whether they can run elsewhere.
//!
//! Decoding starts at an executed instruction and continues as long as execution does: behind a return or a jump, only padding counts as
//! code. The decoder rejects instructions that cannot be moved unnoticed: calls, whose return address is visible; system calls; loops,
//! which reach only 128 bytes.

use alloc::vec::Vec;

use super::decode::{Flow, Instruction, LONGEST, decode};

/// Length of `syscall` and of `cpuid` in bytes.
pub const INSTRUCTION: usize = 2;
/// Length in bytes of a jump that reaches 2 GiB.
pub const JUMP: usize = 5;
/// Bytes to decode from a site's start: the last replaced instruction starts before the jump ends, and has up to 15 bytes.
pub const WINDOW: usize = JUMP - 1 + LONGEST;

/// A trapping instruction that a patch replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrappingInstruction {
    /// `syscall`.
    Syscall,
    /// `cpuid`.
    Cpuid,
}

impl TrappingInstruction {
    /// The bytes of the instruction.
    const fn bytes(self) -> [u8; INSTRUCTION] {
        match self {
            TrappingInstruction::Syscall => [0x0f, 0x05],
            TrappingInstruction::Cpuid => [0x0f, 0xa2],
        }
    }
}

/// An instruction that a jump over the site replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its offset from the site.
    pub offset: u8,
    /// The decoded instruction.
    pub instruction: Instruction,
}

/// The code that a jump over a site replaces: from behind the instruction itself to the end of the last one that it overlaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedCode {
    /// The instructions, in order.
    pub steps: Vec<Step>,
    /// The end of the last one, as an offset from the site.
    pub end: u8,
}

/// Decodes the code that starts with a trapping instruction. `None`: it cannot be replaced by a jump.
#[must_use]
pub fn replaced(code: &[u8], kind: TrappingInstruction) -> Option<ReplacedCode> {
    if !code.starts_with(&kind.bytes()) {
        return None;
    }
    let mut replaced = ReplacedCode { steps: Vec::new(), end: INSTRUCTION as u8 };
    let mut reachable = true;
    while usize::from(replaced.end) < JUMP {
        let instruction = decode(code.get(usize::from(replaced.end)..)?)?;
        if !reachable && instruction.flow != Flow::Padding {
            return None;
        }
        replaced.steps.push(Step { offset: replaced.end, instruction });
        replaced.end += instruction.length;
        reachable &= !matches!(instruction.flow, Flow::Leaves | Flow::Jump { condition: None, .. });
    }
    Some(replaced)
}
