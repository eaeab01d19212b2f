// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell's memory as plain data: the format, export and import; as its difference to a base, for cells that sleep; and as records, which
//! a parent lists and builds.

mod building;
mod difference;
mod export;
mod format;
mod import;
mod listing;
mod record;
mod restore;
mod tree_index;

pub(crate) use building::{BuildProgress, MemoryLayout};
pub(crate) use difference::{DifferenceTooLarge, MemoryDifference};
pub(crate) use export::{MemoryExport, PageSource};
pub use format::BadImage;
pub(crate) use format::MemoryImage;
pub(crate) use listing::list_image;
pub(crate) use restore::{MemoryRestore, RestoreError, RestoreProgress};
