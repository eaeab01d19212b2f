// SPDX-License-Identifier: MIT OR Apache-2.0
//! The application's vector, x87 and MXCSR state. The runtime has no use for these registers, so they are saved only where the kernel
//! may forget them.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use alloc::boxed::Box;

use crate::hot::{HOT, VECTOR_SIZE, Vectors};

/// Offset and initial value of the x87 control word: every exception masked, full precision.
const X87_CONTROL: (usize, u16) = (0, 0x37f);
/// Offset and initial value of MXCSR: every exception masked.
const MXCSR: (usize, u32) = (24, 0x1f80);
/// Offset of the bits that MXCSR may have, and what 0 there means.
const MXCSR_MASK: (usize, u32) = (28, 0xffbf);
/// Bytes of the legacy part, all that there is without XSAVE.
pub const LEGACY_SIZE: usize = 512;
/// Offset of the header, whose first word says which components the area holds.
const HEADER: usize = LEGACY_SIZE;
const HEADER_SIZE: usize = 64;
/// What says that the format is the standard one: all zero.
const FORMAT: core::ops::Range<usize> = HEADER + 8..HEADER + 24;
/// Components x87 and SSE, which the legacy part holds.
const LEGACY_COMPONENTS: u64 = 3;

/// The components that the CPU saves. 0: it has no XSAVE, and nothing beyond SSE. Not 0 at first, so that it lies with what else has a value: written among what is zero,
/// it would make a page there present before the freeze, with those around it, each of which every clone would copy by itself.
static COMPONENTS: AtomicU64 = AtomicU64::new(LEGACY_COMPONENTS);
/// Bytes that it saves.
static SIZE: AtomicUsize = AtomicUsize::new(LEGACY_SIZE);
/// The bits that MXCSR may have.
static MXCSR_BITS: AtomicU32 = AtomicU32::new(MXCSR_MASK.1);

/// Looks what the CPU has, and makes sure that its state fits.
///
/// # Panics
/// It does not: the machine has components that this runtime does not know.
#[cfg(target_os = "none")]
pub(crate) fn install() {
    use crate::cpuid;
    /// Leaf 1 ECX: XSAVE is switched on.
    const OSXSAVE: u32 = 1 << 27;
    let [_, _, features, _] = cpuid::answer(1, 0);
    let [low, needed, _, high] = cpuid::answer(0xd, 0);
    assert!(needed as usize <= VECTOR_SIZE, "vector state of {needed} bytes does not fit into {VECTOR_SIZE}");
    let saves = features & OSXSAVE != 0;
    COMPONENTS.store(if saves { u64::from(high) << 32 | u64::from(low) } else { 0 }, Ordering::Relaxed);
    if saves {
        SIZE.store((needed as usize).max(HEADER + HEADER_SIZE), Ordering::Relaxed);
    }
    let bits = current(|state| word(state, MXCSR_MASK.0));
    MXCSR_BITS.store(if bits == 0 { MXCSR_MASK.1 } else { bits }, Ordering::Relaxed);
}

/// The components that the CPU saves, as XCR0 names them; 0 where it has no XSAVE.
#[must_use]
pub fn components() -> u64 {
    COMPONENTS.load(Ordering::Relaxed)
}

/// Bytes of the application's state.
#[must_use]
pub fn size() -> usize {
    SIZE.load(Ordering::Relaxed)
}

/// The application's state, [`size`] bytes in the standard format of `xsave`, or of `fxsave` where the CPU has no more.
pub fn current<R>(look: impl FnOnce(&[u8]) -> R) -> R {
    HOT.tail.vectors.with(|area| {
        // What the CPU does not write there is nobody's.
        area.0[..HEADER + HEADER_SIZE].fill(0);
        save(area);
        look(&area.0[..size()])
    })
}

/// The state is not one that the CPU takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Loads a state in the format of [`current`], as far as `wanted` names its components; the rest becomes initial. `fill` writes it over zeros.
///
/// # Errors
/// `fill` has failed, or the state is none; the application's is what it was.
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

/// Makes sure that the CPU takes a state, and leaves in it what is wanted.
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

/// Puts every component into its initial state, as a program expects it at its first instruction.
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
pub struct State(Box<Vectors>);

impl State {
    /// Takes what the CPU holds.
    #[must_use]
    pub fn save() -> State {
        let mut state = State(Box::new(Vectors([0; VECTOR_SIZE])));
        state.renew();
        state
    }

    /// Takes what the CPU holds now.
    pub fn renew(&mut self) {
        save(&mut self.0);
    }

    /// Gives it to the CPU.
    pub fn load(&mut self) {
        restore(&mut self.0);
    }
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
        if components() != 0 {
            asm!("xsave64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX, options(nostack));
        } else {
            asm!("fxsave64 [{}]", in(reg) area, options(nostack));
        }
    }
}

fn restore(area: &mut Vectors) {
    let area = area.0.as_mut_ptr();
    // SAFETY: the area was written by `save`, is the initial image or was checked by `load`: it is well-formed. This code keeps nothing in the registers it loads.
    unsafe {
        if components() != 0 {
            asm!("xrstor64 [{}]", in(reg) area, in("eax") u32::MAX, in("edx") u32::MAX, options(nostack));
        } else {
            asm!("fxrstor64 [{}]", in(reg) area, options(nostack));
        }
    }
}
