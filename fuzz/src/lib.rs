// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz targets: functions of untrusted bytes. A panic, a hang or a failed assertion is a bug.
//!
//! `cargo xtask fuzz` runs them with libFuzzer (`libfuzzer/`); the test suite runs them with seeds and mutated seeds
//! (`tests/`). A target performs all operations on input that was accepted, and asserts the bounds that hold for it.
#![forbid(unsafe_code)]

mod cell;
mod files;
mod http;
mod network;

pub use cell::{jobs, write_back};
pub use files::{erofs, tar, template};
pub use http::http;
pub use network::{gateway, stack};

/// A target.
pub type Target = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: [(&str, Target); 8] = [
    ("template", template),
    ("tar", tar),
    ("erofs", erofs),
    ("stack", stack),
    ("gateway", gateway),
    ("write_back", write_back),
    ("jobs", jobs),
    ("http", http),
];

/// Splits bytes into pieces, each with its length in front (two bytes, little-endian). The last one may be shorter than its length.
fn pieces(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk()?;
        let (piece, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        bytes = rest;
        Some(piece)
    })
}
