// SPDX-License-Identifier: MIT OR Apache-2.0
//! Physical memory: frames of 4 KiB, and huge frames of 512 of them.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// Bytes in a frame.
pub const FRAME_SIZE: usize = 4096;

/// Frames in a huge frame: the size of a large page.
pub const FRAMES_PER_HUGE_FRAME: u32 = 512;

/// Physical address of frame 0. It is above 4 GiB, clear of KVM's own areas below (its TSS pages, the APIC).
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

    /// The frame at a physical address. `None`: below the arena, or above the largest frame number.
    #[must_use]
    pub const fn at(address: u64) -> Option<FrameId> {
        match address.checked_sub(PHYSICAL_BASE) {
            Some(offset) if offset >> 12 <= u32::MAX as u64 => Some(FrameId((offset >> 12) as u32)),
            _ => None,
        }
    }

    /// The huge frame that contains the frame.
    #[must_use]
    pub const fn huge_frame(self) -> HugeFrame {
        HugeFrame(self.0 / FRAMES_PER_HUGE_FRAME)
    }

    /// The frame `count` further on.
    #[must_use]
    pub const fn offset(self, count: u32) -> FrameId {
        FrameId(self.0 + count)
    }
}

/// A huge frame: 512 frames, 2 MiB aligned, which a large page maps and the host can back with a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HugeFrame(pub u32);

impl HugeFrame {
    /// The first frame.
    #[must_use]
    pub const fn first(self) -> FrameId {
        FrameId(self.0 * FRAMES_PER_HUGE_FRAME)
    }

    /// The frames.
    pub fn frames(self) -> impl Iterator<Item = FrameId> {
        (0..FRAMES_PER_HUGE_FRAME).map(move |index| self.first().offset(index))
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

    /// The size of the pages in bytes; saturates.
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
