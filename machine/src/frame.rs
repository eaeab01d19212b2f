// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of physical memory: frames of 4 KiB, and stretches of 512 of them.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// Bytes in a frame.
pub const FRAME_SIZE: usize = 4096;

/// Frames in a stretch: what one large page covers.
pub const FRAMES_PER_STRETCH: u32 = 512;

/// Physical address of frame 0. Above 4 GiB, clear of everything that KVM keeps below it (its TSS pages, the APIC).
pub const PHYSICAL_BASE: u64 = 4 << 30;

/// A 4 KiB frame of the arena, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);

impl FrameId {
    /// The frame's physical address.
    #[must_use]
    pub const fn address(self) -> u64 {
        PHYSICAL_BASE + ((self.0 as u64) << 12)
    }

    /// The frame at a physical address. `None`: below the arena, or beyond what a number can name.
    #[must_use]
    pub const fn at(address: u64) -> Option<FrameId> {
        match address.checked_sub(PHYSICAL_BASE) {
            Some(offset) if offset >> 12 <= u32::MAX as u64 => Some(FrameId((offset >> 12) as u32)),
            _ => None,
        }
    }

    /// The stretch that the frame lies in.
    #[must_use]
    pub const fn stretch(self) -> Stretch {
        Stretch(self.0 / FRAMES_PER_STRETCH)
    }

    /// The frame `count` further on.
    #[must_use]
    pub const fn offset(self, count: u32) -> FrameId {
        FrameId(self.0 + count)
    }
}

/// 512 frames, 2 MiB aligned: what a large page maps and what the host backs with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stretch(pub u32);

impl Stretch {
    /// The first frame.
    #[must_use]
    pub const fn first(self) -> FrameId {
        FrameId(self.0 * FRAMES_PER_STRETCH)
    }

    /// The frames.
    pub fn frames(self) -> impl Iterator<Item = FrameId> {
        (0..FRAMES_PER_STRETCH).map(move |index| self.first().offset(index))
    }
}

/// A number of 4 KiB pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageCount(pub u64);

impl PageCount {
    /// The pages that `bytes` need.
    #[must_use]
    pub const fn covering(bytes: u64) -> PageCount {
        PageCount(bytes.div_ceil(FRAME_SIZE as u64))
    }

    /// How many bytes the pages have; saturates.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0.saturating_mul(FRAME_SIZE as u64)
    }
}

impl Add for PageCount {
    type Output = PageCount;
    fn add(self, other: PageCount) -> PageCount {
        PageCount(self.0 + other.0)
    }
}

impl Sub for PageCount {
    type Output = PageCount;
    fn sub(self, other: PageCount) -> PageCount {
        PageCount(self.0 - other.0)
    }
}

impl AddAssign for PageCount {
    fn add_assign(&mut self, other: PageCount) {
        *self = *self + other;
    }
}

impl SubAssign for PageCount {
    fn sub_assign(&mut self, other: PageCount) {
        *self = *self - other;
    }
}

impl fmt::Display for PageCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes();
        match bytes {
            0..0x10_0000 => write!(f, "{} KiB", bytes >> 10),
            0x10_0000..0x4000_0000 => write!(f, "{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
            _ => write!(f, "{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
        }
    }
}
