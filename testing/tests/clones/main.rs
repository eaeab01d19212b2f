// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clones of host programs, many and large: Python with numpy, and servers. Each clone is exactly its template, is distinct
//! from its siblings, and leaks nothing.
//!
//! `PANDO_TESTS=all` uses the full sizes.
#![forbid(unsafe_code)]

mod batch;
mod fixture;
mod random;
mod same;
mod servers;
