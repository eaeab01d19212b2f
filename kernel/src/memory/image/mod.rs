// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell's memory as plain data: the format, export and import.

mod export;
mod format;
mod import;

pub(crate) use export::{MemoryExport, PageSource};
pub use format::BadImage;
pub(crate) use format::MemoryImage;
