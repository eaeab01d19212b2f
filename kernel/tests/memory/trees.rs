// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trees, spaces and frames without cells, on a machine that is nearly always full, or whose host refuses it memory that it should
//! have: a shortage has changed nothing, and at every moment the accounts and the free frames add up to the machine's memory.

mod taking;
mod walk;

use crate::guest::{DISK, value, words};
use crate::workload::Workload;
use crate::{ARENA_OF_TREES, REGISTRY, seed};
use pando_abi::layout::SLOT_SIZE;
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{BlockAddress, Hypercall, MapFlags, PAGE_SIZE, Permissions, Refusal, SegmentIndex, SpaceIndex};
use pando_kernel::memory::{
    Access, AccountId, BlockRequest, ClockHand, CopyAuthority, CopyError, DecodedEntry, DiskId, FaultOutcome, Frames, MemoryError,
    OmittedRules, PageSpan, SpaceSet, TakenPage, Usage,
};
use pando_machine::sim::{Sim, SimConfig};
use pando_machine::{EntryIndex, HostError, Machine, PageCount};
use pando_testing::lab::repetitions;
use pando_testing::model::{Memory, WORDS};
use std::sync::Arc;
use taking::Swap;
use walk::walk;

/// Quotas of the accounts: too little, enough for a while, more than there is.
const QUOTAS: [u64; 6] = [60, 300, 2_000, 4_000, 100_000, 100_000];
/// Tables that one step of an eviction can copy: 16 last-level tables, and those above them.
const EVICTED_AT_ONCE: PageCount = PageCount(18);
/// Maximum number of cells' memories.
const MAX_SETS: usize = 8;

/// A cell's memory without the cell.
struct Subject {
    set: SpaceSet,
    memory: Memory,
}

struct Trees {
    sim: Arc<Sim>,
    /// The number of huge frames that the host provides so far.
    huge_frames: u32,
    frames: Frames,
    work: Workload,
    accounts: Vec<AccountId>,
    subjects: Vec<Subject>,
    hand: ClockHand,
    swap: Swap,
    total: PageCount,
    /// Number of shortages, of the quota and of the machine.
    shortages: u64,
}

/// The result of an attempt: `None` if there was no memory for it.
fn had<T>(result: Result<T, MemoryError>) -> Option<Result<T, Refusal>> {
    match result {
        Ok(value) => Some(Ok(value)),
        Err(MemoryError::Refused(refusal)) => Some(Err(refusal)),
        Err(MemoryError::Shortage(_) | MemoryError::Absent(_) | MemoryError::Taken(_)) => None,
    }
}

impl Trees {
    fn new(seed: u64) -> Trees {
        let sim = Sim::new(SimConfig { arena: ARENA_OF_TREES, vcpus: 0, seed, oracle: false }).expect("memory for the software machine");
        let mut frames = Frames::new(Arc::clone(&sim) as Arc<dyn Machine>, OmittedRules::NONE, REGISTRY);
        let accounts = QUOTAS.map(|quota| frames.open_account(PageCount(quota), None)).to_vec();
        let total = frames.free();
        let swap = Swap::new(accounts[accounts.len() - 1]);
        Trees {
            sim,
            huge_frames: u32::MAX,
            frames,
            work: Workload::new(seed),
            accounts,
            subjects: Vec::new(),
            hand: ClockHand::default(),
            swap,
            total,
            shortages: 0,
        }
    }

    /// Lets the host provide this number of huge frames.
    fn limit_huge_frames(&mut self, count: u32) {
        self.huge_frames = count;
        self.sim.limit_huge_frames(count);
    }

    fn step(&mut self) {
        if self.work.one_in(100) {
            self.limit_huge_frames(self.huge_frames.saturating_add(1));
        }
        if self.subjects.len() < 2 {
            return self.make();
        }
        let index = self.work.below(self.subjects.len());
        match self.work.below(100) {
            0..25 => self.edit(index),
            25..55 => self.fault(index),
            55..75 => self.copy(index),
            75..80 => self.call(index),
            80..85 => self.take(index),
            85..90 => self.look_through_the_root(index),
            90..92 if self.subjects.len() < MAX_SETS => self.make(),
            90..94 if self.subjects.len() < MAX_SETS => self.clone_set(index),
            90..95 => self.subjects.swap_remove(index).set.release(&mut self.frames),
            95 => {
                let Subject { set, .. } = &mut self.subjects[index];
                set.evict(&mut self.frames, &mut self.hand, &mut 100);
            }
            96..99 => {
                let pieces = self.work.below(40);
                self.frames.reap(pieces);
            }
            _ => self.flush(),
        }
    }

