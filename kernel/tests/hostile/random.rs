// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random instructions with random registers, whose exceptions lead to more of them. A failure names the seed and the number of its
//! program.

use crate::harness::{ExpectedEnd, Harness, HostileCell};
use pando_abi::Registers;
use pando_abi::virtual_registers::Control;
use pando_machine::SUPERVISOR_BASE;
use pando_testing::lab::{CODE, DATA, repetitions};

/// Bytes of a random program.
const LENGTH: usize = 64;

/// Instructions that are unlikely to occur by chance.
const PIECES: [&[u8]; 28] = [
    b"\x0f\x05",                 // syscall
    b"\xe6\x7e",                 // out 0x7e, al
    b"\xe4\x7e",                 // in al, 0x7e
    b"\x66\xba\x7e\x00",         // mov dx, 0x7e
    b"\xf3\x6c",                 // rep insb
    b"\x6e",                     // outsb
    b"\x8e\xd1",                 // mov ss, ecx
    b"\x9d",                     // popfq
    b"\x9c\x80\x4c\x24\x01\x01", // pushfq; or byte [rsp + 1], 1: for TF
    b"\x48\xcf",                 // iretq
    b"\x48\xcb",                 // retfq
    b"\xcc",                     // int3
    b"\xf1",                     // int1
    b"\x0f\x0b",                 // ud2
    b"\xcd",                     // int with the next byte
    b"\x0f\x01",                 // group 7: lgdt, vmrun, monitor, xsetbv, ...
    b"\x0f\xae",                 // group 15: fxsave, ldmxcsr, xrstor, wrfsbase, ...
    b"\xf3\x48\x0f\xae",         // wrfsbase and its like
    b"\x0f\xc7",                 // group 9: cmpxchg16b, vmxon, rdrand, ...
    b"\x62",                     // EVEX
    b"\xc4\xe2",                 // VEX
    b"\xd9",                     // x87
    b"\xf0",                     // lock
    b"\x0f\xa2",                 // cpuid
    b"\x31\xc0\xb0\x0f\xe6\x7e", // relinquish: xor eax, eax; mov al, 15; out 0x7e, al
    b"\x31\xc0\xb0\x0d\xe6\x7e", // doorbell
    b"\x31\xc0\xb0\x03\xe6\x7e", // map
    b"\x31\xc0\xb0\x04\xe6\x7e", // unmap
];

/// The seed of all random numbers: `PANDO_SEED`, or a fixed one.
pub fn seed() -> u64 {
    std::env::var("PANDO_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0x0070_616e_646f)
}

fn program(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut code = Vec::with_capacity(LENGTH + 8);
    while code.len() < LENGTH {
        match random.u8(0..8) {
            0 | 1 => code.extend(*random.choice(&PIECES).expect("there are some")),
            2 => code.extend([0x0f, random.u8(..)]),
            3 => code.extend([*random.choice(b"\x66\xf2\xf3\x48\x4c\x41\x67\x64\x65").expect("there are some"), random.u8(..)]),
            _ => code.push(random.u8(..)),
        }
    }
    code
}

fn word(random: &mut fastrand::Rng) -> u64 {
    match random.u8(0..8) {
        0 => random.u64(0..0x100),
        1 => 0x7e,
        2 => DATA + random.u64(0..0x1000),
        3 => CODE + random.u64(0..LENGTH as u64),
        4 => SUPERVISOR_BASE + random.u64(0..0x1_0000),
        5 => 1 << random.u8(0..64),
        6 => *random.choice(&[0x1b, 0x23, 0x2b, 0x33]).expect("there are some"),
        _ => random.u64(..),
    }
}

fn hostile(random: &mut fastrand::Rng, name: String) -> HostileCell {
    let place = |random: &mut fastrand::Rng| CODE + random.u64(0..LENGTH as u64);
    let mut registers = Registers::from_words(std::array::from_fn(|_| word(random)));
    registers.rip = place(random);
    if random.u8(0..4) > 0 {
        registers.rsp = DATA + random.u64(0..0x200) * 8;
    }
    if random.bool() {
        registers.rflags &= !0x100;
    }
    let control = Control {
        exception_entry: if random.bool() { place(random) } else { 0 },
        event_entry: if random.bool() { place(random) } else { 0 },
        stacks: [word(random), word(random)],
        level: random.u64(0..3),
        exit_path_start: word(random),
        exit_path_end: word(random),
        timer: if random.bool() { 1 } else { u64::MAX },
        ..Control::default()
    };
    HostileCell { registers, control, ..HostileCell::new(name, &program(random)) }
}

#[test]
fn random_instructions_disturb_no_other_cell() {
    let Some(mut harness) = Harness::real() else { return };
    let seed = seed();
    for number in 0..u64::from(repetitions(300, 800, 1_000_000)) {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(number));
        let hostile = hostile(&mut random, format!("instructions of seed {seed}, program {number}"));
        harness.try_cell(&hostile, &[ExpectedEnd::Anything]);
    }
    harness.close();
}
