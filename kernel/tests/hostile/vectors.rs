// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ownership of vector, x87 and MXCSR state (line 7 of the context contract).

use crate::Code;
use crate::harness::{ExpectedEnd, Harness, HostileCell};
use ExpectedEnd::{AnyFault, Endless, Exits};
use pando_abi::Hypercall;
use pando_abi::cpuid::Entry;
use pando_kernel::RunState;
use pando_kernel::{CellId, Config, End};
use pando_machine::{FRAME_SIZE, PageCount};
use pando_testing::asm::Register::{R12, R13, Rax, Rbx};
use pando_testing::asm::{Asm, Condition};
use pando_testing::lab::{DATA, Lab};
use pando_testing::virtual_registers::exit;

/// CPUID's leaf of the state components.
const LEAF: u32 = 0xd;
/// The component of protection keys.
const PROTECTION_KEYS: u32 = 9;

/// An XSAVE area with a distinct value in every register of the machine.
pub fn full_state(entries: &[Entry]) -> [u8; FRAME_SIZE] {
    let answer = |index| entries.iter().find(|entry| (entry.leaf, entry.subleaf) == (LEAF, index)).map(|entry| entry.answer);
    let features = answer(0).map_or(0b11, |[eax, ..]| eax);
    let mut bytes = [0; FRAME_SIZE];
    let mut random = fastrand::Rng::with_seed(2);
    // FCW: a distinct precision and rounding, exceptions masked. FSW: the top of the stack at 3. FTW: every register is in use.
    bytes[..5].copy_from_slice(&[0x7f, 0x0e, 0x00, 0x18, 0xff]);
    // MXCSR: round towards zero, denormals are zeros, two sticky flags.
    bytes[24..28].copy_from_slice(&0x7fe1u32.to_le_bytes());
    for register in 0..8 {
        random.fill(&mut bytes[32 + 16 * register..][..10]);
    }
    random.fill(&mut bytes[160..416]);
    bytes[512..516].copy_from_slice(&features.to_le_bytes());
    for component in (2..32).filter(|component| features & 1 << component != 0) {
        let Some([size, offset, ..]) = answer(component) else { continue };
        random.fill(&mut bytes[offset as usize..][..size as usize]);
        if component == PROTECTION_KEYS {
            // The cell's memory has key 0, which must stay accessible.
            bytes[offset as usize] &= !3;
            bytes[offset as usize + 4..][..size as usize - 4].fill(0);
        }
    }
    bytes
}

/// Vector state that a cell leaves for the next one. RBX points to operands: MXCSR 0, x87's control word 0x340, an XSAVE area 64
/// bytes on.
const LEAVINGS: [(&str, &[u8]); 9] = [
    // ldmxcsr [rbx]
    ("MXCSR with nothing masked", b"\x0f\xae\x13"),
    // ldmxcsr [rbx + 8]
    ("MXCSR with exceptions that have happened", b"\x0f\xae\x53\x08"),
    // fldcw [rbx + 4]
    ("x87 with nothing masked", b"\xd9\x6b\x04"),
    // fldcw [rbx + 4]; fldz; fdiv st(0), st(0)
    ("x87 with an exception pending", b"\xd9\x6b\x04\xd9\xee\xd8\xf0"),
    // nine times fld1
    ("x87 with a stack that overflowed", b"\xd9\xe8\xd9\xe8\xd9\xe8\xd9\xe8\xd9\xe8\xd9\xe8\xd9\xe8\xd9\xe8\xd9\xe8"),
    // movq mm0, rax; movq mm7, rax
    ("x87 in MMX use", b"\x48\x0f\x6e\xc0\x48\x0f\x6e\xf8"),
    // pcmpeqd xmm7, xmm7; movq xmm0, rax; movq xmm15, rax
    ("SSE registers in use", b"\x66\x0f\x76\xff\x66\x48\x0f\x6e\xc0\x66\x4c\x0f\x6e\xf8"),
    // vpcmpeqd ymm0, ymm0, ymm0; vpcmpeqd ymm15, ymm15, ymm15
    ("upper halves in use", b"\xc5\xfd\x76\xc0\xc4\x41\x05\x76\xff"),
    // mov eax, -1; mov edx, -1; xrstor64 [rbx + 64]
    ("everything from memory", b"\xb8\xff\xff\xff\xff\xba\xff\xff\xff\xff\x48\x0f\xae\x6b\x40"),
];

/// The ways in which the cell then leaves the vCPU.
const WAYS: [(&str, Code, ExpectedEnd); 4] = [
    (
        "is preempted",
        |asm| {
            let again = asm.here();
            asm.pause().jmp(again);
        },
        Endless,
    ),
    (
        "yields",
        |asm| {
            let again = asm.here();
            asm.call_kernel(Hypercall::Relinquish {}).jmp(again);
        },
        Endless,
    ),
    (
        "faults",
        |asm| {
            asm.ud2();
        },
        AnyFault,
    ),
    (
        "exits",
        |asm| {
            asm.call_kernel(exit(1));
        },
        Exits(1),
    ),
];

