// SPDX-License-Identifier: MIT OR Apache-2.0
//! The application's vector, x87 and MXCSR state. The runtime does not use these registers, so they are saved only
//! where the kernel may lose them.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use alloc::boxed::Box;

use crate::hot::{HOT, VECTOR_SIZE, Vectors};

/// Offset and initial value of the x87 control word: every exception masked, full precision.
const X87_CONTROL: (usize, u16) = (0, 0x37f);
/// Offset and initial value of MXCSR: every exception masked.
const MXCSR: (usize, u32) = (24, 0x1f80);
/// Offset of MXCSR_MASK, the valid bits of MXCSR, and its default if it is 0.
const MXCSR_MASK: (usize, u32) = (28, 0xffbf);
/// Bytes of the legacy part, the whole area without XSAVE.
pub const LEGACY_SIZE: usize = 512;
/// Offset of the header, whose first word is the bit map of components in the area.
const HEADER: usize = LEGACY_SIZE;
const HEADER_SIZE: usize = 64;
/// The bytes that select the format: all zero for the standard one.
const FORMAT: core::ops::Range<usize> = HEADER + 8..HEADER + 24;
/// Components x87 and SSE, which are in the legacy part.
const LEGACY_COMPONENTS: u64 = 3;

/// The components that the CPU saves. 0: it has no XSAVE, and nothing beyond SSE. Initially not 0, so that it lies
/// with the other initialised data. Among zero data, writing it would make a page there present before the freeze,
/// with those around it, and every clone would copy each of them separately.
static COMPONENTS: AtomicU64 = AtomicU64::new(LEGACY_COMPONENTS);
/// Size of the state in bytes.
static SIZE: AtomicUsize = AtomicUsize::new(LEGACY_SIZE);
/// The valid bits of MXCSR.
static MXCSR_BITS: AtomicU32 = AtomicU32::new(MXCSR_MASK.1);

/// Reads the CPU's features, and checks that its state fits.
///
/// # Panics
/// It does not: the machine has components that this runtime does not support.
#[cfg(target_os = "none")]
pub(crate) fn install() {
    use crate::cpuid;
    /// Leaf 1 ECX: XSAVE is enabled.
    const OSXSAVE: u32 = 1 << 27;
    let [_, _, features, _] = cpuid::lookup(1, 0);
    let [low, needed, _, high] = cpuid::lookup(0xd, 0);
    assert!(needed as usize <= VECTOR_SIZE, "vector state of {needed} bytes does not fit into {VECTOR_SIZE}");
    let saves = features & OSXSAVE != 0;
    COMPONENTS.store(if saves { u64::from(high) << 32 | u64::from(low) } else { 0 }, Ordering::Relaxed);
    if saves {
        SIZE.store((needed as usize).max(HEADER + HEADER_SIZE), Ordering::Relaxed);
    }
    let bits = current(|state| word(state, MXCSR_MASK.0));
    MXCSR_BITS.store(if bits == 0 { MXCSR_MASK.1 } else { bits }, Ordering::Relaxed);
}

/// The components that the CPU saves, as in XCR0; 0 without XSAVE.
#[must_use]
pub fn components() -> u64 {
    COMPONENTS.load(Ordering::Relaxed)
}

/// Bytes of the application's state.
#[must_use]
pub fn size() -> usize {
    SIZE.load(Ordering::Relaxed)
}

/// Passes the application's state to `look`: [`size`] bytes in the standard format of `xsave`, or of `fxsave` without XSAVE.
pub fn current<R>(look: impl FnOnce(&[u8]) -> R) -> R {
    HOT.tail.vectors.with(|area| {
        // Clears the bytes that the CPU does not write.
        area.0[..HEADER + HEADER_SIZE].fill(0);
        save(area);
        look(&area.0[..size()])
    })
}

/// The CPU does not accept the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Loads a state in the format of [`current`], limited to the components of `wanted`; the rest becomes initial. `fill`
/// writes it over zeros.
///
/// # Errors
/// `fill` has failed, or the state is invalid; the application's state is unchanged.
pub fn load(wanted: u64, fill: impl FnOnce(&mut [u8]) -> Result<(), Malformed>) -> Result<(), Malformed> {
    HOT.tail.vectors.with(|area| {
        let bytes = &mut area.0[..size()];
        bytes.fill(0);
        fill(bytes)?;
        check(bytes, wanted)?;
        restore(area);
        Ok(())
    })
}

/// Checks that the CPU accepts a state, and removes unwanted components.
fn check(bytes: &mut [u8], wanted: u64) -> Result<(), Malformed> {
    if word(bytes, MXCSR.0) & !MXCSR_BITS.load(Ordering::Relaxed) != 0 {
        return Err(Malformed);
    }
    if components() == 0 {
        return Ok(());
    }
    let held = u64::from(word(bytes, HEADER)) | u64::from(word(bytes, HEADER + 4)) << 32;
    // The legacy part alone has no header.
    let held = if wanted & !LEGACY_COMPONENTS == 0 {
        wanted
    } else if held & !components() == 0 && bytes[FORMAT].iter().all(|byte| *byte == 0) {
        held & wanted
    } else {
        return Err(Malformed);
    };
    bytes[HEADER..HEADER + HEADER_SIZE].fill(0);
    bytes[HEADER..FORMAT.start].copy_from_slice(&held.to_le_bytes());
    Ok(())
}

fn word(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}

/// Resets every component to its initial state, as a program expects it at its first instruction.
pub fn reset() {
    HOT.tail.vectors.with(|area| {
        area.0[..HEADER + HEADER_SIZE].fill(0);
        area.0[X87_CONTROL.0..][..2].copy_from_slice(&X87_CONTROL.1.to_le_bytes());
        area.0[MXCSR.0..][..4].copy_from_slice(&MXCSR.1.to_le_bytes());
        restore(area);
    });
}

/// The vector state of a thread that does not run.
#[derive(Debug)]
pub struct VectorState(Box<Vectors>);

impl VectorState {
    /// Saves the CPU's state.
    #[must_use]
    pub fn save() -> VectorState {
        let mut state = VectorState(Box::new(Vectors([0; VECTOR_SIZE])));
        state.renew();
        state
    }

    /// Saves the CPU's state again.
    pub fn renew(&mut self) {
        save(&mut self.0);
    }

    /// Its address, for a debugger.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0.0.as_ptr().expose_provenance() as u64
    }

    /// Loads it into the CPU.
    pub fn load(&mut self) {
        restore(&mut self.0);
    }
}

/// Runs `call` and restores all registers afterwards.
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
    // SAFETY: the area is writable, aligned to 64 bytes and larger than any state that cells can have; `install` has
    // seen that the CPU has the instruction.
    unsafe {
        if components() != 0 {
            asm!("xsave64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX, options(nostack));
        } else {
            asm!("fxsave64 [{}]", in(reg) area, options(nostack));
        }
    }
}

fn restore(area: &mut Vectors) {
    let area = area.0.as_mut_ptr();
    // SAFETY: the area was written by `save`, is the initial image or was checked by `load`: it is well-formed. This
    // code keeps nothing in the registers it loads.
    unsafe {
        if components() != 0 {
            asm!("xrstor64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX, options(nostack));
        } else {
            asm!("fxrstor64 [{}]", in(reg) area, options(nostack));
        }
    }
}
