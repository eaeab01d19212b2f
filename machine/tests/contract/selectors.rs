// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data segment selectors (line 6): DS, ES, FS and GS are null at every entry, even if a context has loaded others.

use crate::bare::neighbour::Victim;
use crate::bare::pair::{Attack, BareOutcome, Pair};
use crate::bare::{Bare, CODE, is_nested};
use crate::{assemble, bare};
use BareOutcome::{Continues, Fault};
use pando_machine::kvm::Omit;
use pando_machine::{Context, Exit};

/// Offset of [`read`] in the page of code.
const READ: usize = 0x80;

/// Code that loads AX into each of the four. The last leaves the base of GS unchanged.
fn loads() -> [(&'static str, &'static [u8]); 5] {
    [
        ("DS", assemble!("mov ds, eax")),
        ("ES", assemble!("mov es, eax")),
        ("FS", assemble!("mov fs, eax")),
        ("GS", assemble!("mov gs, eax")),
        ("all", assemble!("mov ds, eax", "mov es, eax", "mov fs, eax", "mov gs, eax")),
    ]
}

/// Code that reads them into RAX, RBX, RCX and RDX.
fn read() -> &'static [u8] {
    assemble!("mov eax, ds", "mov ebx, es", "mov ecx, fs", "mov edx, gs", "out 0x7e, al")
}

/// Selectors that some machine has: the null ones, this machine's, and those of Linux, whose descriptors cells run
/// with where KVM works in software.
fn selectors() -> impl Iterator<Item = u64> {
    (0..4).chain([0x23, 0x2b, 0x33, 0x7b])
}

/// The selectors that a context reads after another one in the same space has loaded `selector` with `code`. `None`:
/// there is no such selector.
fn read_after(bare: &mut Bare, code: &[u8], selector: u64) -> Option<[u64; 4]> {
    let mut context = bare.start(&[code, b"\xe6\x7e"].concat());
    bare.write(bare.code, READ, read());
    context.registers.rax = selector;
    if bare.run(&mut context) != Exit::Hypercall {
        return None;
    }
    // The same bases, so that nothing else needs fresh system registers.
    let mut next = Context { fs_base: context.fs_base, gs_base: context.gs_base, ..Context::at(CODE + READ as u64) };
    assert_eq!(bare.run(&mut next), Exit::Hypercall);
    let registers = next.registers;
    Some([registers.rax, registers.rbx, registers.rcx, registers.rdx])
}

#[test]
fn selectors_that_a_context_loaded_are_gone_at_the_next_entry() {
    let mut bare = Bare::new();
    let mut loaded = 0;
    for (name, code) in loads() {
        for selector in selectors() {
            let found = read_after(&mut bare, code, selector);
            assert!(found.is_none_or(|found| found == [0; 4]), "{selector:#x} in {name}: {found:x?}");
            loaded += u32::from(found.is_some());
        }
    }
    assert!(loaded >= 25, "only {loaded} could be loaded");
}

#[test]
fn a_neighbour_finds_none_of_them() {
    let mut pair = Pair::new();
    for (name, code) in loads() {
        for selector in selectors() {
            let mut context = pair.start(code);
            context.registers.rax = selector;
            pair.attack_from(&Attack::new(&format!("{selector:#x} in {name}"), code, &[Continues, Fault(11), Fault(13)]), context);
        }
    }
}

#[test]
fn a_context_keeps_its_bases_when_selectors_are_cleared() {
    let mut bare = Bare::new();
    let code = assemble!(
        "mov ds, eax",
        "mov fs, eax",
        "mov gs, eax",
        "wrfsbase rbx",
        "wrgsbase rcx",
        "out 0x7e, al",
        "rdfsbase rbx",
        "rdgsbase rcx"
    );
    let mut context = bare.start(&[code, b"\xe6\x7e"].concat());
    let bases = (0x1234_5678_9000, 0x6543_2100_0000);
    (context.registers.rax, context.registers.rbx, context.registers.rcx) = (0x2b, bases.0, bases.1);
    assert_eq!(bare.run(&mut context), Exit::Hypercall);
    assert_eq!((context.fs_base, context.gs_base), bases);
    (context.registers.rbx, context.registers.rcx) = (0, 0);
    assert_eq!(bare.run(&mut context), Exit::Hypercall);
    assert_eq!((context.registers.rbx, context.registers.rcx), bases);
}

#[test]
fn canary_line_6_selectors_pass_to_the_next_context() {
    let mut bare = Bare::without(Omit::SELECTORS);
    let found = read_after(&mut bare, loads()[4].1, 0x2b).expect("every machine has this selector");
    assert_eq!(found, [0x2b; 4]);
}

#[test]
fn canary_line_6_selectors_pass_to_the_next_cell() {
    if !is_nested() {
        // Another root means other system registers, selectors included.
        println!("nothing to see on {:?}", bare::kind());
        return;
    }
    let mut bare = Bare::without(Omit::SELECTORS);
    let neighbour = Victim::new(&mut bare);
    let mut context = bare.start(assemble!("mov ds, eax", "out 0x7e, al"));
    context.registers.rax = 0x2b;
    assert_eq!(bare.run(&mut context), Exit::Hypercall);
    let felt = neighbour.feel(&mut bare, 0).expect_err("the neighbour observed nothing");
    assert!(felt.contains("selectors"), "{felt}");
}