/// Stores the operands of [`LEAVINGS`] at RBX.
fn give_operands(asm: &mut Asm) {
    asm.mov_imm(Rbx, DATA + 0x1000).store_imm(Rbx, 0, 0).store_imm(Rbx, 4, 0x340).store_imm(Rbx, 8, 0xe03f);
    // FCW 0x340, FSW with every exception pending; MXCSR 0x3f; XSTATE_BV: x87 and SSE.
    asm.store_imm(Rbx, 64, 0x38ff_0340).store_imm(Rbx, 64 + 24, 0x3f).store_imm(Rbx, 64 + 512, 3).mov_imm(Rax, u64::MAX);
}

#[test]
fn vector_state_left_behind_affects_no_other_cell() {
    let Some(mut harness) = Harness::real() else { return };
    for (name, code) in LEAVINGS {
        for (way, leave, verdict) in WAYS {
            let hostile = HostileCell::assembled(format!("{name}, and it {way}"), |asm| {
                give_operands(asm);
                asm.raw(code);
                leave(asm);
            });
            harness.try_cell(&hostile, &[verdict, AnyFault]);
            let found = inherited(&mut harness.lab);
            assert_eq!(found, None, "a fresh cell after {}: first byte that is not initial", hostile.name);
        }
    }
    harness.close();
}

/// The first byte of a fresh cell's vector state that differs from the state after a reset.
fn inherited(lab: &mut Lab) -> Option<usize> {
    let id = lab.launch(|asm| {
        // mov eax, -1; mov edx, -1; xsave64 [rbx]
        asm.mov_imm(Rbx, DATA).raw(b"\xb8\xff\xff\xff\xff\xba\xff\xff\xff\xff\x48\x0f\xae\x23").call_kernel(Hypercall::Freeze {});
    });
    while lab.kernel.inspect(id).expect("it freezes").0 != RunState::Frozen {
        lab.turn(0);
    }
    let mut area = [0; FRAME_SIZE];
    lab.kernel.read(id, DATA, &mut area).expect("it saved its state");
    lab.kernel.end(id, End::Killed).expect("it is frozen");
    lab.kernel.collect(id);
    let mut initial = [0; FRAME_SIZE];
    initial[..2].copy_from_slice(&[0x7f, 0x03]);
    initial[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
    // MXCSR's mask and the set of components in use reveal nothing about other cells.
    initial[28..32].copy_from_slice(&area[28..32]);
    initial[512..520].copy_from_slice(&area[512..520]);
    (0..FRAME_SIZE).find(|at| area[*at] != initial[*at])
}

/// A cell that checks for ever that `xmm0` keeps its value across `between`. With `may_die`, the initial value is allowed as well.
fn checker(lab: &Lab, value: u64, may_die: bool, between: impl FnOnce(&mut Asm)) -> CellId {
    lab.launch(|asm| {
        let (bad, good) = (asm.label(), asm.label());
        let start = asm.here();
        asm.mov_imm(R12, value).mov(Rax, R12).set_xmm0();
        between(asm);
        asm.get_xmm0().cmp(Rax, R12).jump_if(Condition::Zero, good);
        if may_die {
            asm.mov_imm(R13, 0).cmp(Rax, R13).jump_if(Condition::NotZero, bad);
        } else {
            asm.jmp(bad);
        }
        asm.bind(good).jmp(start).bind(bad).call_kernel(exit(1));
    })
}

#[test]
fn cells_that_are_preempted_keep_their_own() {
    for mut lab in Lab::both() {
        let ids: Vec<_> = (1..6)
            .map(|value| {
                checker(&lab, value << 40, false, |asm| {
                    asm.mov_imm(R13, 1000);
                    let again = asm.here();
                    asm.dec(R13).jump_if(Condition::NotZero, again);
                })
            })
            .collect();
        for _ in 0..30 {
            lab.turn(0);
        }
        for id in ids {
            let (_, counters, _) = lab.kernel.inspect(id).expect("it never finds the registers of another");
            assert!(counters.preemptions == 6 || lab.sim.is_none() && counters.preemptions > 1, "{} preemptions", counters.preemptions);
        }
    }
}

#[test]
fn cells_that_yield_get_their_own_or_nothing() {
    for mut lab in Lab::both() {
        let ids: Vec<_> = (1..6)
            .map(|value| {
                checker(&lab, value << 40, true, |asm| {
                    asm.call_kernel(Hypercall::Relinquish {});
                })
            })
            .collect();
        for _ in 0..100 {
            lab.turn(0);
        }
        for id in ids {
            lab.kernel.inspect(id).expect("it never finds the registers of another");
        }
    }
}

/// With line 7 left out, the victim finds the previous cell's values in its registers.
#[test]
fn canary_line_7_without_owners_the_neighbour_feels_it() {
    let config = || Config { vector_owners: false, ..Harness::config() };
    for mut lab in Lab::each(PageCount(1 << 14), config) {
        let mut neighbour = crate::victim::Neighbour::new(&mut lab);
        neighbour.begin_round(&lab);
        let other = lab.launch(|asm| {
            let again = asm.here();
            asm.mov_imm(Rax, 0x666).set_xmm0().call_kernel(Hypercall::Relinquish {}).jmp(again);
        });
        let check = if lab.sim.is_some() { 1 } else { 3 };
        let end = (0..1000).find_map(|_| {
            lab.turn(0);
            neighbour.end(&lab)
        });
        assert_eq!(end, Some(End::Exited { status: check }), "the canary lives");
        lab.kernel.end(other, End::Killed).expect("it lives");
    }
}
