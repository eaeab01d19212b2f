// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console: bytes in and out through rings, held back where nobody takes them, whatever a cell writes into its rings.

mod bench;
mod channel;
mod control;
mod rings;
mod streams;
mod torn;
