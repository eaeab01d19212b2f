// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random changes of frames: bits, bytes, boundary values, lengths.

use fastrand::Rng;

/// Boundary values, at which code fails most often.
pub const EDGES: [u32; 12] = [0, 1, 2, 4, 5, 15, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff];
/// The length of a frame's headers, where changes have the most effect.
const HEADERS: usize = 90;

/// Changes a frame in a few places, mostly in its headers; leaves some frames unchanged.
#[must_use]
pub fn mutate(frame: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut frame = frame.to_vec();
    for _ in 0..random.usize(0..5) {
        let at = if random.u8(..) < 230 { random.usize(..frame.len().clamp(1, HEADERS)) } else { random.usize(..frame.len().max(1)) };
        let edge = EDGES[random.usize(..EDGES.len())];
        match random.u8(..8) {
            0 => frame.truncate(at),
            1 => frame.extend((0..random.usize(..80)).map(|_| random.u8(..))),
            2..=3 if at < frame.len() => frame[at] ^= 1 << random.u8(..8),
            4 if at < frame.len() => frame[at] = random.u8(..),
            5 if at + 4 <= frame.len() => frame[at..at + 4].copy_from_slice(&edge.to_be_bytes()),
            6 if at + 2 <= frame.len() => frame[at..at + 2].copy_from_slice(&(edge as u16).to_be_bytes()),
            _ if at < frame.len() => frame[at] = edge as u8,
            _ => {}
        }
    }
    frame
}
