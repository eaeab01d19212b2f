// SPDX-License-Identifier: MIT OR Apache-2.0
//! Privileged instructions, ports, flags and invalid stacks; on real machines only.

use crate::harness::{ExpectedEnd, Harness, HostileCell, rows};
use ExpectedEnd::{AnyFault, Calls, Endless, Exits, Fault, Violation};
use pando_kernel::End;
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{Rax, Rbx};
use pando_testing::lab::{CODE, DATA, STACK_TOP, repetitions};
use pando_testing::virtual_registers::exit;

/// The number of the call that yields the rest of a quantum.
const RELINQUISH: u64 = 15;

/// The attack, followed by an exit with status 7.
fn and_exit(code: &[u8]) -> Vec<u8> {
    let mut asm = Asm::new();
    asm.raw(code).call_kernel(exit(7));
    asm.finish()
}

const PRIVILEGED: [(&str, &[u8]); 16] = [
    ("hlt", b"\xf4"),
    ("cli", b"\xfa"),
    ("sti", b"\xfb"),
    ("clts", b"\x0f\x06"),
    ("wrmsr", b"\x0f\x30"),
    ("rdmsr", b"\x0f\x32"),
    ("mov cr3, rax", b"\x0f\x22\xd8"),
    ("mov rax, cr3", b"\x0f\x20\xd8"),
    ("mov cr4, rax", b"\x0f\x22\xe0"),
    ("mov dr7, rax", b"\x0f\x23\xf8"),
    ("lgdt [rbx]", b"\x0f\x01\x13"),
    ("lidt [rbx]", b"\x0f\x01\x1b"),
    ("ltr ax", b"\x0f\x00\xd8"),
    ("invlpg [rbx]", b"\x0f\x01\x3b"),
    ("xsetbv", b"\x0f\x01\xd1"),
    ("swapgs", b"\x0f\x01\xf8"),
];

/// Instructions that may succeed or fault, without an effect on other cells.
const OTHERS: [(&str, &[u8]); 14] = [
    ("vmcall", b"\x0f\x01\xc1"),
    ("vmmcall", b"\x0f\x01\xd9"),
    ("cpuid", b"\x0f\xa2"),
    ("sysenter", b"\x0f\x34"),
    ("int 0x80", b"\xcd\x80"),
    ("int1", b"\xf1"),
    ("rdpmc", b"\x0f\x33"),
    ("monitor", b"\x0f\x01\xc8"),
    ("mwait", b"\x0f\x01\xc9"),
    ("wrfsbase and wrgsbase", b"\x48\xb8\x00\x90\x78\x56\x34\x12\x00\x00\xf3\x48\x0f\xae\xd0\xf3\x48\x0f\xae\xd8"),
    ("null selectors", b"\xb8\x03\x00\x00\x00\x8e\xe0\x8e\xe8\x8e\xd8\x8e\xc0"),
    ("selectors of data", b"\xb8\x23\x00\x00\x00\x8e\xe0\x8e\xe8\x8e\xd8\x8e\xc0"),
    ("a lock across lines", b"\xf0\x48\x83\x43\x3d\x01"),
    ("AC, and a misaligned load", b"\x9c\x81\x0c\x24\x00\x00\x04\x00\x9d\x8b\x43\x01"),
];

#[test]
fn privileged_instructions_end_only_their_cell() {
    let Some(mut harness) = Harness::real() else { return };
    for (table, verdicts) in [(&PRIVILEGED[..], &[AnyFault][..]), (&OTHERS[..], &[AnyFault, Exits(7), Violation])] {
        for (name, code) in table {
            let mut hostile = HostileCell::new(*name, &and_exit(code));
            hostile.registers.rbx = DATA;
            harness.try_cell(&hostile, verdicts);
        }
    }
    harness.close();
}

