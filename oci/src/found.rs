// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images as archives and layouts describe them.

use crate::digest::Digest;

/// An image in an archive or layout.
pub(crate) struct FoundImage {
    pub(crate) config: Vec<u8>,
    pub(crate) names: Vec<String>,
    pub(crate) layers: Vec<FoundLayer>,
}

/// A layer in an archive or layout.
pub(crate) struct FoundLayer {
    /// The member's name.
    pub(crate) name: String,
    /// The digest of the member, if the archive says it.
    pub(crate) digest: Option<Digest>,
    /// Its size.
    pub(crate) size: Option<u64>,
}