    /// Takes pages of a cell, as its parent does.
    fn take(&mut self, index: usize) {
        let address = self.work.address(&self.subjects[index].memory);
        let most = 1 + self.work.below(40) as u64;
        let Trees { frames, subjects, swap, .. } = self;
        self.shortages += u64::from(!swap.take(frames, &mut subjects[index].set, address, most));
    }

    fn make(&mut self) {
        let account = self.accounts[self.work.below(self.accounts.len())];
        let mut set = SpaceSet::new(&mut self.frames, account);
        set.attach(DiskId::new(0).expect("a disk"), DISK.blocks.into()).expect("its first disk");
        self.subjects.push(Subject { set, memory: Memory::new(DISK) });
    }

    fn clone_set(&mut self, index: usize) {
        let account = self.accounts[self.work.below(self.accounts.len())];
        let Subject { set, memory } = &mut self.subjects[index];
        let copy = Subject { set: set.clone_set(&mut self.frames, account), memory: memory.clone() };
        self.subjects.push(copy);
    }

    /// Flushes as the machine does; some flushes fail.
    fn flush(&mut self) {
        let tables = self.frames.begin_flush();
        let (before, count) = (self.frames.free(), tables.len());
        let failed = self.work.one_in(4);
        let outcome = if failed { Err(HostError::KvmLacks("memory for a flush")) } else { Ok(()) };
        self.frames.end_flush(tables, &outcome);
        assert_eq!(self.frames.quarantined(), if failed { count } else { 0 });
        assert_eq!(self.frames.free(), if failed { before } else { before + PageCount(count as u64) });
    }

    /// Maps, unmaps or protects, step by step.
    fn edit(&mut self, index: usize) {
        let Subject { set, memory } = &mut self.subjects[index];
        let frames = &mut self.frames;
        let place = |space: u64| SpaceIndex(if space == CURRENT_SPACE { memory.current() } else { space } as u32);
        let call = self.work.edit(memory, false);
        let (Hypercall::Map { space, address, pages, .. }
        | Hypercall::MapBlocks { space, address, pages, .. }
        | Hypercall::Populate { space, address, pages }
        | Hypercall::Unmap { space, address, pages }
        | Hypercall::Protect { space, address, pages, .. }) = call
        else {
            unreachable!("an edit has a range")
        };
        let mut range = match set.check(place(space), address, pages) {
            Ok(range) => range,
            Err(refusal) => return assert_eq!(memory.call(call), Err(refusal)),
        };
        let done = match call {
            Hypercall::Map { flags, .. } => {
                let flags = MapFlags::from_bits(flags).expect("flags");
                let done = had(set.map(frames, &range, flags));
                if flags.eager && done.is_some() {
                    populate(frames, &self.swap, set, &mut range);
                }
                done
            }
            Hypercall::MapBlocks { block, flags, .. } => {
                let flags = MapFlags::from_bits(flags).expect("flags");
                match set.blocks(BlockAddress::from_bits(block), pages) {
                    Ok(block) => had(set.map_blocks(frames, &range, block, flags.permissions)),
                    Err(refusal) => Some(Err(refusal)),
                }
            }
            Hypercall::Populate { .. } => {
                populate(frames, &self.swap, set, &mut range);
                Some(Ok(()))
            }
            Hypercall::Protect { permissions, .. } => {
                let permissions = Permissions::from_bits(permissions).expect("permissions");
                return self.shortages += u64::from(!protect(frames, set, memory, range, permissions));
            }
            _ => had(set.unmap(frames, &range)),
        };
        match done {
            Some(result) => assert_eq!(result.map(|()| 0), memory.call(call)),
            None => self.shortages += 1,
        }
    }

