// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own limits, each with its reason. What a cell can meet stands in the abi's limits.

use std::time::Duration;

/// Pages that a fault on lazy 4 KiB memory makes at once: an exit costs as much as zeroing a hundred pages on nested machines, so one makes a few, aligned.
pub const FAULT_AROUND: u64 = 16;

/// Blocks that are read, and mapped, together: an aligned 256 KiB. Bounds what a fault does under the lock to some microseconds, and makes one exit of many.
pub const BLOCK_GROUP: u64 = 64;

/// Tables out of which one piece of a sweep takes blocks: 32 MiB of them.
pub const SWEEP_TABLES: u64 = 16;

/// Tables and cells that one piece of a sweep looks at: about a millisecond under the lock.
pub const SWEEP_PIECE: u64 = 1024;

/// Frames that blocks of disks may fill unless the operator says otherwise: 1 GiB.
pub const REGISTRY_FRAMES: u64 = 1 << 18;

/// Tables and large pages that one piece of a release lets go of, each with at most 512 frames: about 100 µs under the lock.
pub const RELEASE_PIECE: usize = 64;

/// Pages that one piece of an eager mapping makes, or of a protection changes: what one table holds.
pub const PIECE_PAGES: u64 = 512;

/// Pages of which a template remembers that its clones touch them: 64 MiB.
pub const LESSON_PAGES: usize = 1 << 14;

/// Clones that a template remembers to have learned from: enough for most of them to mean something.
pub const LESSONS: usize = 9;

/// How many of those that are written are copied at a fault on one of them, at least: as many as take as long as the fault.
pub const FORESEEN_LEAST: usize = 32;

/// How many are copied under one lock, unless more lie in one large page: some 100 µs.
pub const FORESEEN_PIECE: usize = 256;

/// Pages and other entries that one piece of a listing of a cell's memory meets, and the bytes of which are then copied without the lock: some 100 µs under it.
pub const LISTING_PIECE: u64 = 2048;

/// Extents of an image that one piece of furnishing a cell's memory puts in place, each with a few tables: some 100 µs under the lock.
pub const FURNISHING_PIECE: usize = 32;

/// Tables of pages that one piece of a count looks at, each with 512 entries: about 100 µs under the lock.
pub const PIECE_TABLES: usize = 64;

/// Tables that call for a flush of the machine's own tables, retired ones or such as were made since the last: a flush costs about 4 ms here, so its share is a microsecond per table. KVM keeps 8 KiB for each that has run where it keeps
/// page tables in software, and so no more than 32 MiB for cells that wait.
pub const TABLES_HIGH: usize = 4096;

/// The shortest time from one flush to the next that a cell without memory can ask for: a cell that churns waits for its own quarantine.
pub const FLUSH_INTERVAL: Duration = Duration::from_millis(20);

/// A quantum: long against an exit on nested machines, short against a person's patience.
pub const QUANTUM: Duration = Duration::from_millis(10);

/// How long a vCPU lets a cell run when nobody else waits: it looks at its other duties then.
pub const LONE_QUANTUM: Duration = Duration::from_millis(100);

/// The time in which a cell with a share of the CPU gets its part once: ten quanta, so that a share can be kept to a tenth without more switching than among equals.
pub const SHARE_PERIOD: Duration = Duration::from_millis(100);

/// How many cells that come back from idling may overtake one that used up its quantum: compensation without starvation.
pub const OVERTAKING: u32 = 8;

/// Faults in a row, on one page, that the tables say cannot happen: a vCPU may be late, but not for ever.
pub const SPURIOUS_FAULTS: u32 = 64;

/// Bytes that a console keeps for its host, and for its cell, before it holds back the other side.
pub const CONSOLE_BYTES: usize = 1 << 20;

/// Pieces in which a console keeps them: a cell that says a byte on one stream and a byte on the other makes a piece of each.
pub const CONSOLE_PIECES: usize = 4096;

/// Networks in one kernel: each is small, and nobody emulates more sites on one machine.
pub const MAX_NETWORKS: usize = 4096;

/// Ports of one network: what the 16 bits of an address in it can count, less the network's own, the router's and that of everybody.
pub const MAX_PORTS: u32 = (1 << 16) - 3;

/// Ethernet addresses that a switch remembers of the hosts behind its stations; the addresses of cells it knows.
pub const LEARNED_ADDRESSES: usize = 4096;

/// Bytes that wait at one port, each frame with a part for itself: a few windows of TCP.
pub const QUEUE_BYTES: usize = 4 << 20;

/// Bytes of memory for frames that is kept while no frame is in it: what waits at a full port, and as much that its reader has taken. To clear memory that was given back takes as long as a copy.
pub const SPARE_BYTES: usize = 2 * QUEUE_BYTES;

/// Frames that wait at one port if they are small.
pub const QUEUE_FRAMES: usize = 8192;

/// Bytes that wait for somebody who listens to a network, each frame with a part for itself: what a disk may fall behind by, at a gigabyte a second.
pub const LISTENER_BYTES: usize = 64 << 20;

/// Frames that one look at a cell's card, or a station at once, puts into queues, a frame for everybody as many as there are ports: about a millisecond under the lock.
pub const CARD_PIECE: usize = 4096;

/// Bytes that are on their way on one link.
pub const LINK_BYTES: usize = 4 << 20;

/// Options in one message of neighbour discovery: Linux sends two, and a guard looks at each under the kernel lock.
pub const MAX_NEIGHBOUR_OPTIONS: usize = 8;

/// Cells in one kernel: what an index of a cell's name can count; memory ends first.
pub const MAX_CELLS: usize = 1 << 20;

/// Alarms that are too few to be worth clearing of those that nobody waits for any more.
pub const FEW_ALARMS: usize = 64;

/// Frames that must be free before the gatekeeper lets a cell in: its first paths of tables and what it writes at once.
pub const ADMISSION_FRAMES: u64 = 64;

/// The smallest quota of a cell: a root, a path of tables for its system segment, one for its program, and some pages.
pub const MIN_QUOTA: u64 = 256;

/// Stretches of 2 MiB that are free and keep the host's memory behind them, for who comes next; a kernel that has nothing to do gives the rest back.
pub const WARM_STRETCHES: usize = 32;

/// Stretches that are given back in one go, tens of microseconds each, before a vCPU looks again whether somebody wants to run.
pub const GIVE_BACK_PIECE: usize = 8;