#[test]
fn every_port_instruction_faults_or_ends_the_cell() {
    let Some(mut harness) = Harness::real() else { return };
    let immediate: [&[u8]; 6] = [b"\xe4", b"\x66\xe5", b"\xe5", b"\xe6", b"\x66\xe7", b"\xe7"];
    let in_dx: [&[u8]; 12] =
        [b"\xec", b"\x66\xed", b"\xed", b"\xee", b"\x66\xef", b"\xef", b"\x6c", b"\x66\x6d", b"\x6d", b"\x6e", b"\x66\x6f", b"\x6f"];
    let ports: Vec<u64> = match repetitions(0, 1, 2) {
        0 => vec![0x7d, 0x7e, 0x7f],
        1 => (0x76..0x86).chain([0, 0x20, 0x60, 0xff]).collect(),
        _ => (0..0x100).collect(),
    };
    for port in ports {
        let verdicts: &[ExpectedEnd] = if port == 0x7e { &[AnyFault, Violation, Calls] } else { &[Fault(13)] };
        let with_port = immediate.iter().map(|before| [before, &[port as u8][..]].concat());
        let plain = in_dx.iter().map(|code| code.to_vec());
        let repeated = in_dx[6..].iter().flat_map(|code| [[b"\xf3", *code].concat(), [b"\xf2", *code].concat()]);
        for code in with_port.chain(plain).chain(repeated) {
            let mut hostile = HostileCell::new(format!("{code:x?}, port {port:#x}"), &and_exit(&code));
            let registers = &mut hostile.registers;
            (registers.rdx, registers.rcx, registers.rsi, registers.rdi) = (port, 3, DATA, DATA);
            // An `outsb` is a hypercall like `out`; a repeated one makes several.
            registers.rax = RELINQUISH;
            harness.try_cell(&hostile, verdicts);
        }
    }
    harness.close();
}

/// Code that raises an exception: name, code, allowed results. The results after the first are those of an emulated CPU: QEMU's
/// does not know `int1`, raises #GP for #SS, and has no #XM, so that the cell continues to its exit. RBX points to data, with MXCSR
/// 0 and x87's control word 0x340 in it; RBP is not canonical.
const RAISES: [(&str, &[u8], &[ExpectedEnd]); 9] = [
    ("#DE", b"\xf7\xf1", &[Fault(0)]),
    ("#DB", b"\xf1", &[Fault(1), Fault(6)]),
    ("#BP", b"\xcc", &[Fault(3)]),
    ("#UD", b"\x0f\x0b", &[Fault(6)]),
    ("#GP", b"\xf4", &[Fault(13)]),
    ("#PF", b"\xa1\x08\x00\x00\x70\x00\x00\x00\x00", &[Fault(14)]),
    ("#XM", b"\x0f\xae\x13\x0f\x5e\xc0", &[Fault(19), Exits(7)]),
    ("#MF", b"\xdb\xe3\xd9\x6b\x04\xd9\xee\xd8\xf0\x9b", &[Fault(16)]),
    ("#SS", b"\x8b\x45\x00", &[Fault(12), Fault(13)]),
];

/// Runs a row of [`RAISES`] with this stack pointer and these flags. Returns which of `allowed` was the result.
fn raise(harness: &mut Harness, (name, code): (&str, &[u8]), rsp: u64, rflags: u64, allowed: &[ExpectedEnd]) -> ExpectedEnd {
    let mut asm = Asm::new();
    asm.mov_imm(Rax, 0x340 << 32).mov_imm(Rbx, DATA).store(Rbx, 0, Rax).raw(code).call_kernel(exit(7));
    let mut hostile = HostileCell::new(format!("{name}, stack {rsp:#x}, flags {rflags:#x}"), &asm.finish());
    (hostile.registers.rsp, hostile.registers.rflags, hostile.registers.rbp) = (rsp, rflags, 1 << 62);
    match harness.try_cell(&hostile, allowed).end {
        End::Fault(fault) => Fault(fault.vector),
        _ => Exits(7),
    }
}

