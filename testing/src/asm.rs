// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tiny assembler for programs that tests run in cells: exactly the encodings that every machine knows, `sim` included.
//!
//! | method | instruction | encoding |
//! |---|---|---|
//! | `mov_imm` | `mov r, imm64` | `REX.W B8+r imm64` |
//! | `mov` | `mov r, r` | `REX.W 89 /r` |
//! | `store_imm` | `mov [base+disp], imm32` | `REX.W C7 /0 id` |
//! | `load`, `store` | `mov r, [base+disp]`, `mov [base+disp], r` | `REX.W 8B /r`, `REX.W 89 /r` with disp8 or disp32 |
//! | `load_byte`, `store_byte` | `movzx r, byte [base+disp]`, `mov byte [base+disp], r8` | `REX.W 0F B6 /r`, `REX 88 /r` |
//! | `add` `or` `and` `sub` `xor` `cmp` `test` | `op r, r` | `REX.W 01 09 21 29 31 39 85 /r` |
//! | `add_imm` `sub_imm` `cmp_imm` | `op r, imm` | `REX.W 83 /n ib`, `REX.W 81 /n id` |
//! | `inc`, `dec` | `inc r`, `dec r` | `REX.W FF /0`, `/1` |
//! | `jmp`, `jump_if` | `jmp`, `jcc` to a label | `EB ib`, `7x ib` backwards where it reaches, else `E9 id`, `0F 8x id` |
//! | `jmp_to`, `call_to` | `jmp r`, `call r` | `FF /4`, `FF /2` |
//! | `call`, `ret` | `call` to a label, `ret` | `E8 id`, `C3` |
//! | `push`, `pop` | `push r`, `pop r` | `50+r`, `58+r` |
//! | `nop`, `pause`, `rdtsc` | | `90`, `F3 90`, `0F 31` |
//! | `hypercall` | `out 0x7e, al` | `E6 7E` |
//! | `syscall`, `ud2`, `int3`, `hlt` | | `0F 05`, `0F 0B`, `CC`, `F4` |
//! | `set_xmm0`, `get_xmm0` | `movq xmm0, rax`, `movq rax, xmm0` | `66 48 0F 6E C0`, `66 48 0F 7E C0` |
//!
//! ```
//! use pando_testing::asm::{Asm, Condition, Register};
//! let mut asm = Asm::new();
//! asm.mov_imm(Register::Rcx, 1000);
//! let again = asm.here();
//! asm.dec(Register::Rcx).jump_if(Condition::NotZero, again).hypercall();
//! let code = asm.finish();
//! ```

use pando_abi::Hypercall;
use pando_abi::hypercall::PORT;

/// The REX prefix that makes operands 64 bits wide.
const WIDE: u8 = 0x48;

/// A general register; the discriminant is its number in encodings.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Register {
    Rax,
    Rcx,
    Rdx,
    Rbx,
    Rsp,
    Rbp,
    Rsi,
    Rdi,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
}

impl Register {
    /// All of them, in the order of their numbers.
    pub const ALL: [Register; 16] = {
        use Register::*;
        [Rax, Rcx, Rdx, Rbx, Rsp, Rbp, Rsi, Rdi, R8, R9, R10, R11, R12, R13, R14, R15]
    };

    /// The registers that carry a hypercall's arguments, in order.
    pub const ARGUMENTS: [Register; 5] = [Register::Rdi, Register::Rsi, Register::Rdx, Register::R10, Register::R8];

    /// The bits that fit into an opcode or a ModRM byte.
    fn low(self) -> u8 {
        self as u8 & 7
    }

    /// The bit that goes into REX.
    fn high(self) -> u8 {
        self as u8 >> 3
    }
}

