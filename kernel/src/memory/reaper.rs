// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reaper: lets trees go in bounded pieces.

use super::entry::{Entry, View};
use super::frames::Frames;

impl Frames {
    /// Visits up to `tables` tables of what was released; `true` once nothing is left. Each visit frees at most 512 pages (and as many parts of large ones).
    pub fn reap(&mut self, tables: usize) -> bool {
        for _ in 0..tables {
            let Some((table, level)) = self.next_garbage() else { return true };
            if self.drop_table(table) {
                for entry in self.arena().load_table(table) {
                    self.release_view(Entry(entry).view(level), level);
                }
                self.retire(table);
            }
        }
        !self.has_garbage()
    }

    /// Lets go of what an entry of a table of `level` held.
    pub(super) fn release_view(&mut self, view: View, level: u8) {
        match view {
            View::Table { table, .. } => self.discard(table, level - 1),
            View::Page { frame, .. } if level == 1 => self.release(frame),
            View::Page { frame, .. } => self.release_large(frame.stretch()),
            View::Empty | View::Lazy { .. } => {}
        }
    }
}
