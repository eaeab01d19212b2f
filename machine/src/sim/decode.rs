// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instruction decoder: prefixes, opcode, ModRM, displacement, immediate (Intel SDM volume 2, chapter 2).
//!
//! A known instruction in an unknown form is undefined, like everything else that is not in the table of `instruction`.

use super::instruction::{Instruction, Opcode, Operand, OperandLocation, Register};

/// The bytes end inside the instruction.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Truncated;

/// Decodes the first instruction of `bytes`, and returns its length.
pub(super) fn decode(bytes: &[u8]) -> Result<(Instruction, usize), Truncated> {
    let mut decoder = Decoder { bytes, at: 0, rex: 0, operand_size: false, repeat: false, other_prefix: false };
    let instruction = decoder.instruction()?;
    Ok((instruction, decoder.at))
}

struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    rex: u8,
    operand_size: bool,
    repeat: bool,
    other_prefix: bool,
}

/// The register and the register or memory operand of a ModRM byte.
struct ModRm {
    /// The register, or the digit that extends the opcode.
    register: Register,
    other: Other,
}

enum Other {
    Register(Register),
    Memory(OperandLocation),
    /// A form that the software machine does not support.
    Unknown,
}

impl Decoder<'_> {
    fn byte(&mut self) -> Result<u8, Truncated> {
        let byte = *self.bytes.get(self.at).ok_or(Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let bytes = *self.bytes.get(self.at..).and_then(|rest| rest.first_chunk()).ok_or(Truncated)?;
        self.at += N;
        Ok(bytes)
    }

    fn signed_byte(&mut self) -> Result<i32, Truncated> {
        Ok(i32::from(self.byte()? as i8))
    }

    fn signed_word(&mut self) -> Result<i32, Truncated> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    fn is_wide(&self) -> bool {
        self.rex & 8 != 0
    }

    /// A register whose low bits are in the opcode or in the r/m field.
    fn low_register(&self, bits: u8) -> Register {
        Register(bits & 7 | (self.rex & 1) << 3)
    }

    /// Takes the prefixes and returns the first byte of the opcode.
    fn opcode(&mut self) -> Result<u8, Truncated> {
        loop {
            let byte = self.byte()?;
            match byte {
                0x66 => self.operand_size = true,
                0xf3 => self.repeat = true,
                0xf0 | 0xf2 | 0x67 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 => self.other_prefix = true,
                0x40..=0x4f => {
                    self.rex = byte;
                    continue;
                }
                _ => return Ok(byte),
            }
            // REX counts only directly before the opcode.
            self.rex = 0;
        }
    }

    fn mod_rm(&mut self) -> Result<ModRm, Truncated> {
        let byte = self.byte()?;
        let register = Register(byte >> 3 & 7 | (self.rex & 4) << 1);
        let mode = byte >> 6;
        if mode == 3 {
            return Ok(ModRm { register, other: Other::Register(self.low_register(byte)) });
        }
        let mut base = self.low_register(byte);
        // rsp and r12 as a base are written with an index byte that has no index.
        let known = if byte & 7 == 4 {
            let index = self.byte()?;
            base = self.low_register(index);
            index & 0xf8 == 0x20 && self.rex & 2 == 0
        } else {
            true
        };
        let displacement = match mode {
            0 => 0,
            1 => self.signed_byte()?,
            _ => self.signed_word()?,
        };
        // Without displacement, the encodings of rbp and r13 mean rip-relative addresses, or no base at all.
        let known = known && !(mode == 0 && base.0 & 7 == 5);
        Ok(ModRm { register, other: if known { Other::Memory(OperandLocation { base, displacement }) } else { Other::Unknown } })
    }

    fn instruction(&mut self) -> Result<Instruction, Truncated> {
        let opcode = self.opcode()?;
        match opcode {
            0x0f => return self.two_byte(),
            0xe4 | 0xe5 | 0xe7 => return Ok(Instruction::Port(Some(self.byte()?))),
            0xe6 => return Ok(Instruction::ByteOut(Some(self.byte()?))),
            0x6c..=0x6f | 0xec | 0xed | 0xef => return Ok(Instruction::Port(None)),
            0xee => return Ok(Instruction::ByteOut(None)),
            0xf4 | 0xfa | 0xfb => return Ok(Instruction::Privileged),
            0x90 if !self.operand_size && !self.other_prefix && self.rex & 1 == 0 => return Ok(Instruction::Nothing),
            _ if self.operand_size || self.repeat || self.other_prefix => return Ok(Instruction::Undefined),
            _ => {}
        }
        Ok(match opcode {
            0x50..=0x57 => Instruction::Push(self.low_register(opcode)),
            0x58..=0x5f => Instruction::Pop(self.low_register(opcode)),
            0x70..=0x7f => Instruction::JumpIf(opcode & 15, self.signed_byte()?),
            0xeb => Instruction::Jump(self.signed_byte()?),
            0xe9 => Instruction::Jump(self.signed_word()?),
            0xe8 => Instruction::Call(self.signed_word()?),
            0xc3 => Instruction::Return,
            0xcc => Instruction::Breakpoint,
            0xcd => Instruction::Interrupt(self.byte()?),
            0x88 => self.store_byte()?,
            0xff => self.group_ff()?,
            _ if !self.is_wide() => Instruction::Undefined,
            0xb8..=0xbf => Instruction::MoveImmediate(self.low_register(opcode), u64::from_le_bytes(self.array()?)),
            0xc7 => self.move_immediate()?,
            0x89 | 0x8b => self.move_wide(opcode == 0x8b)?,
            0x01 | 0x09 | 0x21 | 0x29 | 0x31 | 0x39 | 0x85 => self.arithmetic(opcode)?,
            0x81 | 0x83 => self.arithmetic_immediate(opcode == 0x83)?,
            _ => Instruction::Undefined,
        })
    }

    fn two_byte(&mut self) -> Result<Instruction, Truncated> {
        let opcode = self.byte()?;
        if self.operand_size && !self.repeat && !self.other_prefix && self.is_wide() {
            return Ok(match (opcode, self.byte()?, self.rex) {
                (0x6e, 0xc0, 0x48) => Instruction::SetVector,
                (0x7e, 0xc0, 0x48) => Instruction::GetVector,
                _ => Instruction::Undefined,
            });
        }
        Ok(match opcode {
            // Descriptor tables, control and debug registers, caches, model-specific registers, counters, sysenter; and cpuid.
            0x00 | 0x01 | 0x06 | 0x08 | 0x09 | 0x20..=0x23 | 0x30 | 0x32..=0x35 | 0xa2 => Instruction::Privileged,
            _ if self.operand_size || self.repeat || self.other_prefix => Instruction::Undefined,
            0x05 => Instruction::Syscall,
            0x31 => Instruction::ReadTime,
            0x80..=0x8f => Instruction::JumpIf(opcode & 15, self.signed_word()?),
            0xb6 if self.is_wide() => match self.mod_rm()? {
                ModRm { register, other: Other::Memory(from) } => Instruction::LoadByte(register, from),
                _ => Instruction::Undefined,
            },
            _ => Instruction::Undefined,
        })
    }

    fn store_byte(&mut self) -> Result<Instruction, Truncated> {
        let ModRm { register, other } = self.mod_rm()?;
        Ok(match other {
            // Without REX, the numbers 4 to 7 are the second bytes of the first four registers.
            Other::Memory(to) if self.rex != 0 || register.0 < 4 => Instruction::StoreByte(to, register),
            _ => Instruction::Undefined,
        })
    }

    fn move_wide(&mut self, is_load: bool) -> Result<Instruction, Truncated> {
        let ModRm { register, other } = self.mod_rm()?;
        Ok(match (other, is_load) {
            (Other::Register(to), false) => Instruction::Move(to, register),
            (Other::Register(from), true) => Instruction::Move(register, from),
            (Other::Memory(to), false) => Instruction::Store(to, register),
            (Other::Memory(from), true) => Instruction::Load(register, from),
            (Other::Unknown, _) => Instruction::Undefined,
        })
    }

    fn move_immediate(&mut self) -> Result<Instruction, Truncated> {
        let ModRm { register, other } = self.mod_rm()?;
        let value = i64::from(self.signed_word()?) as u64;
        Ok(match other {
            _ if register.0 & 7 != 0 => Instruction::Undefined,
            Other::Register(to) => Instruction::MoveImmediate(to, value),
            Other::Memory(to) => Instruction::StoreImmediate(to, value),
            Other::Unknown => Instruction::Undefined,
        })
    }

    fn arithmetic(&mut self, opcode: u8) -> Result<Instruction, Truncated> {
        let operation = if opcode == 0x85 { Some(Opcode::Test) } else { operation(opcode >> 3) };
        Ok(match (self.mod_rm()?, operation) {
            (ModRm { register, other: Other::Register(to) }, Some(operation)) => {
                Instruction::Arithmetic(operation, to, Operand::Register(register))
            }
            _ => Instruction::Undefined,
        })
    }

    fn arithmetic_immediate(&mut self, is_byte: bool) -> Result<Instruction, Truncated> {
        let ModRm { register, other } = self.mod_rm()?;
        let value = if is_byte { self.signed_byte()? } else { self.signed_word()? };
        Ok(match (other, operation(register.0 & 7)) {
            (Other::Register(to), Some(operation)) => Instruction::Arithmetic(operation, to, Operand::Immediate(i64::from(value) as u64)),
            _ => Instruction::Undefined,
        })
    }

    fn group_ff(&mut self) -> Result<Instruction, Truncated> {
        let ModRm { register, other } = self.mod_rm()?;
        Ok(match (other, register.0 & 7) {
            (Other::Register(to), 0) if self.is_wide() => Instruction::Increment(to),
            (Other::Register(to), 1) if self.is_wide() => Instruction::Decrement(to),
            (Other::Register(to), 2) => Instruction::CallTo(to),
            (Other::Register(to), 4) => Instruction::JumpTo(to),
            _ => Instruction::Undefined,
        })
    }
}

/// The operation of an arithmetic group's digit. `None`: one that uses the carry.
fn operation(digit: u8) -> Option<Opcode> {
    Some(match digit {
        0 => Opcode::Add,
        1 => Opcode::Or,
        4 => Opcode::And,
        5 => Opcode::Sub,
        6 => Opcode::Xor,
        7 => Opcode::Compare,
        _ => return None,
    })
}
