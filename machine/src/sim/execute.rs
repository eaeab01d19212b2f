// SPDX-License-Identifier: MIT OR Apache-2.0
//! Execution of one instruction at a time: registers, flags, memory, exceptions.
//!
//! A faulting instruction changes nothing.

use super::arithmetic::{self, CARRY, RESUME, TRAP};
use super::instruction::{Instruction, Opcode, Operand, OperandLocation, Register};
use super::translate::Mmu;
use super::{Hardware, INSTRUCTION_TIME};
use crate::{Exception, Exit, Violation};
use pando_abi::Registers;
use pando_abi::hypercall::PORT;

/// Exception vectors.
pub(super) mod vector {
    pub(in super::super) const DEBUG: u8 = 1;
    pub(super) const BREAKPOINT: u8 = 3;
    pub(super) const UNDEFINED: u8 = 6;
    pub(in super::super) const STACK: u8 = 12;
    pub(in super::super) const PROTECTION: u8 = 13;
}

/// The word of a vector state at which `xmm0` starts: byte 160 of the XSAVE area.
const XMM0: usize = 160 / 4;
/// The word of a vector state with the bit map of components not in their initial state; bit 1 is SSE.
pub(super) const STATE_PARTS: usize = 512 / 4;

/// A vCPU while it runs a cell.
pub(super) struct Cpu<'a> {
    pub(super) hardware: &'a Hardware,
    pub(super) mmu: &'a mut Mmu,
    pub(super) registers: &'a mut Registers,
    pub(super) vector: &'a mut [u32],
}

/// An exception that touches no address.
pub(super) fn exception(vector: u8, error: u64) -> Exit {
    Exit::Exception(Exception { vector, error, address: 0 })
}

pub(super) fn is_canonical(address: u64) -> bool {
    (address as i64) << 16 >> 16 == address as i64
}

/// The exception for a forbidden instruction or address.
pub(super) fn protection() -> Exit {
    exception(vector::PROTECTION, 0)
}

