// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trampolines: what a site jumps to. First the way into the libOS, then copies of the instructions that the jump covers, then the way back.
//!
//! ```text
//! +0   lea  rcx, [what follows the syscall]      for a cpuid: rdx
//! +7   lea  r11, [the copies]                    for a cpuid: rbx
//! +14  jmp  [the libOS's entry]                  a word at the end of the page
//! +20  the copies
//!      jmp  [what follows them]
//! ```
//!
//! The two registers are those that the instruction itself overwrites; flags and stack are left alone.

use alloc::vec::Vec;

use super::code::{Covered, INSTRUCTION, Kind, Step};
use super::decode::{Flow, Instruction};

/// Bytes of the way into the libOS.
pub const WAY_IN: u8 = 20;

/// A place in the program's code and its place in the trampoline, both as offsets, from the site and from the trampoline's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// From the site.
    pub original: u8,
    /// From the trampoline's start.
    pub copy: u8,
}

/// Bytes that a trampoline for this code takes.
#[must_use]
pub fn length(covered: &Covered) -> u8 {
    WAY_IN + covered.steps.iter().map(|step| copied_length(&step.instruction)).sum::<u8>() + 5
}

/// Bytes that an instruction takes in a trampoline.
fn copied_length(instruction: &Instruction) -> u8 {
    match instruction.flow {
        Flow::Jump { condition: None, .. } => 5,
        Flow::Jump { condition: Some(_), .. } => 6,
        _ => instruction.length,
    }
}

/// Where instructions stand in the code and in the trampoline: each that is copied, and at last what follows them.
#[must_use]
pub fn places(covered: &Covered) -> Vec<Place> {
    let mut places = Vec::with_capacity(covered.steps.len() + 1);
    let mut copy = WAY_IN;
    for step in &covered.steps {
        places.push(Place { original: step.offset, copy });
        copy += copied_length(&step.instruction);
    }
    places.push(Place { original: covered.end, copy });
    places
}

/// The bytes of a trampoline at `start` for the code at `site`. `entry` is the address of the word that holds the libOS's entry. `None`: it is too far from what
/// it refers to.
#[must_use]
pub fn assemble(start: u64, site: u64, code: &[u8], covered: &Covered, kind: Kind, entry: u64) -> Option<Vec<u8>> {
    let next = site + INSTRUCTION as u64;
    let [follows, copies]: [&[u8]; 2] = match kind {
        Kind::Syscall => [&[0x48, 0x8d, 0x0d], &[0x4c, 0x8d, 0x1d]],
        Kind::Cpuid => [&[0x48, 0x8d, 0x15], &[0x48, 0x8d, 0x1d]],
    };
    let mut out = Assembly { start, bytes: Vec::with_capacity(length(covered).into()) };
    out.relative(follows, next)?;
    out.relative(copies, start + u64::from(WAY_IN))?;
    out.relative(&[0xff, 0x25], entry)?;
    for Step { offset, instruction } in &covered.steps {
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
    out.relative(&[0xe9], site + u64::from(covered.end))?;
    Some(out.bytes)
}

/// The bytes of a displacement that leads from the instruction that ends at `end` to `target`, if it reaches.
#[must_use]
pub fn displacement(end: u64, target: u64) -> Option<[u8; 4]> {
    i32::try_from(target.wrapping_sub(end).cast_signed()).ok().map(i32::to_le_bytes)
}

/// Code in the making.
struct Assembly {
    start: u64,
    bytes: Vec<u8>,
}

impl Assembly {
    fn here(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// An instruction that ends with a displacement to `target`.
    fn relative(&mut self, opcode: &[u8], target: u64) -> Option<()> {
        let displacement = displacement(self.here() + opcode.len() as u64 + 4, target)?;
        self.bytes.extend_from_slice(opcode);
        self.bytes.extend_from_slice(&displacement);
        Some(())
    }

    /// An instruction that ended at `end`. What its operand's displacement, if it has one at that offset, led to there, it leads to here.
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
