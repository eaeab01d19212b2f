// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invalid data in a cell's own pages that the kernel reads: only this cell is affected.

use crate::harness::{ExpectedEnd, Harness, HostileCell};
use pando_abi::Hypercall;
use pando_abi::layout::{CONSOLE_RINGS, VIRTUAL_REGISTERS};
use pando_abi::memory::CURRENT_SPACE;
use pando_machine::SUPERVISOR_BASE;
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{R14, Rax, Rbx};
use pando_testing::lab::{CODE, DATA, repetitions};
use pando_testing::virtual_registers::exit;

/// Words that are meaningful as an address, a number or a flag.
fn word(random: &mut fastrand::Rng) -> u64 {
    match random.u8(0..10) {
        0 => 0,
        1 => u64::MAX,
        2 => random.u64(0..0x100),
        3 => CODE + random.u64(0..0x400),
        4 => DATA + random.u64(0..0x4_0000),
        5 => SUPERVISOR_BASE + random.u64(0..0x1_0000),
        6 => VIRTUAL_REGISTERS + random.u64(0..0x5000),
        7 => 1 << random.u8(0..64),
        8 => random.u64(0..1 << 20) << 32 | random.u64(0..1 << 20),
        _ => random.u64(..),
    }
}

/// Stores to random words of a page.
fn scribble(asm: &mut Asm, random: &mut fastrand::Rng, page: u64, words: u32, max: u32) {
    asm.mov_imm(Rbx, page);
    for _ in 0..random.u32(1..=max) {
        asm.mov_imm(Rax, word(random)).store(Rbx, random.u32(0..words) as i32 * 8, Rax);
    }
}

/// An exit after which the kernel reads its pages.
fn exit_somehow(asm: &mut Asm, random: &mut fastrand::Rng) {
    match random.u8(0..8) {
        0 => asm.call_kernel(Hypercall::Doorbell {}),
        1 => asm.call_kernel(Hypercall::Relinquish {}),
        2 => asm.call_kernel(Hypercall::Idle { deadline: 0 }),
        3 => asm.ud2(),
        4 => asm.syscall(),
        5 => asm.mov_imm(R14, word(random)).load(Rax, R14, 0),
        6 => asm.int3(),
        _ => asm.call_kernel(Hypercall::SpaceClone { space: CURRENT_SPACE }),
    };
}

fn nonsense(page: u64, words: u32, max: u32) {
    let seed = crate::random::seed();
    for mut harness in Harness::both() {
        for number in 0..u64::from(repetitions(60, 300, 50_000)) {
            let mut random = fastrand::Rng::with_seed(seed.wrapping_add(number));
            let hostile = HostileCell::assembled(format!("page {page:#x}, seed {seed}, program {number}"), |asm| {
                for _ in 0..random.u8(1..6) {
                    scribble(asm, &mut random, page, words, max);
                    exit_somehow(asm, &mut random);
                }
                asm.call_kernel(exit(1));
            });
            let control = if random.bool() { pando_testing::virtual_registers::application() } else { hostile.control };
            harness.try_cell(&HostileCell { control, ..hostile }, &[ExpectedEnd::Anything]);
        }
        harness.close();
    }
}

#[test]
fn nonsense_in_the_virtual_registers() {
    // Mostly the control words, which the kernel reads.
    nonsense(VIRTUAL_REGISTERS, 16, 4);
}

#[test]
fn nonsense_all_over_the_virtual_registers() {
    nonsense(VIRTUAL_REGISTERS, 512, 40);
}

#[test]
fn nonsense_in_the_rings() {
    nonsense(CONSOLE_RINGS, 170, 12);
}
