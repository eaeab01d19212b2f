// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copy-on-write in clusters, without cells: whatever a fault copies beside its page, each holder keeps its own content, read-only pages
//! stay shared, quotas hold, and all memory comes back.

use crate::{ARENA_OF_TREES, REGISTRY};
use pando_abi::{MapFlags, PAGE_SIZE, Permissions, SpaceIndex};
use pando_kernel::memory::{Access, AccountId, CopyAuthority, DecodedEntry, FaultOutcome, Frames, OmittedRules, PageSpan, SpaceSet};
use pando_machine::PageCount;
use pando_machine::sim::{Sim, SimConfig};
use pando_testing::lab::seeds;

/// Memory of the source: three spans of large pages, not aligned to them.
const FIRST: u64 = 512 + 100;
const PAGES: u64 = 3 * 512;

struct Memories {
    frames: Frames,
    total: PageCount,
    source: SpaceSet,
    account: AccountId,
}

impl Memories {
    fn new(seed: u64, large: bool) -> Memories {
        let sim = Sim::new(SimConfig { arena: ARENA_OF_TREES, vcpus: 0, seed, oracle: false }).expect("memory for the software machine");
        let mut frames = Frames::new(sim, OmittedRules::NONE, REGISTRY);
        let total = frames.free();
        let account = frames.open_account(total, None);
        let mut source = SpaceSet::new(&mut frames, account);
        let range = source.check(SpaceIndex(0), FIRST * PAGE_SIZE, PAGES).expect("a range of its own");
        let flags = MapFlags { large, ..MapFlags::lazy(Permissions::READ_WRITE) };
        source.map(&mut frames, &range, flags).expect("there is memory");
        let mut memories = Memories { frames, total, source, account };
        for page in FIRST..FIRST + PAGES {
            memories.source.write(&mut memories.frames, page * PAGE_SIZE, &page.to_le_bytes(), CopyAuthority::Cell).expect("room");
        }
        memories
    }

    /// Releases everything: no frame is lost.
    fn finish(mut self, clone: SpaceSet, payer: AccountId) {
        clone.release(&mut self.frames);
        self.source.release(&mut self.frames);
        while !self.frames.reap(100) {}
        for account in [payer, self.account] {
            self.frames.close_account(account);
        }
        flush(&mut self.frames);
        assert_eq!(self.frames.free(), self.total);
    }
}

fn flush(frames: &mut Frames) {
    let tables = frames.begin_flush();
    frames.end_flush(tables, &Ok(()));
}

fn word(frames: &Frames, set: &mut SpaceSet, page: u64) -> u64 {
    let mut bytes = [0; 8];
    set.read(frames, page * PAGE_SIZE, &mut bytes, CopyAuthority::Cell).expect("it is mapped");
    u64::from_le_bytes(bytes)
}

/// Writes a page as a program does: it faults if the page is shared. Returns whether it did.
fn store(frames: &mut Frames, set: &mut SpaceSet, page: u64, value: u64) -> bool {
    let fault = set.resolve(frames, page * PAGE_SIZE, Access::Write).unwrap_or_else(|_| {
        // Tables that fresh paths have replaced are charged until the machine is flushed.
        flush(frames);
        set.resolve(frames, page * PAGE_SIZE, Access::Write).expect("there is memory")
    });
    if let FaultOutcome::Copied { replaced: Some(frame) } = fault {
        frames.release(frame);
    }
    let root = set.inspect(frames, SpaceIndex(0), page * PAGE_SIZE).expect("an address").expect("it is mapped");
    assert!(
        root.is_owned && matches!(root.decoded, DecodedEntry::Page { writable: true, .. }),
        "page {page} is not exclusive after {fault:?}"
    );
    set.write(frames, page * PAGE_SIZE, &value.to_le_bytes(), CopyAuthority::Cell).expect("it is exclusive");
    fault != FaultOutcome::Spurious
}

#[test]
fn each_holder_keeps_its_content_whatever_a_cluster_copies() {
    for seed in seeds(6, 24, 500) {
        let (mut random, large) = (fastrand::Rng::with_seed(seed), seed % 3 == 0);
        let mut memories = Memories::new(seed, large);
        let Memories { frames, source, .. } = &mut memories;
        let quota = [400, 1000, 4000][(seed % 3) as usize];
        let payer = frames.open_account(PageCount(quota), None);
        let mut clone = source.clone_set(frames, payer);
        // Some pages may only be read, and stay shared.
        let closed: PageSpan = clone.check(SpaceIndex(0), (FIRST + 700) * PAGE_SIZE, 30).expect("a range");
        let mut rest = closed.clone();
        while !rest.pages.is_empty() {
            clone.protect_step(frames, &mut rest, Permissions::READ).expect("there is memory");
        }
        let mut expected: Vec<u64> = (FIRST..FIRST + PAGES).collect();
        let stride = [1, 1, 7, 64][random.usize(0..4)];
        for step in 0..200_u64 {
            let index = if random.u8(0..4) == 0 { random.u64(0..PAGES) } else { step * stride % PAGES };
            if (700..730).contains(&index) {
                let refused = clone.resolve(frames, (FIRST + index) * PAGE_SIZE, Access::Write).expect("it needs no memory");
                assert_eq!(refused, FaultOutcome::Refused);
                continue;
            }
            let value = 1_000_000 + step;
            store(frames, &mut clone, FIRST + index, value);
            expected[index as usize] = value;
            assert!(frames.usage(payer).used.0 <= quota);
        }
        for (index, value) in (0..).zip(&expected) {
            assert_eq!(word(frames, &mut clone, FIRST + index), *value, "seed {seed}: page {index} of the clone");
            assert_eq!(word(frames, source, FIRST + index), FIRST + index, "seed {seed}: page {index} of the source");
        }
        memories.finish(clone, payer);
    }
}

#[test]
fn a_span_that_is_written_as_a_whole_becomes_a_large_page() {
    let mut memories = Memories::new(1, false);
    let Memories { frames, source, .. } = &mut memories;
    let payer = frames.open_account(PageCount(4000), None);
    let mut clone = source.clone_set(frames, payer);
    let faults = (1024..1536).filter(|page| store(frames, &mut clone, *page, 7)).count();
    assert!(faults < 12, "{faults} faults for 512 pages");
    let found = clone.inspect(frames, SpaceIndex(0), 1024 * PAGE_SIZE).expect("an address").expect("it is mapped");
    assert_eq!((found.level, found.is_owned), (2, true));
    assert!((1024..1536).all(|page| word(frames, &mut clone, page) == 7 && word(frames, source, page) == page));
    memories.finish(clone, payer);
}

#[test]
fn a_cell_with_little_memory_copies_page_by_page() {
    let mut memories = Memories::new(1, false);
    let Memories { frames, source, .. } = &mut memories;
    let payer = frames.open_account(PageCount(100), None);
    let mut clone = source.clone_set(frames, payer);
    for page in FIRST..FIRST + 80 {
        store(frames, &mut clone, page, 7);
    }
    assert!(frames.usage(payer).used.0 <= 100);
    memories.finish(clone, payer);
}
