// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates in files, for other processes and later use; and [swap space](swap) for sleeping cells.
//!
//! [`save`] writes the kernel's export of a template into one file, atomically. [`TemplateFile::open`] reads the description
//! of the template and none of its pages. [`TemplateFile::load`] imports it into a kernel; its pages are read on first
//! access, once for all clones ([`mod@format`] describes the file).
//!
//! A file is untrusted: all its parts are verified by their checksums and checked before use.
#![forbid(unsafe_code)]

mod error;
mod features;
pub mod format;
mod pages;
pub mod swap;
mod template_file;
mod writer;

pub use error::Error;
pub use features::{features_of_table, missing_features};
pub use template_file::TemplateFile;
pub use writer::{FileIdentity, Summary, identity, save};
