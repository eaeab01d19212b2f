// SPDX-License-Identifier: MIT OR Apache-2.0
//! Far transfers to every selector, followed by `syscall` and by code of another mode; on real machines only.

use crate::harness::{ExpectedEnd, Harness, HostileCell, rows};
use ExpectedEnd::{AnyFault, Endless, Exits, Violation};
use pando_abi::registers::USER_CODE;
use pando_testing::asm::Asm;
use pando_testing::asm::Register::Rbx;
use pando_testing::lab::{CODE, DATA, repetitions};

/// Address of a transfer's operand; the stack pointer points to it.
const OPERAND: u64 = DATA + 0x800;
/// Offset of the transfer's target.
const TARGET: usize = 0x100;

/// A way to load CS.
struct Far {
    name: &'static str,
    code: &'static [u8],
    /// Bytes of each word of the operand.
    word: usize,
    /// Whether flags, stack pointer and its selector follow.
    frame: bool,
}

const WAYS: [Far; 8] = [
    Far { name: "iretq", code: b"\x48\xcf", word: 8, frame: true },
    Far { name: "iretd", code: b"\xcf", word: 4, frame: true },
    Far { name: "retfq", code: b"\x48\xcb", word: 8, frame: false },
    Far { name: "retf", code: b"\xcb", word: 4, frame: false },
    Far { name: "jmp far m16:32", code: b"\xff\x2b", word: 4, frame: false },
    Far { name: "jmp far m16:64", code: b"\x48\xff\x2b", word: 8, frame: false },
    Far { name: "call far m16:32", code: b"\xff\x1b", word: 4, frame: false },
    Far { name: "call far m16:64", code: b"\x48\xff\x1b", word: 8, frame: false },
];

/// Code at the target. In 32-bit mode some of it decodes differently.
const TARGETS: [(&str, &[u8]); 8] = [
    ("syscall", b"\x0f\x05"),
    ("sysenter", b"\x0f\x34"),
    ("int 0x80", b"\xcd\x80"),
    ("hypercall", b"\xe6\x7e"),
    ("in al, 0x7e", b"\xe4\x7e"),
    ("a loop", b"\xeb\xfe"),
    ("pusha, in 32 bits", b"\x60\x60\xe6\x7e"),
    ("mov ss and syscall", b"\x8e\xd0\x0f\x05"),
];

fn transfer(harness: &mut Harness, way: &Far, selector: u16, target: (&str, &[u8]), flags: u64) {
    let mut asm = Asm::new();
    let words = [CODE + TARGET as u64, u64::from(selector), flags | 0x202, OPERAND, 0x23];
    let operand: Vec<u8> =
        words.into_iter().take(if way.frame { 5 } else { 2 }).flat_map(|word| word.to_le_bytes().into_iter().take(way.word)).collect();
    asm.mov_imm(Rbx, OPERAND);
    for (index, chunk) in operand.chunks(4).enumerate() {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        asm.store_imm(Rbx, index as i32 * 4, i32::from_le_bytes(word));
    }
    asm.raw(way.code);
    let mut code = asm.finish();
    code.resize(TARGET, 0x90);
    code.extend(target.1);
    let name = format!("{} to {selector:#x}, {}, flags {flags:#x}", way.name, target.0);
    let mut hostile = HostileCell::new(name, &code);
    (hostile.registers.rsp, hostile.registers.rax, hostile.registers.rflags) = (OPERAND, 0x23, flags);
    // On nested machines a cell runs with the host's own descriptors, and reaches the host's 64-bit user code segment as well.
    let stays = [USER_CODE, 0x33].contains(&(u64::from(selector) | 3));
    let allowed: &[ExpectedEnd] = if stays { &[AnyFault, Violation, Exits(0), Endless] } else { &[AnyFault, Violation] };
    harness.try_cell(&hostile, allowed);
}

#[test]
fn every_selector_faults_or_ends_the_cell() {
    let Some(mut harness) = Harness::real() else { return };
    let selectors: Vec<u16> = match repetitions(0, 1, 2) {
        0 => vec![0, 3, 0x08, 0x10, 0x1b, 0x23, 0x2b, 0x33, 0x3b, 0xffff],
        1 => (0..0x48).chain([0x7e, 0xe033, 0xfff8, 0xffff]).collect(),
        _ => (0..=0xffff).collect(),
    };
    for selector in selectors {
        for way in &WAYS {
            transfer(&mut harness, way, selector, TARGETS[0], 0);
        }
    }
    harness.close();
}

#[test]
fn code_of_another_mode_harms_no_other_cell() {
    let Some(mut harness) = Harness::real() else { return };
    for selector in [0x1b, 0x23, 0x2b, 0x33] {
        for way in &WAYS {
            for target in rows(TARGETS.to_vec(), 3) {
                for flags in [0, 0x100] {
                    transfer(&mut harness, way, selector, target, flags);
                }
            }
        }
    }
    harness.close();
}
