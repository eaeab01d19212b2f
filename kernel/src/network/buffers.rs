// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reused buffers for frames: a fresh large buffer from the host costs more than the copy into it, because each of its pages is
//! cleared first.

use crate::limits::SPARE_BYTES;
use bytes::Bytes;
use pando_abi::frame::FRAME_MAX;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

/// Buffer sizes: powers of two, from a page up, so that no frame takes more than twice its size; and the largest frame's size,
/// which is the most frequent.
const LEAST: u32 = 12;
const SIZES: usize = 6;

const _: () = assert!(piece(SIZES - 1) == FRAME_MAX && piece(SIZES - 2) < FRAME_MAX);

/// Bytes of a buffer of this size class.
const fn piece(size: usize) -> usize {
    let bytes = 1 << (LEAST as usize + size);
    if bytes < FRAME_MAX { bytes } else { FRAME_MAX }
}

/// Free lists of buffers, one for each size class.
#[derive(Debug, Default)]
struct FreeList {
    pieces: [Vec<Vec<u8>>; SIZES],
    /// Bytes of all free buffers.
    bytes: usize,
}

/// Frame buffers. Clones share the same free lists.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    free_list: Arc<Mutex<FreeList>>,
}

/// A buffer in use. Dropping it returns it to the free list.
struct BorrowedBuffer {
    piece: Vec<u8>,
    /// Bytes filled in; the rest belongs to earlier users.
    length: usize,
    all: Buffers,
}

/// The size class for `length` bytes. `None`: too few or too many to be worth a reused buffer.
fn size(length: usize) -> Option<usize> {
    let size = length.next_power_of_two().ilog2().checked_sub(LEAST)? as usize;
    (size < SIZES).then_some(size)
}

impl Buffers {
    /// Returns `length` bytes after `fill` has written all of them. The buffer that `fill` receives has arbitrary content.
    ///
    /// # Errors
    /// The error of `fill`.
    pub fn filled<E>(&self, length: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Bytes, E> {
        let Some(size) = size(length) else {
            let mut bytes = vec![0; length];
            fill(&mut bytes)?;
            return Ok(bytes.into());
        };
        let mut borrowed = BorrowedBuffer { piece: self.take(size), length, all: self.clone() };
        fill(&mut borrowed.piece[..length])?;
        Ok(Bytes::from_owner(borrowed))
    }

    /// Copies bytes into a buffer.
    #[must_use]
    pub fn copy(&self, bytes: &[u8]) -> Bytes {
        let copy = |room: &mut [u8]| {
            room.copy_from_slice(bytes);
            Ok::<(), Infallible>(())
        };
        let Ok(copy) = self.filled(bytes.len(), copy);
        copy
    }

    fn take(&self, size: usize) -> Vec<u8> {
        let mut free_list = self.free_list.lock().unwrap_or_else(PoisonError::into_inner);
        match free_list.pieces[size].pop() {
            Some(piece) => {
                free_list.bytes -= piece.len();
                piece
            }
            None => vec![0; piece(size)],
        }
    }
}

impl AsRef<[u8]> for BorrowedBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.piece[..self.length]
    }
}

impl Drop for BorrowedBuffer {
    fn drop(&mut self) {
        let piece = std::mem::take(&mut self.piece);
        let mut free_list = self.all.free_list.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(size) = size(piece.len()).filter(|_| free_list.bytes + piece.len() <= SPARE_BYTES) {
            free_list.bytes += piece.len();
            free_list.pieces[size].push(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Buffers, SIZES};
    use crate::limits::SPARE_BYTES;
    use pando_abi::frame::FRAME_MAX;

    #[test]
    fn what_is_dropped_is_used_again_and_shows_nothing_of_before() {
        let buffers = Buffers::default();
        let large = buffers.copy(&[1; FRAME_MAX]);
        let place = large.as_ptr();
        let part = large.slice(5..10);
        drop(large);
        assert_eq!(part, [1; 5][..], "a part keeps the whole");
        drop(part);
        let next = buffers.copy(&[2; FRAME_MAX - 9]);
        assert_eq!((next.as_ptr(), &next[..]), (place, &[2; FRAME_MAX - 9][..]));
        let failed = buffers.filled(5000, |_| Err("no memory"));
        assert_eq!(failed, Err("no memory"));
    }

    #[test]
    fn no_more_is_kept_than_a_bound() {
        let buffers = Buffers::default();
        let many: Vec<_> = (0..2 * SPARE_BYTES / FRAME_MAX).map(|_| buffers.copy(&[0; FRAME_MAX])).collect();
        drop(many);
        let free_list = buffers.free_list.lock().expect("nobody panicked");
        assert!(free_list.bytes <= SPARE_BYTES && free_list.bytes > SPARE_BYTES / 2);
        assert_eq!(free_list.pieces[SIZES - 1].len() * FRAME_MAX, free_list.bytes);
    }

    #[test]
    fn few_bytes_and_none_need_no_piece() {
        let buffers = Buffers::default();
        assert_eq!((buffers.copy(b"").len(), &buffers.copy(b"few")[..]), (0, &b"few"[..]));
        assert_eq!(buffers.free_list.lock().expect("nobody panicked").bytes, 0);
    }
}
