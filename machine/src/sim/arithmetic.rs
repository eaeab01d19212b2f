// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arithmetic and its flags (Intel SDM volume 1, 3.4.3).

use super::instruction::Opcode;

pub(super) const CARRY: u64 = 1;
const PARITY: u64 = 1 << 2;
const ADJUST: u64 = 1 << 4;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
pub(super) const TRAP: u64 = 1 << 8;
const OVERFLOW: u64 = 1 << 11;
pub(super) const RESUME: u64 = 1 << 16;
/// The flags that arithmetic sets.
pub(super) const SET: u64 = CARRY | PARITY | ADJUST | ZERO | SIGN | OVERFLOW;

/// Whether a condition code holds (SDM volume 2, appendix B): each odd one is the opposite of the one before.
pub(super) fn holds(condition: u8, flags: u64) -> bool {
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
pub(super) fn compute(operation: Opcode, left: u64, right: u64) -> (u64, u64) {
    let (result, carries, overflows) = match operation {
        Opcode::Add => {
            let (result, carries) = left.overflowing_add(right);
            (result, carries, ((left ^ result) & (right ^ result)) >> 63 == 1)
        }
        Opcode::Sub | Opcode::Compare => {
            let (result, borrows) = left.overflowing_sub(right);
            (result, borrows, ((left ^ right) & (left ^ result)) >> 63 == 1)
        }
        Opcode::And | Opcode::Test => (left & right, false, false),
        Opcode::Or => (left | right, false, false),
        Opcode::Xor => (left ^ right, false, false),
    };
    let is_sum = matches!(operation, Opcode::Add | Opcode::Sub | Opcode::Compare);
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
