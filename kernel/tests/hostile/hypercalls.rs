// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random hypercalls with random arguments: each is refused with a name, or affects only its own cell.

use crate::harness::{ExpectedEnd, Harness, HostileCell, is_clear};
use pando_abi::hypercall::TABLE;
use pando_abi::layout::{ROOT_IMAGE, SLOT_SIZE, SYSTEM, USER_END};
use pando_abi::{Hypercall, Refusal};
use pando_kernel::RunState;
use pando_kernel::{CellId, End};
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{self, R9, Rax, Rbx, Rcx};
use pando_testing::lab::{CODE, DATA, repetitions};
use pando_testing::virtual_registers::words;

/// Number of calls that one cell makes.
const CALLS: u32 = 60;
/// Where the cell records the results.
const RESULTS: u64 = DATA + 0x2_0000;

fn argument(random: &mut fastrand::Rng) -> u64 {
    let address = |random: &mut fastrand::Rng| match random.u8(0..8) {
        0 => CODE,
        1 => DATA,
        2 => SYSTEM,
        3 => ROOT_IMAGE,
        4 => USER_END,
        5 => SLOT_SIZE * random.u64(0..258),
        6 => 1 << random.u8(12..64),
        _ => 0x2000_0000,
    };
    match random.u8(0..16) {
        0..4 => random.u64(0..4),
        4 | 5 => u64::MAX,
        6..10 => address(random).wrapping_add(random.u64(0..0x300) << 12),
        10 => address(random).wrapping_add(random.u64(0..0x10_0000)),
        11 => random.u64(0..64),
        12 => random.u64(0..2000),
        13 => 1 << random.u8(0..64),
        14 => u64::MAX - random.u64(0..5000),
        _ => random.u64(..),
    }
}

/// The number of a call: nearly always a valid one, but never one that ends or freezes the cell.
fn number(random: &mut fastrand::Rng) -> u64 {
    loop {
        let number = if random.u8(0..32) == 0 { argument(random) } else { random.u64(0..TABLE.len() as u64) };
        let stops = matches!(TABLE.get(number as usize).map(|line| line.name), Some("exit" | "freeze"));
        if !stops {
            return number;
        }
    }
}

fn program(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut asm = Asm::new();
    for index in 0..CALLS {
        for register in Register::ARGUMENTS {
            asm.mov_imm(register, argument(random));
        }
        let number = number(random);
        if number == 1 {
            // Idling must return.
            asm.mov_imm(Register::Rdi, random.u64(0..1000));
        }
        asm.mov_imm(R9, number).mov(Rax, R9).hypercall();
        if random.u8(0..4) == 0 {
            // Access memory that may be mapped, so that a wrong mapping would matter.
            asm.mov_imm(Rbx, DATA + random.u64(0..32) * 0x1000).load(Rcx, Rbx, 0).store(Rbx, 8, Rax);
        }
        asm.mov_imm(Rbx, RESULTS).store(Rbx, index as i32 * 8, Rax);
    }
    asm.call_kernel(Hypercall::Freeze {});
    asm.finish()
}

/// Checks the results, if the cell has made all calls: each is a value or a refusal with a name.
fn check_results(harness: &Harness, id: CellId, name: &str) {
    for result in words::<{ CALLS as usize }>(&harness.lab, id, RESULTS) {
        let code = result.wrapping_neg();
        assert!(code > 0xfff || Refusal::ALL.iter().any(|refusal| *refusal as u64 == code) || result == 0, "{name}: {result:#x}");
    }
}

#[test]
fn random_hypercalls_disturb_no_other_cell() {
    let seed = crate::random::seed();
    for mut harness in Harness::both() {
        for number in 0..u64::from(repetitions(300, 4_000, 1_000_000)) / u64::from(CALLS) {
            let mut random = fastrand::Rng::with_seed(seed.wrapping_add(number));
            let name = format!("hypercalls of seed {seed}, program {number}");
            let quota = pando_machine::PageCount(random.u64(300..3000));
            let hostile = HostileCell { quota, ..HostileCell::new(name.clone(), &program(&mut random)) };
            let id = harness.begin(&hostile);
            // It may freeze, idle, wait for a flush, or fault because of changes to its own memory.
            while harness.go_on(id, &name) && harness.lab.kernel.inspect(id).is_ok_and(|(state, ..)| state == RunState::Ready) {}
            match harness.lab.kernel.inspect(id) {
                Ok((RunState::Frozen, ..)) if harness.lab.kernel.read(id, RESULTS, &mut [0; CALLS as usize * 8]).is_ok() => {
                    check_results(&harness, id, &name);
                }
                _ => {}
            }
            let outcome = harness.conclude(id, &name);
            assert!(is_clear(&outcome.end), "{name}: {}", outcome.end);
            let fits = matches!(outcome.end, End::TimedOut | End::Fault(_) | End::Quota);
            assert!(fits, "{name}: {}", outcome.end);
        }
        harness.close();
    }
    let _ = ExpectedEnd::Anything;
}
