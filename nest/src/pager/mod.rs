// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demand pager: a monitor that keeps the pages that its child has not used lately in a swap file, so that the child runs with less
//! memory than it uses.
//!
//! The child halts when its quota is used up, and when it needs a page that was taken. A clock hand goes over the mounts of all its spaces
//! and takes the pages there, the longest present first. Pages that lie beside each other in the swap file were taken together, so a fault
//! reads several ahead.

mod policy;
mod swap_file;

use crate::streams;
use crate::watched_cell::StateAccess;
use crate::watched_child::WatchedChild;
use pando_abi::holding::ChildState;
use pando_abi::limits::MAX_SWAP_PAGES;
use pando_abi::watch::{HaltReason, mask, resume, state};
use pando_abi::{HoldingName, PAGE_SIZE};
use pando_machine::{CellsDevice, PageBuffer};
use policy::{ClockHand, ReadAhead};
use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use swap_file::SwapFile;

pub use swap_file::swap_file_error;

/// Bytes of the bitmap of swap numbers that one call copies.
const BITMAP_BYTES: usize = 1 << 16;
/// Swap numbers that such a bitmap has.
const BITMAP_NUMBERS: u32 = BITMAP_BYTES as u32 * 8;
/// The swap file's size divided by this must be free after a search for unused pages: a search for each few pages would take all the time.
const FREE_DIVISOR: usize = 64;

/// Counts of a pager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagerCounters {
    /// Pages that were taken.
    pub pages_out: u64,
    /// Pages that were given.
    pub pages_in: u64,
    /// Halts of the child for a page that was taken.
    pub faults: u64,
    /// Halts of the child for want of memory.
    pub shortages: u64,
}

/// The swap file of a pager.
#[derive(Clone, Debug)]
pub struct SwapSettings {
    /// Its path.
    pub path: PathBuf,
    /// Its name in errors.
    pub name: String,
    /// The most pages in it.
    pub pages: u32,
}

/// Pages a child.
#[derive(Debug)]
pub struct Pager<'a> {
    device: &'a CellsDevice,
    child: HoldingName,
    swap: SwapFile,
    buffer: PageBuffer,
    hand: ClockHand,
    read_ahead: ReadAhead,
    /// Pages that are taken at once.
    batch: u64,
    counters: PagerCounters,
}

