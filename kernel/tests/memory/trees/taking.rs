// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pager without cells: it takes pages at random, and gives each when something needs it.

use pando_abi::PAGE_SIZE;
use pando_kernel::memory::{AccountId, Frames, PageSpan, SpaceSet, SwapNumber, TakenPage};
use pando_machine::FrameId;
use std::collections::HashMap;

/// The content of all pages that were ever taken. A number is used once, so that a wrong page would have another content.
#[derive(Debug)]
pub(super) struct Swap {
    contents: HashMap<u32, Vec<u8>>,
    next: u32,
    /// Pays for the frame whose content is given.
    account: AccountId,
}

impl Swap {
    pub(super) fn new(account: AccountId) -> Swap {
        Swap { contents: HashMap::new(), next: 0, account }
    }

    /// Number of pages that were taken.
    pub(super) fn taken(&self) -> u32 {
        self.next
    }

    /// Takes some pages at or after an address of the running space. `false`: there was no memory for tables.
    pub(super) fn take(&mut self, frames: &mut Frames, set: &mut SpaceSet, address: u64, max: u64) -> bool {
        let Ok(start) = set.check_page_out(set.current(), address & !(PAGE_SIZE - 1), 1) else { return true };
        let found = set.find_page_out_candidates(frames, &start, max);
        if found.is_empty() {
            return true;
        }
        let range = PageSpan { pages: found, ..start };
        let taken = set.present_frames(frames, &range).expect("pages to take are present");
        let contents: Vec<Vec<u8>> = taken.iter().map(|frame| content(frames, *frame)).collect();
        match set.take(frames, &range, &taken, SwapNumber(self.next)) {
            Ok(true) => {
                for content in contents {
                    self.contents.insert(self.next, content);
                    self.next += 1;
                }
                true
            }
            Ok(false) => true,
            Err(_) => false,
        }
    }

    /// Gives a page that is needed. `false`: there was no memory for it.
    pub(super) fn give(&self, frames: &mut Frames, set: &mut SpaceSet, page: TakenPage) -> bool {
        let range = set.check_page_out(page.space, page.address, 1).expect("it was taken");
        let wrong = set.find_returnable(frames, &range, page.number.offset(1));
        assert!(wrong.is_err() || wrong.is_ok_and(|pages| pages.is_empty()), "{page:?} has one number");
        match set.find_returnable(frames, &range, page.number) {
            Ok(pages) => assert_eq!(pages, range.pages, "{page:?} is needed, and was taken"),
            Err(_) => return false,
        }
        let Ok(source) = frames.allocate(self.account, false) else { return false };
        frames.arena().write(source, 0, &self.contents[&page.number.0]);
        let is_given = set.give(frames, &range, &[Some(source)]).is_ok();
        frames.release(source);
        is_given
    }
}

fn content(frames: &Frames, frame: FrameId) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_SIZE as usize];
    frames.arena().read(frame, 0, &mut bytes);
    bytes
}
