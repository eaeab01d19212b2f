// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for frames, used again: large pieces that are new from the host cost more than the copy into them, because each of their pages is cleared first.

use crate::limits::SPARE_BYTES;
use bytes::Bytes;
use pando_abi::frame::FRAME_MAX;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

/// Sizes of pieces: powers of two, from a page's up, so that none takes more than twice what is in it; and the largest frame's, of which there are most.
const LEAST: u32 = 12;
const SIZES: usize = 6;

const _: () = assert!(piece(SIZES - 1) == FRAME_MAX && piece(SIZES - 2) < FRAME_MAX);

/// Bytes of a piece of such a size.
const fn piece(size: usize) -> usize {
    let bytes = 1 << (LEAST as usize + size);
    if bytes < FRAME_MAX { bytes } else { FRAME_MAX }
}

/// Where pieces are kept that nobody uses.
#[derive(Debug, Default)]
struct Shelf {
    pieces: [Vec<Vec<u8>>; SIZES],
    /// What they take.
    bytes: usize,
}

/// Memory for frames. Clones of it are the same.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    shelf: Arc<Mutex<Shelf>>,
}

/// A piece in use. Whoever drops it puts it back.
struct Lent {
    piece: Vec<u8>,
    /// What was filled in: the rest is of those who had it before.
    length: usize,
    all: Buffers,
}

/// Which size of pieces so many bytes need. `None`: they are too few or too many to be worth it.
fn size(length: usize) -> Option<usize> {
    let size = length.next_power_of_two().ilog2().checked_sub(LEAST)? as usize;
    (size < SIZES).then_some(size)
}

impl Buffers {
    /// Bytes that `fill` has filled in, all of them: it may find any there.
    ///
    /// # Errors
    /// That of `fill`.
    pub fn filled<E>(&self, length: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Bytes, E> {
        let Some(size) = size(length) else {
            let mut bytes = vec![0; length];
            fill(&mut bytes)?;
            return Ok(bytes.into());
        };
        let mut lent = Lent { piece: self.take(size), length, all: self.clone() };
        fill(&mut lent.piece[..length])?;
        Ok(Bytes::from_owner(lent))
    }

    /// A copy of bytes.
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
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        match shelf.pieces[size].pop() {
            Some(piece) => {
                shelf.bytes -= piece.len();
                piece
            }
            None => vec![0; piece(size)],
        }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.piece[..self.length]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let piece = std::mem::take(&mut self.piece);
        let mut shelf = self.all.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(size) = size(piece.len()).filter(|_| shelf.bytes + piece.len() <= SPARE_BYTES) {
            shelf.bytes += piece.len();
            shelf.pieces[size].push(piece);
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
        let shelf = buffers.shelf.lock().expect("nobody panicked");
        assert!(shelf.bytes <= SPARE_BYTES && shelf.bytes > SPARE_BYTES / 2);
        assert_eq!(shelf.pieces[SIZES - 1].len() * FRAME_MAX, shelf.bytes);
    }

    #[test]
    fn few_bytes_and_none_need_no_piece() {
        let buffers = Buffers::default();
        assert_eq!((buffers.copy(b"").len(), &buffers.copy(b"few")[..]), (0, &b"few"[..]));
        assert_eq!(buffers.shelf.lock().expect("nobody panicked").bytes, 0);
    }
}
