// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a mapping of a file shares it.

/// Whether a mapping's writes go to the file, and the file's changes to the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// They do not: `MAP_PRIVATE`.
    Private,
    /// The mapping shows the file's changes, and cannot be written.
    Reads,
    /// Both do: `MAP_SHARED`.
    Writes,
}
