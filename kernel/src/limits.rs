// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's own limits, each with its reason. Limits that a cell can reach are declared in the abi's limits.

use std::time::Duration;

/// Pages that a fault on lazy 4 KiB memory makes present: an aligned group. On nested machines an exit costs as much as zeroing a
/// hundred pages, so one fault makes several.
pub const FAULT_AROUND: u64 = 16;

/// Spans of large pages in which a cell's write faults on shared pages are counted: enough for a loop over several arrays. They take some
/// hundred bytes for each cell.
pub const CLUSTER_SPANS: usize = 16;

/// Flushes that a cell waits for at one exit when its quota, or an ancestor's, is used up. The first uncharges its own retired tables;
/// other cells of its family may have retired more meanwhile.
pub const FLUSH_WAITS: u32 = 4;

/// Children of ended cells that one step of housekeeping ends: about 100 µs under the lock.
pub const ORPHANS_STEP: usize = 8;

/// Blocks that are read together: an aligned 256 KiB. Larger groups save exits, but take as long to copy as the exits.
pub const BLOCK_GROUP: u64 = 64;

/// Tables from which one step of the eviction removes blocks: 32 MiB of them.
pub const EVICTION_TABLES: u64 = 16;

/// The quota of a watched cell, divided by this: so many retired tables are worth a flush before the cell halts for want of memory.
pub const RETIRED_DIVISOR: u64 = 16;

/// Lookups of the pages that a parent takes, in all spaces of the cell: some 100 µs under the lock. Pages that more than 50 spaces share
/// are not taken, because their tables would need more memory.
pub const TAKE_LOOKUPS: u64 = 8192;

/// Lookups in tables that one search for pages to take, or one step of a list of taken ones, makes: some 100 µs under the lock.
pub const TAKE_SEARCH: u64 = 2048;

/// Tables and cells that one step of the eviction examines: about a millisecond under the lock.
pub const EVICTION_STEP: u64 = 1024;

/// Frames that blocks of disks may fill unless the operator sets another limit: 1 GiB.
pub const REGISTRY_FRAMES: u64 = 1 << 18;

/// Tables and large pages that one step of a release frees, each with at most 512 frames: about 100 µs under the lock.
pub const RELEASE_STEP: usize = 64;

/// Pages that one step of an eager mapping makes present, or of a protection changes: one table's entries.
pub const STEP_PAGES: u64 = 512;

/// Pages in a template's training trace: 64 MiB.
pub const TRACE_PAGES: usize = 1 << 14;

/// Pages that a cell may have written for its copies to be expected to write all of them: 8 MiB. Of more, most belong to data at rest.
pub const WRITTEN_PAGES: usize = 1 << 11;

/// Tables and gaps that one step of a search for written pages examines, some 100 µs under the lock.
pub const WRITTEN_STEP: u64 = 256;

/// Steps of a search for written pages. Copies of a cell with more tables are expected to write nothing.
pub const WRITTEN_STEPS: u32 = 64;

/// Trees of a cell in which written pages are searched: each step lists them, some 10 µs. Copies of a cell with more trees are expected to
/// write nothing.
pub const WRITTEN_TREES: usize = 256;

/// Training traces that a template keeps: enough for a majority of them to be meaningful.
pub const TRACES: usize = 9;

/// Blocks in a start trace: 64 MiB, more than large runtimes access.
pub const START_BLOCKS: u64 = 1 << 14;

/// Spans of 2 MiB in a start trace: each costs a table if it is made present before a start.
pub const START_TABLES: usize = 512;

/// CPU time of a start that neither waits nor ends: long compared with what runtimes do before their program, and what is read later is
/// rather the program's data.
pub const START_TRACE_CPU_MAX: Duration = Duration::from_secs(1);

/// Tables and large pages of mappings that are gone, which are released at the end of a start, so that their blocks are recorded: some 400
/// µs under the lock.
pub const START_RELEASE: usize = 4 * RELEASE_STEP;

/// Tables that are examined for accessed blocks at the end of a start: some milliseconds under the lock, once for a start that is learned.
pub const START_SCAN: u64 = 4096;

/// Blocks that are read at once before a start: 1 MiB.
pub const PREFETCH_BLOCKS: u64 = 1 << 8;

/// Minimum number of prefetched pages copied at a write fault on one of them: copying them takes as long as the fault.
pub const PREFETCH_MIN: usize = 32;

/// Prefetched pages copied under one lock, unless one large page contains more: some 100 µs.
pub const PREFETCH_STEP: usize = 256;

/// Pages and other entries that one step of an export lists, some 100 µs under the lock. Their bytes are then copied without it.
pub const EXPORT_STEP: u64 = 2048;

/// The part of [`EXPORT_STEP`] that a tree takes in a list of records: it and its origin are looked up among the mounts of their spaces.
pub const EXPORT_TREE: u64 = 16;

