// SPDX-License-Identifier: MIT OR Apache-2.0
//! The store of the pages behind a restored program: files of checkpoints, or a connection to the process from which it moves.

use super::directory::StoredCheckpoint;
use super::image::FamilyImage;
use std::fmt::Debug;
use std::io::Result;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Pages with consecutive numbers that have arrived by themselves.
#[derive(Debug)]
pub(super) struct ArrivedPages {
    /// The number of the first one.
    pub(super) first: u32,
    pub(super) bytes: Vec<u8>,
}

/// The image of a program, and its pages by their numbers.
pub(super) trait PageStore: Debug {
    /// The image.
    fn image(&self) -> &FamilyImage;

    /// The number of the first page after those that it has.
    fn next_page(&self) -> u32;

    /// Reads pages with consecutive numbers, as many as the buffer has room for. It waits for them.
    ///
    /// # Errors
    /// One cannot be read, or is damaged.
    fn read(&mut self, first: u32, buffer: &mut [u8]) -> Result<()>;

    /// Reads a page that the program needs, and some after it if they are there. Returns their number. `None`: the page is on its way, and
    /// the descriptor becomes readable when it comes.
    ///
    /// # Errors
    /// It cannot be read, or is damaged, or never comes.
    fn load(&mut self, number: u32, buffer: &mut [u8]) -> Result<Option<u32>>;

    /// The descriptor that is readable when pages come. `None`: they are all there.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The time at which the silence of its source counts as a loss.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Notes that nothing has come until now.
    fn check_silence(&mut self) {}

    /// Gets the right to run the program, whose cell is built. The program is this process's if there is no error.
    ///
    /// # Errors
    /// The program continues elsewhere.
    fn take_over(&mut self) -> Result<()> {
        Ok(())
    }

    /// Notes whether the program was started after [`PageStore::take_over`], and returns it.
    ///
    /// # Errors
    /// The program was not started.
    fn confirm_start(&mut self, started: Result<()>) -> Result<()> {
        started
    }

    /// Receives pages that have come, after the descriptor was readable.
    fn receive(&mut self) {}

    /// Whether pages have come that the program can be given, or its halt is needed to know which pages it still lacks.
    fn wants_halt(&self) -> bool {
        false
    }

    /// Pages that have come without a request, which the program is given while it is halted.
    fn take_arrived(&mut self) -> Option<ArrivedPages> {
        None
    }

    /// Keeps pages that have arrived until the program needs them.
    fn keep(&mut self, _pages: ArrivedPages) {}

    /// Whether [`PageStore::request_all`] is due.
    fn needs_missing(&self) -> bool {
        false
    }

    /// Requests the pages that the halted program still lacks, those with these numbers, and forgets others that are kept.
    fn request_all(&mut self, _missing: Vec<u32>) {}

    /// Requests the next page of [`PageStore::request_all`], or ends the transfer, unless a request is under way. Called while there is
    /// memory for it.
    fn request_next(&mut self) {}

    /// The time since the program was asked for at its source, if it has one.
    fn time_since_request(&self) -> Option<Duration> {
        None
    }

    /// The reason why no further pages will come, if some are missing.
    fn lost(&self) -> Option<&str> {
        None
    }

    /// Notes that the program has ended, and needs no more pages.
    fn finish(&mut self) {}

    /// Whether all pages are there that the program lacks.
    fn is_complete(&self) -> bool {
        true
    }
}

impl PageStore for StoredCheckpoint {
    fn image(&self) -> &FamilyImage {
        StoredCheckpoint::image(self)
    }

    fn next_page(&self) -> u32 {
        StoredCheckpoint::next_page(self)
    }

    fn read(&mut self, first: u32, buffer: &mut [u8]) -> Result<()> {
        StoredCheckpoint::read(self, first, buffer)
    }

    fn load(&mut self, number: u32, buffer: &mut [u8]) -> Result<Option<u32>> {
        let size = pando_abi::PAGE_SIZE as usize;
        let count = self.run_length(number).clamp(1, (buffer.len() / size) as u32);
        StoredCheckpoint::read(self, number, &mut buffer[..count as usize * size])?;
        Ok(Some(count))
    }
}
