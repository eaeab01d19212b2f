// SPDX-License-Identifier: MIT OR Apache-2.0
//! The content of an overlay file: pages of its own above the bytes of an image's file.
//!
//! A page is made when something is written to it, and copied from below then; what was never written is read from below, or is zero. So a large file
//! of which one page changes costs one page.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use pando_rt::memory;

use super::room;
use super::volume::ImageFile;
use crate::errno::Errno;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// No file is longer: offsets are signed.
pub const SIZE_MAX: u64 = i64::MAX as u64;

static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

/// Pages that are left to the program, which is ended if there is none when it needs one: files do not take the last.
const LEFT_TO_PROGRAM: u64 = (2 << 20) / PAGE;

/// How many pages there are, and how many there were at most: so many can be made without taking more of the cell's memory. Both count one more, so that they lie with the other data that every
/// clone writes, and cost none a page.
static PAGES: AtomicU64 = AtomicU64::new(1);
static MOST_PAGES: AtomicU64 = AtomicU64::new(1);

/// How often contents of files have changed. It counts one more, too.
static CHANGES: AtomicU64 = AtomicU64::new(1);

/// How often contents of files have changed: a content says [when](Content::changed) that was.
pub fn changes() -> u64 {
    CHANGES.load(Ordering::Relaxed)
}

/// What the memory of a page's first bytes grows by, at least: most files are small.
const LEAST: usize = 256;

/// A page of an overlay file, as far as something was written; the rest is zero.
#[derive(Debug)]
struct Page(Vec<u8>);

impl Page {
    /// Zeroes. There is room then to take note of them, too.
    fn blank() -> Result<Page, Errno> {
        room()?;
        if PAGES.load(Ordering::Relaxed) >= MOST_PAGES.load(Ordering::Relaxed) && memory::left() < LEFT_TO_PROGRAM {
            return Err(Errno::ENOSPC);
        }
        let before = PAGES.fetch_add(1, Ordering::Relaxed);
        MOST_PAGES.fetch_max(before + 1, Ordering::Relaxed);
        Ok(Page(Vec::new()))
    }

    /// Makes room for so many bytes, at most a page's.
    fn reach(&mut self, bytes: usize) -> Result<(), Errno> {
        if self.0.len() < bytes {
            let room = bytes.next_power_of_two().max(LEAST);
            self.0.try_reserve_exact(room.saturating_sub(self.0.len())).map_err(|_| Errno::ENOSPC)?;
            self.0.resize(bytes, 0);
        }
        Ok(())
    }

    /// Makes what lies in a range zero.
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

/// Seals of files of memory: what may never be done again.
pub mod seal {
    /// Sealing.
    pub const SEAL: u32 = 1;
    /// Making it shorter.
    pub const SHRINK: u32 = 2;
    /// Making it longer.
    pub const GROW: u32 = 4;
    /// Writing.
    pub const WRITE: u32 = 8;
    /// Writing, but through mappings that are there.
    pub const FUTURE_WRITE: u32 = 0x10;
    /// Changing whether it can be executed.
    pub const EXECUTE: u32 = 0x20;
    /// All of them.
    pub const ALL: u32 = 0x3f;
}

/// The content of a file.
#[derive(Debug, Default)]
pub struct Content {
    size: u64,
    /// The file below, and how many of its bytes still show.
    below: Option<ImageFile>,
    shown: u64,
    /// The pages that hide what is below, by their number. `None` hides it with zeros.
    pages: BTreeMap<u64, Option<Page>>,
    /// How many of them are there.
    present: u64,
    /// The number of its last change among those of all contents.
    changed: u64,
    /// What may never be done to it again; `None`: it cannot be sealed.
    pub seals: Option<u32>,
}

impl Content {
    /// The content of an image's file, as it is.
    #[must_use]
    pub fn above(below: ImageFile) -> Content {
        Content { size: below.size(), below: Some(below), shown: below.size(), ..Content::default() }
    }

