// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a program.

mod static_programs;
