// SPDX-License-Identifier: MIT OR Apache-2.0
//! The application's vector, x87 and MXCSR state. The runtime has no use for these registers, so they are saved only where the kernel
//! may forget them.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::hot::{HOT, Vectors};

/// Offset and initial value of the x87 control word: every exception masked, full precision.
const X87_CONTROL: (usize, u16) = (0, 0x37f);
/// Offset and initial value of MXCSR: every exception masked.
const MXCSR: (usize, u32) = (24, 0x1f80);
/// Offset of the header, whose first word says which components the area holds.
const HEADER: usize = 512;
const HEADER_SIZE: usize = 64;

/// The CPU has XSAVE. Without it there is nothing beyond SSE.
static XSAVE: AtomicBool = AtomicBool::new(false);

/// Looks what the CPU has, and makes sure that its state fits.
///
/// # Panics
/// It does not: the machine has components that this runtime does not know.
#[cfg(target_os = "none")]
pub(crate) fn install() {
    use crate::cpuid;
    use crate::hot::VECTOR_SIZE;
    /// Leaf 1 ECX: XSAVE is switched on.
    const OSXSAVE: u32 = 1 << 27;
    let [_, _, features, _] = cpuid::answer(1, 0);
    let [_, needed, ..] = cpuid::answer(0xd, 0);
    assert!(needed as usize <= VECTOR_SIZE, "vector state of {needed} bytes does not fit into {VECTOR_SIZE}");
    XSAVE.store(features & OSXSAVE != 0, Ordering::Relaxed);
}

/// Puts every component into its initial state, as a program expects it at its first instruction.
pub fn reset() {
    HOT.tail.vectors.with(|area| {
        area.0[..HEADER + HEADER_SIZE].fill(0);
        area.0[X87_CONTROL.0..][..2].copy_from_slice(&X87_CONTROL.1.to_le_bytes());
        area.0[MXCSR.0..][..4].copy_from_slice(&MXCSR.1.to_le_bytes());
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
    let area = area.0.as_mut_ptr();
    // SAFETY: the area is writable, aligned to 64 bytes and larger than any state that cells can have; `install` has seen that the CPU has the instruction.
    unsafe {
        if XSAVE.load(Ordering::Relaxed) {
            asm!("xsave64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX, options(nostack));
        } else {
            asm!("fxsave64 [{}]", in(reg) area, options(nostack));
        }
    }
}

fn restore(area: &mut Vectors) {
    let area = area.0.as_mut_ptr();
    // SAFETY: the area was written by `save` or is the initial image: it is well-formed. This code keeps nothing in the registers it loads.
    unsafe {
        if XSAVE.load(Ordering::Relaxed) {
            asm!("xrstor64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX, options(nostack));
        } else {
            asm!("fxrstor64 [{}]", in(reg) area, options(nostack));
        }
    }
}
