// SPDX-License-Identifier: MIT OR Apache-2.0
//! A disk for tests: two words of each block identify it, every read is counted, and any block can be made unreadable or slow.

use pando_abi::{BlockNumber, PAGE_SIZE};
use pando_kernel::{Disk, DiskError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// The first and the last word of a block. `None`: it cannot be read.
type BlockWords = dyn Fn(u32) -> Option<[u64; 2]> + Send + Sync;

#[derive(Default)]
struct Progress {
    /// How often each block was read.
    reads: BTreeMap<u32, u32>,
    /// Blocks that cannot be read.
    lost: BTreeSet<u32>,
    /// The number of adjacent blocks that form one run, if less than the whole disk.
    run: Option<u32>,
    /// Reads block while this is set.
    held: bool,
    /// The number of reads that are blocked.
    waiting: u32,
}

/// A disk.
pub struct TestDisk {
    blocks: u32,
    words: Box<BlockWords>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl TestDisk {
    /// A disk whose blocks hold the words of [`TestDisk::word`].
    #[must_use]
    pub fn new(blocks: u32) -> Arc<TestDisk> {
        TestDisk::with_words(blocks, |number| Some([0, 1].map(|position| TestDisk::word(number, position))))
    }

    /// Creates a disk with other words in its blocks; `None` makes a block unreadable.
    #[must_use]
    pub fn with_words(blocks: u32, words: impl Fn(u32) -> Option<[u64; 2]> + Send + Sync + 'static) -> Arc<TestDisk> {
        Arc::new(TestDisk { blocks, words: Box::new(words), progress: Mutex::default(), changed: Condvar::new() })
    }

    /// The first (0) or last (1) word of a block.
    #[must_use]
    pub const fn word(number: u32, position: u64) -> u64 {
        0xb10c_0000_0000_0000 | position << 40 | number as u64
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("no holder of a test disk's lock panics")
    }

    /// Makes a block unreadable, or readable again.
    pub fn lose(&self, number: u32, lost: bool) {
        let mut progress = self.progress();
        if lost {
            progress.lost.insert(number)
        } else {
            progress.lost.remove(&number)
        };
    }

    /// From now on reports that each run has this many blocks, counted from the start of the disk.
    pub fn split(&self, run: u32) {
        self.progress().run = Some(run);
    }

    /// The read count of each block that was read at least once.
    #[must_use]
    pub fn reads(&self) -> BTreeMap<u32, u32> {
        self.progress().reads.clone()
    }

    /// Blocks all reads from now on, or unblocks them.
    pub fn hold(&self, held: bool) {
        self.progress().held = held;
        self.changed.notify_all();
    }

    /// Waits until a read is blocked.
    ///
    /// # Panics
    /// If another thread panicked in a read.
    pub fn wait_for_reader(&self) {
        let waits = self.changed.wait_while(self.progress(), |progress| progress.waiting == 0);
        drop(waits.expect("no holder of a test disk's lock panics"));
    }
}

impl Disk for TestDisk {
    fn blocks(&self) -> u64 {
        self.blocks.into()
    }

    fn contiguous_blocks(&self, first: BlockNumber) -> u64 {
        let end = self.progress().run.map_or(self.blocks, |run| (first.0 / run + 1) * run);
        u64::from(end - first.0)
    }

    fn read(&self, first: BlockNumber, buffer: &mut [u8]) -> Result<(), DiskError> {
        let count = (buffer.len() / PAGE_SIZE as usize) as u32;
        assert!(count > 0 && buffer.len().is_multiple_of(PAGE_SIZE as usize), "the kernel reads whole blocks");
        assert!(first.0.checked_add(count).is_some_and(|end| end <= self.blocks), "the kernel reads within the disk");
        let mut progress = self.progress();
        progress.waiting += 1;
        self.changed.notify_all();
        progress = self.changed.wait_while(progress, |progress| progress.held).expect("no holder of a test disk's lock panics");
        progress.waiting -= 1;
        let numbers = first.0..first.0 + count;
        if numbers.clone().any(|number| progress.lost.contains(&number) || (self.words)(number).is_none()) {
            // The buffer's content after an error must reach nobody.
            buffer.fill(0xee);
            return Err(DiskError);
        }
        for (number, block) in numbers.zip(buffer.chunks_exact_mut(PAGE_SIZE as usize)) {
            *progress.reads.entry(number).or_default() += 1;
            let [start, end] = (self.words)(number).expect("it can be read").map(u64::to_le_bytes);
            block.fill(0);
            block[..8].copy_from_slice(&start);
            block[PAGE_SIZE as usize - 8..].copy_from_slice(&end);
        }
        Ok(())
    }
}
