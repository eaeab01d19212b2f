// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates in files, for another process and another day.
//!
//! [`save`] writes what a kernel exports into one file, which is there whole or not at all. [`Saved::open`] reads what the template is and nothing of its pages; [`Saved::load`] makes it a template of a
//! kernel again, and its pages are read when they are touched, once for all clones ([`format`] says how they lie in the file).
//!
//! A file is a claim, whoever wrote it: its parts are compared with their checksums and checked before they are used.
#![forbid(unsafe_code)]

mod error;
mod features;
pub mod format;
mod pages;
mod saved;
mod writer;

pub use error::Error;
pub use saved::Saved;
pub use writer::{Summary, save};
