// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits that a cell can reach, each with its reason. The kernel's own limits are in the kernel.

/// Spaces a cell may have: one for each process.
pub const MAX_SPACES: u32 = 1024;
/// Segments a cell may have: a clone of the cell seals each.
pub const MAX_SEGMENTS: u32 = 64;
/// Mounted trees and segments in all spaces of a cell together: the kernel keeps a few words for each, and a clone of the cell copies them.
pub const MAX_MOUNTS: u32 = 16_384;
/// Disks that may be attached to a cell: more than there are slots for volumes, and cheap to copy for a clone.
pub const MAX_DISKS: u32 = 64;
/// Pages that one `map` with `eager`, one `protect` or one `unmap` may name: a slot's worth.
pub const MAX_PAGES: u64 = 1 << 27;
/// Bytes that one `write` may copy: a page's worth.
pub const MAX_WRITE_BYTES: u64 = 4096;
/// Pages that one `take` or `give` may move: some 100 µs under the kernel's lock.
pub const MAX_SWAP_PAGES: u64 = 128;
/// Calls of one `batch`.
pub const MAX_BATCH_CALLS: u64 = 64;
/// Holdings of a cell: children, templates that it may clone, ports, references, posted calls, and rights to reply.
pub const MAX_HOLDINGS: usize = 4096;
/// Ports and posted calls of a cell together: each takes some hundred bytes of the kernel, besides its holding.
pub const MAX_PORTS_AND_CALLS: usize = 512;
/// The largest CPU weight, as of Linux's control groups.
pub const MAX_CPU_WEIGHT: u64 = 10_000;
/// The CPU weight of a new cell, as of Linux's control groups.
pub const DEFAULT_CPU_WEIGHT: u64 = 100;
/// Levels of nested cells below the operator.
pub const MAX_DEPTH: u8 = 32;
/// Bytes that one `console_read` or `console_write` may copy: a pipe's worth.
pub const MAX_CONSOLE_BYTES: u64 = 1 << 16;
/// Bytes of one message of a port: a pipe's worth, and some microseconds to copy.
pub const MAX_MESSAGE_BYTES: u64 = 1 << 16;
/// Holdings in one message of a port.
pub const MAX_MESSAGE_HOLDINGS: usize = 4;
/// Descriptors in the console's transmit ring: the libOS posts one per `write`, so a burst of small writes costs one exit.
pub const TRANSMIT_DESCRIPTORS: usize = 64;
/// Descriptors in the console's receive ring: one is in use, the others let a reader post ahead.
pub const RECEIVE_DESCRIPTORS: usize = 16;
/// Descriptors in each ring of the channel to the operator: its user waits for answers anyway.
pub const CHANNEL_DESCRIPTORS: usize = 8;
/// Descriptors in each ring of the network card: a descriptor names a batch, so a few carry many frames.
pub const NETWORK_DESCRIPTORS: usize = 8;
/// Bytes that one descriptor may name: bounds what the kernel copies at an exit.
pub const MAX_DESCRIPTOR_BYTES: u32 = 1 << 18;
/// Bytes of a cell's host name, as Linux's `utsname` holds it.
pub const HOST_NAME_BYTES: usize = 64;
/// Bytes of fresh entropy per generation: two ChaCha keys' worth.
pub const ENTROPY_BYTES: usize = 64;
/// Number of different unimplemented system calls that the report counts.
pub const MISSING_CALLS: usize = 32;
