// SPDX-License-Identifier: MIT OR Apache-2.0
//! The congestion window: slow start until the first loss, then congestion avoidance.
//!
//! It is CUBIC (RFC 9438) in its Reno-friendly region. With buffers as small as here, the cubic region needs a long
//! RTT and seconds without loss. However much is lost in one RTT, the window shrinks once.

use smoltcp::wire::TcpSeqNumber;

use crate::sequence::is_before;

/// Segments of the initial window (RFC 6928).
const FIRST: usize = 10;

/// A congestion window, in bytes.
#[derive(Debug)]
pub(crate) struct CongestionWindow {
    size: usize,
    /// The slow start threshold.
    threshold: usize,
    /// The longest segment.
    mss: usize,
    /// Size and threshold before the last loss.
    before: (usize, usize),
    /// Acknowledged bytes that count towards the next increase.
    credit: usize,
    /// The end of the sent data at the last loss, until it is acknowledged.
    recovery_end: Option<TcpSeqNumber>,
}

impl CongestionWindow {
    pub(crate) const fn new(mss: usize) -> Self {
        Self { size: FIRST * mss, threshold: usize::MAX, mss, before: (0, 0), credit: 0, recovery_end: None }
    }

    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    pub(crate) const fn is_recovering(&self) -> bool {
        self.recovery_end.is_some()
    }

    /// Processes newly acknowledged bytes up to `number`. `was_full`: the window limited the sender. The window does not grow past `most`.
    pub(crate) fn grow(&mut self, acknowledged: usize, number: TcpSeqNumber, was_full: bool, most: usize) {
        let was_recovering = self.recovery_end.is_some();
        self.recovery_end = self.recovery_end.filter(|end| is_before(number, *end));
        if !was_full || self.size >= most {
            return;
        }
        if self.size < self.threshold {
            self.size += acknowledged;
        } else if !was_recovering {
            // Until it has regained its size, its growth is slower because it shrank by less than half.
            self.credit += if self.size < self.before.0 { acknowledged * 9 / 17 } else { acknowledged };
            if self.credit >= self.size {
                self.credit -= self.size;
                self.size += self.mss;
            }
        }
    }

    /// Processes a loss among the data sent up to `end`. Returns whether it is a new one.
    pub(crate) fn shrink(&mut self, end: TcpSeqNumber) -> bool {
        if self.recovery_end.is_some() {
            return false;
        }
        self.before = (self.size, self.threshold);
        self.size = (self.size / 10 * 7).max(2 * self.mss);
        (self.threshold, self.credit, self.recovery_end) = (self.size, 0, Some(end));
        true
    }

    /// Processes a timeout: all data sent up to `end` counts as lost.
    pub(crate) fn collapse(&mut self, end: TcpSeqNumber) {
        self.shrink(end);
        (self.size, self.recovery_end) = (self.mss, Some(end));
    }

    /// Undoes the last reduction: nothing was lost after all.
    pub(crate) fn undo(&mut self) {
        if self.recovery_end.take().is_some() {
            self.size = self.size.max(self.before.0);
            self.threshold = self.threshold.max(self.before.1);
        }
    }
}
