// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of an image as an archive, a layout or a registry lists them: its configuration and its layers.

use crate::digest::Digest;

/// An image in an archive or layout.
pub(crate) struct ImageParts {
    pub(crate) config: Vec<u8>,
    pub(crate) names: Vec<String>,
    pub(crate) layers: Vec<LayerPart>,
}

/// A layer in an archive or layout.
pub(crate) struct LayerPart {
    /// The member's name.
    pub(crate) name: String,
    /// The digest of the member, if the archive says it.
    pub(crate) digest: Option<Digest>,
    /// Its size.
    pub(crate) size: Option<u64>,
}
