// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that programs send and handle.

mod static_programs;
