// SPDX-License-Identifier: MIT OR Apache-2.0
//! Persistent fingerprints: the same for the same bytes in every version of this program.

use std::hash::Hasher;

/// A hasher (BLAKE3) for fingerprints that are stored and compared.
#[derive(Clone, Debug, Default)]
pub struct Fingerprint(blake3::Hasher);

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let mut first = [0; 8];
        self.0.finalize_xof().fill(&mut first);
        u64::from_le_bytes(first)
    }
}
