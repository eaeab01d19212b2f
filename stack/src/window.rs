// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many bytes may be under way (congestion control): twice as many each time round until something is lost, then a little more each time.
//!
//! It is CUBIC's (RFC 9438) in the part of it where it grows as Reno does: with buffers as small as here, the other part begins where a time round takes long
//! and nothing is lost for seconds. However much is lost in one time round, the window shrinks once.

use smoltcp::wire::TcpSeqNumber;

use crate::mend::is_before;

/// Segments that a young connection may send (RFC 6928).
const FIRST: usize = 10;

/// A window, in bytes.
#[derive(Debug)]
pub(crate) struct Window {
    size: usize,
    /// From where on it grows slowly.
    threshold: usize,
    /// The longest segment.
    piece: usize,
    /// Size and threshold before the last loss.
    before: (usize, usize),
    /// Bytes acknowledged towards the next piece.
    credit: usize,
    /// What had been sent when a loss was found, if that is not all acknowledged.
    recovers: Option<TcpSeqNumber>,
}

impl Window {
    pub(crate) const fn new(piece: usize) -> Self {
        Self { size: FIRST * piece, threshold: usize::MAX, piece, before: (0, 0), credit: 0, recovers: None }
    }

    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    pub(crate) const fn is_recovering(&self) -> bool {
        self.recovers.is_some()
    }

    /// So many bytes more were acknowledged, up to `number`. `was_full`: there would have been more to send. It does not grow past `most`.
    pub(crate) fn grow(&mut self, acknowledged: usize, number: TcpSeqNumber, was_full: bool, most: usize) {
        let was_recovering = self.recovers.is_some();
        self.recovers = self.recovers.filter(|end| is_before(number, *end));
        if !was_full || self.size >= most {
            return;
        }
        if self.size < self.threshold {
            self.size += acknowledged;
        } else if !was_recovering {
            // Until it is where it was, it grows as much more slowly as it had shrunk less than by half.
            self.credit += if self.size < self.before.0 { acknowledged * 9 / 17 } else { acknowledged };
            if self.credit >= self.size {
                self.credit -= self.size;
                self.size += self.piece;
            }
        }
    }

    /// Something was lost, of what had been sent up to `end`. Whether that is news.
    pub(crate) fn shrink(&mut self, end: TcpSeqNumber) -> bool {
        if self.recovers.is_some() {
            return false;
        }
        self.before = (self.size, self.threshold);
        self.size = (self.size / 10 * 7).max(2 * self.piece);
        (self.threshold, self.credit, self.recovers) = (self.size, 0, Some(end));
        true
    }

    /// Nothing has come back for long: all is lost that had been sent up to `end`.
    pub(crate) fn collapse(&mut self, end: TcpSeqNumber) {
        self.shrink(end);
        (self.size, self.recovers) = (self.piece, Some(end));
    }

    /// Nothing was lost after all.
    pub(crate) fn undo(&mut self) {
        if self.recovers.take().is_some() {
            self.size = self.size.max(self.before.0);
            self.threshold = self.threshold.max(self.before.1);
        }
    }
}
