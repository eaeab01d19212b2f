// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arena: physical memory, as one range of private anonymous host memory.
//!
//! Frames can be replaced by private mappings of the program's own file ([`Arena::map_bytes`]), which behave like copies of it.
//!
//! Cells write to the arena while they run, so no function here returns references. Bytes are copied in and out, and
//! table entries are single atomic words (the CPU sets accessed and dirty bits in them; rule 7 of the page-table
//! discipline). A copy of a running cell's memory may hold anything; callers copy first, then check.

use crate::error::HostError;
use crate::executable::ExecutableBytes;
use crate::frame::{FRAME_SIZE, FRAMES_PER_HUGE_FRAME, FrameId, HugeFrame, PageCount};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use vmm_sys_util::errno::Error;

/// Entries in a table.
const ENTRIES: usize = FRAME_SIZE / 8;

/// Physical memory.
pub struct Arena {
    base: NonNull<u8>,
    frames: u32,
    /// Frames that are mappings of a file: given back, they would read as the file.
    of_files: Mutex<Vec<Range<u32>>>,
}

/// Advices that keep the arena from children and core dumps.
const PROTECTION: [i32; 2] = [libc::MADV_DONTFORK, libc::MADV_DONTDUMP];

// SAFETY: the arena is plain memory that stays mapped for the value's life; all access goes through raw copies and
// atomics, never references.
unsafe impl Send for Arena {}
// SAFETY: as above; concurrent copies may tear, which callers are told to expect, and cannot invalidate Rust data,
// since none lies in the arena.
unsafe impl Sync for Arena {}

/// Index of an entry in a table: 0 to 511.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryIndex(u16);

impl EntryIndex {
    /// The entry that `address` selects in a table of `level` (1: the table whose entries are 4 KiB pages; 4: a root).
    #[must_use]
    pub const fn of(address: u64, level: u8) -> EntryIndex {
        EntryIndex((address >> (3 + 9 * level as u32) & 511) as u16)
    }

