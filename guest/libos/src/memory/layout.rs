// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address space layout of a program.
//!
//! Small programs fit into the first GiB, so that all their private pages need few page tables. Programs with fixed addresses lie where
//! they were linked, the others in `IMAGES`, and the break lies behind either. The stack ends in the middle of a 2 MiB block; small
//! mappings begin above it in the same block, and continue below the stack. Large mappings lie high.
//!
//! Each of these addresses is randomised (ASLR), so that an attacker inside the cell has to guess them. They move by whole 2 MiB blocks,
//! which costs nothing. Within its block, each moves only so far that the memory written by a small program stays on the same tables.
//! (Other cells cannot reach its memory anyway.) A program that runs again in a cell finds its code at its previous addresses
//! ([`super::zygote`]). Its break and the top of its stack move each time.

use core::ops::Range;

use pando_abi::layout::{SHARED, SHARED_END};
use pando_abi::{LARGE_PAGE_SIZE, PAGE_SIZE};

/// Base address for programs that can be moved.
const IMAGES: u64 = 0x0800_0000;
/// Start of small mappings; the space below it is for breaks.
pub const LOW_START: u64 = 0x1000_0000;
/// The end of the first GiB.
const LOW_END: u64 = 0x4000_0000;
/// Maximum size of mappings that lie low.
pub const SMALL: u64 = 32 << 20;
/// The area of all other mappings.
const HIGH: Range<u64> = 0x1_0000_0000..SHARED - LARGE_PAGE_SIZE;

/// The number of random positions. The first three count 2 MiB blocks: for programs, for small mappings with the stack, and for large
/// mappings. The others count pages within a block: for programs, for the stack, for small mappings, and between a program and its break.
mod positions {
    pub const IMAGE_BLOCKS: u64 = 64;
    pub const LOW_BLOCKS: u64 = 64;
    pub const HIGH_BLOCKS: u64 = 1 << 20;
    pub const IMAGE_PAGES: u64 = 256;
    pub const STACK_PAGES: u64 = 128;
    pub const LOW_PAGES: u64 = 128;
    pub const BREAK_PAGES: u64 = 64;
}

/// Whether an address lies in the shared segment.
#[must_use]
pub fn is_shared(address: u64) -> bool {
    (SHARED..SHARED_END).contains(&address)
}

/// The layout of one address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The start of a program that can be moved.
    pub image: u64,
    /// Bytes between a program and its break.
    pub break_gap: u64,
    /// The end of the stack.
    pub stack_top: u64,
    /// The end of small mappings.
    pub low_end: u64,
    /// The area of large mappings.
    pub high: Range<u64>,
}

impl Layout {
    /// A layout. `chance` returns a random number below a power of two.
    pub fn new(mut chance: impl FnMut(u64) -> u64) -> Layout {
        let block = LOW_END - chance(positions::LOW_BLOCKS) * LARGE_PAGE_SIZE;
        let mut pages = |count| chance(count) * PAGE_SIZE;
        let in_image = pages(positions::IMAGE_PAGES);
        Layout {
            break_gap: pages(positions::BREAK_PAGES),
            stack_top: block - LARGE_PAGE_SIZE / 2 - pages(positions::STACK_PAGES),
            low_end: block - pages(positions::LOW_PAGES),
            image: IMAGES + chance(positions::IMAGE_BLOCKS) * LARGE_PAGE_SIZE + in_image,
            high: HIGH.start..HIGH.end - chance(positions::HIGH_BLOCKS) * LARGE_PAGE_SIZE,
        }
    }

    /// Whether code lies at the same addresses as in another layout. The break moves each time.
    #[must_use]
    pub fn has_same_code(&self, other: &Layout) -> bool {
        Layout { break_gap: 0, ..self.clone() } == Layout { break_gap: 0, ..other.clone() }
    }
}

impl Default for Layout {
    fn default() -> Layout {
        Layout::new(|_| 0)
    }
}

#[cfg(test)]
mod tests {
    use super::{HIGH, IMAGES, LARGE_PAGE_SIZE, LOW_END, LOW_START, Layout, PAGE_SIZE, SMALL};

    #[test]
    fn the_break_does_not_move_code() {
        let layout = Layout::default();
        assert!(layout.has_same_code(&Layout { break_gap: PAGE_SIZE, ..layout.clone() }));
        assert!(!layout.has_same_code(&Layout { image: layout.image + PAGE_SIZE, ..layout.clone() }));
    }

    #[test]
    fn everything_has_room_wherever_chance_puts_it() {
        for most in [false, true] {
            let layout = Layout::new(|count| if most { count - 1 } else { 0 });
            assert!(layout.image >= IMAGES && layout.image + LARGE_PAGE_SIZE / 2 < LOW_START);
            assert!(layout.low_end <= LOW_END && layout.low_end > LOW_START + 10 * SMALL);
            let block = layout.low_end.next_multiple_of(LARGE_PAGE_SIZE);
            assert_eq!((layout.stack_top - 1) / LARGE_PAGE_SIZE, block / LARGE_PAGE_SIZE - 1, "stack and small mappings share a table");
            assert!(layout.stack_top < layout.low_end && layout.stack_top.is_multiple_of(PAGE_SIZE));
            assert!(layout.high.end <= HIGH.end && layout.high.end - layout.high.start > 1 << 45);
        }
    }
}
