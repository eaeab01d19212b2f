// SPDX-License-Identifier: MIT OR Apache-2.0
//! The attributes of an image's files.

use pando_erofs::Timestamp;

/// A file's metadata besides its name, type and content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The lower twelve bits of the mode; others are ignored.
    pub permissions: u16,
    /// The owner.
    pub uid: u32,
    /// The owner's group.
    pub gid: u32,
    /// When the content last changed.
    pub modified: Timestamp,
}

impl Attributes {
    /// Owned by root, last changed at time 0.
    pub const fn root(permissions: u16) -> Self {
        Attributes { permissions, uid: 0, gid: 0, modified: Timestamp { seconds: 0, nanoseconds: 0 } }
    }
}
