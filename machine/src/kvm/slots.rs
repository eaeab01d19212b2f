// SPDX-License-Identifier: MIT OR Apache-2.0
//! The VM's memory slots, which add the arena to the VM piece by piece.
//!
//! KVM keeps some ten bytes of its own for each page of a slot, zeroed when the slot is made and freed when the VM
//! ends. That costs a millisecond per gigabyte each time, which a VM that runs one small program need not pay. Every
//! slot is as large as all before it, so a large machine has a dozen.

use super::system;
use crate::{Arena, FRAMES_PER_HUGE_FRAME, HostError, HugeFrame, PHYSICAL_BASE, PageCount};
use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::VmFd;
use std::sync::Mutex;

/// The lower slot numbers are used elsewhere.
const FIRST_SLOT: u32 = 1;
/// Huge frames of the first slot.
const FIRST_HUGE_FRAMES: u32 = 64;
/// KVM's own default is a shadow table for so many pages. Set explicitly, it does not depend on how much of the arena KVM has seen yet.
const PAGES_OF_A_TABLE: u64 = 50;
/// Minimum number of shadow tables.
const LEAST_TABLES: u64 = 64;

/// The part of the arena that the VM has.
#[derive(Debug)]
pub(super) struct Slots(Mutex<SlotState>);

#[derive(Debug)]
struct SlotState {
    slots: u32,
    huge_frames: u32,
}

impl Slots {
    /// Makes the first slot.
    ///
    /// # Errors
    /// KVM refused it.
    pub(super) fn new(vm: &VmFd, arena: &Arena) -> Result<Slots, HostError> {
        system::limit_shadow_tables(vm, (u64::from(arena.frames()) / PAGES_OF_A_TABLE).max(LEAST_TABLES))?;
        let slots = Slots(Mutex::new(SlotState { slots: 0, huge_frames: 0 }));
        slots.provide(vm, arena, HugeFrame(0))?;
        Ok(slots)
    }

    /// Ensures that the VM has a huge frame, and all below it. vCPUs may run meanwhile: no page table names a page before it is provided.
    ///
    /// # Errors
    /// KVM refused the slot.
    ///
    /// # Panics
    /// The arena has no such huge frame.
    pub(super) fn provide(&self, vm: &VmFd, arena: &Arena, huge_frame: HugeFrame) -> Result<(), HostError> {
        assert!(huge_frame.0 < arena.huge_frames(), "huge frame {} is outside the arena", huge_frame.0);
        let mut provided = self.0.lock().expect("no holder panics");
        while provided.huge_frames <= huge_frame.0 {
            let count = provided.huge_frames.max(FIRST_HUGE_FRAMES).min(arena.huge_frames() - provided.huge_frames);
            let bytes = |huge_frames: u32| PageCount(u64::from(huge_frames) * u64::from(FRAMES_PER_HUGE_FRAME)).bytes();
            let region = kvm_userspace_memory_region {
                slot: FIRST_SLOT + provided.slots,
                flags: 0,
                guest_phys_addr: PHYSICAL_BASE + bytes(provided.huge_frames),
                memory_size: bytes(count),
                userspace_addr: arena.host_address() + bytes(provided.huge_frames),
            };
            // SAFETY: 1. the range lies in the arena's mapping, for it ends at or before the arena's end; 2. the
            // mapping outlives the VM: `Shared` drops its VM before its arena; 3. no other slot has this number or
            // overlaps it: both grow with each slot, under the lock.
            HostError::kvm("give memory to the VM", || unsafe { vm.set_user_memory_region(region) })?;
            provided.slots += 1;
            provided.huge_frames += count;
        }
        Ok(())
    }
}
