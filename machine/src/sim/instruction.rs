// SPDX-License-Identifier: MIT OR Apache-2.0
//! The instructions that the software machine supports: a small subset of unprivileged x86-64, in real encodings.
//!
//! Operands are of 64 bits unless said otherwise.
//!
//! | encoding | instruction |
//! |---|---|
//! | `REX.W B8+r imm64` | `mov r, imm64` |
//! | `REX.W 89 /r`, `REX.W 8B /r` | `mov r/m, r`, `mov r, r/m`; memory is a base with disp0, disp8 or disp32 |
//! | `REX.W C7 /0 id` | `mov r/m, imm32`, sign-extended |
//! | `REX 88 /r`, `REX.W 0F B6 /r` | `mov byte m, r8`, `movzx r, byte m` |
//! | `REX.W 01/09/21/29/31/39/85 /r` | `add`, `or`, `and`, `sub`, `xor`, `cmp`, `test` between registers |
//! | `REX.W 83 /n ib`, `REX.W 81 /n id` | the same with an immediate (`test` excepted) |
//! | `REX.W FF /0`, `/1` | `inc`, `dec` |
//! | `EB ib`, `E9 id`, `7x ib`, `0F 8x id` | `jmp`, `jcc` (all sixteen conditions) |
//! | `FF /4`, `FF /2`, `E8 id`, `C3` | `jmp r`, `call r`, `call`, `ret` |
//! | `50+r`, `58+r` | `push r`, `pop r` |
//! | `90`, `F3 90`, `0F 31` | `nop`, `pause`, `rdtsc` |
//! | `E6 7E` | the hypercall; every other use of ports is refused in its own way |
//! | `0F 05`, `0F 0B`, `CC`, `CD ib` | `syscall`, `ud2`, `int3`, `int n` |
//! | `66 48 0F 6E C0`, `66 48 0F 7E C0` | `movq xmm0, rax`, `movq rax, xmm0` |
//!
//! Privileged instructions (and `cpuid`, which faults on purpose) raise #GP; everything else raises #UD.

/// A general register by its number in encodings: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Register(pub(super) u8);

impl Register {
    /// Whether memory that it points to is in the stack segment: a non-canonical address then raises #SS.
    pub(super) fn is_stack(self) -> bool {
        matches!(self.0, 4 | 5)
    }
}

/// An arithmetic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    Add,
    Or,
    And,
    Sub,
    Xor,
    Compare,
    Test,
}

/// The second operand of an arithmetic instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Register(Register),
    Immediate(u64),
}

/// A memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OperandLocation {
    pub(super) base: Register,
    pub(super) displacement: i32,
}

/// An instruction; operands are in the manual's order, destination first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    MoveImmediate(Register, u64),
    Move(Register, Register),
    Load(Register, OperandLocation),
    Store(OperandLocation, Register),
    StoreImmediate(OperandLocation, u64),
    LoadByte(Register, OperandLocation),
    StoreByte(OperandLocation, Register),
    Arithmetic(Opcode, Register, Operand),
    Increment(Register),
    Decrement(Register),
    Jump(i32),
    /// The condition's code and the displacement.
    JumpIf(u8, i32),
    JumpTo(Register),
    Call(i32),
    CallTo(Register),
    Return,
    Push(Register),
    Pop(Register),
    Nothing,
    ReadTime,
    SetVector,
    GetVector,
    /// `out` of one byte to a port; `None` is the port in `dx`.
    ByteOut(Option<u8>),
    /// Any other use of a port.
    Port(Option<u8>),
    Syscall,
    Breakpoint,
    Interrupt(u8),
    Privileged,
    Undefined,
}
