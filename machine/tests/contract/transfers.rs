// SPDX-License-Identifier: MIT OR Apache-2.0
//! Far transfers to every selector (line 2): only the 64-bit code segment at CPL 3 lets a cell continue.

use crate::bare::pair::{Attack, BareOutcome, Pair};
use crate::bare::{CODE, DATA, is_nested, size};
use BareOutcome::{AnyFault, Calls, Ends, Loops, Syscall};
use pando_abi::registers::USER_CODE;

/// Address of a transfer's operand; the stack pointer points to it.
const OPERAND: u64 = DATA + 0x800;
/// Offset of its target: code whose meaning depends on the mode.
const TARGET: usize = 0x40;

/// A way to load CS.
struct Far {
    name: &'static str,
    code: &'static [u8],
    /// Bytes of each word of the operand.
    word: usize,
    /// Whether the stack pointer and its selector follow.
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

/// Code for the target: name, bytes. In 32-bit mode some of them are other instructions.
const TARGETS: [(&str, &[u8]); 14] = [
    ("syscall", b"\x0f\x05"),
    ("sysenter", b"\x0f\x34"),
    ("int 0x80", b"\xcd\x80"),
    ("hypercall", b"\xe6\x7e"),
    ("in al, 0x7e", b"\xe4\x7e"),
    ("a loop", b"\xeb\xfe"),
    ("ud2", b"\x0f\x0b"),
    ("int3", b"\xcc"),
    ("inc eax, in 32 bits", b"\x40\x40\x40\xe6\x7e"),
    ("pusha, in 32 bits", b"\x60\x60\xe6\x7e"),
    ("into, in 32 bits", b"\xce\xe6\x7e"),
    ("a call gate by 9a, in 32 bits", b"\x9a\x00\x00\x40\x00\x33\x00"),
    ("a wild store, in 32 bits", b"\xa3\x00\x00\x00\x80\xe6\x7e"),
    ("mov ss and syscall", b"\x8e\xd0\x0f\x05"),
];

fn transfer(pair: &mut Pair, way: &Far, selector: u16, target: (&str, &[u8]), flags: u64) {
    let mut code = way.code.to_vec();
    code.resize(TARGET, 0x90);
    code.extend(target.1);
    let mut context = pair.start(&code);
    (context.registers.rbx, context.registers.rsp, context.registers.rax) = (OPERAND, OPERAND, 0x23);
    context.registers.rflags = flags;
    let operand: Vec<u8> = [CODE + TARGET as u64, u64::from(selector), flags | 0x202, OPERAND, 0x23]
        .into_iter()
        .take(if way.frame { 5 } else { 2 })
        .flat_map(|word| word.to_le_bytes().into_iter().take(way.word))
        .collect();
    pair.bare.write(pair.bare.data, 0x800, &operand);
    // Nested, cells run on the host's own 64-bit code segment, independent of the loaded one.
    let stays = u64::from(selector) | 3 == USER_CODE || is_nested() && selector | 3 == 0x33;
    let allowed: &[BareOutcome] = if stays { &[AnyFault, Ends, Syscall, Calls, Loops] } else { &[AnyFault, Ends] };
    let name = format!("{} to {selector:#x}, {}, flags {flags:#x}", way.name, target.0);
    pair.attack_from(&Attack::new(&name, &code, allowed), context);
}

#[test]
fn every_selector_faults_or_ends_the_cell() {
    let mut pair = Pair::new();
    let few = (0..0x40).chain([0xfff8, 0xffff]).collect::<Vec<u16>>();
    let many = (0..=0xff).chain([0x100, 0x7e, 0x3fc, 0x7ff8, 0xe000, 0xe033, 0xfff8, 0xffff]).collect();
    let all = (0..=0xffff).step_by(1).collect();
    for selector in size::choose(few, many, all) {
        for way in &WAYS {
            transfer(&mut pair, way, selector, TARGETS[0], 0);
        }
    }
}

#[test]
fn code_of_another_mode_harms_no_other_cell() {
    let mut pair = Pair::new();
    // The slots of the usual 32-bit and 64-bit code segments, here and on the hosts that run a cell with their own descriptors.
    for selector in [0x1b, 0x23, 0x2b, 0x33, 0x08, 0x10] {
        for way in &WAYS {
            for target in TARGETS {
                for flags in size::choose(vec![0], vec![0, 0x100, 0x4_0000], vec![0, 0x100, 0x4_0000, 0x4000, 0x24_0dd5]) {
                    transfer(&mut pair, way, selector, target, flags);
                }
            }
        }
    }
}
