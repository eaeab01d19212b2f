// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data segment selectors: null in every cell at every entry (line 6).
//!
//! With hardware virtualisation they belong to the vCPU, and KVM reports them. Where KVM works in software, a cell
//! runs with those of the vCPU's *thread*, which KVM neither loads nor saves: a selector that one cell loads would
//! leak to the next. Reading a selector costs a cycle, so only a cell that loads them pays for them.

use kvm_bindings::kvm_sregs;
use std::arch::asm;

/// Whether the vCPU's data selectors are null.
pub(super) fn are_null(sregs: &kvm_sregs) -> bool {
    [&sregs.ds, &sregs.es, &sregs.fs, &sregs.gs].iter().all(|segment| segment.selector == 0)
}

/// Sets the calling thread's data selectors to null, as Linux has them in every 64-bit thread.
///
/// # Errors
/// The host refused.
pub(super) fn clear() -> Result<(), std::io::Error> {
    let (ds, es, fs, gs): (u32, u32, u32, u32);
    // SAFETY: the instructions read selectors into registers.
    unsafe {
        asm!("mov {:e}, ds", "mov {:e}, es", "mov {:e}, fs", "mov {:e}, gs", out(reg) ds, out(reg) es, out(reg) fs, out(reg) gs,
            options(nomem, nostack, preserves_flags));
    }
    if ds | es | gs != 0 {
        // SAFETY: in 64-bit mode nothing depends on DS and ES, and no 64-bit program of Linux has anything at GS.
        unsafe { asm!("mov ds, {null:e}", "mov es, {null:e}", "mov gs, {null:e}", null = in(reg) 0, options(nostack, preserves_flags)) };
    }
    if fs == 0 { Ok(()) } else { clear_fs() }
}

/// Sets FS to null through Linux, which sets selector and base at once. FS is the base of thread-local storage, which
/// some CPUs clear when they load the selector, and a signal handler may need it at any instruction.
fn clear_fs() -> Result<(), std::io::Error> {
    const ARCH_SET_FS: libc::c_int = 0x1002;
    let base: u64;
    // SAFETY: at its base each thread's storage has the base's own address (System V ABI, thread-local storage).
    unsafe { asm!("mov {}, fs:[0]", out(reg) base, options(readonly, nostack, preserves_flags)) };
    // SAFETY: the base stays what it is.
    if unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_FS, base) } == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
