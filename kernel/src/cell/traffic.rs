// SPDX-License-Identifier: MIT OR Apache-2.0
//! What went through a network card, or another port of a network, counted from the first day.

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// How many.
    pub frames: u64,
    /// How many bytes they have together.
    pub bytes: u64,
}

impl Load {
    pub(crate) fn add(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes as u64;
    }

    /// Becomes at least as much as another, of frames and of bytes.
    pub(crate) fn raise(&mut self, other: Load) {
        self.frames = self.frames.max(other.frames);
        self.bytes = self.bytes.max(other.bytes);
    }
}

/// What went through a port, and what did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// What it sent, before anything was dropped.
    pub sent: Load,
    /// What it took.
    pub received: Load,
    /// What waits for it now.
    pub waiting: Load,
    /// The most that ever waited for it: of frames, and of bytes.
    pub most_waiting: Load,
    /// Bytes of its own that are on its link now.
    pub under_way: u64,
    /// Frames of its own that said they were another's.
    pub spoofed: u64,
    /// Frames of its own that its link lost, or had no room for.
    pub lost: u64,
    /// Frames for it that found its queue full, or no room in its memory.
    pub overrun: u64,
}