    /// A fault of the program, at a page that may be unmapped.
    fn fault(&mut self, index: usize) {
        let address = self.work.address(&self.subjects[index].memory);
        let Subject { set, memory } = &mut self.subjects[index];
        let access = [Access::Read, Access::Write, Access::Execute][self.work.below(3)];
        let permissions = memory.page(memory.current(), address).map(|page| page.permissions).unwrap_or_default();
        let allowed = match access {
            Access::Read => permissions.readable(),
            Access::Write => permissions.writable(),
            Access::Execute => permissions.executable(),
        };
        let lost = memory.page(memory.current(), address).is_some_and(|page| page.lost);
        let found = set.inspect(&self.frames, set.current(), address).expect("an address of the cell's");
        let lazy = found.is_some_and(|found| matches!(found.decoded, DecodedEntry::Lazy { .. }));
        let resolved = loop {
            let resolved = set.resolve(&mut self.frames, address, access);
            self.frames.forget_unreadable();
            match resolved {
                Ok(FaultOutcome::Absent(wanted)) if bring_in(&mut self.frames, wanted) => {}
                Ok(FaultOutcome::Taken(number)) => {
                    assert!(allowed, "{access:?} at {address:#x} needs no page");
                    let page = TakenPage { space: set.current(), address: address & !(PAGE_SIZE - 1), number };
                    if !self.swap.give(&mut self.frames, set, page) {
                        return self.shortages += 1;
                    }
                }
                resolved => break resolved,
            }
        };
        match resolved {
            Ok(FaultOutcome::Absent(_)) => self.shortages += 1,
            Ok(FaultOutcome::Unreadable) => assert!(allowed && lost, "{access:?} at {address:#x} could not be read"),
            Ok(FaultOutcome::Refused) => assert!(!allowed, "{access:?} at {address:#x} was refused"),
            Ok(fault) => {
                if let FaultOutcome::Copied { replaced: Some(frame) } = fault {
                    self.frames.release(frame);
                }
                assert!(allowed, "{access:?} at {address:#x} was allowed");
                if lazy {
                    let page = read_page(&self.frames, set, address);
                    assert!(page.iter().all(|byte| *byte == 0), "fresh memory at {address:#x} is not zero");
                }
            }
            Err(_) => {
                assert!(allowed);
                self.shortages += 1;
            }
        }
    }

    /// The kernel's own reads and writes. A write fills the page, so that the next user of its frame would notice old content.
    fn copy(&mut self, index: usize) {
        let address = self.work.address(&self.subjects[index].memory);
        let Subject { set, memory } = &mut self.subjects[index];
        let authority = if self.work.one_in(2) { CopyAuthority::Cell } else { CopyAuthority::Operator };
        let page = memory.page(memory.current(), address);
        let start = address & !(PAGE_SIZE - 1);
        if self.work.one_in(2) {
            let word = self.work.value();
            let allowed = page.is_some_and(|page| authority == CopyAuthority::Operator || page.permissions.writable());
            let bytes: Vec<u8> = std::iter::repeat_n(word.to_le_bytes(), PAGE_SIZE as usize / 8).flatten().collect();
            let written = copied(&mut self.frames, &self.swap, set, |frames, set| set.write(frames, start, &bytes, authority));
            match written {
                Ok(()) => {
                    assert!(allowed);
                    assert!(WORDS.iter().all(|offset| memory.poke(start + offset, word)));
                }
                Err(CopyError::Refused) => assert!(!allowed, "the kernel could not write {start:#x}"),
                Err(CopyError::Unreadable) => assert!(page.is_some_and(|page| page.lost), "the kernel could not read {start:#x}"),
                Err(CopyError::Shortage(_) | CopyError::Absent(_) | CopyError::Taken(_)) => self.shortages += 1,
            }
        } else {
            let allowed = page.is_some_and(|page| authority == CopyAuthority::Operator || page.permissions.readable());
            let mut bytes = [0; 8];
            let read = copied(&mut self.frames, &self.swap, set, |frames, set| set.read(frames, address, &mut bytes, authority));
            if let Err(CopyError::Shortage(_) | CopyError::Absent(_) | CopyError::Taken(_)) = read {
                return self.shortages += 1;
            }
            let got = read.ok().map(|()| u64::from_le_bytes(bytes));
            assert_eq!(got, if allowed { memory.peek(address) } else { None }, "what the kernel reads at {address:#x}");
        }
    }