    /// Checks that its seals let so many bytes be written.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn check_write(&self, offset: u64, length: u64) -> Result<(), Errno> {
        let seals = self.seals.unwrap_or_default();
        let grows = offset.saturating_add(length) > self.size;
        let is_sealed = seals & (seal::WRITE | seal::FUTURE_WRITE) != 0 || seals & seal::GROW != 0 && grows;
        if is_sealed && length > 0 { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Checks that its seals let it become so long.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn check_resize(&self, size: u64) -> Result<(), Errno> {
        let seals = self.seals.unwrap_or_default();
        let is_sealed = seals & seal::SHRINK != 0 && size < self.size || seals & seal::GROW != 0 && size > self.size;
        if is_sealed { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// The number of its last change among [those](changes) of all contents.
    #[must_use]
    pub fn changed(&self) -> u64 {
        self.changed
    }

    /// Takes note that it changes.
    fn note_change(&mut self) {
        self.changed = CHANGES.fetch_add(1, Ordering::Relaxed) + 1;
    }

    /// Bytes of the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Pages that hold something, here or below.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        let hidden = self.pages.range(..self.shown.div_ceil(PAGE)).count() as u64;
        self.shown.div_ceil(PAGE) - hidden + self.present
    }

    /// Hands the bytes from `offset` on to `take`, piece by piece, up to `length` of them or the file's end, until it takes less than it is given.
    /// Returns how many were taken.
    ///
    /// # Errors
    /// That of `take`, if it was the first.
    pub fn read(&self, offset: u64, length: u64, mut take: impl FnMut(&[u8]) -> Result<usize, Errno>) -> Result<u64, Errno> {
        let length = length.min(self.size.saturating_sub(offset));
        let mut done = 0;
        while done < length {
            let piece = self.piece(offset + done, length - done);
            match take(piece) {
                Ok(taken) => {
                    done += taken as u64;
                    if taken < piece.len() {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// What lies at `offset`, in one piece, at most `length` bytes, which is not 0.
    fn piece<'a>(&'a self, offset: u64, length: u64) -> &'a [u8] {
        let within = offset % PAGE;
        let length = length.min(PAGE - within);
        let part = |page: &'a [u8]| page.get(within as usize..page.len().min((within + length) as usize)).unwrap_or_default();
        match self.pages.get(&(offset / PAGE)).map(|page| page.as_ref().map_or(&[][..], |page| part(&page.0))) {
            Some([]) => part(&ZEROS),
            Some(written) => written,
            None => {
                let shown = length.min(self.shown.saturating_sub(offset));
                let below = self.below.as_ref().map_or(&[][..], |below| below.piece(offset, shown));
                if below.is_empty() { part(&ZEROS) } else { below }
            }
        }
    }

    /// Lets `give` fill the bytes from `offset` on, `length` of them, piece by piece, until it fills less than it is given. Returns how many were filled.
    ///
    /// # Errors
    /// That of `give`, if it was the first. `ENOSPC`, `EIO`: a page could not be made.
    pub fn write(&mut self, offset: u64, length: u64, mut give: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<u64, Errno> {
        self.note_change();
        let mut done = 0;
        while done < length {
            let at = offset + done;
            let within = (at % PAGE) as usize;
            let room = (PAGE as usize - within).min((length - done) as usize);
            let filled = self.page(at / PAGE, within + room).and_then(|page| give(&mut page.0[within..within + room]));
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
        Ok(done)
    }

    /// A page of which so many bytes can be written: made now if it is not there.
    fn page(&mut self, number: u64, bytes: usize) -> Result<&mut Page, Errno> {
        let hidden = self.pages.get(&number).map(Option::is_some);
        if hidden != Some(true) {
            let mut page = Page::blank()?;
            let start = number * PAGE;
            if let (None, Some(below)) = (hidden, &self.below)
                && start < self.shown
            {
                let shown = (self.shown - start).min(PAGE) as usize;
                page.reach(shown)?;
                below.read(start, &mut page.0[..shown])?;
            }
            self.pages.insert(number, Some(page));
            self.present += 1;
        }
        let page = self.pages.get_mut(&number).and_then(Option::as_mut).ok_or(Errno::EIO)?;
        page.reach(bytes)?;
        Ok(page)
    }

    /// Makes the file so long: what is cut off is gone, what is added is zero.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`: the last page could not be made.
    pub fn resize(&mut self, size: u64) -> Result<(), Errno> {
        self.note_change();
        if size < self.size {
            let whole = size.div_ceil(PAGE);
            self.drop_pages(whole);
            if let Some(Some(page)) = self.pages.get_mut(&(size / PAGE)) {
                page.clear((size % PAGE) as usize..PAGE as usize);
            }
            self.shown = self.shown.min(size);
        }
        self.size = size;
        Ok(())
    }

    /// Drops the pages from this one on.
    fn drop_pages(&mut self, first: u64) {
        let gone = self.pages.split_off(&first);
        self.present -= gone.values().flatten().count() as u64;
    }

    /// Makes a range zero, which gives its whole pages back. The file's size stays.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`: a page of which a part stays could not be made.
    pub fn punch(&mut self, offset: u64, length: u64) -> Result<(), Errno> {
        self.note_change();
        let end = offset.saturating_add(length).min(self.size.next_multiple_of(PAGE));
        let mut at = offset;
        while at < end {
            let (number, within) = (at / PAGE, at % PAGE);
            let part = (PAGE - within).min(end - at);
            let shown = self.shown > number * PAGE;
            if part < PAGE {
                if shown || self.pages.contains_key(&number) {
                    self.page(number, 0)?.clear(within as usize..(within + part) as usize);
                }
            } else if shown {
                self.present -= u64::from(matches!(self.pages.insert(number, None), Some(Some(_))));
            } else {
                // Beyond what shows from below, only pages that are there matter.
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

    /// Makes the pages of a range, so that writing to it needs no more room.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`.
    pub fn allocate(&mut self, offset: u64, length: u64) -> Result<(), Errno> {
        for number in offset / PAGE..(offset + length).div_ceil(PAGE) {
            self.page(number, PAGE as usize)?;
        }
        Ok(())
    }

    /// Where from `offset` on the next byte is that may be other than zero; `None`: nowhere.
    #[must_use]
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let mut at = offset;
        loop {
            let number = at / PAGE;
            let found = match self.pages.get(&number) {
                Some(page) => page.is_some(),
                None => at < self.shown,
            };
            if found {
                return Some(at).filter(|at| *at < self.size);
            }
            let next = if number * PAGE + PAGE < self.shown { number + 1 } else { *self.pages.range(number + 1..).next()?.0 };
            at = next * PAGE;
        }
    }

    /// Where from `offset` on, which is inside the file, the next hole is: at the end, if nowhere else.
    #[must_use]
    pub fn next_hole(&self, offset: u64) -> u64 {
        let mut at = offset;
        loop {
            let is_data = match self.pages.get(&(at / PAGE)) {
                Some(page) => page.is_some(),
                None => at < self.shown,
            };
            if !is_data || at >= self.size {
                return at.min(self.size);
            }
            at = (at / PAGE + 1) * PAGE;
        }
    }
}
