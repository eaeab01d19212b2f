// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues of frames at a port, fair among senders.

use crate::cell::traffic::TrafficCount;
use crate::limits::{QUEUE_BYTES, QUEUE_FRAMES};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Orders the frames in one port's queue, and chooses the frame to drop when it is full.
pub trait PacketScheduler: Send {
    /// Queues a frame from the port of index `sender`. Returns how many frames were dropped, this one or others.
    fn push(&mut self, sender: u32, frame: Bytes) -> u64;

    /// The next frame.
    fn peek(&self) -> Option<&Bytes>;

    /// Takes the next frame.
    fn pop(&mut self) -> Option<Bytes>;

    /// Frames and bytes in the queue.
    fn waiting(&self) -> TrafficCount;
}

/// Frames of one sender.
#[derive(Debug, Default)]
struct Sender {
    frames: VecDeque<Bytes>,
    /// Their weight, which includes an overhead for each frame.
    weight: usize,
}

/// The room that a frame takes in a queue.
fn weight(frame: &Bytes) -> usize {
    frame.len() + QUEUE_BYTES / QUEUE_FRAMES
}

/// Round robin among senders (Denali section 3.2.3). When the queue is full, a sender that takes more than its part loses its
/// newest frame.
#[derive(Debug, Default)]
pub struct RoundRobin {
    senders: BTreeMap<u32, Sender>,
    /// Senders with queued frames, in the order of their turns.
    turns: VecDeque<u32>,
    waiting: TrafficCount,
    weight: usize,
}

impl RoundRobin {
    /// The sender whose newest frame is dropped: the current one, unless it takes less than its part.
    fn victim(&self, sender: u32) -> u32 {
        let part = self.weight / self.senders.len().max(1);
        if self.senders.get(&sender).is_some_and(|own| own.weight >= part) {
            return sender;
        }
        self.senders.iter().max_by_key(|(_, sender)| sender.weight).map_or(sender, |(most, _)| *most)
    }

    fn drop_newest(&mut self, sender: u32) {
        if let Some(frame) = self.senders.get_mut(&sender).and_then(|sender| sender.frames.pop_back()) {
            self.note_removed(sender, &frame);
            if !self.senders.contains_key(&sender) {
                self.turns.retain(|turn| *turn != sender);
            }
        }
    }

    /// Updates the counters after a frame has left.
    fn note_removed(&mut self, sender: u32, frame: &Bytes) {
        self.waiting.frames -= 1;
        self.waiting.bytes -= frame.len() as u64;
        self.weight -= weight(frame);
        if let Some(own) = self.senders.get_mut(&sender) {
            own.weight -= weight(frame);
            if own.frames.is_empty() {
                self.senders.remove(&sender);
            }
        }
    }
}

impl PacketScheduler for RoundRobin {
    fn push(&mut self, sender: u32, frame: Bytes) -> u64 {
        let own = self.senders.entry(sender).or_default();
        if own.frames.is_empty() {
            self.turns.push_back(sender);
        }
        self.waiting.add(frame.len());
        self.weight += weight(&frame);
        own.weight += weight(&frame);
        own.frames.push_back(frame);
        let mut dropped = 0;
        while self.weight > QUEUE_BYTES {
            self.drop_newest(self.victim(sender));
            dropped += 1;
        }
        dropped
    }

    fn peek(&self) -> Option<&Bytes> {
        self.senders.get(self.turns.front()?)?.frames.front()
    }

    fn pop(&mut self) -> Option<Bytes> {
        let sender = self.turns.pop_front()?;
        let frame = self.senders.get_mut(&sender)?.frames.pop_front()?;
        self.note_removed(sender, &frame);
        if self.senders.contains_key(&sender) {
            self.turns.push_back(sender);
        }
        Some(frame)
    }

    fn waiting(&self) -> TrafficCount {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::{PacketScheduler, RoundRobin};
    use crate::limits::{QUEUE_BYTES, QUEUE_FRAMES};
    use bytes::Bytes;

    #[test]
    fn senders_take_turns() {
        let mut queue = RoundRobin::default();
        for (sender, name) in [(1, "a"), (1, "b"), (1, "c"), (2, "x"), (3, "y")] {
            assert_eq!(queue.push(sender, Bytes::from_static(name.as_bytes())), 0);
        }
        let order: Vec<Bytes> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, ["a", "x", "y", "b", "c"]);
        assert_eq!(queue.waiting().frames, 0);
    }

    #[test]
    fn a_flooding_sender_loses_its_own_frames() {
        let mut queue = RoundRobin::default();
        queue.push(2, Bytes::from_static(b"quiet"));
        for length in [1, 1500, 65_000] {
            let dropped: u64 = (0..2 * QUEUE_FRAMES).map(|_| queue.push(1, Bytes::from(vec![0; length]))).sum();
            assert!(dropped > 0, "{length}");
            assert!(queue.waiting().bytes <= QUEUE_BYTES as u64 && queue.waiting().frames <= QUEUE_FRAMES as u64);
        }
        queue.push(3, Bytes::from_static(b"late"));
        let order: Vec<Bytes> = std::iter::from_fn(|| queue.pop()).collect();
        assert!(order.iter().any(|frame| frame == "quiet") && order.iter().any(|frame| frame == "late"));
    }
}
