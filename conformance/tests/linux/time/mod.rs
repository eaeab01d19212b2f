// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clocks and timers.

mod static_programs;
