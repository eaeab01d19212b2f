// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes one instruction at a time: registers, flags, memory, exceptions.
//!
//! An instruction that faults has changed nothing: all its pages are translated before anything is written.

use super::decode::{self, Instruction, Operand, Operation, Place, Register};
use super::tables::Kind;
use super::translate::Mmu;
use super::{Hardware, INSTRUCTION_TIME};
use crate::{Exception, Exit, FRAME_SIZE, FrameId, Violation};
use pando_abi::Registers;
use pando_abi::hypercall::PORT;

/// The longest instruction.
const LONGEST: usize = 15;

const CARRY: u64 = 1;
const PARITY: u64 = 1 << 2;
const ADJUST: u64 = 1 << 4;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
pub(super) const TRAP: u64 = 1 << 8;
const OVERFLOW: u64 = 1 << 11;
const RESUME: u64 = 1 << 16;
/// The flags that arithmetic sets.
const ARITHMETIC: u64 = CARRY | PARITY | ADJUST | ZERO | SIGN | OVERFLOW;

/// Exception vectors.
pub(super) mod vector {
    pub(in super::super) const DEBUG: u8 = 1;
    pub(super) const BREAKPOINT: u8 = 3;
    pub(super) const UNDEFINED: u8 = 6;
    pub(super) const STACK: u8 = 12;
    pub(super) const PROTECTION: u8 = 13;
}

/// The word of a vector state at which `xmm0` starts: byte 160 of the XSAVE area.
const XMM0: usize = 160 / 4;
/// The word of a vector state that says which parts are not in their initial state; its bit 1 stands for the SSE registers.
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

fn is_canonical(address: u64) -> bool {
    (address as i64) << 16 >> 16 == address as i64
}

fn protection() -> Exit {
    exception(vector::PROTECTION, 0)
}

