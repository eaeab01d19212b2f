// SPDX-License-Identifier: MIT OR Apache-2.0
//! The content of configuration files that a template has read: it is stored with the template, which then does not depend on the host's
//! file.

use super::TemplateImage;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pando_image::{BLOCK_SIZE, BlockError, FileOnHost, Image};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The directory of files whose content is stored: programs read them when they start, and the host replaces them without a change of
/// these programs, like `ld.so.cache` whenever a library is installed.
const CONFIGURATION: &str = "/etc";
/// Maximal bytes of a file.
const CONTENT_MAX: u64 = 256 << 10;
/// Maximal bytes of all files of a template's images.
pub(super) const CONTENTS_MAX: u64 = 1 << 20;
/// Keys and passwords are not copied to files that may be passed on.
const READABLE_BY_EVERYONE: u16 = 0o004;

/// The content of a file; in a template's recipe as base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) struct FileContent(Arc<[u8]>);

impl From<FileContent> for String {
    fn from(content: FileContent) -> String {
        STANDARD.encode(content.0)
    }
}

impl TryFrom<String> for FileContent {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<FileContent, base64::DecodeError> {
        Ok(FileContent(STANDARD.decode(text)?.into()))
    }
}

impl TemplateImage {
    /// The content of files that need not be read, by first block.
    pub(super) fn contents(&self) -> BTreeMap<u32, Arc<[u8]>> {
        self.contents.iter().map(|(first, content)| (*first, Arc::clone(&content.0))).collect()
    }

    /// How many bytes they have together.
    pub(super) fn content_bytes(&self) -> u64 {
        self.contents.values().map(|content| content.0.len() as u64).sum()
    }

    /// Adds the content of configuration files that are used, up to this many bytes. Returns how many were added.
    ///
    /// # Errors
    /// A table of the image is damaged.
    pub(super) fn add_contents(&mut self, image: &Image, room: u64) -> Result<u64, BlockError> {
        let mut added = 0;
        for first in &self.used {
            if self.contents.contains_key(first) {
                continue;
            }
            let Some(FileOnHost { path, size, permissions }) = image.file_of(*first)? else { continue };
            let is_public = permissions & READABLE_BY_EVERYONE != 0;
            if is_public && path.starts_with(Path::new(CONFIGURATION)) && size <= CONTENT_MAX.min(room.saturating_sub(added)) {
                let mut content = vec![0; size.next_multiple_of(BLOCK_SIZE) as usize];
                // A file that cannot be read now is compared at the start.
                if image.read_blocks((*first).into(), &mut content).is_ok() {
                    content.truncate(size as usize);
                    self.contents.insert(*first, FileContent(content.into()));
                    added += size;
                }
            }
        }
        Ok(added)
    }
}
