// SPDX-License-Identifier: MIT OR Apache-2.0
//! Communication inside a cell, and waiting for it.

mod static_programs;
