// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files on which memory depends that was made with an image.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;

/// The files of an image on which memory depends, for which the image was opened again.
#[derive(Debug)]
pub(crate) struct FileDependencies {
    /// The numbers of the files.
    pub(crate) used: HashSet<u32>,
    /// A file could not be read, and if the image were opened again, that would be known, or the file could be read.
    pub(crate) is_stale: AtomicBool,
}
