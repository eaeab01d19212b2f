// SPDX-License-Identifier: MIT OR Apache-2.0
//! How programs start, run and end, and what `/proc` shows of them.

mod ends;
mod executing;
mod proc;
mod scheduling;
mod static_programs;
