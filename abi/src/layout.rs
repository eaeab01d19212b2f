// SPDX-License-Identifier: MIT OR Apache-2.0
//! The addresses that kernel and cells agree on, each with its reason.
//!
//! A cell owns the lower canonical half. It is divided into 256 *slots* of 512 GiB, the range of one entry of a root
//! table; a tree spans one slot. The *system segment* is mounted at the same slot of every space of a cell and holds the
//! shared data of kernel and libOS. Its first 2 MiB, one page table, hold everything that an idle cell writes, as long
//! as the libOS's data fits there. So an idle clone has one private path of tables (design: layout decides density).
//!
//! ```text
//! SYSTEM + 0x00_0000  virtual registers      1 page
//!        + 0x00_1000  rings                  1 page: the console's, the network card's, the control channel's
//!        + 0x00_2000  CPUID table            2 pages, read-only
//!        + 0x00_4000  volumes                12 pages, of which most roots use the first
//!        + 0x01_0000  libOS: data, stack, first heap
//!        + 0x1f_0000  arguments              512 KiB, of which most programs use the first page
//!        + 0x40_0000  libOS: code
//!        + 0xa0_0000  free for the libOS
//! ```

use crate::{PAGE_SIZE, SpaceIndex};

/// Bytes that one slot spans.
pub const SLOT_SIZE: u64 = 1 << 39;
/// Number of slots that a cell owns: the lower canonical half.
pub const SLOTS: usize = 256;
/// The start of the mappable range. Linux's programs have nothing below either (`mmap_min_addr`), and one address
/// there must stay unmapped: the one that some machines enter at `syscall` from 32-bit code.
pub const USER_START: u64 = 0x1_0000;
/// The end of the mappable range. The last page below the non-canonical hole stays unmapped: a `syscall` there would
/// return to a non-canonical address.
pub const USER_END: u64 = (1 << 47) - PAGE_SIZE;

/// The slot of the system segment: high, out of the way of Linux programs, whose stacks the libOS places below it.
pub const SYSTEM_SLOT: usize = 254;
/// Start of the system segment.
pub const SYSTEM: u64 = SYSTEM_SLOT as u64 * SLOT_SIZE;
/// The virtual registers.
pub const VIRTUAL_REGISTERS: u64 = SYSTEM;
/// The page of rings, which starts with the console's.
pub const CONSOLE_RINGS: u64 = SYSTEM + 0x1000;
/// The network card's rings.
pub const NETWORK_RINGS: u64 = CONSOLE_RINGS + core::mem::offset_of!(crate::ring::Rings, network) as u64;
/// The rings of the control channel.
pub const CONTROL_RINGS: u64 = CONSOLE_RINGS + core::mem::offset_of!(crate::ring::Rings, control) as u64;
/// The CPUID table, for machines that make `cpuid` fault.
pub const CPUID_TABLE: u64 = SYSTEM + 0x2000;
/// Pages of the CPUID table.
pub const CPUID_TABLE_PAGES: u64 = 2;
/// The table of volumes (see [`crate::boot_info`] for the format). It belongs to the root that programs are cloned from.
pub const VOLUMES: u64 = SYSTEM + 0x4000;
/// Bytes of the table of volumes.
pub const VOLUMES_SIZE: u64 = LIBOS - VOLUMES;
/// Start of the data of the libOS's image, with its stack and first heap.
pub const LIBOS: u64 = SYSTEM + 0x1_0000;
/// End of the space for them.
pub const LIBOS_END: u64 = ARGUMENTS;
/// Arguments and environment from the operator (see [`crate::boot_info`] for the format).
pub const ARGUMENTS: u64 = SYSTEM + 0x1f_0000;
/// Bytes of the argument block.
pub const ARGUMENTS_SIZE: u64 = 0x8_0000;
/// Start of the libOS's code: no cell writes it, so all share its page tables.
pub const LIBOS_CODE: u64 = SYSTEM + 0x40_0000;
/// End of the space for the code; the libOS may use everything from here on.
pub const SYSTEM_FREE: u64 = SYSTEM + 0xa0_0000;
/// The space in which every cell starts.
pub const FIRST_SPACE: SpaceIndex = SpaceIndex(0);
/// A space that the libOS makes before it freezes and never runs in. It holds the mappings that all spaces share; `execve` clones it.
pub const EMPTY_SPACE: SpaceIndex = SpaceIndex(1);
/// Slots of volumes: read-only images of files, each in a slot of its own, below the system segment.
pub const VOLUME_SLOTS: usize = 14;
/// The end of the address space of programs; volumes lie above it.
pub const PROGRAM_END: u64 = (SYSTEM_SLOT - VOLUME_SLOTS) as u64 * SLOT_SIZE;
/// Memory that the processes of a cell share: the last slot of programs. The libOS mounts a segment there in all spaces.
pub const SHARED: u64 = PROGRAM_END - SLOT_SIZE;
/// The end of it.
pub const SHARED_END: u64 = PROGRAM_END;
/// Address of the first volume: the root image.
pub const ROOT_IMAGE: u64 = volume(0);

/// Address of volume `index`, below [`VOLUME_SLOTS`].
#[must_use]
pub const fn volume(index: usize) -> u64 {
    PROGRAM_END + index as u64 * SLOT_SIZE
}
