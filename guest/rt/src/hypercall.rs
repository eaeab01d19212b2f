// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hypercall stubs: a typed function for each line of the table in [`pando_abi::hypercall`].
//!
//! Calls that change memory are in [`crate::memory`], where ranges are checked first.

use core::arch::asm;

use pando_abi::hypercall::PORT;
use pando_abi::memory::NEWEST_SPACE;
use pando_abi::{EventSet, Hypercall, Refusal, SegmentIndex, SpaceIndex};

use crate::vector;

/// A deadline that never comes.
pub const NO_DEADLINE: u64 = u64::MAX;

/// Performs a hypercall.
///
/// # Errors
/// The reason why the kernel did nothing.
///
/// # Safety
/// 1. The call does not change memory that Rust knows of.
/// 2. If vector registers do not survive the call, nothing lives in them.
pub(crate) unsafe fn perform(call: Hypercall) -> Result<u64, Refusal> {
    // SAFETY: as for the caller.
    unsafe { perform_with_rest(call) }.0
}

/// Performs a hypercall. Returns also the fourth argument, which `receive` changes.
///
/// # Safety
/// As for [`perform`].
pub(crate) unsafe fn perform_with_rest(call: Hypercall) -> (Result<u64, Refusal>, u64) {
    let (number, [first, second, third, fourth, fifth]) = call.encode();
    let (result, rest): (u64, u64);
    // SAFETY: the instruction writes no registers but `rax` and `r10`, and no memory but what the call names, which condition 1 answers.
    unsafe {
        asm!("out {port}, al", port = const PORT, inlateout("rax") number => result, in("rdi") first, in("rsi") second,
            in("rdx") third, inlateout("r10") fourth => rest, in("r8") fifth, options(nostack));
    }
    (Refusal::from_result(result), rest)
}

/// Performs a call that takes numbers, changes none of this cell's mapped memory and leaves the vector registers unchanged.
fn plain(call: Hypercall) -> Result<u64, Refusal> {
    // SAFETY: 1 and 2 hold for every call that this module passes here.
    unsafe { perform(call) }
}

/// Ends the cell. `signal` is 0 if the program ended with `status`; otherwise it is the signal that ended it,
/// `address` the accessed address and `instruction` the instruction pointer.
pub fn exit(status: u64, signal: u64, address: u64, instruction: u64) -> ! {
    loop {
        // The kernel never returns from it, so the result does not matter.
        let _ = plain(Hypercall::Exit { status, signal, address, instruction });
    }
}

/// Gives up the CPU until an unmasked event is pending or the kernel's clock reaches `deadline`, in nanoseconds. Returns the pending
/// events. The application's vector registers survive.
pub(crate) fn idle(deadline: u64) -> EventSet {
    // SAFETY: 1: it changes no memory but the virtual registers and what ring descriptors name. 2: they are saved around it.
    let pending = vector::preserved(|| unsafe { perform(Hypercall::Idle { deadline }) });
    pending.map_or(EventSet::NONE, EventSet)
}

/// Gives up the rest of the quantum, staying runnable. The application's vector registers survive.
pub fn relinquish() {
    // SAFETY: as for `idle`. The call cannot be refused.
    let _ = vector::preserved(|| unsafe { perform(Hypercall::Relinquish {}) });
}

/// Makes the kernel process the rings now.
pub fn doorbell() {
    // The call cannot be refused.
    let _ = plain(Hypercall::Doorbell {});
}

/// The state of the page at an address: permissions in bits 0 to 2, bit 3 resident, bit 4 lazy, bit 5 in a large page.
///
/// # Errors
/// The space does not exist, or the address is invalid.
pub fn inspect(space: u64, address: u64) -> Result<u64, Refusal> {
    plain(Hypercall::Inspect { space, address })
}

/// Makes a space that holds nothing but the system segment.
///
/// # Errors
/// There are too many, or no memory is left.
pub fn space_create() -> Result<SpaceIndex, Refusal> {
    plain(Hypercall::SpaceCreate {}).map(|index| SpaceIndex(index as u32))
}

/// Clones a space: private memory copy-on-write, segments shared.
///
/// # Errors
/// The space does not exist, there are too many, or no memory is left.
pub fn space_clone(space: u64) -> Result<SpaceIndex, Refusal> {
    plain(Hypercall::SpaceClone { space }).map(|index| SpaceIndex(index as u32))
}

/// The space to continue in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextSpace {
    /// An existing one.
    Existing(SpaceIndex),
    /// A new clone of this one: private memory copy-on-write, segments shared.
    CloneOf(SpaceIndex),
}

/// Continues in another space: the libOS is the same, application memory is the other's. Then destroys the space that ran, if this is
/// `destroyed`. Takes one exit. Returns the space.
///
/// # Errors
/// There is no such space, there are too many, or no memory is left. Nothing has changed.
pub fn space_switch(next: NextSpace, destroyed: Option<SpaceIndex>) -> Result<SpaceIndex, Refusal> {
    let clone = |space: SpaceIndex| Hypercall::SpaceClone { space: space.0.into() };
    let switch = |space| Hypercall::SpaceSwitch { space };
    let destroy = |space: SpaceIndex| Hypercall::SpaceDestroy { space: space.0.into() };
    match (next, destroyed) {
        (NextSpace::Existing(space), None) => plain(switch(space.0.into())).map(|_| space),
        // If the old space cannot be destroyed, the cell loses it.
        (NextSpace::Existing(space), Some(before)) => batch(&[switch(space.0.into()), destroy(before)]).map(|_| space),
        // The cell can continue in a space that was just made.
        (NextSpace::CloneOf(space), None) => batch(&[clone(space), switch(NEWEST_SPACE)]).map(newest),
        (NextSpace::CloneOf(space), Some(before)) => batch(&[clone(space), switch(NEWEST_SPACE), destroy(before)]).map(newest),
    }
}

/// The space that a batch has made last.
fn newest(result: u64) -> SpaceIndex {
    SpaceIndex((result >> 32) as u32)
}

/// Performs calls that [`plain`] takes, in order, up to the first refused one.
fn batch<const N: usize>(calls: &[Hypercall; N]) -> Result<u64, Refusal> {
    let records = calls.map(Hypercall::record);
    plain(Hypercall::Batch { address: records.as_ptr().expose_provenance() as u64, calls: N as u64 })
}

/// Destroys a space.
///
/// # Errors
/// It does not exist, or is the running one.
pub fn space_destroy(space: SpaceIndex) -> Result<(), Refusal> {
    plain(Hypercall::SpaceDestroy { space: space.0.into() }).map(|_| ())
}

/// Makes an empty segment.
///
/// # Errors
/// There are too many, or no memory is left.
pub fn segment_create() -> Result<SegmentIndex, Refusal> {
    plain(Hypercall::SegmentCreate {}).map(|index| SegmentIndex(index as u32))
}

/// Mounts a segment in a free slot.
///
/// # Errors
/// The slot is taken, or the space or the segment does not exist.
pub fn segment_mount(segment: SegmentIndex, space: u64, address: u64) -> Result<(), Refusal> {
    plain(Hypercall::SegmentMount { segment: segment.0.into(), space, address }).map(|_| ())
}
