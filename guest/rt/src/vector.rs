// SPDX-License-Identifier: MIT OR Apache-2.0
//! The application's vector, x87 and MXCSR state. The runtime has no use for these registers, so they are saved only where the kernel
//! may forget them.

use core::arch::asm;

use crate::hot::{HOT, Vectors};

/// Offset of MXCSR in the legacy part.
const MXCSR: usize = 24;
/// MXCSR's initial value: every exception masked.
const INITIAL_MXCSR: u32 = 0x1f80;
/// Offset of the header, whose first word says which components the area holds.
const HEADER: usize = 512;
const HEADER_SIZE: usize = 64;

/// Makes sure that the state fits.
///
/// # Panics
/// It does not: the machine has components that this runtime does not know.
#[cfg(target_os = "none")]
pub(crate) fn check() {
    use crate::cpuid;
    use crate::hot::VECTOR_SIZE;
    let [_, needed, ..] = cpuid::answer(0xd, 0);
    assert!(needed as usize <= VECTOR_SIZE, "vector state of {needed} bytes does not fit into {VECTOR_SIZE}");
}

/// Puts every component into its initial state, as a program expects it at its first instruction.
pub fn reset() {
    HOT.tail.vectors.with(|area| {
        area.0[MXCSR..MXCSR + 4].copy_from_slice(&INITIAL_MXCSR.to_le_bytes());
        area.0[HEADER..HEADER + HEADER_SIZE].fill(0);
        restore(area);
    });
}

/// Runs `call`, after which all registers are as they were before.
pub fn preserved<R>(call: impl FnOnce() -> R) -> R {
    HOT.tail.vectors.with(|area| {
        save(area);
        let result = call();
        restore(area);
        result
    })
}

fn save(area: &mut Vectors) {
    // SAFETY: the area is writable, aligned to 64 bytes and larger than any state that cells can have.
    unsafe { asm!("xsave64 [{}]", in(reg) area.0.as_mut_ptr(), in("eax") u32::MAX, in("edx") u32::MAX, options(nostack)) };
}

fn restore(area: &mut Vectors) {
    // SAFETY: the area was written by `save` or is the initial image: its header is well-formed. This code keeps nothing in the registers it loads.
    unsafe { asm!("xrstor64 [{}]", in(reg) area.0.as_mut_ptr(), in("eax") u32::MAX, in("edx") u32::MAX, options(nostack)) };
}