impl<'a> Pager<'a> {
    /// A pager of a child that may use `memory` pages, with a new swap file, which is removed with the pager.
    ///
    /// # Errors
    /// The file exists, or cannot be created.
    pub fn new(device: &'a CellsDevice, child: HoldingName, memory: u64, swap: SwapSettings) -> Result<Pager<'a>> {
        Ok(Pager {
            device,
            child,
            swap: SwapFile::create(swap.path, swap.name, swap.pages)?,
            buffer: PageBuffer::default(),
            hand: ClockHand::default(),
            read_ahead: ReadAhead::default(),
            batch: policy::batch(memory),
            counters: PagerCounters::default(),
        })
    }

    /// Its counts so far.
    #[must_use]
    pub fn counters(&self) -> PagerCounters {
        self.counters
    }

    /// Runs the child, which has not started, with the streams of this process until it has ended. `interrupted` is set by Ctrl-C. Returns
    /// the state in which the child has ended.
    ///
    /// # Errors
    /// The device does not allow it, a stream or the swap file failed, the swap file is full, or no page is left that can be taken.
    pub fn run(&mut self, interrupted: &AtomicBool) -> Result<ChildState> {
        self.device.watch(self.child, mask::SHORTAGE)?;
        let child = WatchedChild { device: self.device, name: self.child };
        streams::run(self.device, self.child, interrupted, || {
            let served = self.serve();
            child.unless_ended(served).map(drop)
        })
    }

    /// Serves the halt of the child, if it is halted.
    fn serve(&mut self) -> Result<()> {
        let child = WatchedChild { device: self.device, name: self.child };
        let Some(reason) = child.reason_if_halted()? else { return Ok(()) };
        match reason {
            HaltReason::Shortage => {
                self.counters.shortages += 1;
                self.take_batch()?;
            }
            HaltReason::Taken { space, address, number } => {
                self.counters.faults += 1;
                self.give(space, address, number)?;
            }
            HaltReason::Requested | HaltReason::Exception { .. } | HaltReason::Syscall | HaltReason::Report(_) => {}
        }
        self.device.resume(self.child, resume::CONTINUE)
    }

    /// Gives a page that the child needs, and some after it.
    fn give(&mut self, space: u32, address: u64, number: u32) -> Result<()> {
        let space = self.child.space(space);
        let wanted = self.read_ahead.after_fault(number);
        let count = self.swap.used_from(number, wanted).max(1);
        let bytes = (count * PAGE_SIZE) as usize;
        loop {
            self.swap.load(number, &mut self.buffer.bytes_mut()[..bytes])?;
            match self.device.give(space, address, &self.buffer, count, number)? {
                Some(0) => return Err(Error::other(format!("cannot load page {address:#x}: the kernel did not accept it"))),
                Some(given) => {
                    self.counters.pages_in += given;
                    self.read_ahead.note_given(number, given);
                    return Ok(());
                }
                // The buffer is used for the pages that make room.
                None => self.take_batch()?,
            }
        }
    }

    /// Takes some pages.
    fn take_batch(&mut self) -> Result<()> {
        let mut taken = 0;
        while taken < self.batch {
            let count = self.take()?;
            if count == 0 {
                break;
            }
            taken += count;
        }
        if taken > 0 {
            return Ok(());
        }
        Err(Error::new(ErrorKind::OutOfMemory, "none of the program's pages can be moved to the swap file: give it more with --memory"))
    }

    /// Takes consecutive pages at the clock hand. Returns their number; 0: all mounts were searched.
    fn take(&mut self) -> Result<u64> {
        let numbers = self.free_numbers()?;
        let most = u64::from(numbers.end - numbers.start);
        loop {
            let Some((space, address)) = self.hand.position() else {
                if !self.hand.turn(self.mounts()?) {
                    return Ok(0);
                }
                continue;
            };
            let found = self.device.take(self.child.space(space), address, &mut self.buffer, most, numbers.start)?;
            self.hand.advance(u64::from(found.skipped) + u64::from(found.count), found.count > 0);
            if found.count > 0 {
                let bytes = u64::from(found.count) * PAGE_SIZE;
                self.swap.store(numbers.start, &self.buffer.bytes()[..bytes as usize])?;
                self.counters.pages_out += u64::from(found.count);
                return Ok(found.count.into());
            }
        }
    }

    /// Free numbers for the next pages.
    fn free_numbers(&mut self) -> Result<std::ops::Range<u32>> {
        if self.swap.free() == 0 {
            for first in (0..self.swap.pages()).step_by(BITMAP_NUMBERS as usize) {
                let mut bitmap = vec![0; BITMAP_BYTES];
                self.device.read_state(self.child, state::SWAP_NUMBERS | u64::from(first) << 32, &mut bitmap)?;
                self.swap.keep_only(first, &bitmap);
            }
            if self.swap.free() <= self.swap.pages() as usize / FREE_DIVISOR {
                return Err(Error::new(ErrorKind::StorageFull, "the swap file is full: give it more room with --swap-size"));
            }
        }
        Ok(self.swap.find_free(MAX_SWAP_PAGES as usize))
    }

    /// The mounts of the child's spaces.
    fn mounts(&self) -> Result<Vec<(u32, u64)>> {
        let mut mounts = Vec::new();
        loop {
            let mut bytes = vec![0; BITMAP_BYTES];
            let count = self.device.read_state(self.child, state::MOUNTS | (mounts.len() as u64) << 32, &mut bytes)?;
            let (words, _) = bytes[..count].as_chunks::<8>();
            let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
            mounts.extend(words.as_chunks::<2>().0.iter().map(|[space, address]| (*space as u32, *address)));
            if count < BITMAP_BYTES {
                return Ok(mounts);
            }
        }
    }
}
