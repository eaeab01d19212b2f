// SPDX-License-Identifier: MIT OR Apache-2.0
//! Randomness: ChaCha20 over the entropy that the kernel gives each generation.
//!
//! The block function is written here, in plain integers: libraries' versions use vector registers, which hold the application's
//! state. After each request the key is replaced by unused output, so that earlier output cannot be computed from the state.

use pando_abi::limits::ENTROPY_BYTES;
use pando_abi::virtual_registers::Identity;
use pando_rt::registers;
use pando_rt::user::{self, UserRange};

use crate::errno::Errno;

/// Bytes of a block.
const BLOCK: usize = 64;
const KEY_WORDS: usize = 8;
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// One block of ChaCha20 (RFC 8439, section 2.3).
fn block(key: &[u32; KEY_WORDS], counter: u32, nonce: [u32; 3]) -> [u8; BLOCK] {
    let mut start = [0; 16];
    start[..4].copy_from_slice(&CONSTANTS);
    start[4..12].copy_from_slice(key);
    start[12] = counter;
    start[13..].copy_from_slice(&nonce);
    let mut state = start;
    for _ in 0..10 {
        for [a, b, c, d] in
            [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15], [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]]
        {
            quarter_round(&mut state, a, b, c, d);
        }
    }
    let mut bytes = [0; BLOCK];
    for (room, (word, first)) in bytes.chunks_exact_mut(4).zip(state.into_iter().zip(start)) {
        room.copy_from_slice(&word.wrapping_add(first).to_le_bytes());
    }
    bytes
}

fn quarter_round(state: &mut [u32; 16], a: usize, b: usize, c: usize, d: usize) {
    for (sum, addend, mixed, turn) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
        state[sum] = state[sum].wrapping_add(state[addend]);
        state[mixed] = (state[mixed] ^ state[sum]).rotate_left(turn);
    }
}

/// The generator.
#[derive(Debug, Default)]
pub struct Random {
    key: [u32; KEY_WORDS],
    /// The generation whose entropy is in the key; 0: none yet, the kernel counts from 1.
    generation: u64,
}

impl Random {
    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        let identity = registers::identity();
        if identity.generation != self.generation {
            self.reseed(&identity);
        }
        self.generate(bytes);
    }

    /// A number below `count`, which is a power of two.
    pub fn below(&mut self, count: u64) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes) & (count - 1)
    }

    /// Mixes the generation's entropy into the key.
    fn reseed(&mut self, identity: &Identity) {
        self.generation = identity.generation;
        for half in identity.entropy.chunks_exact(ENTROPY_BYTES / 2) {
            for (word, bytes) in self.key.iter_mut().zip(half.chunks_exact(4)) {
                *word ^= bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
            }
            self.generate(&mut []);
        }
    }

    /// Fills `bytes` and replaces the key.
    fn generate(&mut self, bytes: &mut [u8]) {
        let key = self.key;
        for (index, part) in bytes.chunks_mut(BLOCK).enumerate() {
            let index = index as u64 + 1;
            part.copy_from_slice(&block(&key, index as u32, [(index >> 32) as u32, 0, 0])[..part.len()]);
        }
        for (word, bytes) in self.key.iter_mut().zip(block(&key, 0, [0; 3]).chunks_exact(4)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
    }

    /// Fills memory of the application.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn fill_user(&mut self, range: UserRange) -> Result<u64, Errno> {
        let mut bytes = [0; 1024];
        let mut done = 0;
        while done < range.length() {
            let part = range.part(done, bytes.len() as u64);
            let bytes = &mut bytes[..part.length() as usize];
            self.fill(bytes);
            user::write(part.start(), bytes)?;
            done += part.length();
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::{Random, block};

    #[test]
    fn the_block_function_is_that_of_rfc_8439() {
        // Section 2.3.2.
        let key = core::array::from_fn(|word| u32::from_le_bytes(core::array::from_fn(|byte| (word * 4 + byte) as u8)));
        let bytes = block(&key, 1, [0x0900_0000, 0x4a00_0000, 0]);
        assert_eq!(bytes[..16], [0x10, 0xf1, 0xe7, 0xe4, 0xd1, 0x3b, 0x59, 0x15, 0x50, 0x0f, 0xdd, 0x1f, 0xa3, 0x20, 0x71, 0xc4]);
        assert_eq!(bytes[60..], [0xa2, 0x50, 0x3c, 0x4e]);
    }

    #[test]
    fn requests_do_not_repeat() {
        let mut random = Random::default();
        let (mut first, mut second) = ([0; 200], [0; 200]);
        random.generate(&mut first);
        random.generate(&mut second);
        assert_ne!(first, second);
        assert_ne!(first[..64], first[64..128]);
    }
}
