// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much a test does, and from which seed.

/// Chooses by the environment variable `PANDO_TESTS`: `hardware` (an emulated CPU, a thousand times slower), `all` (the long runs), else the ordinary size.
pub fn choose<T>(hardware: T, ordinary: T, all: T) -> T {
    match std::env::var("PANDO_TESTS").as_deref() {
        Ok("hardware") => hardware,
        Ok("all") => all,
        _ => ordinary,
    }
}

/// The seed of everything random: `PANDO_SEED`, or the same one every time.
pub fn seed() -> u64 {
    std::env::var("PANDO_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0x70616e646f)
}
