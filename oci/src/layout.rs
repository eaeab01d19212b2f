// SPDX-License-Identifier: MIT OR Apache-2.0
//! OCI image layouts: `index.json`, and blobs named by their digests.

use crate::blobs::Blobs;
use crate::config::PLATFORM;
use crate::digest::Digest;
use crate::error::Error;
use crate::image_parts::{ImageParts, LayerPart};
use crate::limits::{IMAGES_MAX, INDEX_DEPTH_MAX, INDEX_MAX, JSON_MAX, LAYERS_MAX};
use crate::names::ImageName;
use oci_spec::image::{Descriptor, ImageIndex, ImageManifest, MediaType};

/// The layout's index.
pub(crate) const INDEX: &str = "index.json";
/// The annotation with the whole name of an image, which containerd writes.
const WHOLE_NAME: &str = "io.containerd.image.name";
/// The annotation with the name or the tag of an image.
const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The annotation of manifests that describe other manifests.
const REFERENCE_TYPE: &str = "vnd.docker.reference.type";
/// docker's names of OCI's media types.
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";

/// The images of a layout, each for the supported platform.
pub(crate) fn images(blobs: &Blobs) -> Result<Vec<ImageParts>, Error> {
    let source = &blobs.name;
    let index = index(&blobs.small(INDEX, JSON_MAX)?, source)?;
    if index.manifests().len() > IMAGES_MAX {
        return Err(Error::damaged(source, format!("it has more than {IMAGES_MAX} images")));
    }
    let mut images = Vec::new();
    // Several entries of one name are one image for several platforms.
    let is_index =
        index.manifests().len() > 1 && index.manifests().iter().all(|entry| entry.platform().is_some() && names(entry, source).is_empty());
    if is_index {
        return Ok(vec![image(blobs, &select(index.manifests(), source)?, 0)?]);
    }
    for entry in index.manifests().iter().filter(|entry| !is_attestation(entry)) {
        let found = image(blobs, entry, 0)?;
        images.push(ImageParts { names: names(entry, source), ..found });
    }
    Ok(images)
}

/// The image of an entry of an index.
fn image(blobs: &Blobs, entry: &Descriptor, depth: usize) -> Result<ImageParts, Error> {
    let source = &blobs.name;
    let bytes = blob(blobs, entry)?;
    match kind(entry.media_type(), source)? {
        Kind::Index if depth < INDEX_DEPTH_MAX => {
            let entry = select(index(&bytes, source)?.manifests(), source)?;
            image(blobs, &entry, depth + 1)
        }
        Kind::Index => Err(Error::damaged(source, "its indexes are nested too deeply")),
        Kind::Manifest => {
            let manifest = manifest(&bytes, source)?;
            let config = blob(blobs, manifest.config())?;
            let layers = layers(&manifest, source)?;
            Ok(ImageParts { config, names: Vec::new(), layers })
        }
    }
}

/// The types of documents that lead to an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One image for several platforms.
    Index,
    /// One image.
    Manifest,
}

/// The type of a document.
pub(crate) fn kind(media_type: &MediaType, source: &str) -> Result<Kind, Error> {
    match media_type {
        MediaType::ImageIndex => Ok(Kind::Index),
        MediaType::ImageManifest => Ok(Kind::Manifest),
        other => match &other.to_string()[..] {
            DOCKER_INDEX => Ok(Kind::Index),
            DOCKER_MANIFEST => Ok(Kind::Manifest),
            other if other.contains("manifest.v1") => Err(Error::unsupported(
                source,
                "its manifest has docker's format of before 2017 (schema 1): push it again with a newer docker",
            )),
            other => Err(Error::unsupported(source, format!("it has a document of type {other}, which is no image"))),
        },
    }
}

/// Reads an index.
pub(crate) fn index(bytes: &[u8], source: &str) -> Result<ImageIndex, Error> {
    let index: ImageIndex =
        serde_json::from_slice(bytes).map_err(|error| Error::damaged(source, format!("its index is not valid: {error}")))?;
    if index.manifests().len() > INDEX_MAX {
        return Err(Error::damaged(source, format!("its index has more than {INDEX_MAX} entries")));
    }
    Ok(index)
}

