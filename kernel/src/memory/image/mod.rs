// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell's memory as plain data: the format, export and import.

pub(crate) mod export;
mod format;
pub(crate) mod import;

pub use format::BadImage;
pub(crate) use format::MemoryImage;
