// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traffic counters of a network card or another port, since it was plugged in.

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCount {
    /// Number of frames.
    pub frames: u64,
    /// Bytes of all frames.
    pub bytes: u64,
}

impl TrafficCount {
    pub(crate) fn add(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes as u64;
    }

    /// Raises both counts to at least those of `other`.
    pub(crate) fn raise(&mut self, other: TrafficCount) {
        self.frames = self.frames.max(other.frames);
        self.bytes = self.bytes.max(other.bytes);
    }
}

/// Traffic counters of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Sent by it, before any drops.
    pub sent: TrafficCount,
    /// Received by it.
    pub received: TrafficCount,
    /// In its queue now.
    pub waiting: TrafficCount,
    /// The highest load of its queue: of frames, and of bytes.
    pub max_waiting: TrafficCount,
    /// Bytes that it has in transit on its link.
    pub in_transit: u64,
    /// Frames from it with a spoofed sender address.
    pub spoofed: u64,
    /// Frames from it that its link lost, or had no room for.
    pub lost: u64,
    /// Frames for it that found its queue full, or no room in its memory.
    pub overrun: u64,
}