    /// A call about spaces and segments.
    fn call(&mut self, index: usize) {
        let Subject { set, memory } = &mut self.subjects[index];
        let frames = &mut self.frames;
        let call = self.work.call(memory);
        let current = memory.current();
        let place = |space: u64| SpaceIndex(if space == CURRENT_SPACE { current } else { space } as u32);
        let got = match call {
            Hypercall::SpaceCreate {} => set.create_space(frames).map(|space| u64::from(space.0)),
            Hypercall::SpaceClone { space } => set.clone_space(frames, place(space)).map(|space| u64::from(space.0)),
            Hypercall::SpaceSwitch { space } => set.switch(place(space)).map(|()| 0),
            Hypercall::SpaceDestroy { space } => set.destroy_space(frames, place(space)).map(|()| 0),
            Hypercall::SegmentCreate {} => set.create_segment().map(|segment| u64::from(segment.0)),
            Hypercall::SegmentMount { segment, space, address } => {
                set.mount_segment(frames, SegmentIndex(segment as u32), place(space), address).map(|()| 0)
            }
            Hypercall::SegmentDestroy { segment } => set.destroy_segment(frames, SegmentIndex(segment as u32)).map(|()| 0),
            _ => return,
        };
        assert_eq!(got, memory.call(call), "{call:?}");
    }

    /// Checks the translations of the running root: never more access than the model allows, and never another page's content.
    fn look_through_the_root(&mut self, index: usize) {
        let addresses: Vec<u64> = (0..20).map(|_| self.work.address(&self.subjects[index].memory)).collect();
        let Subject { set, memory } = &mut self.subjects[index];
        let Ok(root) = set.root(&mut self.frames) else { return self.shortages += 1 };
        for address in addresses {
            let Some((frame, writable)) = walk(&self.frames, root, address) else { continue };
            let page = memory.page(memory.current(), address).expect("the CPU finds a page where nothing is mapped");
            assert!(page.permissions.readable(), "the CPU may read {address:#x}");
            assert!(!writable || page.permissions.writable(), "the CPU may write {address:#x}");
            let word = self.frames.arena().load(frame, EntryIndex::new((address % PAGE_SIZE / 8) as usize));
            assert_eq!(Some(word), memory.peek(address), "what the CPU finds at {address:#x}");
        }
    }

    /// Checks that every frame is free or charged to an account.
    fn check_accounts(&self) {
        let used = self.accounts.iter().fold(self.frames.registry().used, |sum, account| sum + self.frames.usage(*account).used);
        assert!(self.frames.registry().used <= REGISTRY);
        assert_eq!(used + self.frames.free(), self.total, "frames that are used, and free ones");
        for account in &self.accounts {
            // Only the eviction of blocks may exceed a quota: by the tables that it replaces, and by one step's copies of shared tables.
            let Usage { quota, used, tables, retired, .. } = self.frames.usage(*account);
            assert!(tables + retired <= used && used <= quota + retired + EVICTED_AT_ONCE, "{:?}", self.frames.usage(*account));
        }
    }

    fn finish(mut self) {
        for subject in self.subjects.drain(..) {
            subject.set.release(&mut self.frames);
        }
        while !self.frames.reap(10) {}
        self.frames.reclaim_all();
        let tables = self.frames.begin_flush();
        self.frames.end_flush(tables, &Ok(()));
        assert_eq!((self.frames.free(), self.frames.registry().used), (self.total, PageCount(0)));
        for account in self.accounts {
            let usage = self.frames.usage(account);
            assert_eq!(Usage { quota: PageCount(0), peak: PageCount(0), ..usage }, Usage::default());
            self.frames.close_account(account);
        }
        println!("shortages: {}, pages taken: {}", self.shortages, self.swap.taken());
    }
}