/// Entries of tables that one step of a difference compares, some 100 µs under the lock. The bytes of pages are compared without it.
pub const DIFFERENCE_STEP: u64 = 512;

/// Steps of a difference that one step of a restore applies, each with a page or a few tables: some 100 µs under the lock.
pub const RESTORE_STEP: usize = 64;

/// Bytes of a chunk of the record of a sleeping cell, before it is compressed. A record is written and read chunk by chunk.
pub const RECORD_CHUNK: usize = 512 << 10;

/// Bytes of the process's memory for a record that is written or read: a chunk, its compressed form, and the tables of the compressor.
pub const RECORD_BUFFERS: u64 = 6 * RECORD_CHUNK as u64;

/// Bytes of the process's memory for all records that are written or read: for eight of each. A cell beyond that waits for its turn.
pub const RECORD_BUDGET: u64 = 16 * RECORD_BUFFERS;

/// Pages of a cell that are compared before it falls asleep, and changes of mappings in its record: 256 MiB, and some tenths of a second
/// of the thread that puts cells to sleep. A cell with more stays resident: it would be written and read for too long.
pub const COMPARED_PAGES: u64 = 1 << 16;

/// Pages whose permissions one step of a restore sets: a few tables.
pub const PROTECTED_PAGES: u64 = 1 << 12;

/// Frames beyond its use before that a cell may take when it wakes up: tables that were shared.
pub const WAKE_FRAMES: u64 = 256;

/// The same as its use divided by this: large pages may come back as small ones, with a table for each.
pub const WAKE_DIVISOR: u64 = 256;

/// Shortest time until its alarm for which a cell falls asleep by itself: it costs about a millisecond to sleep and wake up.
pub const SHORTEST_SLEEP: Duration = Duration::from_secs(2);

/// Most doublings of the delay until a cell sleeps, and of the interval between attempts to put it to sleep.
pub const SLEEP_DELAY_DOUBLINGS: u8 = 6;

/// First interval until a cell is looked at again that could not sleep when memory was short. It doubles up to 64 times as much.
pub const REFUSAL_RETRY: Duration = Duration::from_millis(10);

/// Longest attempt to make memory available by putting idle cells to sleep, which may wake up again meanwhile.
pub const MAKE_AVAILABLE_MAX: Duration = Duration::from_secs(5);

/// Interval until a failed attempt to put a cell to sleep is repeated. Its cause, such as unread output, is often over by then.
pub const SLEEP_RETRY: Duration = Duration::from_secs(1);

/// Delay until the memory of a sleeping cell goes back to the host, together with that of others: a flush costs some milliseconds.
pub const RECLAIM_DELAY: Duration = Duration::from_millis(500);

/// For this long after waking, a cell is put to sleep under memory pressure only if no other cell can sleep.
pub const RECENT_WAKE: Duration = Duration::from_millis(100);

/// Longest wait of an operation for memory while no cell is idle. Then a cell is ended.
pub const MEMORY_WAIT_MAX: Duration = Duration::from_secs(1);

/// Interval of the search for an idle cell during that wait.
pub const MEMORY_WAIT_INTERVAL: Duration = Duration::from_millis(1);

/// Threads that wake cells. One that waits for a slow disk holds up no other cell, as long as there are fewer of them.
pub const WAKE_THREADS: usize = 8;

/// Cells of the idle queue that are looked at, to find one that can sleep when memory is short: some 10 µs under the lock.
pub const SWAP_OUT_SCAN: usize = 64;

/// Extents of an image that one step of an import maps, each with a few tables: some 100 µs under the lock.
pub const IMPORT_STEP: usize = 32;

/// Entries of taken pages that one step of the building of a child's memory stores: some 50 µs under the lock.
pub const BUILD_PAGES: u64 = 8192;

/// Tables of pages that one step of a count examines, each with 512 entries: about 100 µs under the lock.
pub const STEP_TABLES: usize = 64;

/// Number of tables, retired or made since the last flush, that triggers a flush of the machine's own tables. A flush costs about 4
/// ms here, so its share is a microsecond per table. Where KVM keeps page tables in software, it keeps 8 KiB for each table that
/// has run. For cells that wait, that is no more than 32 MiB.
pub const TABLES_HIGH: usize = 4096;

/// Shortest interval between flushes that a cell without memory can request: a cell that churns memory waits for its own
/// quarantine.
pub const FLUSH_INTERVAL: Duration = Duration::from_millis(20);

/// A quantum: long compared with an exit on nested machines, short compared with a person's reaction time.
pub const QUANTUM: Duration = Duration::from_millis(10);

/// Quantum of a cell when no other cell is runnable: the vCPU then does its housekeeping.
pub const LONE_QUANTUM: Duration = Duration::from_millis(100);

/// Time on vCPUs after which a start phase ends, whatever the cell does: the start of most programs needs less.
pub const START_PHASE_CPU_MAX: Duration = Duration::from_millis(500);

