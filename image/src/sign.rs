// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signs that are kept: the same for the same bytes in every version of this program.

use std::hash::Hasher;

/// Makes a number of what it is given (BLAKE3), for comparisons with one that was kept.
#[derive(Clone, Debug, Default)]
pub struct Sign(blake3::Hasher);

impl Hasher for Sign {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let mut first = [0; 8];
        self.0.finalize_xof().fill(&mut first);
        u64::from_le_bytes(first)
    }
}
