// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every address that kernel and cells agree on, each with its reason.
//!
//! A cell owns the lower canonical half. It is divided into 256 *slots* of 512 GiB, the reach of one entry of a root table; a tree spans one slot.
//! The *system segment* is mounted at the same slot of every space of a cell and holds what the kernel and the libOS keep there. Its first
//! 2 MiB, one page table, hold all that an idle cell writes, as long as the libOS's text leaves room for its data there: so an idle clone has one private path of tables (design: layout decides density).
//!
//! ```text
//! SYSTEM + 0x00_0000  virtual registers      1 page
//!        + 0x00_1000  rings                  1 page: the console's, the network card's, the control channel's
//!        + 0x00_2000  CPUID table            2 pages, read-only
//!        + 0x01_0000  libOS: data, stack, first heap
//!        + 0x1f_0000  arguments              512 KiB, of which most programs use the first page
//!        + 0x40_0000  libOS: code
//!        + 0xa0_0000  free for the libOS
//! ```

use crate::{PAGE_SIZE, SpaceIndex};

/// Bytes that one slot spans.
pub const SLOT_SIZE: u64 = 1 << 39;
/// How many slots a cell owns: the lower canonical half.
pub const SLOTS: usize = 256;
/// The start of what a cell can map. Linux's programs have nothing below either (`mmap_min_addr`), and one address there must stay empty: the one that some
/// machines go to at `syscall` from 32-bit code.
pub const USER_START: u64 = 0x1_0000;
/// The end of what a cell can map. The last page below the non-canonical hole stays empty: a `syscall` there would return to a non-canonical address.
pub const USER_END: u64 = (1 << 47) - PAGE_SIZE;

/// The slot of the system segment: high, out of the way of Linux programs, whose stacks the libOS places below it.
pub const SYSTEM_SLOT: usize = 254;
/// Start of the system segment.
pub const SYSTEM: u64 = SYSTEM_SLOT as u64 * SLOT_SIZE;
/// The virtual registers.
pub const VIRTUAL_REGISTERS: u64 = SYSTEM;
/// The page of rings, which the console's come first in.
pub const CONSOLE_RINGS: u64 = SYSTEM + 0x1000;
/// The network card's rings.
pub const NETWORK_RINGS: u64 = CONSOLE_RINGS + core::mem::offset_of!(crate::ring::Rings, network) as u64;
/// The rings of the control channel.
pub const CONTROL_RINGS: u64 = CONSOLE_RINGS + core::mem::offset_of!(crate::ring::Rings, control) as u64;
/// What `cpuid` would answer, where the machine lets it fault.
pub const CPUID_TABLE: u64 = SYSTEM + 0x2000;
/// Pages of the CPUID table.
pub const CPUID_TABLE_PAGES: u64 = 2;
/// Where the data of the libOS's image lies, with its stack and first heap.
pub const LIBOS: u64 = SYSTEM + 0x1_0000;
/// The end of the room for them.
pub const LIBOS_END: u64 = ARGUMENTS;
/// Arguments and environment, as the operator gave them (see [`crate::note`] for the form).
pub const ARGUMENTS: u64 = SYSTEM + 0x1f_0000;
/// Bytes of the argument block.
pub const ARGUMENTS_SIZE: u64 = 0x8_0000;
/// Where the libOS's code is linked: no cell writes it, so all share its page tables.
pub const LIBOS_CODE: u64 = SYSTEM + 0x40_0000;
/// The end of the room for the code; from here on the libOS maps what it wants.
pub const SYSTEM_FREE: u64 = SYSTEM + 0xa0_0000;
/// The space that every cell is born in.
pub const FIRST_SPACE: SpaceIndex = SpaceIndex(0);
/// A space that the libOS makes before it freezes and never runs in: it holds what all spaces share, and a program that is executed gets a clone of it.
pub const EMPTY_SPACE: SpaceIndex = SpaceIndex(1);
/// Slots of volumes: read-only images of files, each in a slot of its own, below the system segment.
pub const VOLUME_SLOTS: usize = 14;
/// The end of what the libOS gives to programs; volumes lie above it.
pub const PROGRAM_END: u64 = (SYSTEM_SLOT - VOLUME_SLOTS) as u64 * SLOT_SIZE;
/// Where processes of a cell share memory: the last slot of what programs are given. The libOS mounts a segment there in all spaces.
pub const SHARED: u64 = PROGRAM_END - SLOT_SIZE;
/// The end of it.
pub const SHARED_END: u64 = PROGRAM_END;
/// Where the first volume lies: the root image.
pub const ROOT_IMAGE: u64 = volume(0);

/// Where volume `index`, below [`VOLUME_SLOTS`], lies.
#[must_use]
pub const fn volume(index: usize) -> u64 {
    PROGRAM_END + index as u64 * SLOT_SIZE
}