/// Bad stack pointers: unmapped, read-only, misaligned, not canonical, and in all of the supervisor's pages.
fn wild_stacks() -> Vec<u64> {
    let supervisor = (0..12).map(|page| 0xffff_ffff_8000_0800 + page * 0x1000);
    let others = [0, 8, STACK_TOP - 7, CODE + 0x100, 0x7fff_ffff_fff8, 1 << 47, 1 << 63, 0xffff_8000_0000_0000, u64::MAX - 7, u64::MAX];
    others.into_iter().chain(supervisor).collect()
}

#[test]
fn wild_stacks_around_every_exception() {
    let Some(mut harness) = Harness::real() else { return };
    for (name, code, allowed) in RAISES {
        // This CPU's result with a good stack is the expected result with any stack.
        let usual = raise(&mut harness, (name, code), STACK_TOP, 0, allowed);
        for rsp in rows(wild_stacks(), 6) {
            for flags in [0, 0x100, 0x4_0000] {
                // With a stack pointer that is not canonical some nested machines emulate the cell, and raise #UD for instructions
                // that their emulator lacks.
                let emulated = (rsp as i64) << 16 >> 16 != rsp as i64;
                let wanted = if flags == 0x100 { Fault(1) } else { usual };
                raise(&mut harness, (name, code), rsp, flags, &[wanted, if emulated { Fault(6) } else { usual }]);
            }
        }
    }
    harness.close();
}

#[test]
fn every_flag_alone_and_all_of_them() {
    let Some(mut harness) = Harness::real() else { return };
    for flags in rows((0..64).map(|bit| 1 << bit).chain([u64::MAX, !0x100]).collect(), 22) {
        // In the context; or by popfq, followed by a hypercall, a system call or a load.
        for (name, code) in
            [("context", &b""[..]), ("popfq", b"\x50\x9d"), ("popfq; syscall", b"\x50\x9d\x0f\x05"), ("popfq; load", b"\x50\x9d\x8b\x03")]
        {
            let mut hostile = HostileCell::new(format!("flags {flags:#x} by {name}"), &and_exit(code));
            (hostile.registers.rax, hostile.registers.rbx) = (flags, DATA);
            if name == "context" {
                hostile.registers.rflags = flags;
            }
            harness.try_cell(&hostile, &[AnyFault, Exits(7)]);
        }
    }
    harness.close();
}

#[test]
fn single_steps_and_stack_shadows_stay_with_their_context() {
    let Some(mut harness) = Harness::real() else { return };
    let shadows: [(&str, &[u8]); 3] = [("", b""), ("mov ss, ", b"\x8e\xd1"), ("popfq, mov ss, ", b"\x52\x9d\x8e\xd1")];
    let followers: [(&str, &[u8]); 8] = [
        ("syscall", b"\x0f\x05"),
        ("int3", b"\xcc"),
        ("int1", b"\xf1"),
        ("hypercall", b"\xe6\x7e"),
        ("in", b"\xe4\x7e"),
        ("ud2", b"\x0f\x0b"),
        ("cpuid", b"\x0f\xa2"),
        ("a load of nothing", b"\xa1\x08\x00\x00\x70\x00\x00\x00\x00"),
    ];
    for (shadow, before) in shadows {
        for (name, after) in followers {
            for (flags, handled) in [(0, false), (0x100, false), (0x100, true)] {
                let mut hostile = HostileCell::new(format!("{shadow}{name}, flags {flags:#x}"), &and_exit(&[before, after].concat()));
                let registers = &mut hostile.registers;
                (registers.rcx, registers.rdx, registers.rflags, registers.rax) = (0x23, 0x302, flags, RELINQUISH);
                // A single step right behind a hypercall leads back to it with its result in RAX: 0, the number of the call that
                // exits, with RDI as the status.
                registers.rdi = 7;
                if handled {
                    // Each step leads back to the start, on the next level, and the third ends the cell.
                    hostile.control.exception_entry = CODE;
                    hostile.control.stacks = [STACK_TOP, 1 << 63];
                }
                harness.try_cell(&hostile, &[AnyFault, ExpectedEnd::DoubleFault, Violation, Exits(7), Endless]);
            }
        }
    }
    harness.close();
}
