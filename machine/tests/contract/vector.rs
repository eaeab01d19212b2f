// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vector, x87 and MXCSR state (line 7): saved and loaded completely, in every state that a cell can leave.

use crate::assemble;
use crate::bare::neighbour::{difference_of_states, distinct_vector_state};
use crate::bare::pair::{Attack, BareOutcome, Pair};
use crate::bare::{Bare, DATA};
use BareOutcome::{AnyFault, Continues};
use pando_machine::{Exit, VectorState};

/// Code that leaves unusual vector state; the data page holds the operands.
fn leavings() -> [(&'static str, &'static [u8]); 9] {
    [
        ("MXCSR with nothing masked", assemble!("ldmxcsr [0x500100]")),
        ("MXCSR with exceptions that have happened", assemble!("ldmxcsr [0x500108]")),
        ("x87 with nothing masked", assemble!("fldcw [0x500104]")),
        ("x87 with an exception pending", assemble!("fldcw [0x500104]", "fldz", "fdiv st(0), st(0)")),
        ("x87 with a full stack", assemble!("fld1", "fld1", "fld1", "fld1", "fld1", "fld1", "fld1", "fld1", "fld1")),
        ("x87 in MMX use", assemble!("movq mm0, rax", "movq mm7, rax")),
        ("upper halves in use", assemble!("vpcmpeqd ymm0, ymm0, ymm0", "vpcmpeqd ymm15, ymm15, ymm15")),
        ("everything from memory", assemble!("mov eax, -1", "mov edx, -1", "xrstor64 [0x500200]")),
        ("nothing at all", assemble!("vzeroall", "fninit")),
    ]
}

/// Writes the operands of [`leavings`]: MXCSR 0, x87's control word 0x340, MXCSR with all flags; an XSAVE area with both.
fn give_operands(bare: &Bare) {
    bare.write(bare.data, 0x100, &[0, 0, 0, 0, 0x40, 0x03, 0, 0, 0x3f, 0xe0, 0, 0]);
    // FCW 0x340, FSW with every exception pending; MXCSR 0x3f; XSTATE_BV: x87 and SSE.
    bare.write(bare.data, 0x200, &[0x40, 0x03, 0xff, 0xb8, 0xff]);
    bare.write(bare.data, 0x200 + 24, &[0x3f, 0, 0, 0]);
    bare.write(bare.data, 0x200 + 512, &[3, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn vector_state_is_saved_and_affects_no_other_context() {
    let mut pair = Pair::new();
    give_operands(&pair.bare);
    for (name, code) in leavings() {
        // The pair saves the attacker's state, loads the neighbour's, and loads the attacker's again.
        pair.attack(&Attack::new(name, code, &[Continues, AnyFault]));
    }
}

/// Inexact arithmetic that raises no exception unless one is unmasked or pending.
fn sensitive() -> &'static [u8] {
    assemble!(
        "mov eax, 3",
        "cvtsi2ss xmm0, eax",
        "mov eax, 1",
        "cvtsi2ss xmm1, eax",
        "divss xmm1, xmm0",
        "fld1",
        "fldpi",
        "fdivp st(1), st",
        "fwait"
    )
}

#[test]
fn the_initial_state_raises_nothing() {
    let mut pair = Pair::new();
    give_operands(&pair.bare);
    for (name, code) in leavings() {
        pair.bare.vcpu.load_vector(None).expect("the initial state is a good one");
        let (exit, _) = pair.bare.run_code(&[code, b"\xe6\x7e"].concat());
        assert!(matches!(exit, Exit::Hypercall | Exit::Exception(_)), "{name}: {exit:?}");
        pair.bare.vcpu.load_vector(None).expect("the initial state is a good one");
        let (exit, _) = pair.bare.run_code(&[sensitive(), b"\xe6\x7e"].concat());
        assert_eq!(exit, Exit::Hypercall, "after {name}");
    }
}

/// The code that switches cells must keep line 7. Here nothing does: the next cell reads foreign registers, and gets
/// exceptions that it has not raised.
#[test]
fn canary_line_7_without_loading_the_next_cell_suffers() {
    let mut pair = Pair::new();
    give_operands(&pair.bare);
    let (exit, _) = pair.bare.run_code(&[assemble!("mov eax, 12345", "movq xmm9, rax"), b"\xe6\x7e"].concat());
    assert_eq!(exit, Exit::Hypercall);
    let (exit, next) = pair.bare.run_code(&[assemble!("movq rbx, xmm9"), b"\xe6\x7e"].concat());
    assert_eq!((exit, next.registers.rbx), (Exit::Hypercall, 12345));
    let mut suffered = 0;
    for (name, code) in &leavings()[..4] {
        pair.bare.vcpu.load_vector(None).expect("the initial state is a good one");
        let (exit, _) = pair.bare.run_code(&[code, &b"\xe6\x7e"[..]].concat());
        assert_eq!(exit, Exit::Hypercall, "{name}");
        let (exit, _) = pair.bare.run_code(&[sensitive(), b"\xe6\x7e"].concat());
        suffered += usize::from(matches!(&exit, Exit::Exception(exception) if [16, 19].contains(&exception.vector)));
    }
    assert!(suffered > 0, "no exception was left behind");
}

#[test]
fn a_state_comes_back_as_it_was_loaded() {
    let mut bare = Bare::new();
    let wanted = distinct_vector_state(&bare);
    for (name, state) in [("a state full of values", wanted), ("the initial state", VectorState::initial())] {
        bare.vcpu.load_vector(Some(&state)).expect("a state that a CPU can hold");
        let first = bare.vcpu.save_vector().expect("KVM gives the state");
        let (exit, _) = bare.run_code(b"\xe6\x7e");
        assert_eq!(exit, Exit::Hypercall);
        let second = bare.vcpu.save_vector().expect("KVM gives the state");
        assert_eq!(difference_of_states(&first, &second), None, "{name}: first byte that running a cell changed");
        bare.vcpu.load_vector(Some(&second)).expect("what was saved can be loaded");
        let third = bare.vcpu.save_vector().expect("KVM gives the state");
        assert_eq!(difference_of_states(&second, &third), None, "{name}: first byte that loading it again changed");
    }
}

#[test]
fn a_state_that_no_cpu_can_hold_is_refused_and_changes_nothing() {
    let mut pair = Pair::new();
    let good = distinct_vector_state(&pair.bare);
    for (name, word, value) in [
        ("MXCSR with reserved bits", 6, 0xffff_0000),
        ("features that nobody has", 129, u32::MAX),
        ("the compacted form", 131, 1 << 31),
        ("a header with reserved words", 140, 1),
    ] {
        let mut words = *good.words();
        words[word] = value;
        // Refused or made harmless: either way it affects no other cell.
        let _ = pair.bare.vcpu.load_vector(Some(&VectorState::from_words(words)));
        pair.neighbour.check(&mut pair.bare, DATA, name);
    }
}