/// When a conditional jump is taken; the discriminant is the condition's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Condition {
    /// Signed overflow.
    Overflow = 0,
    /// Unsigned less; carry.
    Below = 2,
    /// Unsigned greater or equal; no carry.
    AboveOrEqual = 3,
    /// Zero; equal.
    Zero = 4,
    /// Not zero; not equal.
    NotZero = 5,
    /// Unsigned less or equal.
    BelowOrEqual = 6,
    /// Unsigned greater.
    Above = 7,
    /// Negative.
    Sign = 8,
    /// Even number of ones in the lowest byte.
    Parity = 10,
    /// Signed less.
    Less = 12,
    /// Signed greater or equal.
    GreaterOrEqual = 13,
}

/// A position in the program, perhaps not reached yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// A program under construction. Code is position independent: jumps are relative.
#[derive(Clone, Debug, Default)]
pub struct Asm {
    bytes: Vec<u8>,
    /// The offset of each label, once bound.
    labels: Vec<Option<usize>>,
    /// Displacements to fill in: their offsets and their targets.
    references: Vec<(usize, Label)>,
}

impl Asm {
    /// An empty program.
    #[must_use]
    pub fn new() -> Asm {
        Asm::default()
    }

    /// Returns the program's bytes.
    ///
    /// # Panics
    /// If a label that is jumped to was never bound.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        for (at, label) in self.references {
            let target = self.labels[label.0].expect("every label that is used is bound");
            self.bytes[at..at + 4].copy_from_slice(&displacement(at + 4, target).to_le_bytes());
        }
        self.bytes
    }

    /// The length in bytes so far: the offset of the next instruction.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.bytes.len()
    }

    /// Creates a label to be bound later.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds a label to the current position.
    ///
    /// # Panics
    /// If it is bound already.
    pub fn bind(&mut self, label: Label) -> &mut Asm {
        let before = self.labels[label.0].replace(self.bytes.len());
        assert_eq!(before, None, "a label is one place");
        self
    }

    /// Creates a label at the current position.
    pub fn here(&mut self) -> Label {
        let label = self.label();
        self.bind(label);
        label
    }

    /// Appends bytes unchanged.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Asm {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// `to = value`.
    pub fn mov_imm(&mut self, to: Register, value: u64) -> &mut Asm {
        self.raw(&[WIDE | to.high(), 0xb8 | to.low()]).raw(&value.to_le_bytes())
    }

    /// `to = from`.
    pub fn mov(&mut self, to: Register, from: Register) -> &mut Asm {
        self.registers(0x89, from, to)
    }

    /// `to = *(base + displacement)`, eight bytes.
    pub fn load(&mut self, to: Register, base: Register, displacement: i32) -> &mut Asm {
        self.memory(WIDE, &[0x8b], to, base, displacement)
    }

    /// `*(base + displacement) = from`, eight bytes.
    pub fn store(&mut self, base: Register, displacement: i32, from: Register) -> &mut Asm {
        self.memory(WIDE, &[0x89], from, base, displacement)
    }

    /// `*(base + displacement) = value`, eight bytes, sign-extended.
    pub fn store_imm(&mut self, base: Register, displacement: i32, value: i32) -> &mut Asm {
        self.memory(WIDE, &[0xc7], Register::Rax, base, displacement).raw(&value.to_le_bytes())
    }

    /// `to = *(base + displacement)`, one byte, zero-extended.
    pub fn load_byte(&mut self, to: Register, base: Register, displacement: i32) -> &mut Asm {
        self.memory(WIDE, &[0x0f, 0xb6], to, base, displacement)
    }

    /// `*(base + displacement) = from`, its lowest byte.
    pub fn store_byte(&mut self, base: Register, displacement: i32, from: Register) -> &mut Asm {
        self.memory(0x40, &[0x88], from, base, displacement)
    }

    /// `to += from`.
    pub fn add(&mut self, to: Register, from: Register) -> &mut Asm {
        self.registers(0x01, from, to)
    }

    /// `to |= from`.
    pub fn or(&mut self, to: Register, from: Register) -> &mut Asm {
        self.registers(0x09, from, to)
    }

    /// `to &= from`.
    pub fn and(&mut self, to: Register, from: Register) -> &mut Asm {
        self.registers(0x21, from, to)
    }

    /// `to -= from`.
    pub fn sub(&mut self, to: Register, from: Register) -> &mut Asm {
        self.registers(0x29, from, to)
    }

    /// `to ^= from`.
    pub fn xor(&mut self, to: Register, from: Register) -> &mut Asm {
        self.registers(0x31, from, to)
    }

    /// Sets the flags of `left - right`.
    pub fn cmp(&mut self, left: Register, right: Register) -> &mut Asm {
        self.registers(0x39, right, left)
    }

    /// Sets the flags of `left & right`.
    pub fn test(&mut self, left: Register, right: Register) -> &mut Asm {
        self.registers(0x85, right, left)
    }

    /// `to += value`.
    pub fn add_imm(&mut self, to: Register, value: i32) -> &mut Asm {
        self.immediate(0, to, value)
    }

    /// `to -= value`.
    pub fn sub_imm(&mut self, to: Register, value: i32) -> &mut Asm {
        self.immediate(5, to, value)
    }

    /// Sets the flags of `left - value`.
    pub fn cmp_imm(&mut self, left: Register, value: i32) -> &mut Asm {
        self.immediate(7, left, value)
    }

    /// `to += 1`; leaves the carry flag unchanged.
    pub fn inc(&mut self, to: Register) -> &mut Asm {
        self.raw(&[WIDE | to.high(), 0xff, 0xc0 | to.low()])
    }

    /// `to -= 1`; leaves the carry flag unchanged.
    pub fn dec(&mut self, to: Register) -> &mut Asm {
        self.raw(&[WIDE | to.high(), 0xff, 0xc8 | to.low()])
    }

    /// Jumps.
    pub fn jmp(&mut self, to: Label) -> &mut Asm {
        self.jump(0xeb, &[0xe9], to)
    }

    /// Jumps if the flags meet the condition.
    pub fn jump_if(&mut self, condition: Condition, to: Label) -> &mut Asm {
        self.jump(0x70 | condition as u8, &[0x0f, 0x80 | condition as u8], to)
    }

    /// Jumps to the address in a register.
    pub fn jmp_to(&mut self, to: Register) -> &mut Asm {
        self.extended(to).raw(&[0xff, 0xe0 | to.low()])
    }

    /// Calls.
    pub fn call(&mut self, to: Label) -> &mut Asm {
        self.raw(&[0xe8]).reference(to)
    }

    /// Calls the address in a register.
    pub fn call_to(&mut self, to: Register) -> &mut Asm {
        self.extended(to).raw(&[0xff, 0xd0 | to.low()])
    }

    /// Returns.
    pub fn ret(&mut self) -> &mut Asm {
        self.raw(&[0xc3])
    }

    /// Pushes a register.
    pub fn push(&mut self, from: Register) -> &mut Asm {
        self.extended(from).raw(&[0x50 | from.low()])
    }

    /// Pops a register.
    pub fn pop(&mut self, to: Register) -> &mut Asm {
        self.extended(to).raw(&[0x58 | to.low()])
    }

    /// Does nothing.
    pub fn nop(&mut self) -> &mut Asm {
        self.raw(&[0x90])
    }

    /// `pause`, the hint of spin loops.
    pub fn pause(&mut self) -> &mut Asm {
        self.raw(&[0xf3, 0x90])
    }

    /// `rdx:rax` = the TSC.
    pub fn rdtsc(&mut self) -> &mut Asm {
        self.raw(&[0x0f, 0x31])
    }

    /// The hypercall instruction alone: number and arguments are in the registers.
    pub fn hypercall(&mut self) -> &mut Asm {
        self.raw(&[0xe6, PORT])
    }

    /// A hypercall with its number and arguments: sets `rax` and all argument registers.
    pub fn call_kernel(&mut self, call: Hypercall) -> &mut Asm {
        let (number, arguments) = call.encode();
        for (register, argument) in Register::ARGUMENTS.into_iter().zip(arguments) {
            self.mov_imm(register, argument);
        }
        self.mov_imm(Register::Rax, number).hypercall()
    }

    /// The instruction `syscall`.
    pub fn syscall(&mut self) -> &mut Asm {
        self.raw(&[0x0f, 0x05])
    }

    /// Raises #UD.
    pub fn ud2(&mut self) -> &mut Asm {
        self.raw(&[0x0f, 0x0b])
    }

    /// Raises #BP.
    pub fn int3(&mut self) -> &mut Asm {
        self.raw(&[0xcc])
    }

    /// Raises #GP: the instruction is privileged.
    pub fn hlt(&mut self) -> &mut Asm {
        self.raw(&[0xf4])
    }

    /// `xmm0 = rax`: makes vector state visible to tests.
    pub fn set_xmm0(&mut self) -> &mut Asm {
        self.raw(&[0x66, 0x48, 0x0f, 0x6e, 0xc0])
    }

    /// `rax = xmm0`, its lower half.
    pub fn get_xmm0(&mut self) -> &mut Asm {
        self.raw(&[0x66, 0x48, 0x0f, 0x7e, 0xc0])
    }

    /// The REX prefix for registers from r8 on.
    fn extended(&mut self, register: Register) -> &mut Asm {
        if register.high() == 1 { self.raw(&[0x41]) } else { self }
    }

    /// An instruction between two registers.
    fn registers(&mut self, opcode: u8, register: Register, other: Register) -> &mut Asm {
        self.raw(&[WIDE | register.high() << 2 | other.high(), opcode, 0xc0 | register.low() << 3 | other.low()])
    }

    /// An instruction between a register and memory. `rex` is [`WIDE`], or the bare prefix for bytes.
    fn memory(&mut self, rex: u8, opcode: &[u8], register: Register, base: Register, displacement: i32) -> &mut Asm {
        let short = i8::try_from(displacement);
        let mode = if short.is_ok() { 0x40 } else { 0x80 };
        self.raw(&[rex | register.high() << 2 | base.high()]).raw(opcode).raw(&[mode | register.low() << 3 | base.low()]);
        // With these two as a base, a SIB byte must state that there is no index.
        if matches!(base, Register::Rsp | Register::R12) {
            self.raw(&[0x24]);
        }
        match short {
            Ok(byte) => self.raw(&byte.to_le_bytes()),
            Err(_) => self.raw(&displacement.to_le_bytes()),
        }
    }

    fn immediate(&mut self, digit: u8, to: Register, value: i32) -> &mut Asm {
        let rex = WIDE | to.high();
        let operand = 0xc0 | digit << 3 | to.low();
        match i8::try_from(value) {
            Ok(byte) => self.raw(&[rex, 0x83, operand]).raw(&byte.to_le_bytes()),
            Err(_) => self.raw(&[rex, 0x81, operand]).raw(&value.to_le_bytes()),
        }
    }

    /// A jump: the short form if the label is bound and near enough.
    fn jump(&mut self, short: u8, near: &[u8], to: Label) -> &mut Asm {
        let reach = self.labels[to.0].and_then(|target| i8::try_from(displacement(self.bytes.len() + 2, target)).ok());
        match reach {
            Some(byte) => self.raw(&[short, byte as u8]),
            None => self.raw(near).reference(to),
        }
    }

    /// A displacement of four bytes that is filled in at the end.
    fn reference(&mut self, to: Label) -> &mut Asm {
        self.references.push((self.bytes.len(), to));
        self.raw(&[0; 4])
    }
}

