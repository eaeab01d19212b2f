// SPDX-License-Identifier: MIT OR Apache-2.0
//! The content of an overlay file: its own pages above the bytes of an image's file.
//!
//! A page is created at the first write to it, as a copy of the bytes below. A page that was never written is read from below, or is
//! zero. So a large file of which one page changes costs one page.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use core::cell::Cell;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use pando_rt::memory;

use super::room;
use super::volume::ImageFile;
use crate::errno::Errno;
use crate::uapi::{F_SEAL_EXEC, F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Maximum file size: offsets are signed.
pub const SIZE_MAX: u64 = i64::MAX as u64;

static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

/// Pages reserved for the program, which is killed if it needs one and there is none: files do not use the last pages.
const LEFT_TO_PROGRAM: u64 = (2 << 20) / PAGE;

/// The number of pages, and its maximum so far: that many can be allocated without taking more of the cell's memory. Both start at one
/// rather than zero, so that they lie with the other data that every clone writes, and cost no extra page.
static PAGES: AtomicU64 = AtomicU64::new(1);
static MOST_PAGES: AtomicU64 = AtomicU64::new(1);

/// How often contents of files have changed. It starts at one, too.
static CHANGES: AtomicU64 = AtomicU64::new(1);

/// How often contents of files have changed; [`Content::changed`] is the value at a content's last change.
pub fn changes() -> u64 {
    CHANGES.load(Ordering::Relaxed)
}

/// Minimum growth of a page's buffer: most files are small.
const CAPACITY_MIN: usize = 256;

/// A page of an overlay file, up to the last written byte; the rest is zero.
#[derive(Debug)]
struct Page(Vec<u8>);

impl Page {
    /// An empty page. Also ensures that there is memory for its bookkeeping.
    fn blank() -> Result<Page, Errno> {
        room()?;
        if PAGES.load(Ordering::Relaxed) >= MOST_PAGES.load(Ordering::Relaxed) && memory::free_pages() < LEFT_TO_PROGRAM {
            return Err(Errno::ENOSPC);
        }
        let before = PAGES.fetch_add(1, Ordering::Relaxed);
        MOST_PAGES.fetch_max(before + 1, Ordering::Relaxed);
        Ok(Page(Vec::new()))
    }

    /// Ensures capacity for so many bytes, at most a page.
    fn reach(&mut self, bytes: usize) -> Result<(), Errno> {
        if self.0.len() < bytes {
            let room = bytes.next_power_of_two().max(CAPACITY_MIN);
            self.0.try_reserve_exact(room.saturating_sub(self.0.len())).map_err(|_| Errno::ENOSPC)?;
            self.0.resize(bytes, 0);
        }
        Ok(())
    }

    /// Zeroes a range.
    fn clear(&mut self, range: Range<usize>) {
        let end = range.end.min(self.0.len());
        if let Some(bytes) = self.0.get_mut(range.start..end) {
            bytes.fill(0);
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        PAGES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All seals of memory files.
pub const F_ALL_SEALS: u32 = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE | F_SEAL_EXEC;

/// The content of a file.
#[derive(Debug, Default)]
pub struct Content {
    size: u64,
    /// The file below, and how many of its bytes are visible.
    below: Option<ImageFile>,
    visible_size: u64,
    /// The pages that cover the file below, by number. `None` stands for a page of zeros.
    pages: BTreeMap<u64, Option<Page>>,
    /// The number of pages that exist.
    present: u64,
    /// The value of [`changes`] at its last change.
    changed: u64,
    /// Its seals; `None`: it cannot be sealed.
    pub seals: Option<u32>,
    /// The changes that a file server does not have; `None`: it is a file of no mount.
    unsent: Option<Changes>,
    /// Why the server could not read the content, for the call that has asked.
    read_error: Cell<Option<Errno>>,
}

/// The changes of a content, in the order in which they are to be made elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The least size that the file had.
    pub cut: Option<u64>,
    /// The parts that were written, in order, apart from each other.
    pub ranges: Vec<Range<u64>>,
    /// The size, if it was set to more than that.
    pub end: Option<u64>,
}

impl Changes {
    fn is_none(&self) -> bool {
        *self == Changes::default()
    }

    fn write(&mut self, part: Range<u64>) {
        if part.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|range| range.end < part.start);
        let last = self.ranges.partition_point(|range| range.start <= part.end);
        let joined = self.ranges[first..last].iter().fold(part, |all, range| all.start.min(range.start)..all.end.max(range.end));
        self.ranges.splice(first..last, [joined]);
    }

    fn resize(&mut self, before: u64, size: u64) {
        if size < before {
            self.cut = Some(self.cut.map_or(size, |cut| cut.min(size)));
            self.ranges.retain_mut(|range| {
                range.end = range.end.min(size);
                !range.is_empty()
            });
        }
        self.end = Some(size);
    }
}

impl Content {
    /// The unchanged content of an image's file.
    #[must_use]
    pub fn above(below: ImageFile) -> Content {
        Content { size: below.size(), below: Some(below), visible_size: below.size(), ..Content::default() }
    }

    /// The content of a file of a server, of which nothing was read.
    #[must_use]
    pub fn unread(size: u64) -> Content {
        Content { size, visible_size: size, unsent: Some(Changes::default()), ..Content::default() }
    }

    /// The first part of a range that must be read from the file's server.
    #[must_use]
    pub fn missing(&self, range: Range<u64>) -> Option<Range<u64>> {
        /// Bytes that are read ahead.
        const AHEAD: u64 = 256 << 10;
        self.unsent.as_ref()?;
        let known = self.size.min(self.visible_size);
        let mut number = range.start / PAGE;
        let end = range.end.min(known);
        while number * PAGE < end && self.pages.contains_key(&number) {
            number += 1;
        }
        let start = number * PAGE;
        if start >= end {
            return None;
        }
        let behind = self.pages.range(number..).next().map_or(known, |(next, _)| (next * PAGE).min(known));
        Some(start..behind.min(end.max(start.saturating_add(AHEAD))))
    }

    /// Fills the missing pages of a range with what the file's server has read, or notes why it has not.
    pub fn fill(&mut self, offset: u64, length: u64, bytes: Result<&[u8], Errno>) {
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => return self.read_error.set(Some(error)),
        };
        let end = offset.saturating_add(length).min(self.visible_size);
        let mut at = offset;
        while at < end {
            let number = at / PAGE;
            if let Entry::Vacant(vacant) = self.pages.entry(number) {
                let start = (at - offset) as usize;
                let piece = bytes.get(start..bytes.len().min(start + PAGE as usize)).unwrap_or_default();
                let page = Page::blank().and_then(|mut page| {
                    page.reach(piece.len())?;
                    page.0[..piece.len()].copy_from_slice(piece);
                    Ok(page)
                });
                match page {
                    Ok(page) => vacant.insert(Some(page)),
                    Err(error) => return self.read_error.set(Some(error)),
                };
                self.present += 1;
            }
            at = (number + 1) * PAGE;
        }
    }

    /// The number of pages here.
    #[must_use]
    pub fn present(&self) -> u64 {
        self.present
    }

    /// Why the file's server could not read the content, once.
    #[must_use]
    pub fn take_read_error(&self) -> Option<Errno> {
        self.read_error.take()
    }

    /// Forgets everything that was read: the file has changed, and has this size now.
    pub fn forget(&mut self, size: u64) {
        self.note_change();
        self.pages.clear();
        (self.size, self.visible_size, self.present) = (size, size, 0);
    }

    /// Whether there are changes that a file server does not have.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.unsent.as_ref().is_some_and(|unsent| !unsent.is_none())
    }

    /// Removes the changes that a file server does not have.
    pub fn take_changes(&mut self) -> Changes {
        self.unsent.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Puts back changes that were removed, before there are others.
    pub fn put_back(&mut self, changes: Changes) {
        self.unsent = Some(changes);
    }

    /// Whether its seals forbid all writing.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.seals.unwrap_or_default() & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE) != 0
    }

    /// Checks that its seals permit writing so many bytes.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn check_write(&self, offset: u64, length: u64) -> Result<(), Errno> {
        let seals = self.seals.unwrap_or_default();
        let grows = offset.saturating_add(length) > self.size;
        let is_sealed = self.is_read_only() || seals & F_SEAL_GROW != 0 && grows;
        if is_sealed && length > 0 { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Checks that its seals permit this change of the permissions.
    ///
    /// # Errors
    /// `EPERM`: the right to execute it is sealed.
    pub fn check_permissions(&self, before: u16, after: u16) -> Result<(), Errno> {
        let is_sealed = self.seals.unwrap_or_default() & F_SEAL_EXEC != 0;
        if is_sealed && (before ^ after) & 0o111 != 0 { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Checks that its seals permit this size.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn check_resize(&self, size: u64) -> Result<(), Errno> {
        let seals = self.seals.unwrap_or_default();
        let is_sealed = seals & F_SEAL_SHRINK != 0 && size < self.size || seals & F_SEAL_GROW != 0 && size > self.size;
        if is_sealed { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// The value of [`changes`] at its last change.
    #[must_use]
    pub fn changed(&self) -> u64 {
        self.changed
    }

    /// Records a change.
    fn note_change(&mut self) {
        self.changed = CHANGES.fetch_add(1, Ordering::Relaxed) + 1;
    }

    /// The file's size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The number of pages with data, here or below.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        let hidden = self.pages.range(..self.visible_size.div_ceil(PAGE)).count() as u64;
        self.visible_size.div_ceil(PAGE) - hidden + self.present
    }

    /// Passes up to `length` bytes from `offset` on to `take`, piece by piece. Stops at the file's end, or when `take` takes less than it
    /// is given. Returns how many were taken.
    ///
    /// # Errors
    /// That of `take`, if it failed on the first piece.
    pub fn read(&self, offset: u64, length: u64, mut take: impl FnMut(&[u8]) -> Result<usize, Errno>) -> Result<u64, Errno> {
        let length = length.min(self.size.saturating_sub(offset));
        let mut done = 0;
        while done < length {
            let piece = self.piece(offset + done, length - done);
            match take(piece) {
                Ok(count) => {
                    done += count as u64;
                    if count < piece.len() {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// The bytes at `offset` in one piece, at most `length`, which is not 0.
    fn piece<'a>(&'a self, offset: u64, length: u64) -> &'a [u8] {
        let within = offset % PAGE;
        let length = length.min(PAGE - within);
        let part = |page: &'a [u8]| page.get(within as usize..page.len().min((within + length) as usize)).unwrap_or_default();
        match self.pages.get(&(offset / PAGE)).map(|page| page.as_ref().map_or(&[][..], |page| part(&page.0))) {
            Some([]) => part(&ZEROS),
            Some(written) => written,
            None => {
                let visible = length.min(self.visible_size.saturating_sub(offset));
                let below = self.below.as_ref().map_or(&[][..], |below| below.piece(offset, visible));
                if below.is_empty() { part(&ZEROS) } else { below }
            }
        }
    }

    /// Lets `give` fill `length` bytes from `offset` on, piece by piece, until it fills less than it is given. Returns how many were
    /// filled.
    ///
    /// # Errors
    /// That of `give`, if it failed on the first piece. `ENOSPC`, `EIO`: a page could not be created.
    pub fn write(&mut self, offset: u64, length: u64, mut give: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<u64, Errno> {
        self.note_change();
        let mut done = 0;
        while done < length {
            let at = offset + done;
            let within = (at % PAGE) as usize;
            let room = (PAGE as usize - within).min((length - done) as usize);
            let is_unread = self.missing(at..at + 1).is_some();
            let mut filled = self.page(at / PAGE, within + room).and_then(|page| give(&mut page.0[within..within + room]));
            if is_unread && filled.as_ref().map_or(true, |filled| *filled < room) {
                // The rest of the page is at the file's server.
                if let Some(Some(_)) = self.pages.remove(&(at / PAGE)) {
                    self.present -= 1;
                }
                filled = filled.and(Err(Errno::EFAULT));
            }
            match filled {
                Ok(filled) => {
                    done += filled as u64;
                    self.size = self.size.max(offset + done);
                    if filled < room {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        if let Some(unsent) = &mut self.unsent {
            unsent.write(offset..offset + done);
        }
        Ok(done)
    }

    /// A page of which so many bytes can be written; created if it does not exist.
    fn page(&mut self, number: u64, bytes: usize) -> Result<&mut Page, Errno> {
        let hidden = self.pages.get(&number).map(Option::is_some);
        if hidden != Some(true) {
            let mut page = Page::blank()?;
            let start = number * PAGE;
            if let (None, Some(below)) = (hidden, &self.below)
                && start < self.visible_size
            {
                let visible = (self.visible_size - start).min(PAGE) as usize;
                page.reach(visible)?;
                below.read(start, &mut page.0[..visible])?;
            }
            self.pages.insert(number, Some(page));
            self.present += 1;
        }
        let page = self.pages.get_mut(&number).and_then(Option::as_mut).ok_or(Errno::EIO)?;
        page.reach(bytes)?;
        Ok(page)
    }

    /// Sets the file's size: removes bytes behind it, or adds zeros.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`: the last page could not be created.
    pub fn resize(&mut self, size: u64) -> Result<(), Errno> {
        self.note_change();
        if let Some(unsent) = &mut self.unsent {
            unsent.resize(self.size, size);
        }
        if size < self.size {
            let whole = size.div_ceil(PAGE);
            self.drop_pages(whole);
            if let Some(Some(page)) = self.pages.get_mut(&(size / PAGE)) {
                page.clear((size % PAGE) as usize..PAGE as usize);
            }
            self.visible_size = self.visible_size.min(size);
        }
        self.size = size;
        Ok(())
    }

    /// Frees the pages from this one on.
    fn drop_pages(&mut self, first: u64) {
        let truncated = self.pages.split_off(&first);
        self.present -= truncated.values().flatten().count() as u64;
    }

    /// Zeroes a range, which frees its whole pages. The file's size stays.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`: a partially zeroed page could not be created.
    pub fn punch(&mut self, offset: u64, length: u64) -> Result<(), Errno> {
        self.note_change();
        let end = offset.saturating_add(length).min(self.size.next_multiple_of(PAGE));
        if let Some(unsent) = &mut self.unsent {
            unsent.write(offset.min(self.size)..end.min(self.size));
        }
        let mut at = offset;
        while at < end {
            let (number, within) = (at / PAGE, at % PAGE);
            let part = (PAGE - within).min(end - at);
            let is_visible = self.visible_size > number * PAGE;
            if part < PAGE {
                if is_visible || self.pages.contains_key(&number) {
                    self.page(number, 0)?.clear(within as usize..(within + part) as usize);
                }
            } else if is_visible {
                self.present -= u64::from(matches!(self.pages.insert(number, None), Some(Some(_))));
            } else {
                // Beyond the visible part of the file below, only existing pages matter.
                match self.pages.range(number..).next().map(|(&next, _)| next) {
                    Some(next) if next == number => self.present -= u64::from(matches!(self.pages.remove(&number), Some(Some(_)))),
                    Some(next) => {
                        at = next * PAGE;
                        continue;
                    }
                    None => break,
                }
            }
            at += part;
        }
        Ok(())
    }

    /// Creates the pages of a range, so that writing to it needs no more memory.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`.
    pub fn allocate(&mut self, offset: u64, length: u64) -> Result<(), Errno> {
        for number in offset / PAGE..(offset + length).div_ceil(PAGE) {
            self.page(number, PAGE as usize)?;
        }
        Ok(())
    }

    /// The offset of the next byte from `offset` on that may be nonzero (`SEEK_DATA`); `None`: there is none.
    #[must_use]
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let mut at = offset;
        loop {
            let number = at / PAGE;
            let found = match self.pages.get(&number) {
                Some(page) => page.is_some(),
                None => at < self.visible_size,
            };
            if found {
                return Some(at).filter(|at| *at < self.size);
            }
            let next = if number * PAGE + PAGE < self.visible_size { number + 1 } else { *self.pages.range(number + 1..).next()?.0 };
            at = next * PAGE;
        }
    }

    /// The offset of the next hole from `offset` on, which is inside the file (`SEEK_HOLE`); the end of the file counts as one.
    #[must_use]
    pub fn next_hole(&self, offset: u64) -> u64 {
        let mut at = offset;
        loop {
            let is_data = match self.pages.get(&(at / PAGE)) {
                Some(page) => page.is_some(),
                None => at < self.visible_size,
            };
            if !is_data || at >= self.size {
                return at.min(self.size);
            }
            at = (at / PAGE + 1) * PAGE;
        }
    }
}
