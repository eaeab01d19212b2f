// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where things lie in a program's address space.
//!
//! Small programs fit into the first GiB, so that all their private pages hang on few page tables. Programs that cannot be moved lie where they were linked, the others in
//! `IMAGES`, and the break behind either. The stack ends in the middle of a stretch of 2 MiB; above it there small mappings begin, and go on below it. Large mappings lie high.
//!
//! Each of these is moved by chance, so that who attacks a program within its cell has to guess: by whole stretches, which costs nothing, and within its stretch
//! no further than that what a small program writes stays on the same tables. (A cell's neighbours cannot reach its memory anyway.) A program that runs again in a cell finds its code
//! where it lay ([`super::zygote`]); its break and what its stack begins with move each time.

use core::ops::Range;

use pando_abi::layout::SHARED;
use pando_abi::{LARGE_PAGE_SIZE, PAGE_SIZE};

/// Where programs are put that can be moved.
const IMAGES: u64 = 0x0800_0000;
/// Small mappings lie from here on; below there is room for breaks.
pub const LOW_START: u64 = 0x1000_0000;
/// The end of the first GiB.
const LOW_END: u64 = 0x4000_0000;
/// Mappings up to this size lie low.
pub const SMALL: u64 = 32 << 20;
/// Where everything else lies.
const HIGH: Range<u64> = 0x1_0000_0000..SHARED - LARGE_PAGE_SIZE;

/// How many places chance can choose from. Stretches of 2 MiB for programs, for small mappings with the stack, and for large mappings; pages within a stretch
/// for programs, for the stack, for small mappings, and from a program to its break.
mod places {
    pub const IMAGE_STRETCHES: u64 = 64;
    pub const LOW_STRETCHES: u64 = 64;
    pub const HIGH_STRETCHES: u64 = 1 << 20;
    pub const IMAGE_PAGES: u64 = 256;
    pub const STACK_PAGES: u64 = 128;
    pub const LOW_PAGES: u64 = 128;
    pub const BREAK_PAGES: u64 = 64;
}

/// Where things are put in one address space.
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
    /// Where large mappings lie.
    pub high: Range<u64>,
}

impl Layout {
    /// A layout. `chance` chooses a number below a power of two.
    pub fn new(mut chance: impl FnMut(u64) -> u64) -> Layout {
        let stretch = LOW_END - chance(places::LOW_STRETCHES) * LARGE_PAGE_SIZE;
        let mut pages = |count| chance(count) * PAGE_SIZE;
        let in_image = pages(places::IMAGE_PAGES);
        Layout {
            break_gap: pages(places::BREAK_PAGES),
            stack_top: stretch - LARGE_PAGE_SIZE / 2 - pages(places::STACK_PAGES),
            low_end: stretch - pages(places::LOW_PAGES),
            image: IMAGES + chance(places::IMAGE_STRETCHES) * LARGE_PAGE_SIZE + in_image,
            high: HIGH.start..HIGH.end - chance(places::HIGH_STRETCHES) * LARGE_PAGE_SIZE,
        }
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
    fn everything_has_room_wherever_chance_puts_it() {
        for most in [false, true] {
            let layout = Layout::new(|count| if most { count - 1 } else { 0 });
            assert!(layout.image >= IMAGES && layout.image + LARGE_PAGE_SIZE / 2 < LOW_START);
            assert!(layout.low_end <= LOW_END && layout.low_end > LOW_START + 10 * SMALL);
            let stretch = layout.low_end.next_multiple_of(LARGE_PAGE_SIZE);
            assert_eq!((layout.stack_top - 1) / LARGE_PAGE_SIZE, stretch / LARGE_PAGE_SIZE - 1, "stack and small mappings share a table");
            assert!(layout.stack_top < layout.low_end && layout.stack_top.is_multiple_of(PAGE_SIZE));
            assert!(layout.high.end <= HIGH.end && layout.high.end - layout.high.start > 1 << 45);
        }
    }
}