    /// Entry number `index`, modulo the size of a table.
    #[must_use]
    pub const fn new(index: usize) -> EntryIndex {
        EntryIndex((index & 511) as u16)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

impl Arena {
    /// Reserves an arena of at least `size`, rounded up to whole huge frames. The host allocates memory on first
    /// access; it reads zero until then.
    ///
    /// # Errors
    /// The host has no room for the mapping.
    pub fn new(size: PageCount) -> Result<Arena, HostError> {
        let huge_frames = size.0.div_ceil(u64::from(FRAMES_PER_HUGE_FRAME));
        let frames = u32::try_from(huge_frames * u64::from(FRAMES_PER_HUGE_FRAME)).map_err(|_| HostError::ArenaTooLarge(size))?;
        let bytes = frames as usize * FRAME_SIZE;
        let slack = FRAMES_PER_HUGE_FRAME as usize * FRAME_SIZE;
        // SAFETY: a fresh anonymous mapping; no existing memory is affected.
        let map = || unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes + slack,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let mapped = HostError::kvm("reserve the arena", || Some(map()).filter(|at| *at != libc::MAP_FAILED).ok_or_else(Error::last))?;
        let start = (mapped as usize).next_multiple_of(slack);
        let before = start - mapped as usize;
        // SAFETY: both ranges lie in the mapping just made and outside the part that is kept.
        unsafe {
            if before != 0 {
                libc::munmap(mapped, before);
            }
            libc::munmap((start + bytes) as *mut libc::c_void, slack - before);
        }
        let base = NonNull::new(start as *mut u8).expect("a mapping is not at address 0");
        let arena = Arena { base, frames, of_files: Mutex::default() };
        for advice in PROTECTION {
            // SAFETY: the range is the arena's own; neither advice changes its content in this process.
            HostError::os("protect the arena", || unsafe { libc::madvise(base.as_ptr().cast(), bytes, advice) })?;
        }
        arena.advise(FrameId(0), frames, libc::MADV_HUGEPAGE);
        // The machine uses a dozen frames of it.
        if frames > 0 {
            arena.use_small_pages(HugeFrame(0));
        }
        Ok(arena)
    }

    /// The number of frames.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// The number of huge frames.
    #[must_use]
    pub fn huge_frames(&self) -> u32 {
        self.frames / FRAMES_PER_HUGE_FRAME
    }

    /// The arena's address in the host process, for the backend that maps it into the VM.
    pub(crate) fn host_address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Pointer to `length` bytes at `offset` of `frame`.
    ///
    /// # Panics
    /// They are not all in `count` frames of the arena from `frame` on: a bug of the caller.
    fn pointer(&self, frame: FrameId, offset: usize, length: usize, count: u32) -> *mut u8 {
        assert!(u64::from(frame.0) + u64::from(count) <= u64::from(self.frames), "frame {} is outside the arena", frame.0);
        assert!(offset <= count as usize * FRAME_SIZE && length <= count as usize * FRAME_SIZE - offset, "bytes outside a frame");
        // SAFETY: in bounds of the mapping by the assertions.
        unsafe { self.base.as_ptr().add(frame.0 as usize * FRAME_SIZE + offset) }
    }

    /// Copies bytes out of a frame.
    ///
    /// # Panics
    /// The bytes are not all in the frame.
    pub fn read(&self, frame: FrameId, offset: usize, bytes: &mut [u8]) {
        let from = self.pointer(frame, offset, bytes.len(), 1);
        // SAFETY: `from` has that many bytes (checked), `bytes` is ours alone and does not overlap the arena.
        unsafe { copy(from, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Copies bytes into a frame.
    ///
    /// # Panics
    /// The bytes are not all in the frame.
    pub fn write(&self, frame: FrameId, offset: usize, bytes: &[u8]) {
        let to = self.pointer(frame, offset, bytes.len(), 1);
        // SAFETY: `to` has that many bytes (checked) and no Rust object lies there.
        unsafe { copy(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Reads an entry of a table, or any aligned word of a frame.
    #[must_use]
    pub fn load(&self, table: FrameId, index: EntryIndex) -> u64 {
        self.word(table, index).load(Ordering::Relaxed)
    }

    /// Writes an entry of a table, or any aligned word of a frame, in one store.
    pub fn store(&self, table: FrameId, index: EntryIndex, value: u64) {
        // Release: a CPU that follows the entry sees the earlier writes to the table or page that it names.
        self.word(table, index).store(value, Ordering::Release);
    }

    /// Reads all entries of a table at once. An entry that changes meanwhile may be torn.
    #[must_use]
    pub fn load_table(&self, table: FrameId) -> [u64; ENTRIES] {
        let mut entries = [0; ENTRIES];
        let from = self.pointer(table, 0, FRAME_SIZE, 1);
        // SAFETY: `from` has a frame's bytes (checked), which is what `entries` has, and `entries` is ours alone.
        unsafe { std::ptr::copy_nonoverlapping(from.cast(), entries.as_mut_ptr(), ENTRIES) };
        entries
    }

    /// Writes all entries of a table that no CPU uses yet.
    pub fn store_table(&self, table: FrameId, entries: &[u64; ENTRIES]) {
        let to = self.pointer(table, 0, FRAME_SIZE, 1);
        // SAFETY: `to` has a frame's bytes (checked), which is what `entries` has, and no Rust object lies there.
        unsafe { std::ptr::copy_nonoverlapping(entries.as_ptr(), to.cast(), ENTRIES) };
    }

    fn word(&self, table: FrameId, index: EntryIndex) -> &AtomicU64 {
        let pointer = self.pointer(table, index.get() * 8, 8, 1);
        // SAFETY: aligned to 8 (frames are), in bounds (checked), mapped as long as `self`; cells and other threads
        // access it, as an atomic allows.
        unsafe { AtomicU64::from_ptr(pointer.cast()) }
    }

    /// Fills `count` frames with zero bytes.
    ///
    /// # Panics
    /// They are not all in the arena.
    pub fn zero(&self, first: FrameId, count: u32) {
        let length = count as usize * FRAME_SIZE;
        let to = self.pointer(first, 0, length, count);
        // SAFETY: `to` has that many bytes (checked) and no Rust object lies there.
        unsafe { std::ptr::write_bytes(to, 0, length) }
    }

    /// Copies one frame over another.
    ///
    /// # Panics
    /// One is not in the arena.
    pub fn copy(&self, from: FrameId, to: FrameId) {
        let source = self.pointer(from, 0, FRAME_SIZE, 1);
        let target = self.pointer(to, 0, FRAME_SIZE, 1);
        // SAFETY: both have a frame's bytes (checked); `copy` allows them to be the same.
        unsafe { std::ptr::copy(source, target, FRAME_SIZE) }
    }

    /// Copies `length` bytes between two frames, or within one. If the ranges overlap, the result is unspecified.
    ///
    /// # Panics
    /// The bytes are not all in their frames.
    pub fn copy_part(&self, from: (FrameId, usize), to: (FrameId, usize), length: usize) {
        let source = self.pointer(from.0, from.1, length, 1);
        let target = self.pointer(to.0, to.1, length, 1);
        // SAFETY: both have that many bytes (checked) and no Rust object lies there.
        unsafe { copy(source, target, length) }
    }

    /// Returns the memory of frames to the host; they read zero from now on. Every translation of them is dropped.
    ///
    /// # Panics
    /// They are not all in the arena.
    pub fn give_back(&self, first: FrameId, count: u32) {
        if self.has_file_pages(first, count) || !self.advise(first, count, libc::MADV_DONTNEED) {
            self.zero(first, count);
        }
    }

    /// Whether any of these frames was replaced by a page of the program's file.
    #[must_use]
    pub fn has_file_pages(&self, first: FrameId, count: u32) -> bool {
        let of_files = self.of_files.lock().unwrap_or_else(PoisonError::into_inner);
        of_files.iter().any(|range| range.start < first.0 + count && first.0 < range.end)
    }

    /// Replaces frames by whole pages of the program's file: until a page is written, the host has it only once, in its page cache.
    /// `false`: the host refused, and nothing has changed. If the frames contain the same bytes already, a CPU notices nothing.
    ///
    /// # Panics
    /// The frames are not all in the arena, or the bytes have no such pages.
    pub fn map_bytes(&self, first: FrameId, bytes: &ExecutableBytes, pages: Range<u32>) -> bool {
        let count = pages.end - pages.start;
        let length = count as usize * FRAME_SIZE;
        assert!(pages.end as usize * FRAME_SIZE <= bytes.bytes().len(), "pages beyond the end of the bytes");
        let at = self.pointer(first, 0, length, count).cast();
        let (file, offset) = bytes.file();
        let offset = offset + u64::from(pages.start) * FRAME_SIZE as u64;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE);
        // SAFETY: the range is the arena's own, and no Rust object lies there. It stays mapped, as all of the arena must, and readable and
        // writable: the file is the program that runs, which the host keeps from being truncated.
        let mapped = unsafe { libc::mmap(at, length, protection, flags, file.as_raw_fd(), offset as libc::off_t) };
        if mapped == libc::MAP_FAILED {
            return false;
        }
        for advice in PROTECTION {
            // The bytes are no secret, so a refusal, which the arena's own mapping had not, would matter little.
            self.advise(first, count, advice);
        }
        self.of_files.lock().unwrap_or_else(PoisonError::into_inner).push(first.0..first.0 + count);
        true
    }

    /// Lets the host back a huge frame with small pages only, so that it does not fill parts of it that were given back.
    ///
    /// # Panics
    /// The huge frame is not in the arena.
    pub fn use_small_pages(&self, huge_frame: HugeFrame) {
        self.advise(huge_frame.first(), FRAMES_PER_HUGE_FRAME, libc::MADV_NOHUGEPAGE);
    }

    /// Lets the host back a huge frame with a huge page again, as it does at first.
    ///
    /// # Panics
    /// The huge frame is not in the arena.
    pub fn use_huge_pages(&self, huge_frame: HugeFrame) {
        self.advise(huge_frame.first(), FRAMES_PER_HUGE_FRAME, libc::MADV_HUGEPAGE);
    }

    /// Advises the host about frames. `false`: it refused, as hosts without huge pages do.
    fn advise(&self, first: FrameId, count: u32, advice: i32) -> bool {
        let length = count as usize * FRAME_SIZE;
        let start = self.pointer(first, 0, length, count);
        // SAFETY: the range is the arena's own, and no Rust object lies there. The callers' advices change at most its content, to zero
        // bytes.
        unsafe { libc::madvise(start.cast(), length, advice) == 0 }
    }
}

/// Copies in pieces of 1 KiB. The C library uses a string instruction for long copies. On some CPUs (AMD's Zen 3) that
/// takes 360 ns per KiB instead of 13 if the target lies, within its page, less than 32 bytes behind the source.
/// Network frames with their headers and memory of allocators lie like that.
///
/// # Safety
/// Both ranges have `length` bytes; they may overlap.
unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    const PIECE: usize = 1024;
    for start in (0..length).step_by(PIECE) {
        // SAFETY: the piece lies in both ranges.
        unsafe { std::ptr::copy(from.add(start), to.add(start), PIECE.min(length - start)) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is the arena's own; backends drop their VM, which maps it too, before the arena.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.frames as usize * FRAME_SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::{Arena, EntryIndex};
    use crate::{ExecutableBytes, FRAME_SIZE, FRAMES_PER_HUGE_FRAME, FrameId, HugeFrame, PageCount};

    #[repr(align(4096))]
    struct Pages([u8; 3 * FRAME_SIZE]);
    static PAGES: Pages = Pages([7; 3 * FRAME_SIZE]);

    #[test]
    fn frames_of_the_programs_file_behave_like_copies() {
        let arena = Arena::new(PageCount(1)).expect("a small mapping");
        let bytes = ExecutableBytes::find(&PAGES.0).expect("the test's own file");
        let first = FrameId(3);
        assert!(arena.map_bytes(first, &bytes, 1..3));
        let word = |frame| arena.load(frame, EntryIndex::new(511));
        let seven = u64::from_le_bytes([7; 8]);
        assert_eq!([2, 3, 4, 5].map(|frame| word(FrameId(frame))), [0, seven, seven, 0]);
        arena.store(first, EntryIndex::new(511), 1);
        assert_eq!((word(first), PAGES.0[2 * FRAME_SIZE - 1]), (1, 7), "the write is private");
        arena.give_back(FrameId(2), 3);
        assert_eq!([2, 3, 4].map(|frame| word(FrameId(frame))), [0; 3]);
    }

    #[test]
    fn memory_reads_zero_until_written_and_after_it_is_given_back() {
        let arena = Arena::new(PageCount(600)).expect("a small mapping");
        assert_eq!(arena.frames(), 2 * FRAMES_PER_HUGE_FRAME);
        let frame = FrameId(513);
        arena.write(frame, 8, &7u64.to_le_bytes());
        assert_eq!(arena.load(frame, EntryIndex::new(1)), 7);
        arena.give_back(HugeFrame(1).first(), FRAMES_PER_HUGE_FRAME);
        assert_eq!(arena.load(frame, EntryIndex::new(1)), 0);
    }

    #[test]
    fn a_table_is_read_and_written_as_its_entries_are() {
        let arena = Arena::new(PageCount(1)).expect("a small mapping");
        let (table, copy) = (FrameId(1), FrameId(2));
        arena.store(table, EntryIndex::new(511), 7);
        arena.store_table(copy, &arena.load_table(table));
        assert_eq!(arena.load_table(copy), arena.load_table(table));
        assert_eq!(arena.load(copy, EntryIndex::new(511)), 7);
    }

    #[test]
    fn a_part_of_a_frame_is_copied_to_where_it_shall_go() {
        let arena = Arena::new(PageCount(1)).expect("a small mapping");
        arena.write(FrameId(1), 4090, b"abcdef");
        arena.copy_part((FrameId(1), 4091), (FrameId(2), 7), 5);
        let mut bytes = [0; 7];
        arena.read(FrameId(2), 6, &mut bytes);
        assert_eq!(bytes, *b"\0bcdef\0");
    }

    #[test]
    #[should_panic(expected = "outside the arena")]
    fn a_frame_beyond_the_end_is_refused() {
        let arena = Arena::new(PageCount(1)).expect("a small mapping");
        let _ = arena.load(FrameId(FRAMES_PER_HUGE_FRAME), EntryIndex::new(0));
    }

    #[test]
    fn entries_are_selected_by_nine_bits_a_level() {
        let address = 5 << 39 | 6 << 30 | 7 << 21 | 8 << 12 | 9;
        assert_eq!([4, 3, 2, 1].map(|level| EntryIndex::of(address, level).get()), [5, 6, 7, 8]);
    }
}
