// SPDX-License-Identifier: MIT OR Apache-2.0
//! Digests of content.

use sha2::{Digest as _, Sha256};
use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

/// The SHA-256 of content, written `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; 32] {
        self.0
    }

    /// Its hexadecimal digits.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The digest with these 64 hexadecimal digits, in lower case.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Digest> {
        let digit = |byte: u8| if byte.is_ascii_uppercase() { None } else { (byte as char).to_digit(16) };
        let digits: Vec<u32> = text.bytes().map(digit).collect::<Option<_>>()?;
        let bytes: Vec<u8> = digits.as_chunks::<2>().0.iter().map(|[high, low]| (high << 4 | low) as u8).collect();
        if text.len() == 64 { Some(Digest(bytes.try_into().ok()?)) } else { None }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = ();

    fn from_str(text: &str) -> Result<Digest, ()> {
        text.strip_prefix("sha256:").and_then(Digest::from_hex).ok_or(())
    }
}

/// Computes the digest and the length of what is read through it.
pub(crate) struct DigestReader<R> {
    inner: R,
    state: Sha256,
    length: u64,
}

impl<R> DigestReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        DigestReader { inner, state: Sha256::new(), length: 0 }
    }

    /// The digest and the length of what was read.
    pub(crate) fn finish(self) -> (Digest, u64) {
        (Digest(self.state.finalize().into()), self.length)
    }
}

impl<R: Read> Read for DigestReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.state.update(&buffer[..count]);
        self.length += count as u64;
        Ok(count)
    }
}
