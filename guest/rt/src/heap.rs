// SPDX-License-Identifier: MIT OR Apache-2.0
//! The libOS's heap: a first part inside the image, so that small cells stay in one page table; then pieces mapped above it.

use core::alloc::Layout;
use core::ptr::with_exposed_provenance_mut;

use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{Hypercall, MapFlags, PAGE_SIZE, Permissions, layout};
use talc::TalcCell;
use talc::base::Talc;
use talc::base::binning::{Binning, DefaultBinning};
use talc::cell::TalcSyncCell;
use talc::source::Source;

use crate::hypercall::perform;

/// Bytes of the part inside the image.
const FIRST: usize = 256 << 10;
/// Bytes of a later piece, at least.
const PIECE: u64 = 256 << 10;
/// Bytes that a piece needs beyond the allocation that it is made for.
const OVERHEAD: u64 = PAGE_SIZE;

static mut FIRST_HEAP: [u8; FIRST] = [0; FIRST];

/// Where the allocator's memory comes from.
#[derive(Debug)]
struct Pieces {
    /// The first part was given out.
    started: bool,
    /// Where the next piece goes.
    next: u64,
}

// SAFETY: `acquire` touches no allocator but the one it is given, and returns `Ok` only after a claim.
unsafe impl Source for Pieces {
    fn acquire<B: Binning>(heap: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        if !heap.source.started {
            heap.source.started = true;
            // SAFETY: the first part is nobody else's, and it is claimed once.
            return unsafe { heap.claim((&raw mut FIRST_HEAP).cast(), FIRST) }.map(|_| ()).ok_or(());
        }
        let bytes = (layout.size() as u64 + layout.align() as u64 + OVERHEAD).max(PIECE).next_multiple_of(PAGE_SIZE);
        let address = heap.source.next;
        if address + bytes > layout::SYSTEM + layout::SLOT_SIZE {
            return Err(());
        }
        let flags = MapFlags::eager(Permissions::READ_WRITE).bits();
        let call = Hypercall::Map { space: CURRENT_SPACE, address, pages: bytes / PAGE_SIZE, flags };
        // SAFETY: 1: the pages lie above all that is mapped in the system segment. 2: vector registers survive the call.
        unsafe { perform(call) }.map_err(|_| ())?;
        heap.source.next += bytes;
        // SAFETY: the pages were just mapped, writable, and are named nowhere else.
        unsafe { heap.claim(with_exposed_provenance_mut(address as usize), bytes as usize) }.map(|_| ()).ok_or(())
    }
}

// SAFETY: a cell has one thread, and no upcall interrupts the allocator to allocate: exceptions of the libOS itself only fix a copy up or end
// the cell, and events are held back while it runs.
#[global_allocator]
static HEAP: TalcSyncCell<Pieces, DefaultBinning> =
    unsafe { TalcSyncCell::new(TalcCell::new(Pieces { started: false, next: layout::SYSTEM_FREE })) };
