// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet captures: each receives a copy of every frame that a switch carries, in order and with its time. A capture that is too slow
//! loses frames; nothing else is affected.

use super::Wake;
use crate::limits::CAPTURE_BYTES;
use bytes::Bytes;
use pando_machine::Nanos;
use std::collections::VecDeque;

/// Overhead that each queued frame is charged, in bytes.
const FRAME_OVERHEAD: usize = 64;

/// The queue of a packet capture.
struct FrameQueue {
    wake: Wake,
    queue: VecDeque<(Nanos, Bytes)>,
    /// Bytes in the queue, including the overhead of each frame.
    weight: usize,
    /// Frames dropped because the queue was full.
    lost: u64,
}

impl FrameQueue {
    fn capture(&mut self, frame: &Bytes, now: Nanos) {
        let weight = frame.len() + FRAME_OVERHEAD;
        if self.weight + weight > CAPTURE_BYTES {
            self.lost += 1;
            return;
        }
        self.weight += weight;
        self.queue.push_back((now, frame.clone()));
        if self.queue.len() == 1 {
            (self.wake)();
        }
    }
}

/// The packet captures of one network.
#[derive(Default)]
pub(super) struct PacketCaptures {
    list: Vec<Option<FrameQueue>>,
    /// The time of the last frame.
    last: Nanos,
}

impl PacketCaptures {
    /// Adds a packet capture; reuses the slot of a removed one.
    pub(super) fn insert(&mut self, wake: Wake) -> usize {
        let capture = Some(FrameQueue { wake, queue: VecDeque::new(), weight: 0, lost: 0 });
        match self.list.iter_mut().position(|slot| slot.is_none()) {
            Some(free) => {
                self.list[free] = capture;
                free
            }
            None => {
                self.list.push(capture);
                self.list.len() - 1
            }
        }
    }

    /// Removes a packet capture.
    pub(super) fn remove(&mut self, index: usize) {
        if let Some(slot) = self.list.get_mut(index) {
            *slot = None;
        }
    }

    /// Number of slots: the additional cost of a frame.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is no packet capture.
    pub(super) fn is_empty(&self) -> bool {
        self.list.iter().all(Option::is_none)
    }

    /// Queues a frame that the switch carries at every packet capture. Senders read the clock before they take the lock, so a time may
    /// precede the last one; the order of the frames counts.
    pub(super) fn capture(&mut self, frame: &Bytes, now: Nanos) {
        self.last = now.max(self.last);
        let now = self.last;
        self.list.iter_mut().flatten().for_each(|capture| capture.capture(frame, now));
    }

    /// Takes a packet capture's oldest frame and its time.
    pub(super) fn take(&mut self, index: usize) -> Option<(Nanos, Bytes)> {
        let capture = self.list.get_mut(index)?.as_mut()?;
        let (moment, frame) = capture.queue.pop_front()?;
        capture.weight -= frame.len() + FRAME_OVERHEAD;
        Some((moment, frame))
    }

    /// Number of frames that a packet capture has lost.
    pub(super) fn lost(&self, index: usize) -> u64 {
        self.list.get(index).and_then(Option::as_ref).map_or(0, |capture| capture.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::PacketCaptures;
    use crate::limits::CAPTURE_BYTES;
    use bytes::Bytes;
    use pando_machine::Nanos;
    use std::sync::Arc;

    #[test]
    fn times_of_captured_frames_never_go_back() {
        let mut captures = PacketCaptures::default();
        let index = captures.insert(Arc::new(|| {}));
        for moment in [5, 3, 9] {
            captures.capture(&Bytes::from_static(b"frame"), Nanos(moment));
        }
        let times: Vec<u64> = std::iter::from_fn(|| captures.take(index)).map(|(moment, _)| moment.0).collect();
        assert_eq!(times, [5, 5, 9]);
    }

    #[test]
    fn frames_without_room_are_counted_and_queued_frames_stay() {
        let mut captures = PacketCaptures::default();
        let [first, second] = [(); 2].map(|()| captures.insert(Arc::new(|| {})));
        let frame = Bytes::from(vec![0; 60_000]);
        let many = 2 * CAPTURE_BYTES / frame.len();
        for moment in 0..many as u64 {
            captures.capture(&frame, Nanos(moment));
            captures.take(second).expect("it was captured");
        }
        let moments: Vec<u64> = std::iter::from_fn(|| captures.take(first)).map(|(Nanos(moment), _)| moment).collect();
        assert!(moments.iter().copied().eq(0..moments.len() as u64), "those that came first, in their order");
        assert_eq!((captures.lost(first), captures.lost(second)), ((many - moments.len()) as u64, 0));
        captures.remove(first);
        assert_eq!(captures.insert(Arc::new(|| {})), first);
        assert_eq!(captures.lost(first), 0);
    }
}