/// Time after which it ends in any case: several starts share a vCPU, and others may need it as well.
pub const START_PHASE_MAX: Duration = Duration::from_secs(4);

/// The period of CPU limits: ten quanta, so that a limit can be kept to a tenth without more switches than among equal cells.
pub const CPU_LIMIT_PERIOD: Duration = Duration::from_millis(100);

/// How many waking cells may overtake one that used up its quantum: compensation without starvation.
pub const MAX_OVERTAKES: u32 = 8;

/// Consecutive faults on one page that the tables rule out: a vCPU may see an edit late, but not never.
pub const SPURIOUS_FAULTS: u32 = 64;

/// Bytes that a console buffers in each direction before it applies back-pressure.
pub const CONSOLE_BYTES: usize = 1 << 20;

/// Buffers in which a console keeps its output: a cell that alternates between two streams, a byte each, makes a buffer of each
/// byte.
pub const CONSOLE_BUFFERS: usize = 4096;

/// Networks in one kernel: each is small, and no test bed on one machine emulates more sites.
pub const MAX_NETWORKS: usize = 4096;

/// Ports of one network: the 16-bit host numbers, less those of the network itself, the router and broadcast.
pub const MAX_PORTS: u32 = (1 << 16) - 3;

/// Free ports of an isolated network are used again only when there are more: until then connections to their last cells have ended.
pub const PORT_REUSE_QUARANTINE: usize = 4096;

/// Learned Ethernet addresses of hosts behind host ports; those of cells are known.
pub const LEARNED_ADDRESSES: usize = 4096;

/// Bytes queued at one port, including the overhead of each frame: a few TCP windows.
pub const QUEUE_BYTES: usize = 4 << 20;

/// Bytes of free frame buffers that are kept: one full queue, and as much that its reader has taken. Clearing memory that was given
/// back takes as long as a copy.
pub const SPARE_BYTES: usize = 2 * QUEUE_BYTES;

/// Frames queued at one port if they are small.
pub const QUEUE_FRAMES: usize = 8192;

/// Bytes queued for a packet capture, including the overhead of each frame: the backlog of a slow disk at a gigabyte a second.
pub const CAPTURE_BYTES: usize = 64 << 20;

/// Frames that are queued by one pass over a cell's card, or one call of a host port; a broadcast counts once per port. About a
/// millisecond under the lock.
pub const CARD_STEP: usize = 4096;

/// Bytes in transit on one link.
pub const LINK_BYTES: usize = 4 << 20;

/// Options in one neighbour-discovery message: Linux sends two, and the anti-spoofing filter checks each under the kernel lock.
pub const MAX_NEIGHBOUR_OPTIONS: usize = 8;

/// Cells in one kernel: the range of an index in a cell's name; memory is exhausted first.
pub const MAX_CELLS: usize = 1 << 20;

/// Children that a listing of a cell's descendants visits under the lock, ended ones included: some 100 µs.
pub const DESCENDANTS_LISTED: usize = 4096;

/// Calls that one step of a `receive` passes over because their callers have made mistakes.
pub const RECEIVE_TRIES: usize = 16;

/// Calls of ports, given up or never to be answered, of which one step of housekeeping tells the callers: some 10 µs under the lock.
pub const IPC_RELEASE_STEP: usize = 64;

/// Number of alarms below which stale ones are not removed.
pub const ALARM_CLEANUP_MIN: usize = 64;

/// Frames that must be free before the gatekeeper admits a cell: its first paths of tables and its first writes.
pub const ADMISSION_FRAMES: u64 = 64;

/// The smallest quota of a cell: a root, a path of tables for its system segment, one for its program, and some pages.
pub const MIN_QUOTA: u64 = 256;

/// Free huge frames that keep the host's memory behind them, for the next cells; an idle kernel gives the rest back.
pub const RESERVED_HUGE_FRAMES: usize = 32;

/// Huge frames that are given back at once, tens of microseconds each, before a vCPU checks again for runnable cells.
pub const DECOMMIT_STEP: usize = 8;

/// How long all vCPUs must have been idle before the kernel trims its memory: much longer than a program waits for a disk, a neighbour
/// or another process.
pub const IDLE_BEFORE_TRIM: Duration = Duration::from_millis(500);

/// Shortest time from one trim to the next. After a trim, a cell faults its blocks in again, some milliseconds. So a cell that wakes
/// up every second loses less than a thousandth of its time.
pub const TRIM_INTERVAL: Duration = Duration::from_secs(10);

/// Free frames of a partly used huge frame that are worth the loss of the host's huge page: an eighth.
pub const TRIM_FREE_FRAMES: u16 = 64;

/// Blocks that are freed under one lock: some 100 µs.
pub const RECLAIM_BLOCKS: u64 = 1024;

/// Pages of the program's file that are compared with their copies, and mapped, under one lock: some 100 µs.
pub const FILE_PAGE_STEP: usize = 512;
