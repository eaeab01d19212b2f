// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors in the formats of the CPU and of KVM (Intel SDM volume 3, chapters 3, 6 and 7).

use kvm_bindings::kvm_segment;
use pando_abi::hypercall::PORT;
use pando_abi::registers::{USER_CODE, USER_DATA};

/// Selector of the supervisor's code.
pub(super) const SUPERVISOR_CODE: u16 = 0x08;
/// Selector of the task state.
const TASK: u16 = 0x30;
/// The value of `STAR`: `syscall` loads CS 0x08 and SS 0x10; `sysret`, which is never executed, would take 0x1b as its base.
pub(super) const STAR: u64 = 0x1b << 48 | (SUPERVISOR_CODE as u64) << 32;
/// The interrupt stack that every gate uses.
pub(super) const EXCEPTION_STACK: u8 = 1;
/// Eight words.
pub(super) const GDT_LIMIT: u16 = 63;

/// Offset of the I/O bitmap in the TSS: right after its fixed part.
const BITMAP: usize = 0x68;
/// Bytes of the bitmap up to the hypercall port's, and the byte of ones that must follow.
const BITMAP_BYTES: usize = PORT as usize / 8 + 2;
/// The last byte of the TSS. Ports beyond it are closed.
const TASK_LIMIT: u32 = (BITMAP + BITMAP_BYTES - 1) as u32;

/// The words of a GDT whose task state lies at `task`. `closed` leaves out the 32-bit code segment, as the contract requires.
pub(super) fn gdt(task: u64, closed: bool) -> [u64; 8] {
    let base_low = (task & 0xff_ffff) << 16 | (task >> 24 & 0xff) << 56;
    [
        0,
        0x00af_9b00_0000_ffff,                          // 0x08 supervisor code, 64 bit
        0x00cf_9300_0000_ffff,                          // 0x10 supervisor data
        if closed { 0 } else { 0x00cf_fb00_0000_ffff }, // 0x1b would be 32-bit user code
        0x00cf_f300_0000_ffff,                          // 0x23 user data
        0x00af_fb00_0000_ffff,                          // 0x2b user code, 64 bit
        u64::from(TASK_LIMIT) | base_low | 0x8b << 40,  // 0x30 task state, busy
        task >> 32,
    ]
}

/// The bytes of a TSS: one stack for everything, and a bitmap that opens the hypercall port alone.
pub(super) fn tss(stack: u64) -> [u8; BITMAP + BITMAP_BYTES] {
    let mut bytes = [0; BITMAP + BITMAP_BYTES];
    bytes[0x04..0x0c].copy_from_slice(&stack.to_le_bytes()); // RSP0
    bytes[0x24..0x2c].copy_from_slice(&stack.to_le_bytes()); // IST 1
    bytes[0x66..0x68].copy_from_slice(&(BITMAP as u16).to_le_bytes());
    bytes[BITMAP..].fill(0xff);
    bytes[BITMAP + PORT as usize / 8] &= !(1 << (PORT % 8));
    bytes
}

/// The two words of an interrupt gate to `handler`. `open` allows `int3` from cells; otherwise only the CPU may use it.
pub(super) fn gate(handler: u64, open: bool, stack: u8) -> [u64; 2] {
    let kind = if open { 0xee } else { 0x8e };
    let low = handler & 0xffff | u64::from(SUPERVISOR_CODE) << 16 | u64::from(stack) << 32 | kind << 40 | (handler >> 16 & 0xffff) << 48;
    [low, handler >> 32]
}

/// The code segment that cells run in.
pub(super) fn user_code() -> kvm_segment {
    kvm_segment { selector: USER_CODE as u16, type_: 11, dpl: 3, l: 1, s: 1, present: 1, g: 1, limit: u32::MAX, ..Default::default() }
}

/// The stack segment that cells run with.
pub(super) fn user_data() -> kvm_segment {
    kvm_segment { selector: USER_DATA as u16, type_: 3, dpl: 3, db: 1, s: 1, present: 1, g: 1, limit: u32::MAX, ..Default::default() }
}

/// The segment that the null selector loads, at base 0: Linux's DS, ES, FS and GS in 64-bit programs.
pub(super) const NULL: kvm_segment =
    kvm_segment { base: 0, limit: 0, selector: 0, type_: 0, present: 0, dpl: 0, db: 0, s: 0, l: 0, g: 0, avl: 0, unusable: 1, padding: 0 };

/// The task register for a TSS at `base`.
pub(super) fn task_segment(base: u64) -> kvm_segment {
    // Busy, as VMX demands; QEMU's emulation of SVM takes only the available type.
    let type_ = if emulated_by_qemu() { 9 } else { 11 };
    kvm_segment { base, limit: TASK_LIMIT, selector: TASK, type_, present: 1, ..Default::default() }
}

fn emulated_by_qemu() -> bool {
    let answer = std::arch::x86_64::__cpuid(0x4000_0000);
    [answer.ebx, answer.ecx, answer.edx] == [b"TCGT", b"CGTC", b"GTCG"].map(|text| u32::from_le_bytes(*text))
}