/// Copies. Reads the blocks that this needs, and gives the pages.
fn copied(
    frames: &mut Frames,
    swap: &Swap,
    set: &mut SpaceSet,
    mut copy: impl FnMut(&mut Frames, &mut SpaceSet) -> Result<(), CopyError>,
) -> Result<(), CopyError> {
    loop {
        let copied = copy(frames, set);
        frames.forget_unreadable();
        match copied {
            Err(CopyError::Absent(wanted)) if bring_in(frames, wanted) => {}
            Err(CopyError::Taken(page)) if swap.give(frames, set, page) => {}
            copied => return copied,
        }
    }
}

/// Makes mapped pages present, as far as there is memory.
fn populate(frames: &mut Frames, swap: &Swap, set: &mut SpaceSet, range: &mut PageSpan) {
    while !range.pages.is_empty() {
        match set.populate_step(frames, range) {
            Ok(()) => frames.forget_unreadable(),
            Err(MemoryError::Absent(wanted)) if bring_in(frames, wanted) => {}
            Err(MemoryError::Taken(page)) if swap.give(frames, set, page) => {}
            Err(_) => return,
        }
    }
}

/// Reads blocks as the kernel does. `false`: there is no room.
fn bring_in(frames: &mut Frames, wanted: BlockRequest) -> bool {
    let Some(reading) = frames.begin_reading(wanted) else { return false };
    let wanted = wanted.block;
    let whole = reading.targets().all(|(block, _)| words(block.number.0).is_some());
    let mut read = wanted.number.0..wanted.number.0;
    for (block, frame) in reading.targets().filter(|(block, _)| whole || *block == wanted) {
        let Some(words) = words(block.number.0) else { continue };
        frames.arena().zero(frame, 1);
        for (offset, word) in WORDS.into_iter().zip(words) {
            frames.arena().write(frame, offset as usize, &word.to_le_bytes());
        }
        read = read.start.min(block.number.0)..read.end.max(block.number.0 + 1);
    }
    frames.finish_reading(reading, read);
    true
}

/// Protects step by step; `false`: there was no memory for the rest.
fn protect(frames: &mut Frames, set: &mut SpaceSet, memory: &mut Memory, mut range: PageSpan, permissions: Permissions) -> bool {
    let slot = range.slot as u64 * SLOT_SIZE;
    while !range.pages.is_empty() {
        let first = range.pages.start;
        if set.protect_step(frames, &mut range, permissions).is_err() {
            return false;
        }
        let (space, address) = (u64::from(range.space.0), slot + first * PAGE_SIZE);
        let call = Hypercall::Protect { space, address, pages: range.pages.start - first, permissions: permissions.bits() };
        assert_eq!(memory.call(call), Ok(0));
    }
    true
}

fn read_page(frames: &Frames, set: &mut SpaceSet, address: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE_SIZE as usize];
    set.read(frames, address & !(PAGE_SIZE - 1), &mut page, CopyAuthority::Operator).expect("the page is there");
    page
}

#[test]
fn trees_keep_their_word_on_a_machine_that_is_nearly_full() {
    let first = seed(1);
    for seed in first..first + u64::from(repetitions(1, 4, 40)) {
        println!("seed {seed}: run it again with PANDO_SEED={seed}");
        let mut trees = Trees::new(seed);
        trees.limit_huge_frames(1);
        for _ in 0..repetitions(2_000, 100_000, 1_000_000) {
            trees.step();
            trees.check_accounts();
        }
        trees.finish();
    }
}

/// Address of the memory in these tests: the start of a slot.
const HERE: u64 = SLOT_SIZE;

