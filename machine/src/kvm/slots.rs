// SPDX-License-Identifier: MIT OR Apache-2.0
//! The VM's memory slots: how the arena comes to KVM, piece by piece.
//!
//! For each page of a slot KVM keeps some ten bytes of its own, zeroed when the slot is made and freed when the VM ends: a millisecond a gigabyte each time, which a VM
//! that runs one small program need not pay. Every slot is as large as all before it, so that a large machine has a dozen.

use super::system;
use crate::{Arena, FRAMES_PER_STRETCH, HostError, PHYSICAL_BASE, PageCount, Stretch};
use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::VmFd;
use std::sync::Mutex;

/// Slot numbers below belong to others.
const FIRST_SLOT: u32 = 1;
/// What the VM has from the start.
const FIRST_STRETCHES: u32 = 64;
/// KVM's own choice is a shadow table for so many pages; made explicit, it is the same however much of the arena KVM has seen yet.
const PAGES_OF_A_TABLE: u64 = 50;
/// And no fewer than so many.
const LEAST_TABLES: u64 = 64;

/// How much of the arena the VM has.
#[derive(Debug)]
pub(super) struct Slots(Mutex<Provided>);

#[derive(Debug)]
struct Provided {
    slots: u32,
    stretches: u32,
}

impl Slots {
    /// The first slot.
    ///
    /// # Errors
    /// KVM refused it.
    pub(super) fn new(vm: &VmFd, arena: &Arena) -> Result<Slots, HostError> {
        system::limit_shadow_tables(vm, (u64::from(arena.frames()) / PAGES_OF_A_TABLE).max(LEAST_TABLES))?;
        let slots = Slots(Mutex::new(Provided { slots: 0, stretches: 0 }));
        slots.provide(vm, arena, Stretch(0))?;
        Ok(slots)
    }

    /// Makes sure that the VM has a stretch, and all below it. vCPUs may run meanwhile: KVM's tables name no page before it is provided.
    ///
    /// # Errors
    /// KVM refused the slot.
    ///
    /// # Panics
    /// The arena has no such stretch.
    pub(super) fn provide(&self, vm: &VmFd, arena: &Arena, stretch: Stretch) -> Result<(), HostError> {
        assert!(stretch.0 < arena.stretches(), "stretch {} is outside the arena", stretch.0);
        let mut provided = self.0.lock().expect("no holder panics");
        while provided.stretches <= stretch.0 {
            let count = provided.stretches.max(FIRST_STRETCHES).min(arena.stretches() - provided.stretches);
            let bytes = |stretches: u32| PageCount(u64::from(stretches) * u64::from(FRAMES_PER_STRETCH)).bytes();
            let region = kvm_userspace_memory_region {
                slot: FIRST_SLOT + provided.slots,
                flags: 0,
                guest_phys_addr: PHYSICAL_BASE + bytes(provided.stretches),
                memory_size: bytes(count),
                userspace_addr: arena.host_address() + bytes(provided.stretches),
            };
            // SAFETY: 1. the range lies in the arena's mapping, for it ends at or before the arena's end; 2. the mapping outlives the VM: `Shared` drops its VM before
            // its arena; 3. no other slot has this number or overlaps it: both grow with each slot, under the lock.
            HostError::kvm("give memory to the VM", || unsafe { vm.set_user_memory_region(region) })?;
            provided.slots += 1;
            provided.stretches += count;
        }
        Ok(())
    }
}
