// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trim: gives the host frames that are free, and frames whose content is in the program's file.

use super::file_page::FilePage;
use super::frame_table::Frames;
use pando_machine::{ExecutableBytes, FRAME_SIZE, FrameId};

impl Frames {
    /// Records that a frame was filled with a page of the program's file.
    pub(in crate::memory) fn note_file_page(&mut self, frame: FrameId, bytes: &'static ExecutableBytes, page: u32) {
        self.file_pages.push(FilePage { frame, bytes, page });
    }

    /// Replaces some frames that were filled with pages of the program's file by these pages, if they still have the same content. No
    /// vCPU may run. `false`: none is left.
    pub(crate) fn map_file_pages(&mut self, max: usize) -> bool {
        let rest = self.file_pages.split_off(self.file_pages.len().min(max));
        let next = std::mem::replace(&mut self.file_pages, rest);
        let follows = |one: &FilePage, next: &FilePage| next.frame == one.frame.offset(1) && next.page == one.page + 1;
        let same: Vec<FilePage> = next.into_iter().filter(|page| self.is_same(page)).collect();
        for run in same.chunk_by(follows) {
            let FilePage { frame, bytes, page } = run[0];
            self.arena().map_bytes(frame, bytes, page..page + run.len() as u32);
        }
        !self.file_pages.is_empty()
    }

    /// Whether a frame is in use and contains the page.
    fn is_same(&self, FilePage { frame, bytes, page }: &FilePage) -> bool {
        let mut content = [0; FRAME_SIZE];
        self.arena().read(*frame, 0, &mut content);
        self.holders[frame.0 as usize] > 0 && content == bytes.page(*page)
    }

    /// Gives the host the memory of the free frames of one partly used huge frame, from `from` on, and moves `from` past it. `false`:
    /// there is none with enough of them.
    pub(crate) fn trim_next(&mut self, from: &mut u32) -> bool {
        let Frames { allocator, machine, .. } = self;
        allocator.trim_next(machine.arena(), from)
    }
}

#[cfg(test)]
mod tests {
    use crate::limits::TRIM_FREE_FRAMES;
    use crate::memory::frames::{AccountId, Frames};
    use crate::memory::rules::OmittedRules;
    use pando_machine::sim::{Sim, SimConfig};
    use pando_machine::{EntryIndex, ExecutableBytes, FRAME_SIZE, FRAMES_PER_HUGE_FRAME, FrameId, HugeFrame, Machine, PageCount};
    use proptest::prelude::*;
    use std::sync::{Arc, LazyLock};

    const WORD: EntryIndex = EntryIndex::new(511);