/// The displacement from the end of a jump to its target.
fn displacement(from: usize, to: usize) -> i32 {
    i32::try_from(to as i64 - from as i64).expect("programs are small")
}

#[cfg(test)]
mod tests {
    use super::{Asm, Condition, Register};
    use Register::*;

    fn check(build: impl FnOnce(&mut Asm) -> &mut Asm, expect: &[u8]) {
        let mut asm = Asm::new();
        build(&mut asm);
        assert_eq!(asm.finish(), expect, "{expect:x?}");
    }

    /// Compares with the bytes that GNU as generates for the same instructions.
    #[test]
    fn instructions_are_encoded_as_other_assemblers_do() {
        check(|asm| asm.mov_imm(R9, 0x1122_3344_5566_7788), b"\x49\xb9\x88\x77\x66\x55\x44\x33\x22\x11");
        check(|asm| asm.mov(Rax, R15), b"\x4c\x89\xf8");
        check(|asm| asm.load(Rbx, Rcx, 8), b"\x48\x8b\x59\x08");
        check(|asm| asm.load(R10, R12, -8), b"\x4d\x8b\x54\x24\xf8");
        check(|asm| asm.store(Rsp, 0x1000, Rdi), b"\x48\x89\xbc\x24\x00\x10\x00\x00");
        check(|asm| asm.store(R13, 0, Rax), b"\x49\x89\x45\x00");
        check(|asm| asm.store_imm(R12, 8, -2), b"\x49\xc7\x44\x24\x08\xfe\xff\xff\xff");
        check(|asm| asm.load_byte(R8, Rsi, 1), b"\x4c\x0f\xb6\x46\x01");
        check(|asm| asm.store_byte(Rdi, 1, Rsi), b"\x40\x88\x77\x01");
        check(|asm| asm.add(Rax, Rbx), b"\x48\x01\xd8");
        check(|asm| asm.or(R8, Rbx), b"\x49\x09\xd8");
        check(|asm| asm.and(Rax, R11), b"\x4c\x21\xd8");
        check(|asm| asm.sub(Rdx, Rsi), b"\x48\x29\xf2");
        check(|asm| asm.xor(R14, R14), b"\x4d\x31\xf6");
        check(|asm| asm.cmp(Rax, Rcx), b"\x48\x39\xc8");
        check(|asm| asm.test(Rax, Rcx), b"\x48\x85\xc8");
        check(|asm| asm.add_imm(Rsp, -8), b"\x48\x83\xc4\xf8");
        check(|asm| asm.sub_imm(R9, 0x1234), b"\x49\x81\xe9\x34\x12\x00\x00");
        check(|asm| asm.cmp_imm(Rdi, 127), b"\x48\x83\xff\x7f");
        check(|asm| asm.inc(R8).dec(Rbp), b"\x49\xff\xc0\x48\xff\xcd");
        check(|asm| asm.jmp_to(R9).call_to(Rax), b"\x41\xff\xe1\xff\xd0");
        check(|asm| asm.push(R9).pop(Rbp).ret(), b"\x41\x51\x5d\xc3");
        check(|asm| asm.hypercall().syscall().ud2().int3().hlt(), b"\xe6\x7e\x0f\x05\x0f\x0b\xcc\xf4");
        check(|asm| asm.nop().pause().rdtsc(), b"\x90\xf3\x90\x0f\x31");
        check(|asm| asm.set_xmm0().get_xmm0(), b"\x66\x48\x0f\x6e\xc0\x66\x48\x0f\x7e\xc0");
    }

    #[test]
    fn jumps_reach_back_shortly_and_forward_nearly() {
        check(
            |asm| {
                let (back, forward) = (asm.here(), asm.label());
                asm.jmp(forward).jump_if(Condition::NotZero, back).call(back).bind(forward).jump_if(Condition::Below, forward)
            },
            b"\xe9\x07\x00\x00\x00\x75\xf9\xe8\xf4\xff\xff\xff\x72\xfe",
        );
    }

    #[test]
    fn a_far_backward_jump_is_near() {
        let mut asm = Asm::new();
        let back = asm.here();
        asm.raw(&[0x90; 200]).jmp(back).jump_if(Condition::Zero, back);
        assert_eq!(asm.finish()[200..], *b"\xe9\x33\xff\xff\xff\x0f\x84\x2d\xff\xff\xff");
    }

    #[test]
    #[should_panic(expected = "every label that is used is bound")]
    fn a_jump_to_nowhere_is_refused() {
        let mut asm = Asm::new();
        let nowhere = asm.label();
        asm.jmp(nowhere);
        let _ = asm.finish();
    }
}
