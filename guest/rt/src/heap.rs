// SPDX-License-Identifier: MIT OR Apache-2.0
//! The libOS's heap: a first part inside the image, so that small cells stay in one page table; then pieces mapped above it.

use core::alloc::Layout;
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicBool, Ordering};

use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{Hypercall, LARGE_PAGE_SIZE, MapFlags, PAGE_SIZE, Permissions, layout};
use talc::TalcCell;
use talc::base::Talc;
use talc::base::binning::{Binning, DefaultBinning};
use talc::cell::TalcSyncCell;
use talc::source::Source;

use crate::hypercall::perform;

/// Bytes of the part inside the image.
const FIRST: usize = 256 << 10;
/// Minimum size of a later piece in bytes.
const PIECE: u64 = 256 << 10;
/// Bytes that a piece needs beyond the allocation that it is made for.
const OVERHEAD: u64 = PAGE_SIZE;

/// Address of the first later piece.
const START: u64 = crate::network::BUFFERS_END;
/// Start of a range in which nothing is ever mapped: the last GiB of the system segment, whose mapping takes no table.
const LAST: u64 = layout::SYSTEM + layout::SLOT_SIZE - LAST_BYTES;
const LAST_BYTES: u64 = 1 << 30;

/// The last request for more memory failed.
static IS_EXHAUSTED: AtomicBool = AtomicBool::new(false);

static mut FIRST_HEAP: [u8; FIRST] = [0; FIRST];

/// The source of the allocator's memory.
#[derive(Debug)]
struct Pieces {
    /// The first part was claimed.
    started: bool,
    /// Address of the next piece.
    next: u64,
}

impl Pieces {
    /// Maps a piece of at least `min` bytes. Returns its address and size. Once there are some, it uses large pages
    /// if there is memory for them.
    fn map(&mut self, min: u64) -> Result<(u64, u64), ()> {
        let large = self.next.next_multiple_of(LARGE_PAGE_SIZE);
        let pieces = [(large, min.next_multiple_of(LARGE_PAGE_SIZE), true), (self.next, min.max(PIECE).next_multiple_of(PAGE_SIZE), false)];
        let is_grown = self.next >= START + LARGE_PAGE_SIZE;
        for (address, bytes, large) in pieces.into_iter().filter(|(.., large)| is_grown || !large) {
            if address + bytes > LAST {
                continue;
            }
            let flags = MapFlags { large, ..MapFlags::eager(Permissions::READ_WRITE) }.bits();
            let call = Hypercall::Map { space: CURRENT_SPACE, address, pages: bytes / PAGE_SIZE, flags };
            // SAFETY: 1: the pages lie above all that is mapped in the system segment. 2: vector registers survive the call.
            if unsafe { perform(call) }.is_ok() {
                self.next = address + bytes;
                return Ok((address, bytes));
            }
        }
        Err(())
    }
}

// SAFETY: `acquire` touches no allocator but the one it is given, and returns `Ok` only after a claim.
unsafe impl Source for Pieces {
    fn acquire<B: Binning>(heap: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        if !heap.source.started {
            heap.source.started = true;
            // SAFETY: the first part is used by nothing else, and it is claimed once.
            return unsafe { heap.claim((&raw mut FIRST_HEAP).cast(), FIRST) }.map(|_| ()).ok_or(());
        }
        let least = layout.size() as u64 + layout.align() as u64 + OVERHEAD;
        let mapped = heap.source.map(least);
        IS_EXHAUSTED.store(mapped.is_err(), Ordering::Relaxed);
        let (address, bytes) = mapped?;
        // SAFETY: the pages were just mapped, writable, and are named nowhere else.
        unsafe { heap.claim(with_exposed_provenance_mut(address as usize), bytes as usize) }.map(|_| ()).ok_or(())
    }
}

/// Ends the cell for lack of memory, if that is why the heap is exhausted: it uses up the rest, and the kernel ends
/// the cell with the right reason.
pub(crate) fn end_if_exhausted() {
    if !IS_EXHAUSTED.load(Ordering::Relaxed) {
        return;
    }
    let call = Hypercall::Map {
        space: CURRENT_SPACE,
        address: LAST,
        pages: LAST_BYTES / PAGE_SIZE,
        flags: MapFlags::lazy(Permissions::READ_WRITE).bits(),
    };
    // SAFETY: 1: nothing else is ever mapped there. 2: vector registers survive the call.
    if unsafe { perform(call) }.is_ok() {
        for page in (LAST..LAST + LAST_BYTES).step_by(PAGE_SIZE as usize) {
            // SAFETY: the page was just mapped, writable, and is named nowhere else.
            unsafe { with_exposed_provenance_mut::<u8>(page as usize).write_volatile(1) };
        }
    }
    // In a clone, the mapping may have needed a copy of a table. A page of the first part that is still shared needs a copy, too.
    let first = (&raw mut FIRST_HEAP).cast::<u8>();
    for offset in (0..FIRST).step_by(PAGE_SIZE as usize) {
        // SAFETY: the byte lies in the first part, it keeps its value, and nothing else of the cell runs.
        unsafe { first.add(offset).write_volatile(first.add(offset).read_volatile()) };
    }
}

// SAFETY: a cell has one thread, and no upcall interrupts the allocator to allocate: exceptions of the libOS itself
// only fix a copy up or end the cell, and events are held back while it runs.
#[global_allocator]
static HEAP: TalcSyncCell<Pieces, DefaultBinning> = unsafe { TalcSyncCell::new(TalcCell::new(Pieces { started: false, next: START })) };
