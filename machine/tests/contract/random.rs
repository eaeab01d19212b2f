// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random instructions from random registers. A failure names the seed and the number of its program; `PANDO_SEED`
//! with the same size repeats it.

use crate::bare::pair::{Pair, is_clear, wild_stacks};
use crate::bare::{CODE, DATA, size};
use pando_machine::{Context, Exit, SUPERVISOR_BASE};
use std::time::Duration;

/// Bytes of a random program.
const LENGTH: usize = 48;

/// Sequences that are too rare by chance.
const PIECES: [&[u8]; 24] = [
    b"\x0f\x05",                 // syscall
    b"\xe6\x7e",                 // out 0x7e, al
    b"\xe4\x7e",                 // in al, 0x7e
    b"\x66\xba\x7e\x00",         // mov dx, 0x7e
    b"\xf3\x6c",                 // rep insb
    b"\x6e",                     // outsb
    b"\x8e\xd0",                 // mov ss, eax
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
];

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
        3 => CODE + random.u64(0..0x1000),
        4 => SUPERVISOR_BASE + random.u64(0..0x1_0000),
        5 => 1 << random.u8(0..64),
        6 => *random.choice(&[0x1b, 0x23, 0x2b, 0x33]).expect("there are some"),
        _ => random.u64(..),
    }
}

fn context(random: &mut fastrand::Rng) -> Context {
    let mut context = Context::at(CODE);
    let words = std::array::from_fn(|_| word(random));
    context.registers = pando_abi::Registers::from_words(words);
    context.registers.rip = CODE + random.u64(0..4);
    context.registers.rsp = match random.u8(0..4) {
        0 => *random.choice(&wild_stacks()).expect("there are some"),
        _ => DATA + random.u64(0..0x200) * 8,
    };
    if random.bool() {
        context.registers.rflags &= !0x100;
    }
    context
}

/// Runs one program for a few turns; after an exception, it continues elsewhere.
fn run(pair: &mut Pair, number: u64) {
    let mut random = fastrand::Rng::with_seed(size::seed().wrapping_add(number));
    let name = format!("seed {}, program {number}", size::seed());
    let code = program(&mut random);
    let mut page = [0u8; 0x100];
    random.fill(&mut page);
    pair.bare.write(pair.bare.data, 0, &page);
    pair.start(&code);
    let mut context = context(&mut random);
    for turn in 0..random.u8(1..4) {
        let exit = pair.turn(&mut context, Duration::from_micros(300), &format!("{name}, turn {turn}"));
        match exit {
            Exit::Violation(violation) => return assert!(is_clear(&violation), "{name}: {violation}"),
            Exit::Exception(exception) => {
                assert!(exception.vector < 32, "{name}: {exception:?}");
                context.registers.rip = CODE + random.u64(0..LENGTH as u64);
            }
            Exit::Hypercall | Exit::Syscall | Exit::Interrupted => {}
        }
        if !context.is_loadable() {
            return;
        }
    }
}

#[test]
fn random_instructions_disturb_no_other_cell() {
    let mut pair = Pair::new();
    for number in 0..size::choose(500, 20_000, 1_000_000) {
        run(&mut pair, number);
    }
}