#[test]
fn an_account_outlives_its_owner_as_long_as_it_pays_for_a_frame() {
    let mut trees = Trees::new(0);
    let (maker, taker) = (trees.frames.open_account(PageCount(1_000), None), trees.frames.open_account(PageCount(1_000), None));
    let mut source = SpaceSet::new(&mut trees.frames, maker);
    let range = source.check(SpaceIndex(0), HERE, 10).expect("a range");
    source.map(&mut trees.frames, &range, MapFlags::lazy(Permissions::READ_WRITE)).expect("room");
    source.write(&mut trees.frames, HERE, &value(1).to_le_bytes(), CopyAuthority::Cell).expect("room");
    let mut clone = source.clone_set(&mut trees.frames, taker);
    assert_eq!(trees.frames.usage(taker).used, PageCount(0), "a clone costs nothing");
    source.release(&mut trees.frames);
    trees.frames.close_account(maker);
    while !trees.frames.reap(1) {}
    let paid = trees.frames.usage(maker).used;
    assert_eq!(paid, PageCount(4), "a page and three tables");
    // The last holder writes into the page itself, and makes its own path to it.
    clone.write(&mut trees.frames, HERE, &value(2).to_le_bytes(), CopyAuthority::Cell).expect("room");
    assert_eq!(trees.frames.usage(taker).used, PageCount(3));
    let Usage { used, retired, .. } = trees.frames.usage(maker);
    assert_eq!((used, retired), (PageCount(4), PageCount(3)));
    clone.release(&mut trees.frames);
    trees.frames.close_account(taker);
    trees.finish();
}

#[test]
fn a_large_page_is_split_by_its_second_holder_and_comes_back_whole() {
    let mut trees = Trees::new(0);
    let account = trees.frames.open_account(PageCount(10_000), None);
    let mut source = SpaceSet::new(&mut trees.frames, account);
    let mut range = source.check(SpaceIndex(0), HERE, 512).expect("a range");
    let flags = MapFlags { permissions: Permissions::READ_WRITE, eager: true, large: true };
    source.map(&mut trees.frames, &range, flags).expect("room");
    source.populate_step(&mut trees.frames, &mut range).expect("room");
    assert_eq!(trees.frames.usage(account).used, PageCount(512 + 2), "one large page, two tables");
    let mut clone = source.clone_set(&mut trees.frames, account);
    clone.write(&mut trees.frames, HERE + 5 * PAGE_SIZE, &[7], CopyAuthority::Cell).expect("room");
    assert_eq!(trees.frames.usage(account).used, PageCount(512 + 2 + 1 + 3), "one page more, and a path of three tables");
    let level = |set: &mut SpaceSet| set.inspect(&trees.frames, SpaceIndex(0), HERE).expect("an address").map(|found| found.level);
    assert_eq!((level(&mut source), level(&mut clone)), (Some(2), Some(1)));
    // The source is released; the clone holds 511 parts, and the part that it copied is free again.
    source.release(&mut trees.frames);
    while !trees.frames.reap(1) {}
    let Usage { used, retired, .. } = trees.frames.usage(account);
    assert_eq!((used, retired), (PageCount(512 + 3 + 2), PageCount(2)));
    clone.release(&mut trees.frames);
    while !trees.frames.reap(1) {}
    trees.frames.close_account(account);
    trees.finish();
}

#[test]
fn a_full_account_does_not_keep_blocks_from_others() {
    let mut trees = Trees::new(0);
    let account = trees.frames.open_account(PageCount(60), None);
    let mut set = SpaceSet::new(&mut trees.frames, account);
    set.attach(DiskId::new(0).expect("a disk"), DISK.blocks.into()).expect("its first disk");
    let range = set.check(SpaceIndex(0), HERE, 64).expect("a range");
    let first = set.blocks(BlockAddress::from_bits(0), 64).expect("blocks of its disk");
    set.map_blocks(&mut trees.frames, &range, first, Permissions::READ).expect("room");
    while let FaultOutcome::Absent(wanted) = set.resolve(&mut trees.frames, HERE, Access::Read).expect("room") {
        assert!(bring_in(&mut trees.frames, wanted));
    }
    let memory = set.check(SpaceIndex(0), HERE + (1 << 30), 100).expect("a range");
    set.map(&mut trees.frames, &memory, MapFlags::lazy(Permissions::READ_WRITE)).expect("room");
    let mut write = |page: u64| set.write(&mut trees.frames, HERE + (1 << 30) + page * PAGE_SIZE, &[1], CopyAuthority::Cell);
    assert!((0..100).any(|page| write(page).is_err()), "the account is full");
    assert!(trees.frames.has_mapped_blocks());
    assert!(set.evict(&mut trees.frames, &mut trees.hand, &mut 100), "its blocks can be evicted");
    assert!(!trees.frames.has_mapped_blocks());
    set.release(&mut trees.frames);
    while !trees.frames.reap(1) {}
    trees.frames.close_account(account);
    trees.finish();
}

