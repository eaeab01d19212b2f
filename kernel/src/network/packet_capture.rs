// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capture listeners: each receives a copy of every frame that a switch carries, in order and with its time. A listener that is too
//! slow loses frames; nothing else is affected.

use super::Wake;
use crate::limits::LISTENER_BYTES;
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
        if self.weight + weight > LISTENER_BYTES {
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

/// The listeners of one network.
#[derive(Default)]
pub(super) struct Listeners {
    list: Vec<Option<FrameQueue>>,
    /// The time of the last frame.
    last: Nanos,
}

impl Listeners {
    /// Adds a listener; reuses the slot of a removed one.
    pub(super) fn insert(&mut self, wake: Wake) -> usize {
        let listener = Some(FrameQueue { wake, queue: VecDeque::new(), weight: 0, lost: 0 });
        match self.list.iter_mut().position(|slot| slot.is_none()) {
            Some(free) => {
                self.list[free] = listener;
                free
            }
            None => {
                self.list.push(listener);
                self.list.len() - 1
            }
        }
    }

    /// Removes a listener.
    pub(super) fn remove(&mut self, index: usize) {
        if let Some(slot) = self.list.get_mut(index) {
            *slot = None;
        }
    }

    /// Number of slots: the additional cost of a frame.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is no listener.
    pub(super) fn is_empty(&self) -> bool {
        self.list.iter().all(Option::is_none)
    }

    /// Queues a frame that the switch carries at every listener. Senders read the clock before they take the lock, so a time may precede
    /// the last one; the order of the frames counts.
    pub(super) fn capture(&mut self, frame: &Bytes, now: Nanos) {
        self.last = now.max(self.last);
        let now = self.last;
        self.list.iter_mut().flatten().for_each(|listener| listener.capture(frame, now));
    }

    /// Takes a listener's oldest frame and its time.
    pub(super) fn take(&mut self, index: usize) -> Option<(Nanos, Bytes)> {
        let listener = self.list.get_mut(index)?.as_mut()?;
        let (moment, frame) = listener.queue.pop_front()?;
        listener.weight -= frame.len() + FRAME_OVERHEAD;
        Some((moment, frame))
    }

    /// Number of frames that a listener has lost.
    pub(super) fn lost(&self, index: usize) -> u64 {
        self.list.get(index).and_then(Option::as_ref).map_or(0, |listener| listener.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::Listeners;
    use crate::limits::LISTENER_BYTES;
    use bytes::Bytes;
    use pando_machine::Nanos;
    use std::sync::Arc;

    #[test]
    fn times_of_captured_frames_never_go_back() {
        let mut listeners = Listeners::default();
        let index = listeners.insert(Arc::new(|| {}));
        for moment in [5, 3, 9] {
            listeners.capture(&Bytes::from_static(b"frame"), Nanos(moment));
        }
        let times: Vec<u64> = std::iter::from_fn(|| listeners.take(index)).map(|(moment, _)| moment.0).collect();
        assert_eq!(times, [5, 5, 9]);
    }

    #[test]
    fn frames_without_room_are_counted_and_queued_frames_stay() {
        let mut listeners = Listeners::default();
        let [first, second] = [(); 2].map(|()| listeners.insert(Arc::new(|| {})));
        let frame = Bytes::from(vec![0; 60_000]);
        let many = 2 * LISTENER_BYTES / frame.len();
        for moment in 0..many as u64 {
            listeners.capture(&frame, Nanos(moment));
            listeners.take(second).expect("it was captured");
        }
        let moments: Vec<u64> = std::iter::from_fn(|| listeners.take(first)).map(|(Nanos(moment), _)| moment).collect();
        assert!(moments.iter().copied().eq(0..moments.len() as u64), "those that came first, in their order");
        assert_eq!((listeners.lost(first), listeners.lost(second)), ((many - moments.len()) as u64, 0));
        listeners.remove(first);
        assert_eq!(listeners.insert(Arc::new(|| {})), first);
        assert_eq!(listeners.lost(first), 0);
    }
}