/// Reads a manifest.
pub(crate) fn manifest(bytes: &[u8], source: &str) -> Result<ImageManifest, Error> {
    let manifest: ImageManifest =
        serde_json::from_slice(bytes).map_err(|error| Error::damaged(source, format!("its manifest is not valid: {error}")))?;
    let config = manifest.config().media_type().to_string();
    let is_image = matches!(manifest.config().media_type(), MediaType::ImageConfig) || config.contains("container.image.v1");
    if !is_image {
        return Err(Error::unsupported(source, format!("it is no container image: its configuration is of type {config}")));
    }
    Ok(manifest)
}

/// The layers of a manifest.
pub(crate) fn layers(manifest: &ImageManifest, source: &str) -> Result<Vec<LayerPart>, Error> {
    if manifest.layers().len() > LAYERS_MAX {
        return Err(Error::damaged(source, format!("it has {} layers, and {LAYERS_MAX} are supported", manifest.layers().len())));
    }
    manifest.layers().iter().map(|layer| found_layer(layer, source)).collect()
}

fn found_layer(layer: &Descriptor, source: &str) -> Result<LayerPart, Error> {
    let media_type = layer.media_type().to_string();
    if media_type.contains("encrypted") {
        return Err(Error::unsupported(source, "its layers are encrypted"));
    }
    if media_type.contains("foreign") {
        return Err(Error::unsupported(source, "it has a layer that is not part of it (a foreign layer)"));
    }
    let is_archive = media_type.starts_with("application/vnd.oci.image.layer.") && media_type.contains(".tar");
    if !is_archive && !media_type.starts_with(DOCKER_LAYER) {
        return Err(Error::unsupported(source, format!("it has a layer of type {media_type}")));
    }
    let digest = digest(layer, source)?;
    Ok(LayerPart { name: path(&digest), digest: Some(digest), size: Some(layer.size()) })
}

/// The entry of an index for the supported platform.
pub(crate) fn select(entries: &[Descriptor], source: &str) -> Result<Descriptor, Error> {
    let entries: Vec<&Descriptor> = entries.iter().filter(|entry| !is_attestation(entry)).collect();
    let platform =
        |entry: &Descriptor| entry.platform().as_ref().map(|platform| (platform.os().to_string(), platform.architecture().to_string()));
    let is_ours = |entry: &&&Descriptor| platform(entry).is_some_and(|(os, architecture)| (&os[..], &architecture[..]) == PLATFORM);
    if let Some(entry) = entries.iter().find(is_ours) {
        return Ok((*entry).clone());
    }
    // Without platforms, the configuration says which it is for.
    if let [entry] = entries[..]
        && entry.platform().is_none()
    {
        return Ok(entry.clone());
    }
    let mut others: Vec<String> =
        entries.iter().filter_map(|entry| platform(entry)).map(|(os, architecture)| format!("{os}/{architecture}")).collect();
    others.dedup();
    let others = if others.is_empty() { "no platform".into() } else { others.join(", ") };
    Err(Error::unsupported(source, format!("it is for {others}, and Pando runs images for linux/amd64")))
}

/// Whether an entry describes another one, and is no image.
fn is_attestation(entry: &Descriptor) -> bool {
    entry.annotations().as_ref().is_some_and(|annotations| annotations.contains_key(REFERENCE_TYPE))
}

/// The names that annotations give to an entry.
fn names(entry: &Descriptor, source: &str) -> Vec<String> {
    let annotation = |key: &str| entry.annotations().as_ref().and_then(|annotations| annotations.get(key)).cloned();
    if let Some(whole) = annotation(WHOLE_NAME) {
        return vec![whole];
    }
    let Some(name) = annotation(REF_NAME) else { return Vec::new() };
    if name.contains([':', '/', '@']) {
        return vec![name];
    }
    let file = source.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    ImageName::of_tag(file, &name).map(|name| name.whole()).into_iter().collect()
}

/// The content of a descriptor, checked.
fn blob(blobs: &Blobs, entry: &Descriptor) -> Result<Vec<u8>, Error> {
    let expected = digest(entry, &blobs.name)?;
    let bytes = blobs.small(&path(&expected), JSON_MAX)?;
    let found = Digest::of(&bytes);
    if found == expected {
        return Ok(bytes);
    }
    Err(Error::Mismatch { origin: blobs.name.clone(), part: path(&expected), expected, found })
}

/// The digest of a descriptor.
pub(crate) fn digest(entry: &Descriptor, source: &str) -> Result<Digest, Error> {
    let text = entry.digest().to_string();
    text.parse().map_err(|()| Error::unsupported(source, format!("`{text}` is not a SHA-256 digest")))
}

/// The name of a blob.
fn path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}