#[test]
fn copies_of_tables_for_evictions_hardly_exceed_the_quota() {
    let mut trees = Trees::new(0);
    let account = trees.frames.open_account(PageCount(60), None);
    let mut set = SpaceSet::new(&mut trees.frames, account);
    set.attach(DiskId::new(0).expect("a disk"), DISK.blocks.into()).expect("its first disk");
    let first = set.blocks(BlockAddress::from_bits(0), 64).expect("blocks of its disk");
    // Each table contains more than blocks, so that it cannot become one entry.
    let tables = 20;
    for table in 0..tables {
        let address = HERE + table * (PAGE_SIZE << 9);
        let range = set.check(SpaceIndex(0), address, 64).expect("a range");
        set.map_blocks(&mut trees.frames, &range, first, Permissions::READ).expect("room");
        while let FaultOutcome::Absent(wanted) = set.resolve(&mut trees.frames, address, Access::Read).expect("room") {
            assert!(bring_in(&mut trees.frames, wanted));
        }
    }
    for _ in 0..30 {
        set.clone_space(&mut trees.frames, SpaceIndex(0)).expect("clones cost nothing");
    }
    while set.evict(&mut trees.frames, &mut trees.hand, &mut 100_000) {}
    let tables = trees.frames.begin_flush();
    trees.frames.end_flush(tables, &Ok(()));
    let usage = trees.frames.usage(account);
    assert!(usage.used <= usage.quota + EVICTED_AT_ONCE, "{usage:?}");
    set.release(&mut trees.frames);
    while !trees.frames.reap(1) {}
    trees.frames.close_account(account);
    trees.finish();
}

/// Writes to `written` in the running space as a program does. Returns how many writes faulted.
fn write_each(frames: &mut Frames, set: &mut SpaceSet, written: &[u64]) -> usize {
    let mut write = |page: &&u64| set.resolve(frames, **page * PAGE_SIZE, Access::Write);
    written.iter().map(|page| write(&page).expect("there is memory")).filter(|fault| !matches!(fault, FaultOutcome::Spurious)).count()
}

#[test]
fn pages_written_after_a_clone_are_prefetched_for_the_next() {
    const PAGES: u64 = 100;
    let sim = Sim::new(SimConfig { arena: ARENA_OF_TREES, vcpus: 0, seed: 1, oracle: false }).expect("memory for the software machine");
    let mut frames = Frames::new(sim, OmittedRules::NONE, REGISTRY);
    let account = frames.open_account(PageCount(10_000), None);
    let mut set = SpaceSet::new(&mut frames, account);
    let mut range = set.check(SpaceIndex(0), 16 * PAGE_SIZE, PAGES).expect("a range of its own");
    set.map(&mut frames, &range, MapFlags::eager(Permissions::READ_WRITE)).expect("there is memory");
    while !range.pages.is_empty() {
        set.populate_step(&mut frames, &mut range).expect("there is memory");
    }
    let (by_parent, by_child) = ([20, 21, 60], [20, 40, 90]);
    for round in 0..3_u8 {
        for page in 16..16 + PAGES {
            set.write(&mut frames, page * PAGE_SIZE, &[round], CopyAuthority::Cell).expect("it may be written");
        }
        let child = set.clone_space(&mut frames, SpaceIndex(0)).expect("there is room");
        let expected = if round == 0 { 3 } else { 0 };
        assert_eq!(write_each(&mut frames, &mut set, &by_parent), expected, "the parent in round {round}");
        set.switch(child).expect("it is there");
        assert_eq!(write_each(&mut frames, &mut set, &by_child), expected, "the child in round {round}");
        set.write(&mut frames, 20 * PAGE_SIZE, &[100], CopyAuthority::Cell).expect("it may be written");
        set.switch(SpaceIndex(0)).expect("it is there");
        assert_eq!(read_page(&frames, &mut set, 20 * PAGE_SIZE)[0], round, "what the child wrote is its own");
        set.destroy_space(&mut frames, child).expect("it does not run");
        while !frames.reap(100) {}
    }
    set.release(&mut frames);
}
