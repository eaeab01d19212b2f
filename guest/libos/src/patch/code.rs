// SPDX-License-Identifier: MIT OR Apache-2.0
//! What stands at a site: which instructions a jump over it would cover, and whether they can run elsewhere.
//!
//! Decoding starts at an instruction that was executed, and goes on for as long as execution itself does: behind a return or a jump only padding
//! counts as code. What cannot be moved without being noticed is unknown to the decoder: calls, whose return address is seen; system calls; loops, which reach
//! 128 bytes only.

use alloc::vec::Vec;

use super::decode::{Flow, Instruction, LONGEST, decode};

/// Bytes of `syscall` and of `cpuid`.
pub const INSTRUCTION: usize = 2;
/// Bytes of a jump that reaches 2 GiB.
pub const JUMP: usize = 5;
/// Bytes from a site's start that may have to be looked at: the last instruction that is covered starts before the jump ends, and has up to 15 bytes.
pub const WINDOW: usize = JUMP - 1 + LONGEST;

/// An instruction that is answered without a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `syscall`.
    Syscall,
    /// `cpuid`.
    Cpuid,
}

impl Kind {
    /// The bytes of the instruction.
    const fn bytes(self) -> [u8; INSTRUCTION] {
        match self {
            Kind::Syscall => [0x0f, 0x05],
            Kind::Cpuid => [0x0f, 0xa2],
        }
    }
}

/// An instruction that a jump over the site covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where it starts, from the site.
    pub offset: u8,
    /// What is known of it.
    pub instruction: Instruction,
}

/// What a jump over a site covers: from behind the instruction itself to the end of the last one that it touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covered {
    /// The instructions, in order.
    pub steps: Vec<Step>,
    /// Where the last one ends, from the site.
    pub end: u8,
}

/// Looks at the code that starts with such an instruction. `None`: a jump cannot stand there.
#[must_use]
pub fn covered(code: &[u8], kind: Kind) -> Option<Covered> {
    if !code.starts_with(&kind.bytes()) {
        return None;
    }
    let mut covered = Covered { steps: Vec::new(), end: INSTRUCTION as u8 };
    let mut reachable = true;
    while usize::from(covered.end) < JUMP {
        let instruction = decode(code.get(usize::from(covered.end)..)?)?;
        if !reachable && instruction.flow != Flow::Padding {
            return None;
        }
        covered.steps.push(Step { offset: covered.end, instruction });
        covered.end += instruction.length;
        reachable &= !matches!(instruction.flow, Flow::Leaves | Flow::Jump { condition: None, .. });
    }
    Some(covered)
}
