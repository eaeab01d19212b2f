// SPDX-License-Identifier: MIT OR Apache-2.0
//! The regions against a model of each page, and the arithmetic of plans.

use std::vec::Vec;

use pando_abi::{LARGE_PAGE_SIZE, MapFlags, PAGE_SIZE, Permissions};
use pando_rt::memory::PageRange;
use proptest::prelude::*;

use super::population_plan::plan;
use super::regions::{Backing, Region, Regions};

const PAGES: u64 = 64;

fn range(start: u64, end: u64) -> PageRange {
    PageRange::new(start * PAGE_SIZE, end * PAGE_SIZE).expect("a range of at least one page")
}

fn region(kind: u64) -> Region {
    let backing = [Backing::Anonymous, Backing::Copy, Backing::Reserved][(kind % 3) as usize];
    Region { permissions: Permissions::from_bits(kind % 8).expect("three bits"), backing }
}

fn agrees(regions: &Regions, model: &[Option<Region>]) {
    let mut found = Vec::new();
    let mut last: Option<(PageRange, Region)> = None;
    for (part, region) in regions.pieces(range(0, PAGES)) {
        if let Some((before, other)) = last {
            assert!(before.end() < part.start() || other != region, "equal neighbours are one region");
        }
        last = Some((part, region));
        found.resize((part.start() / PAGE_SIZE) as usize, None);
        found.resize((part.end() / PAGE_SIZE) as usize, Some(region));
    }
    found.resize(model.len(), None);
    assert_eq!(found, model);
}

proptest! {
    #[test]
    fn regions_match_a_model_of_each_page(steps in prop::collection::vec((0..3u64, 0..PAGES, 1..20u64, 0..24u64), 1..60)) {
        let mut regions = Regions::default();
        let mut model = [None; PAGES as usize];
        for (action, start, length, kind) in steps {
            let end = (start + length).min(PAGES);
            let pages = start as usize..end as usize;
            prop_assert_eq!(regions.is_free(range(start, end)), model[pages.clone()].iter().all(Option::is_none));
            prop_assert_eq!(regions.covers(range(start, end)), model[pages.clone()].iter().all(Option::is_some));
            if action == 0 {
                regions.remove(range(start, end));
                model[pages].fill(None);
            } else {
                regions.put(range(start, end), region(kind));
                model[pages].fill(Some(region(kind)));
            }
            agrees(&regions, &model);
        }
    }

    #[test]
    fn the_place_found_is_the_highest_free_one(
        occupied in prop::collection::vec((0..PAGES, 1..6u64), 0..20),
        bytes in 1..10u64, alignment in prop::sample::select([1u64, 2, 4].as_slice()), avoid in 0..PAGES,
    ) {
        let mut regions = Regions::default();
        let mut model = [false; PAGES as usize];
        for (start, length) in occupied {
            let end = (start + length).min(PAGES);
            regions.put(range(start, end), region(0));
            model[start as usize..end as usize].fill(true);
        }
        model[avoid as usize] = true;
        let avoid = avoid * PAGE_SIZE..(avoid + 1) * PAGE_SIZE;
        let found = regions.find(bytes * PAGE_SIZE, alignment * PAGE_SIZE, 0..PAGES * PAGE_SIZE, &avoid);
        let expected = (0..=PAGES - bytes)
            .rev()
            .find(|start| start % alignment == 0 && !model[*start as usize..(start + bytes) as usize].contains(&true));
        prop_assert_eq!(found, expected.map(|start| range(start, start + bytes)));
    }

    #[test]
    fn a_plan_covers_its_range_once_and_uses_large_pages_where_they_fit(start in 0..2048u64, length in 1..4096u64) {
        let whole = range(start, start + length);
        let mut at = whole.start();
        for (part, flags) in plan(whole, Permissions::READ_WRITE, Backing::Anonymous) {
            prop_assert_eq!(part.start(), at);
            at = part.end();
            if flags.large {
                prop_assert!(part.start() % LARGE_PAGE_SIZE == 0 && part.bytes() % LARGE_PAGE_SIZE == 0 && !flags.eager);
            } else {
                prop_assert!(flags.eager && part.bytes() < 2 * LARGE_PAGE_SIZE);
            }
        }
        prop_assert_eq!(at, whole.end());
        let stack: Vec<_> = plan(whole, Permissions::READ_WRITE, Backing::Stack).collect();
        prop_assert_eq!(stack, [(whole, MapFlags::lazy(Permissions::READ_WRITE))]);
    }
}
