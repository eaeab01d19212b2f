// SPDX-License-Identifier: MIT OR Apache-2.0
//! The size of tests, and their seed.

/// Chooses by the environment variable `PANDO_TESTS`: `hardware` (an emulated CPU, a thousand times slower), `all`
/// (the long runs), else the ordinary size.
pub fn choose<T>(hardware: T, ordinary: T, all: T) -> T {
    match std::env::var("PANDO_TESTS").as_deref() {
        Ok("hardware") => hardware,
        Ok("all") => all,
        _ => ordinary,
    }
}

/// The random seed: `PANDO_SEED`, or a fixed one.
pub fn seed() -> u64 {
    std::env::var("PANDO_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0x70616e646f)
}
