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
const SMALLEST_LOG2: u32 = 12;
const SIZES: usize = 6;

const _: () = assert!(class_bytes(SIZES - 1) == FRAME_MAX && class_bytes(SIZES - 2) < FRAME_MAX);

/// Bytes of a buffer of this size class.
const fn class_bytes(class: usize) -> usize {
    let bytes = 1 << (SMALLEST_LOG2 as usize + class);
    if bytes < FRAME_MAX { bytes } else { FRAME_MAX }
}

/// Free lists of buffers, one for each size class.
#[derive(Debug, Default)]
struct FreeList {
    buffers: [Vec<Vec<u8>>; SIZES],
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
    bytes: Vec<u8>,
    /// Bytes filled in; the rest belongs to earlier users.
    length: usize,
    pool: Buffers,
}

/// The size class for `length` bytes. `None`: too few or too many to be worth a reused buffer.
fn size_class(length: usize) -> Option<usize> {
    let size = length.next_power_of_two().ilog2().checked_sub(SMALLEST_LOG2)? as usize;
    (size < SIZES).then_some(size)
}

impl Buffers {
    /// Returns `length` bytes after `fill` has written all of them. The buffer that `fill` receives has arbitrary content.
    ///
    /// # Errors
    /// The error of `fill`.
    pub fn allocate_filled<E>(&self, length: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Bytes, E> {
        let Some(size) = size_class(length) else {
            let mut bytes = vec![0; length];
            fill(&mut bytes)?;
            return Ok(bytes.into());
        };
        let mut borrowed = BorrowedBuffer { bytes: self.take(size), length, pool: self.clone() };
        fill(&mut borrowed.bytes[..length])?;
        Ok(Bytes::from_owner(borrowed))
    }

    /// Copies bytes into a buffer.
    #[must_use]
    pub fn copy(&self, bytes: &[u8]) -> Bytes {
        let copy = |room: &mut [u8]| {
            room.copy_from_slice(bytes);
            Ok::<(), Infallible>(())
        };
        let Ok(copy) = self.allocate_filled(bytes.len(), copy);
        copy
    }

    fn take(&self, size: usize) -> Vec<u8> {
        let mut free_list = self.free_list.lock().unwrap_or_else(PoisonError::into_inner);
        match free_list.buffers[size].pop() {
            Some(buffer) => {
                free_list.bytes -= buffer.len();
                buffer
            }
            None => vec![0; class_bytes(size)],
        }
    }
}

impl AsRef<[u8]> for BorrowedBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Drop for BorrowedBuffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut free_list = self.pool.free_list.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(size) = size_class(bytes.len()).filter(|_| free_list.bytes + bytes.len() <= SPARE_BYTES) {
            free_list.bytes += bytes.len();
            free_list.buffers[size].push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Buffers, SIZES};
    use crate::limits::SPARE_BYTES;
    use pando_abi::frame::FRAME_MAX;

    #[test]
    fn a_dropped_buffer_is_used_again_and_shows_no_earlier_content() {
        let buffers = Buffers::default();
        let large = buffers.copy(&[1; FRAME_MAX]);
        let place = large.as_ptr();
        let part = large.slice(5..10);
        drop(large);
        assert_eq!(part, [1; 5][..], "a part keeps the whole");
        drop(part);
        let next = buffers.copy(&[2; FRAME_MAX - 9]);
        assert_eq!((next.as_ptr(), &next[..]), (place, &[2; FRAME_MAX - 9][..]));
        let failed = buffers.allocate_filled(5000, |_| Err("no memory"));
        assert_eq!(failed, Err("no memory"));
    }

    #[test]
    fn free_buffers_are_kept_up_to_a_bound() {
        let buffers = Buffers::default();
        let many: Vec<_> = (0..2 * SPARE_BYTES / FRAME_MAX).map(|_| buffers.copy(&[0; FRAME_MAX])).collect();
        drop(many);
        let free_list = buffers.free_list.lock().expect("nobody panicked");
        assert!(free_list.bytes <= SPARE_BYTES && free_list.bytes > SPARE_BYTES / 2);
        assert_eq!(free_list.buffers[SIZES - 1].len() * FRAME_MAX, free_list.bytes);
    }

    #[test]
    fn few_bytes_and_none_take_no_buffer() {
        let buffers = Buffers::default();
        assert_eq!((buffers.copy(b"").len(), &buffers.copy(b"few")[..]), (0, &b"few"[..]));
        assert_eq!(buffers.free_list.lock().expect("nobody panicked").bytes, 0);
    }
}
