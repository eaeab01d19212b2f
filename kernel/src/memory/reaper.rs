// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reaper: lets trees go in bounded pieces.

use super::entry::{Entry, View};
use super::frames::{Frames, Garbage};

impl Frames {
    /// Lets go of up to `pieces` tables or large pages of what was released; `true` once nothing is left. Each frees at most 512 frames.
    pub fn reap(&mut self, pieces: usize) -> bool {
        for _ in 0..pieces {
            match self.next_garbage() {
                None => return true,
                Some(Garbage::Large(stretch)) => self.release_large(stretch),
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

    /// Lets go of what an entry of a table of `level` held: of a page at once, of what is larger in pieces.
    pub(super) fn release_view(&mut self, view: View, level: u8) {
        match view {
            View::Table { table, .. } => self.discard(Garbage::Table(table, level - 1)),
            View::Page { frame, .. } if level == 1 => self.release(frame),
            View::Page { frame, .. } => self.discard(Garbage::Large(frame.stretch())),
            View::Empty | View::Lazy { .. } | View::Block { .. } => {}
        }
    }
}
