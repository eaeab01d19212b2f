// SPDX-License-Identifier: MIT OR Apache-2.0
//! The channel to the operator: requests out, answers in. It exists only if the operator has opened one; otherwise,
//! waiting here never ends.

use core::ptr::from_mut;

use pando_abi::limits::MAX_DESCRIPTOR_BYTES;
use pando_abi::ring::{Descriptor, FAULTED, OUTPUT};

use crate::ring::Ring;

/// Sends bytes of the libOS, and waits until the kernel has taken them.
pub fn send(bytes: &[u8]) {
    let ring = Ring::requests();
    for piece in bytes.chunks(MAX_DESCRIPTOR_BYTES as usize) {
        // A slice's length fits, by the size of the pieces.
        ring.post(Descriptor { address: piece.as_ptr().addr() as u64, length: piece.len() as u32, tag: OUTPUT });
    }
    ring.wait_uninterruptibly(ring.last());
}

/// Waits for the operator's next bytes. Returns their number; 0 only without room, or once the operator will send no more.
pub fn receive(room: &mut [u8]) -> usize {
    let length = room.len().min(MAX_DESCRIPTOR_BYTES as usize) as u32;
    let ring = Ring::answers();
    let number = ring.post(Descriptor { address: from_mut(room).cast::<u8>().expose_provenance() as u64, length, tag: 0 });
    // Until the descriptor is taken, the kernel may write to the room, which no other code can reach meanwhile.
    match ring.wait_uninterruptibly(number).length {
        FAULTED => 0,
        bytes => bytes.min(length) as usize,
    }
}
