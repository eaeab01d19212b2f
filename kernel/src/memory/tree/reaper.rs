// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reaper: releases trees in bounded steps.

use super::entry::{Entry, View};
use crate::memory::frames::frame_table::{Frames, Garbage};

impl Frames {
    /// Releases up to `pieces` tables or large pages of the garbage; `true` once nothing is left. Each frees at most 512 frames.
    pub fn reap(&mut self, pieces: usize) -> bool {
        for _ in 0..pieces {
            match self.next_garbage() {
                None => return true,
                Some(Garbage::Large(huge_frame)) => self.release_large(huge_frame),
                Some(Garbage::Table(table, level)) => {
                    if self.drop_table(table) {
                        for entry in self.arena().load_table(table) {
                            self.release_view(Entry(entry).view(level), level);
                        }
                        self.retire(table);
                    }
                }
            }
        }
        !self.has_garbage()
    }

    /// Releases the page or table of an entry in a table of `level`: a 4 KiB page at once, anything larger in steps.
    pub(in crate::memory) fn release_view(&mut self, view: View, level: u8) {
        match view {
            View::Table { table, .. } => self.discard(Garbage::Table(table, level - 1)),
            View::Page { frame, .. } if level == 1 => self.release(frame),
            View::Page { frame, .. } => self.discard(Garbage::Large(frame.huge_frame())),
            View::Empty | View::Lazy { .. } | View::Block { .. } => {}
        }
    }
}
