// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console: bytes in and out through rings, with back-pressure, whatever a cell writes into its rings.

mod bench;
mod channel;
mod control;
mod rings;
mod streams;
mod torn;
