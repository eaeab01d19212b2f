// SPDX-License-Identifier: MIT OR Apache-2.0
//! Archives of `docker save`: a list of images in `manifest.json`.

use crate::blobs::Blobs;
use crate::digest::Digest;
use crate::error::Error;
use crate::image_parts::{ImageParts, LayerPart};
use crate::limits::{IMAGES_MAX, JSON_MAX};
use serde::Deserialize;

/// The list's name.
pub(crate) const MANIFEST: &str = "manifest.json";
/// The list of archives of docker before 1.10.
pub(crate) const REPOSITORIES: &str = "repositories";

/// An image in the list.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedImage {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// The images of an archive.
pub(crate) fn images(blobs: &Blobs) -> Result<Vec<ImageParts>, Error> {
    let list = blobs.small(MANIFEST, JSON_MAX)?;
    let list: Vec<ListedImage> =
        serde_json::from_slice(&list).map_err(|error| Error::damaged(&blobs.name, format!("{MANIFEST} is not valid: {error}")))?;
    if list.len() > IMAGES_MAX {
        return Err(Error::damaged(&blobs.name, format!("it has more than {IMAGES_MAX} images")));
    }
    list.into_iter().map(|image| found(blobs, image)).collect()
}

fn found(blobs: &Blobs, image: ListedImage) -> Result<ImageParts, Error> {
    let name = plain(&image.config);
    let config = blobs.small(name, JSON_MAX)?;
    // It is named by its digest: DIGEST.json, or blobs/sha256/DIGEST.
    let stem = name.rsplit('/').next().unwrap_or_default();
    if let Some(expected) = Digest::from_hex(stem.strip_suffix(".json").unwrap_or(stem)) {
        let found = Digest::of(&config);
        if found != expected {
            return Err(Error::Mismatch { origin: blobs.name.clone(), part: name.into(), expected, found });
        }
    }
    let layers = image.layers.iter().map(|layer| LayerPart { name: plain(layer).into(), digest: None, size: None });
    Ok(ImageParts { config, names: image.repo_tags.unwrap_or_default(), layers: layers.collect() })
}

/// A member's name without a leading `./`.
fn plain(name: &str) -> &str {
    name.trim_start_matches("./")
}
