// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wild stack pointers at every exception (line 3): the frame goes to the vCPU's own stack, and the cell gets its exception exactly.

use crate::assemble;
use crate::bare::pair::{Attack, BareOutcome, Pair, wild_stacks};
use crate::bare::{CODE, DATA, is_nested, is_nested_on_amd, is_qemu};
use BareOutcome::{AnyFault, Fault};
use pando_machine::{Exception, Exit};
use std::time::Duration;

/// AC.
const ALIGNMENT: u64 = 0x4_0000;

/// One way to raise an exception.
struct Raise {
    name: &'static str,
    code: &'static [u8],
    vector: u8,
    error: u64,
    address: u64,
    /// Offset of the instruction pointer at the exception, from the start of the code.
    at: u64,
    flags: u64,
}

impl Raise {
    fn new(name: &'static str, vector: u8, code: &'static [u8]) -> Raise {
        Raise { name, code, vector, error: 0, address: 0, at: 0, flags: 0 }
    }
}

fn exceptions() -> Vec<Raise> {
    vec![
        Raise::new("#DE", 0, assemble!("div ecx")),
        Raise { at: 1, ..Raise::new("#DB by int1", 1, assemble!(".byte 0xf1")) },
        Raise { at: 1, flags: 0x100, ..Raise::new("#DB by TF", 1, assemble!("nop")) },
        Raise { at: 1, ..Raise::new("#BP", 3, assemble!("int3")) },
        Raise::new("#UD", 6, assemble!("ud2")),
        Raise::new("#UD by a 32-bit opcode", 6, assemble!(".byte 0x06")),
        Raise::new("#GP by hlt", 13, assemble!("hlt")),
        Raise::new("#GP by an address", 13, assemble!("mov eax, [rbx]")),
        Raise { error: 0x33 << 3 | 2, ..Raise::new("#GP by int", 13, assemble!("int 0x33")) },
        Raise::new("#SS", 12, assemble!("mov eax, [rbp]")),
        Raise { error: 4, address: 0x70_0008, ..Raise::new("#PF by a read", 14, assemble!("mov eax, [0x700008]")) },
        Raise { error: 6, address: 0x70_0008, ..Raise::new("#PF by a write", 14, assemble!("mov [0x700008], eax")) },
        Raise { error: 7, address: CODE + 8, ..Raise::new("#PF by a write to code", 14, assemble!("mov [0x400008], eax")) },
        Raise { flags: ALIGNMENT, ..Raise::new("#AC", 17, assemble!("mov eax, [0x500001]")) },
        Raise { at: 8, ..Raise::new("#XM", 19, assemble!("ldmxcsr [0x500100]", "divps xmm0, xmm0")) },
        Raise { at: 13, ..Raise::new("#MF", 16, assemble!("fninit", "fldcw [0x500104]", "fldz", "fdiv st(0), st(0)", "fwait")) },
    ]
}

/// Nested, KVM emulates contexts that it cannot enter, for example those with a non-canonical stack pointer. The
/// emulator raises #UD for instructions that it lacks, and checks no alignment.
fn is_emulated(rsp: u64) -> bool {
    is_nested() && (rsp as i64) << 16 >> 16 != rsp as i64
}

#[test]
fn every_exception_is_exact_whatever_the_stack_pointer_says() {
    let mut pair = Pair::new();
    // Nothing masked: MXCSR 0, x87's control word 0x340, whose rounding mode does not matter.
    pair.bare.write(pair.bare.data, 0x100, &[0, 0, 0, 0, 0x40, 0x03]);
    let stacks = [vec![DATA + 0xf00], wild_stacks()].concat();
    // QEMU's CPU has no `int1` under SVM, no #XM and no #AC, gives `int` another error code, and raises #GP for #SS.
    let absent = ["#DB by int1", "#XM", "#GP by int", "#SS", "#AC"];
    for raise in exceptions().into_iter().filter(|raise| !is_qemu() || !absent.contains(&raise.name)) {
        for rsp in &stacks {
            let mut context = pair.start(raise.code);
            (context.registers.rsp, context.registers.rflags) = (*rsp, raise.flags);
            (context.registers.rbx, context.registers.rbp) = (1 << 63, 1 << 62);
            let before = context;
            let name = format!("{}, stack {rsp:#x}", raise.name);
            let exit = pair.turn(&mut context, Duration::from_secs(10), &name);
            let wanted = Exit::Exception(Exception { vector: raise.vector, error: raise.error, address: raise.address });
            // Nested, a software interrupt without a gate is #UD.
            let emulated = is_emulated(*rsp) || is_nested() && raise.name == "#GP by int";
            if emulated && matches!(exit, Exit::Exception(Exception { vector: 6, .. }) | Exit::Hypercall) {
                continue;
            }
            assert_eq!(exit, wanted, "{name}");
            let mut expected = before.registers;
            // There, some versions of KVM report `int1` with RIP at the instruction, others after it.
            let stays = is_nested_on_amd() && raise.name == "#DB by int1" && context.registers.rip == CODE;
            expected.rip = CODE + if stays { 0 } else { raise.at };
            // RF, and the arithmetic flags after a division.
            let of_no_concern = 0x1_0000 | 0x8d5;
            (expected.rflags, context.registers.rflags) =
                ((before.loaded_flags()) & !of_no_concern, context.registers.rflags & !of_no_concern);
            assert_eq!(context.registers, expected, "{name}: the registers");
            assert_eq!((context.fs_base, context.gs_base), (before.fs_base, before.gs_base), "{name}: the bases");
        }
    }
}

#[test]
fn instructions_that_use_a_wild_stack_fault_in_the_cell() {
    let mut pair = Pair::new();
    for (name, code) in [
        ("push", assemble!("push rax")),
        ("pop", assemble!("pop rax")),
        ("call", assemble!("call rbx")),
        ("ret", assemble!("ret")),
        ("enter", assemble!("enter 64, 3")),
        ("leave", assemble!("mov rbp, rsp", "leave")),
        ("iretq", assemble!("iretq")),
        ("retf", assemble!("retf")),
        ("pushfq", assemble!("pushfq")),
        ("popfq", assemble!("popfq")),
    ] {
        for rsp in wild_stacks().into_iter().filter(|rsp| !(DATA..DATA + 0x1000).contains(rsp) && !(CODE..CODE + 0x1000).contains(rsp)) {
            let mut context = pair.start(code);
            (context.registers.rsp, context.registers.rbx) = (rsp, CODE);
            let allowed: &[BareOutcome] = if is_emulated(rsp) { &[AnyFault] } else { &[Fault(12), Fault(13), Fault(14)] };
            pair.attack_from(&Attack::new(&format!("{name}, stack {rsp:#x}"), code, allowed), context);
        }
    }
}
