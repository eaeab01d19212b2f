// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clones of programs of the host, many and large: Python with numpy, and servers. Each is exactly its template, nobody but itself, and leaves nothing.
//!
//! `PANDO_TESTS=all` takes the full sizes.
#![forbid(unsafe_code)]

mod crowd;
mod grove;
mod random;
mod same;
mod servers;