impl Cpu<'_> {
    /// Executes one instruction. `Err`: the cell exits.
    pub(super) fn step(&mut self) -> Result<(), Exit> {
        self.hardware.pass(INSTRUCTION_TIME);
        let (instruction, length) = self.fetch()?;
        let next = self.registers.rip.wrapping_add(length as u64);
        let steps = self.registers.rflags & TRAP != 0;
        self.execute(instruction, next)?;
        self.registers.rflags &= !RESUME;
        if steps { Err(exception(vector::DEBUG, 0)) } else { Ok(()) }
    }

    fn execute(&mut self, instruction: Instruction, next: u64) -> Result<(), Exit> {
        let mut rip = next;
        match instruction {
            Instruction::MoveImmediate(to, value) => *self.register_mut(to) = value,
            Instruction::Move(to, from) => *self.register_mut(to) = self.register(from),
            Instruction::Load(to, from) => *self.register_mut(to) = self.load(from)?,
            Instruction::LoadByte(to, from) => {
                let mut byte = [0];
                self.read(self.address(from), &mut byte, from.base.is_stack())?;
                *self.register_mut(to) = u64::from(byte[0]);
            }
            Instruction::Store(to, from) => {
                self.write(self.address(to), &self.register(from).to_le_bytes(), to.base.is_stack())?;
            }
            Instruction::StoreImmediate(to, value) => self.write(self.address(to), &value.to_le_bytes(), to.base.is_stack())?,
            Instruction::StoreByte(to, from) => {
                self.write(self.address(to), &self.register(from).to_le_bytes()[..1], to.base.is_stack())?;
            }
            Instruction::Arithmetic(operation, to, from) => self.arithmetic(operation, to, from),
            Instruction::Increment(to) => self.step_by_one(Opcode::Add, to),
            Instruction::Decrement(to) => self.step_by_one(Opcode::Sub, to),
            Instruction::Jump(displacement) => rip = jump(next, displacement)?,
            Instruction::JumpIf(condition, displacement) => {
                if arithmetic::holds(condition, self.registers.rflags) {
                    rip = jump(next, displacement)?;
                }
            }
            Instruction::JumpTo(to) => rip = target(self.register(to))?,
            Instruction::Call(displacement) => {
                rip = jump(next, displacement)?;
                self.push(next)?;
            }
            Instruction::CallTo(to) => {
                rip = target(self.register(to))?;
                self.push(next)?;
            }
            Instruction::Return => {
                rip = target(self.top()?)?;
                self.registers.rsp = self.registers.rsp.wrapping_add(8);
            }
            Instruction::Push(from) => self.push(self.register(from))?,
            Instruction::Pop(to) => {
                let value = self.top()?;
                self.registers.rsp = self.registers.rsp.wrapping_add(8);
                *self.register_mut(to) = value;
            }
            Instruction::Nothing => {}
            Instruction::ReadTime => {
                let tsc = self.hardware.tsc();
                (self.registers.rax, self.registers.rdx) = (tsc & 0xffff_ffff, tsc >> 32);
            }
            Instruction::SetVector => self.set_vector(),
            Instruction::GetVector => self.registers.rax = u64::from(self.vector[XMM0]) | u64::from(self.vector[XMM0 + 1]) << 32,
            leaving => return Err(self.leave(leaving, next)),
        }
        self.registers.rip = rip;
        Ok(())
    }

    /// Executes the instructions that make the cell exit.
    fn leave(&mut self, instruction: Instruction, next: u64) -> Exit {
        match instruction {
            Instruction::ByteOut(number) if self.is_hypercall_port(number) => {
                self.registers.rip = next;
                Exit::Hypercall
            }
            Instruction::Port(number) if self.is_hypercall_port(number) => Exit::Violation(Violation::Port),
            Instruction::ByteOut(_) | Instruction::Port(_) => protection(),
            Instruction::Syscall => {
                self.registers.rcx = next;
                self.registers.r11 = self.registers.rflags & !RESUME;
                self.registers.rip = next;
                Exit::Syscall
            }
            Instruction::Breakpoint => {
                self.registers.rip = next;
                exception(vector::BREAKPOINT, 0)
            }
            // The gate is for the CPU alone: the error code names it (SDM volume 3, 6.13).
            Instruction::Interrupt(number) => exception(vector::PROTECTION, u64::from(number) << 3 | 2),
            Instruction::Privileged => protection(),
            _ => exception(vector::UNDEFINED, 0),
        }
    }

    /// Whether a port, or the one in `dx` if `None`, is the hypercall port.
    fn is_hypercall_port(&self, number: Option<u8>) -> bool {
        number.map_or(self.registers.rdx & 0xffff, u64::from) == u64::from(PORT)
    }

    pub(super) fn address(&self, place: OperandLocation) -> u64 {
        self.register(place.base).wrapping_add_signed(i64::from(place.displacement))
    }

    fn arithmetic(&mut self, operation: Opcode, to: Register, from: Operand) {
        let right = match from {
            Operand::Register(from) => self.register(from),
            Operand::Immediate(value) => value,
        };
        let (result, flags) = arithmetic::compute(operation, self.register(to), right);
        self.registers.rflags = self.registers.rflags & !arithmetic::SET | flags;
        if !matches!(operation, Opcode::Compare | Opcode::Test) {
            *self.register_mut(to) = result;
        }
    }

    /// `inc` and `dec`, which leave the carry unchanged.
    fn step_by_one(&mut self, operation: Opcode, to: Register) {
        let carry = self.registers.rflags & CARRY;
        self.arithmetic(operation, to, Operand::Immediate(1));
        self.registers.rflags = self.registers.rflags & !CARRY | carry;
    }

    fn set_vector(&mut self) {
        let rax = self.registers.rax;
        self.vector[XMM0..XMM0 + 4].copy_from_slice(&[rax as u32, (rax >> 32) as u32, 0, 0]);
        self.vector[STATE_PARTS] |= 1 << 1;
    }

    fn register(&self, register: Register) -> u64 {
        // The order of encodings is not that of the structure.
        let r = &*self.registers;
        [r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15]
            [usize::from(register.0 & 15)]
    }

    fn register_mut(&mut self, register: Register) -> &mut u64 {
        let r = &mut *self.registers;
        match register.0 & 15 {
            0 => &mut r.rax,
            1 => &mut r.rcx,
            2 => &mut r.rdx,
            3 => &mut r.rbx,
            4 => &mut r.rsp,
            5 => &mut r.rbp,
            6 => &mut r.rsi,
            7 => &mut r.rdi,
            8 => &mut r.r8,
            9 => &mut r.r9,
            10 => &mut r.r10,
            11 => &mut r.r11,
            12 => &mut r.r12,
            13 => &mut r.r13,
            14 => &mut r.r14,
            _ => &mut r.r15,
        }
    }
}

fn target(address: u64) -> Result<u64, Exit> {
    if is_canonical(address) { Ok(address) } else { Err(protection()) }
}

fn jump(next: u64, displacement: i32) -> Result<u64, Exit> {
    target(next.wrapping_add_signed(i64::from(displacement)))
}
