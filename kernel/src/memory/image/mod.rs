// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell's memory as plain data: the format, export and import; and as its difference to a base, for cells that sleep.

mod difference;
mod export;
mod format;
mod import;
mod record;
mod restore;

pub(crate) use difference::{DifferenceTooLarge, MemoryDifference};
pub(crate) use export::{MemoryExport, PageSource};
pub use format::BadImage;
pub(crate) use format::MemoryImage;
pub(crate) use restore::{MemoryRestore, RestoreError};