impl Cpu<'_> {
    /// Executes one instruction. `Err`: the cell leaves the CPU.
    pub(super) fn step(&mut self) -> Result<(), Exit> {
        self.hardware.pass(INSTRUCTION_TIME);
        let (instruction, length) = self.fetch()?;
        let next = self.registers.rip.wrapping_add(length as u64);
        let steps = self.registers.rflags & TRAP != 0;
        self.execute(instruction, next)?;
        self.registers.rflags &= !RESUME;
        if steps { Err(exception(vector::DEBUG, 0)) } else { Ok(()) }
    }

    fn fetch(&mut self) -> Result<(Instruction, usize), Exit> {
        let rip = self.registers.rip;
        if !is_canonical(rip) {
            return Err(protection());
        }
        let mut bytes = [0; LONGEST];
        let offset = rip as usize % FRAME_SIZE;
        let here = LONGEST.min(FRAME_SIZE - offset);
        let frame = self.mmu.translate(self.hardware, rip, Kind::Fetch)?;
        self.hardware.arena.read(frame, offset, &mut bytes[..here]);
        if let Ok(decoded) = decode::decode(&bytes[..here]) {
            return Ok(decoded);
        }
        if here < LONGEST {
            let rest = rip + here as u64;
            if !is_canonical(rest) {
                return Err(protection());
            }
            let frame = self.mmu.translate(self.hardware, rest, Kind::Fetch)?;
            self.hardware.arena.read(frame, 0, &mut bytes[here..]);
        }
        decode::decode(&bytes).map_err(|_| protection())
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
            Instruction::Increment(to) => self.step_by_one(Operation::Add, to),
            Instruction::Decrement(to) => self.step_by_one(Operation::Sub, to),
            Instruction::Jump(displacement) => rip = jump(next, displacement)?,
            Instruction::JumpIf(condition, displacement) => {
                if holds(condition, self.registers.rflags) {
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

    /// The instructions after which the cell leaves the CPU.
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
            // The gate is there for the CPU alone: the error code names it (SDM volume 3, 6.13).
            Instruction::Interrupt(number) => exception(vector::PROTECTION, u64::from(number) << 3 | 2),
            Instruction::Privileged => protection(),
            _ => exception(vector::UNDEFINED, 0),
        }
    }

    /// Whether a port, the one in `dx` if none is given, is the hypercall's.
    fn is_hypercall_port(&self, number: Option<u8>) -> bool {
        number.map_or(self.registers.rdx & 0xffff, u64::from) == u64::from(PORT)
    }

    fn address(&self, place: Place) -> u64 {
        self.register(place.base).wrapping_add_signed(i64::from(place.displacement))
    }

    fn load(&mut self, from: Place) -> Result<u64, Exit> {
        let mut bytes = [0; 8];
        self.read(self.address(from), &mut bytes, from.base.is_stack())?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn push(&mut self, value: u64) -> Result<(), Exit> {
        let top = self.registers.rsp.wrapping_sub(8);
        self.write(top, &value.to_le_bytes(), true)?;
        self.registers.rsp = top;
        Ok(())
    }

    fn top(&mut self) -> Result<u64, Exit> {
        let mut bytes = [0; 8];
        self.read(self.registers.rsp, &mut bytes, true)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The frames of `length` bytes, at most two pages of them, and how many lie in the first.
    fn frames(&mut self, address: u64, length: usize, kind: Kind, is_stack: bool) -> Result<(FrameId, usize, Option<FrameId>), Exit> {
        let last = address.wrapping_add(length as u64 - 1);
        if !is_canonical(address) || !is_canonical(last) {
            return Err(exception(if is_stack { vector::STACK } else { vector::PROTECTION }, 0));
        }
        let first = self.mmu.translate(self.hardware, address, kind)?;
        let room = FRAME_SIZE - address as usize % FRAME_SIZE;
        if length <= room {
            return Ok((first, length, None));
        }
        let second = self.mmu.translate(self.hardware, address.wrapping_add(room as u64), kind)?;
        Ok((first, room, Some(second)))
    }

    fn read(&mut self, address: u64, bytes: &mut [u8], is_stack: bool) -> Result<(), Exit> {
        let (first, here, second) = self.frames(address, bytes.len(), Kind::Read, is_stack)?;
        let (head, tail) = bytes.split_at_mut(here);
        self.hardware.arena.read(first, address as usize % FRAME_SIZE, head);
        if let Some(second) = second {
            self.hardware.arena.read(second, 0, tail);
        }
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8], is_stack: bool) -> Result<(), Exit> {
        let (first, here, second) = self.frames(address, bytes.len(), Kind::Write, is_stack)?;
        let (head, tail) = bytes.split_at(here);
        self.hardware.arena.write(first, address as usize % FRAME_SIZE, head);
        if let Some(second) = second {
            self.hardware.arena.write(second, 0, tail);
        }
        Ok(())
    }

    fn arithmetic(&mut self, operation: Operation, to: Register, from: Operand) {
        let right = match from {
            Operand::Register(from) => self.register(from),
            Operand::Immediate(value) => value,
        };
        let (result, flags) = compute(operation, self.register(to), right);
        self.registers.rflags = self.registers.rflags & !ARITHMETIC | flags;
        if !matches!(operation, Operation::Compare | Operation::Test) {
            *self.register_mut(to) = result;
        }
    }

    /// `inc` and `dec`, which leave the carry alone.
    fn step_by_one(&mut self, operation: Operation, to: Register) {
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

/// Whether a condition code holds (SDM volume 2, appendix B): each odd one is the opposite of the one before.
fn holds(condition: u8, flags: u64) -> bool {
    let is = |flag: u64| flags & flag != 0;
    let holds = match condition >> 1 {
        0 => is(OVERFLOW),
        1 => is(CARRY),
        2 => is(ZERO),
        3 => is(CARRY | ZERO),
        4 => is(SIGN),
        5 => is(PARITY),
        6 => is(SIGN) != is(OVERFLOW),
        _ => is(ZERO) || is(SIGN) != is(OVERFLOW),
    };
    holds != (condition & 1 == 1)
}

/// The result of an operation and the flags it sets.
fn compute(operation: Operation, left: u64, right: u64) -> (u64, u64) {
    let (result, carries, overflows) = match operation {
        Operation::Add => {
            let (result, carries) = left.overflowing_add(right);
            (result, carries, ((left ^ result) & (right ^ result)) >> 63 == 1)
        }
        Operation::Sub | Operation::Compare => {
            let (result, borrows) = left.overflowing_sub(right);
            (result, borrows, ((left ^ right) & (left ^ result)) >> 63 == 1)
        }
        Operation::And | Operation::Test => (left & right, false, false),
        Operation::Or => (left | right, false, false),
        Operation::Xor => (left ^ right, false, false),
    };
    let is_sum = matches!(operation, Operation::Add | Operation::Sub | Operation::Compare);
    let mut flags = 0;
    let mut set = |flag: u64, condition: bool| flags |= if condition { flag } else { 0 };
    set(CARRY, carries);
    set(OVERFLOW, overflows);
    set(ZERO, result == 0);
    set(SIGN, result >> 63 == 1);
    set(PARITY, (result as u8).count_ones().is_multiple_of(2));
    set(ADJUST, is_sum && (left ^ right ^ result) & 0x10 != 0);
    (result, flags)
}
