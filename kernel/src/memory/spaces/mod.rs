// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address spaces and segments of a cell, and the root tables that CPUs run on.
//!
//! - [`set`]: all spaces and segments of a cell
//! - [`space`]: one space, and its root table
//! - [`page_span`]: checked ranges of pages
//! - [`mapping`]: mapping, protecting and populating ranges
//! - [`access`]: faults, reads and writes in the running space
//! - [`copy_between`]: copies between two cells
//! - [`cloning`]: clones of a space, and of all memory
//! - [`disks`]: attached disks
//! - [`detaching`]: memory that leaves its cell for a while
//! - [`taking`]: pages that a parent takes and gives
//! - [`eviction`]: eviction of blocks from a cell's mappings
//! - [`starts`]: traces of starts
//! - [`training`] and [`prefetching`]: recording and copying of expected pages
//! - [`written`]: pages that a cell has written since it was cloned

mod access;
mod cloning;
mod copy_between;
mod detaching;
mod disks;
mod eviction;
mod mapping;
mod page_span;
mod prefetching;
mod set;
mod space;
mod starts;
mod taking;
mod training;
mod written_pages;

pub(crate) use copy_between::{CopyBetweenError, copy_between};
pub use eviction::ClockHand;
pub use page_span::PageSpan;
pub use set::SpaceSet;
pub(in crate::memory) use set::{Segment, can_hold_segment};
pub(in crate::memory) use space::{MountSource, Space};
pub(crate) use taking::{TreeCursor, copy_pages};
pub(crate) use written_pages::WrittenPages;
