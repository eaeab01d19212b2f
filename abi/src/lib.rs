// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Pando virtual architecture: everything that kernel and cells agree on, declared once.
//!
//! A cell sees unprivileged x86-64, one page of [virtual registers](virtual_registers), a few [hypercalls](hypercall) and
//! [rings](ring) of descriptors; nothing else. This crate has no code that runs on either side beyond encoding and decoding:
//! no dependencies, no allocation, no `unsafe`. The manual's reference part is printed from these declarations ([`manual`]).
//!
//! The kernel trusts none of the values that a cell writes: it copies, checks, then uses them.
#![no_std]
#![forbid(unsafe_code)]

pub mod boot_info;
pub mod cell_image;
pub mod cells_device;
pub mod channel;
pub mod control;
pub mod cpuid;
mod descendant;
pub mod error;
pub mod event;
pub mod frame;
pub mod holding;
pub mod holding_record;
pub mod hypercall;
pub mod layout;
pub mod limits;
pub mod manual;
pub mod memory;
pub mod message;
pub mod registers;
pub mod ring;
pub mod thread_table;
pub mod virtual_registers;
pub mod watch;

pub use descendant::DescendantRecord;
pub use error::Refusal;
pub use event::{Event, EventSet};
pub use holding::HoldingName;
pub use hypercall::Hypercall;
pub use memory::{BlockAddress, BlockNumber, DiskIndex, MapFlags, Permissions, SegmentIndex, SpaceIndex};
pub use message::MessageRecord;
pub use registers::{Registers, SavedContext};

/// Version of this interface; it increases with every change that a cell could notice.
pub const VERSION: u32 = 2;

/// Bytes in a page of a cell's memory.
pub const PAGE_SIZE: u64 = 4096;

/// Bytes that one large page spans.
pub const LARGE_PAGE_SIZE: u64 = 2 << 20;
