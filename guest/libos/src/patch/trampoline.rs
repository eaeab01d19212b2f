// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trampolines, the targets of patched sites: first the entry into the libOS, then copies of the replaced instructions, then the jump
//! back.
//!
//! ```text
//! +0   lea  rcx, [behind the syscall]            for a cpuid: rdx
//! +7   lea  r11, [the copies]                    for a cpuid: rbx
//! +14  jmp  [the libOS's entry]                  a word at the end of the page
//! +20  the copies
//!      jmp  [behind the replaced code]
//! ```
//!
//! The two registers are those that the instruction itself overwrites; flags and stack are unchanged.

use alloc::vec::Vec;

use super::code::{INSTRUCTION, ReplacedCode, Step, TrappingInstruction};
use super::decode::{Flow, Instruction};

/// Bytes of the entry into the libOS.
pub const ENTRY_CODE: u8 = 20;

/// The offset of an instruction in the program's code, from the site, and in the trampoline, from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetPair {
    /// From the site.
    pub original: u8,
    /// From the trampoline's start.
    pub copy: u8,
}

/// Length of the trampoline for this code, in bytes.
#[must_use]
pub fn length(replaced: &ReplacedCode) -> u8 {
    ENTRY_CODE + replaced.steps.iter().map(|step| copied_length(&step.instruction)).sum::<u8>() + 5
}

/// Length of an instruction in a trampoline, in bytes.
fn copied_length(instruction: &Instruction) -> u8 {
    match instruction.flow {
        Flow::Jump { condition: None, .. } => 5,
        Flow::Jump { condition: Some(_), .. } => 6,
        _ => instruction.length,
    }
}

/// The offsets of instructions in the code and in the trampoline: each copied one, and last the one behind them.
#[must_use]
pub fn offsets(replaced: &ReplacedCode) -> Vec<OffsetPair> {
    let mut offsets = Vec::with_capacity(replaced.steps.len() + 1);
    let mut copy = ENTRY_CODE;
    for step in &replaced.steps {
        offsets.push(OffsetPair { original: step.offset, copy });
        copy += copied_length(&step.instruction);
    }
    offsets.push(OffsetPair { original: replaced.end, copy });
    offsets
}

/// The bytes of a trampoline at `start` for the code at `site`. `entry` is the address of the word with the libOS's entry. `None`: it is
/// too far from an address that it refers to.
#[must_use]
pub fn assemble(start: u64, site: u64, code: &[u8], replaced: &ReplacedCode, kind: TrappingInstruction, entry: u64) -> Option<Vec<u8>> {
    let next = site + INSTRUCTION as u64;
    let [follows, copies]: [&[u8]; 2] = match kind {
        TrappingInstruction::Syscall => [&[0x48, 0x8d, 0x0d], &[0x4c, 0x8d, 0x1d]],
        TrappingInstruction::Cpuid => [&[0x48, 0x8d, 0x15], &[0x48, 0x8d, 0x1d]],
    };
    let mut out = Assembly { start, bytes: Vec::with_capacity(length(replaced).into()) };
    out.relative(follows, next)?;
    out.relative(copies, start + u64::from(ENTRY_CODE))?;
    out.relative(&[0xff, 0x25], entry)?;
    for Step { offset, instruction } in &replaced.steps {
        let original = code.get(usize::from(*offset)..)?.get(..usize::from(instruction.length))?;
        let end = site + u64::from(offset + instruction.length);
        match instruction.flow {
            Flow::Jump { condition, distance } => {
                let target = end.wrapping_add_signed(distance.into());
                match condition {
                    None => out.relative(&[0xe9], target)?,
                    Some(condition) => out.relative(&[0x0f, 0x80 | condition], target)?,
                }
            }
            _ => out.copy(original, instruction.relative_operand.map(usize::from), end)?,
        }
    }
    out.relative(&[0xe9], site + u64::from(replaced.end))?;
    Some(out.bytes)
}

/// The displacement from the end `end` of an instruction to `target`, if it is in reach.
#[must_use]
pub fn displacement(end: u64, target: u64) -> Option<[u8; 4]> {
    i32::try_from(target.wrapping_sub(end).cast_signed()).ok().map(i32::to_le_bytes)
}

/// Code being assembled.
struct Assembly {
    start: u64,
    bytes: Vec<u8>,
}

impl Assembly {
    fn here(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Appends an instruction that ends with a displacement to `target`.
    fn relative(&mut self, opcode: &[u8], target: u64) -> Option<()> {
        let displacement = displacement(self.here() + opcode.len() as u64 + 4, target)?;
        self.bytes.extend_from_slice(opcode);
        self.bytes.extend_from_slice(&displacement);
        Some(())
    }

    /// Appends a copy of an instruction that ended at `end`. If it has a displacement at the given offset, the copy refers to the same
    /// address.
    fn copy(&mut self, original: &[u8], displacement_at: Option<usize>, end: u64) -> Option<()> {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(original);
        if let Some(at) = displacement_at {
            let distance = i32::from_le_bytes(*original.get(at..)?.first_chunk()?);
            let displacement = displacement(self.here(), end.wrapping_add_signed(distance.into()))?;
            self.bytes.get_mut(from + at..from + at + 4)?.copy_from_slice(&displacement);
        }
        Some(())
    }
}
