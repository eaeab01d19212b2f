// SPDX-License-Identifier: MIT OR Apache-2.0
//! 32-bit code and its `syscall` (line 2): if a cell can get that far at all, it ends there, and none of its code runs at CPL 0.
//!
//! Nested on an AMD CPU, the host's own 32-bit code segment is in reach, and KVM drops the upper half of the address
//! in CSTAR. The tests map a page there, which no kernel does, with code that leaves a mark. They show whether the
//! cell only left 64-bit mode, reached a stub, or ran code of a page at CPL 0.

use crate::assemble;
use crate::bare::{Bare, CODE, DATA, READ_ONLY, is_nested_on_amd};
use pando_machine::kvm::Omit;
use pando_machine::{COMPATIBILITY_ENTRY, Exception, Exit, Machine, Violation};
use std::time::Duration;

/// The selector of Linux's 32-bit code; it selects no code here.
const LINUX_32_BIT_CODE: u64 = 0x23;
/// The entry point of `syscall` without the upper half of its address.
const TRUNCATED: u64 = COMPATIBILITY_ENTRY & 0xffff_ffff;
/// Offset of the target of transfers in the page of code.
const TARGET: usize = 0x40;
/// Present, writable, accessed, dirty; no user bit.
const SUPERVISOR: u64 = 0x63;

/// The page at the truncated address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Absent,
    User,
    Supervisor,
}

/// Runs `target` as 32-bit code, as far as the machine allows. Returns the exit, and whether the page at the truncated address has run.
fn run_32_bit(omit: Omit, page: Page, target: &[u8]) -> (Exit, bool) {
    let mut bare = Bare::without(omit);
    if page != Page::Absent {
        let frame = bare.frame();
        let root = bare.root;
        // KVM emulates it, one instruction at a time.
        bare.write(frame, (TRUNCATED % 4096) as usize, assemble!("mov byte ptr [rdi], 1", "out 0x7e, al"));
        bare.map(root, TRUNCATED & !0xfff, frame, if page == Page::User { READ_ONLY } else { SUPERVISOR });
    }
    let mut code = b"\x48\xcf".to_vec();
    code.resize(TARGET, 0x90);
    code.extend(target);
    let mut context = bare.start(&code);
    (context.registers.rsp, context.registers.rdi) = (DATA + 0x800, DATA);
    let frame = [CODE + TARGET as u64, LINUX_32_BIT_CODE, 0x202, DATA + 0x900, 0x2b];
    bare.write(bare.data, 0x800, &frame.map(u64::to_le_bytes).concat());
    let mut exit = Exit::Interrupted;
    // On a busy host, the time may pass before it has begun.
    while exit == Exit::Interrupted {
        let deadline = bare.machine.now() + Duration::from_millis(50);
        exit = bare.run_until(&mut context, deadline);
    }
    let has_run = bare.content(bare.data)[0] != 0;
    // The machine still works.
    assert_eq!(bare.run_code(b"\xe6\x7e").0, Exit::Hypercall);
    (exit, has_run)
}

#[test]
fn code_that_left_64_bit_mode_ends_the_cell() {
    for target in [&b"\xe6\x7e"[..], b"\x0f\x0b", b"\xcc", b"\xeb\xfe"] {
        let (exit, _) = run_32_bit(Omit::NOTHING, Page::Absent, target);
        let wanted = if is_nested_on_amd() { exit == Exit::Violation(Violation::CodeSegment) } else { is_refused(&exit) };
        assert!(wanted, "{target:x?}: {exit:?}");
    }
}

/// Without such a segment, the transfer faults in 64-bit mode.
fn is_refused(exit: &Exit) -> bool {
    matches!(exit, Exit::Exception(Exception { vector: 11 | 13, .. }) | Exit::Violation(Violation::CodeSegment))
}

#[test]
fn a_32_bit_system_call_ends_the_cell_whatever_lies_where_it_leads() {
    for page in [Page::Absent, Page::User] {
        let (exit, has_run) = run_32_bit(Omit::NOTHING, page, assemble!("syscall"));
        let wanted = if is_nested_on_amd() { exit == Exit::Violation(Violation::CompatibilitySyscall) } else { is_refused(&exit) };
        assert!(wanted && !has_run, "{page:?}: {exit:?}, ran at CPL 0: {has_run}");
    }
}

#[test]
fn canary_line_2_a_page_where_a_32_bit_system_call_leads_runs_at_cpl_0() {
    if !is_nested_on_amd() {
        println!("nothing to see: it shows where KVM works in software on a CPU of AMD's");
        return;
    }
    // A user page runs if SMEP is off, and a supervisor page always: so nothing may ever be mapped there.
    for (omit, page) in [(Omit::SMEP, Page::User), (Omit::NOTHING, Page::Supervisor)] {
        let (exit, has_run) = run_32_bit(omit, page, assemble!("syscall"));
        assert!(has_run, "{page:?}: {exit:?}");
        assert!(matches!(exit, Exit::Violation(Violation::Machine { .. })), "{page:?}: {exit:?}");
    }
}
