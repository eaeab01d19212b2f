// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system as compiled languages use it: the C library, the standard library of Rust.

mod static_programs;