    /// A step of an allocator's life.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Allocate(usize),
        AllocateLarge,
        /// Frees this allocation, and every so many after it.
        Free(usize, usize),
        Decommit(usize),
        Trim,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (1usize..700).prop_map(Step::Allocate),
            1 => Just(Step::AllocateLarge),
            4 => (0usize..64, 1usize..64).prop_map(|(first, every)| Step::Free(first, every)),
            1 => (0usize..3).prop_map(Step::Decommit),
            2 => Just(Step::Trim),
        ];
        prop::collection::vec(step, 1..40)
    }

    fn frames() -> (Frames, AccountId) {
        let machine = Sim::new(SimConfig { arena: PageCount(8 * u64::from(FRAMES_PER_HUGE_FRAME)), ..SimConfig::default() });
        let mut frames = Frames::new(machine.expect("a small machine") as Arc<dyn Machine>, OmittedRules::NONE, PageCount(1));
        let account = frames.open_account(PageCount(1 << 20), None);
        (frames, account)
    }

    fn trim(frames: &mut Frames) {
        let mut from = 0;
        while frames.trim_next(&mut from) {}
    }

    /// An allocation, with the word that was written to the end of its last frame.
    enum Held {
        Small(FrameId, u64),
        Large(HugeFrame, u64),
    }

    impl Held {
        fn word(&self) -> (FrameId, u64) {
            match *self {
                Held::Small(frame, word) => (frame, word),
                Held::Large(huge_frame, word) => (huge_frame.first().offset(FRAMES_PER_HUGE_FRAME - 1), word),
            }
        }
    }

    proptest! {
        #[test]
        fn trims_change_no_content_and_no_count(steps in steps()) {
            let (mut frames, account) = frames();
            let all = frames.free();
            let mut held: Vec<Held> = Vec::new();
            let mut word = 0;
            for step in steps {
                match step {
                    Step::Allocate(count) => {
                        for _ in 0..count {
                            let Ok(frame) = frames.allocate(account, true) else { break };
                            prop_assert_eq!(frames.arena().load(frame, WORD), 0, "a zeroed frame");
                            word += 1;
                            frames.arena().store(frame, WORD, word);
                            held.push(Held::Small(frame, word));
                        }
                    }
                    Step::AllocateLarge => {
                        let Ok(huge_frame) = frames.allocate_large(account) else { continue };
                        prop_assert!(huge_frame.frames().all(|frame| frames.arena().load(frame, WORD) == 0), "a zeroed huge frame");
                        word += 1;
                        held.push(Held::Large(huge_frame, word));
                        let (last, _) = held[held.len() - 1].word();
                        frames.arena().store(last, WORD, word);
                    }
                    Step::Free(first, every) => {
                        let (mut kept, mut position) = (Vec::new(), 0);
                        for one in held.drain(..) {
                            let goes = position >= first && (position - first) % every == 0;
                            position += 1;
                            match one {
                                Held::Small(frame, _) if goes => frames.release(frame),
                                Held::Large(huge_frame, _) if goes => frames.release_large(huge_frame),
                                one => kept.push(one),
                            }
                        }
                        held = kept;
                    }
                    Step::Decommit(keep) => {
                        while let Some(huge_frame) = frames.begin_decommit(keep) {
                            frames.arena().give_back(huge_frame.first(), FRAMES_PER_HUGE_FRAME);
                            frames.end_decommit(huge_frame);
                            if keep == 0 { break; }
                        }
                    }
                    Step::Trim => trim(&mut frames),
                }
                let used: u64 = held.iter().map(|one| if matches!(one, Held::Small(..)) { 1 } else { u64::from(FRAMES_PER_HUGE_FRAME) }).sum();
                prop_assert_eq!(frames.free(), all - PageCount(used));
                for one in &held {
                    let (frame, word) = one.word();
                    prop_assert_eq!(frames.arena().load(frame, WORD), word);
                }
            }
        }
    }

    #[test]
    fn the_host_gets_the_free_frames_of_partly_used_huge_frames() {
        let (mut frames, account) = frames();
        let many = usize::from(TRIM_FREE_FRAMES);
        let taken: Vec<FrameId> = (0..1024).map(|_| frames.allocate(account, false).expect("a frame")).collect();
        taken.iter().for_each(|frame| frames.arena().store(*frame, WORD, 1));
        // Too few of the first huge frame, and enough of the second.
        let freed: Vec<FrameId> = [&taken[..many - 1], &taken[600..600 + many]].concat();
        freed.iter().for_each(|frame| frames.release(*frame));
        trim(&mut frames);
        let has_content = |frame: &FrameId| frames.arena().load(*frame, WORD) != 0;
        assert!(freed[..many - 1].iter().all(has_content), "the host's huge page is worth more");
        assert!(!freed[many - 1..].iter().any(has_content));
        assert_eq!(taken.iter().filter(|frame| has_content(frame)).count(), 1024 - many);
    }

    #[repr(align(4096))]
    struct Pages([u8; 2 * FRAME_SIZE]);
    static PAGES: Pages = Pages([7; 2 * FRAME_SIZE]);
    static BYTES: LazyLock<Option<ExecutableBytes>> = LazyLock::new(|| ExecutableBytes::find(&PAGES.0));

    #[test]
    fn only_unchanged_frames_in_use_become_pages_of_the_file() {
        let (mut frames, account) = frames();
        let bytes = BYTES.as_ref().expect("the test's own file");
        let [same, changed, freed] = [0; 3].map(|_| {
            let frame = frames.allocate(account, false).expect("a frame");
            frames.arena().write(frame, 0, bytes.page(1));
            frames.note_file_page(frame, bytes, 1);
            frame
        });
        frames.arena().store(changed, WORD, 1);
        frames.release(freed);
        while frames.map_file_pages(2) {}
        let seven = u64::from_le_bytes([7; 8]);
        assert_eq!([same, changed].map(|frame| frames.arena().load(frame, WORD)), [seven, 1]);
        assert_eq!([same, changed, freed].map(|frame| frames.arena().has_file_pages(frame, 1)), [true, false, false]);
    }
}
