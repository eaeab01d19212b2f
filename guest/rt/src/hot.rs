// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data that a cell writes whenever it wakes up, in one page.
//!
//! A clone that wakes up and waits again copies each page that it writes, and there are thousands of clones. So the top of the stack of
//! upcalls, which is all of it that waiting needs, shares a page with the application's vector state and with the runtime's own words.

use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU64;

use pando_abi::{PAGE_SIZE, SavedContext};

use crate::global::Global;

/// Total size in bytes, most of it stack.
const SIZE: usize = 64 << 10;
/// Bytes of the stack of upcalls from the application; start-up runs on it too.
pub(crate) const STACK_SIZE: usize = SIZE - size_of::<Tail>();
/// Bytes of vector state: every component that cells can have, up to AVX-512 and protection keys, in the standard format.
pub(crate) const VECTOR_SIZE: usize = 2752;

/// The application's vector, x87 and MXCSR state, as `xsave` or `fxsave` writes it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Vectors(pub(crate) [u8; VECTOR_SIZE]);

/// The data above the stack.
#[repr(C, align(64))]
pub(crate) struct Tail {
    /// Handles exceptions, system calls and events of the application.
    pub(crate) on_upcall: Global<Option<fn(&mut SavedContext)>>,
    /// Events that were noted and not taken.
    pub(crate) noted: AtomicU64,
    /// Nanoseconds that were spent waiting.
    pub(crate) waited: AtomicU64,
    /// The offset of the cell's clock behind the kernel's, in nanoseconds.
    pub(crate) clock_offset: AtomicU64,
    /// The generation to which this data belongs.
    pub(crate) generation: AtomicU64,
    /// The application's vector state, while the CPU may lose it.
    pub(crate) vectors: Global<Vectors>,
}

/// The stack of upcalls and the data in its last page.
#[repr(C, align(4096))]
pub(crate) struct Hot {
    /// Accessed only through the stack pointer.
    stack: UnsafeCell<[u8; STACK_SIZE]>,
    pub(crate) tail: Tail,
}

/// Bytes of the stack that lie in the last page: more than a wait takes.
const HOT_STACK: usize = PAGE_SIZE as usize - size_of::<Tail>();
const _: () = assert!(size_of::<Hot>() == SIZE && STACK_SIZE.is_multiple_of(16) && HOT_STACK >= 1024);

// SAFETY: nothing but the CPU touches the stack, and the rest may be shared.
unsafe impl Sync for Hot {}

pub(crate) static HOT: Hot = Hot {
    stack: UnsafeCell::new([0; STACK_SIZE]),
    tail: Tail {
        on_upcall: Global::new(None),
        noted: AtomicU64::new(0),
        waited: AtomicU64::new(0),
        clock_offset: AtomicU64::new(0),
        generation: AtomicU64::new(0),
        vectors: Global::new(Vectors([0; VECTOR_SIZE])),
    },
};
