// SPDX-License-Identifier: MIT OR Apache-2.0
//! The token of a migration: each side proves to the other that it has it, without sending it.
//!
//! Each side chooses a nonce. A proof is the BLAKE3 hash of both nonces and the side's name, with a key that is derived from the token. So
//! a process that has taken the source's port cannot pass for the source. It can relay the proofs of both sides, and read what follows; and
//! it can guess a token that is not random.

use std::fmt;
use std::fs::File;
use std::io::{Error, Read, Result};

/// Bytes of a nonce, and of a proof.
pub(super) const NONCE: usize = 32;
/// Random bytes of a token that is made here.
const RANDOM: usize = 16;
/// Characters that a token has at least.
const LENGTH_MIN: usize = 16;
/// Characters that a token has at most.
const LENGTH_MAX: usize = 1024;
/// The purpose of the key.
const PURPOSE: &str = "Pando 2026 the token of a migration";

/// A nonce.
pub(super) type Nonce = [u8; NONCE];

/// A side of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MigrationSide {
    Source,
    Destination,
}

/// A secret that both sides of a migration have.
#[derive(Clone, PartialEq, Eq)]
pub struct MigrationToken(String);

impl fmt::Debug for MigrationToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("MigrationToken")
    }
}

impl MigrationToken {
    /// A random token.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn random() -> Result<MigrationToken> {
        let bytes = random::<RANDOM>()?;
        Ok(MigrationToken(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// A token that is given.
    ///
    /// # Errors
    /// It is too short to be a secret, or too long.
    pub fn new(text: &str) -> Result<MigrationToken> {
        let text = text.trim();
        if (LENGTH_MIN..=LENGTH_MAX).contains(&text.len()) {
            return Ok(MigrationToken(text.into()));
        }
        Err(Error::other(format!("a token has {LENGTH_MIN} to {LENGTH_MAX} characters, and this one has {}", text.len())))
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The proof that a side has the token. `nonces`: the source's and the destination's.
    pub(super) fn proof(&self, side: MigrationSide, nonces: [&Nonce; 2]) -> [u8; NONCE] {
        let mut hasher = blake3::Hasher::new_keyed(&blake3::derive_key(PURPOSE, self.0.as_bytes()));
        hasher.update(&[side as u8]);
        nonces.into_iter().for_each(|nonce| _ = hasher.update(nonce));
        *hasher.finalize().as_bytes()
    }

    /// Whether a proof is that of a side. It takes as long for each wrong one.
    pub(super) fn is_proof(&self, proof: &[u8], side: MigrationSide, nonces: [&Nonce; 2]) -> bool {
        let expected = blake3::Hash::from_bytes(self.proof(side, nonces));
        <[u8; NONCE]>::try_from(proof).is_ok_and(|proof| blake3::Hash::from_bytes(proof) == expected)
    }
}

/// Random bytes.
///
/// # Errors
/// There are none.
pub(super) fn random<const COUNT: usize>() -> Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{MigrationSide, MigrationToken};

    #[test]
    fn a_proof_holds_for_one_token_one_side_and_these_nonces() {
        let token = MigrationToken::random().expect("there are random numbers");
        let other = MigrationToken::random().expect("there are random numbers");
        let nonces = [&[1; 32], &[2; 32]];
        let proof = token.proof(MigrationSide::Destination, nonces);
        assert!(token.is_proof(&proof, MigrationSide::Destination, nonces));
        assert!(!other.is_proof(&proof, MigrationSide::Destination, nonces));
        assert!(!token.is_proof(&proof, MigrationSide::Source, nonces), "it is not sent back");
        assert!(!token.is_proof(&proof, MigrationSide::Destination, [&[1; 32], &[3; 32]]), "it is not used again");
        assert!(
            !token.is_proof(&proof[1..], MigrationSide::Destination, nonces) && !token.is_proof(b"", MigrationSide::Destination, nonces)
        );
    }

    #[test]
    fn tokens_are_long_enough_and_not_printed() {
        assert!(MigrationToken::new("0123456789abcde").is_err());
        let token = MigrationToken::new("0123456789abcdef\n").expect("it is long enough");
        assert_eq!(token.text(), "0123456789abcdef");
        assert_eq!(format!("{token:?}"), "MigrationToken");
    }
}
