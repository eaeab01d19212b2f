// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads images from archives and layouts into the store.

use crate::blobs::Blobs;
use crate::config::ImageConfig;
use crate::digest::Digest;
use crate::error::Error;
use crate::garbage::Removal;
use crate::image_parts::ImageParts;
use crate::layer::LayerArchive;
use crate::names::ImageName;
use crate::scratch::Scratch;
use crate::store::ImageStore;
use crate::{docker, layout};
use std::io::Read;
use std::path::Path;

/// An image that was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedImage {
    /// The digest of its configuration.
    pub id: Digest,
    /// The names that it got.
    pub names: Vec<ImageName>,
}

/// How far the loading of an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress {
    /// The number of the layer, from 1.
    pub layer: usize,
    /// All layers.
    pub layers: usize,
    /// The layer's bytes so far, decompressed.
    pub bytes: u64,
}

impl ImageStore {
    /// Loads all images of an archive of `docker save` or `podman save`, or of an OCI layout: a directory, or an archive that may be
    /// compressed with gzip or zstd. An image without a name gets `name`, which is an error if there are several.
    ///
    /// # Errors
    /// It is none of these, is damaged, or has no image for linux/amd64.
    pub fn load(&self, path: &Path, name: Option<&ImageName>, progress: &mut dyn FnMut(LoadProgress)) -> Result<Vec<LoadedImage>, Error> {
        let scratch = self.scratch()?;
        self.load_blobs(&Blobs::open(path, &scratch)?, name, &scratch, progress)
    }

    /// The same from a stream, which has this name in errors.
    ///
    /// # Errors
    /// As [`load`](ImageStore::load).
    pub fn load_stream(
        &self,
        source: &str,
        stream: impl Read,
        name: Option<&ImageName>,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Vec<LoadedImage>, Error> {
        let scratch = self.scratch()?;
        self.load_blobs(&Blobs::read(source, stream, &scratch)?, name, &scratch, progress)
    }

    fn load_blobs(
        &self,
        blobs: &Blobs,
        name: Option<&ImageName>,
        scratch: &Scratch,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Vec<LoadedImage>, Error> {
        let images = find_images(blobs)?;
        if images.is_empty() {
            return Err(Error::damaged(&blobs.name, "it has no images"));
        }
        if let (Some(name), 2..) = (name, images.len()) {
            return Err(Error::unsupported(&blobs.name, format!("it has {} images, so `{name}` would name them all", images.len())));
        }
        // Until the images are recorded, nothing refers to their layers.
        let lock = self.lock_layers()?;
        let loaded: Result<Vec<_>, Error> =
            images.into_iter().map(|image| self.load_image(blobs, image, name, scratch, progress)).collect();
        drop(lock);
        if loaded.is_err() {
            // The layers before the damaged one; those that remain because another process loads an image go with the next removal.
            let _ = self.collect(&mut Removal::default());
        }
        loaded
    }

    fn load_image(
        &self,
        blobs: &Blobs,
        image: ImageParts,
        name: Option<&ImageName>,
        scratch: &Scratch,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<LoadedImage, Error> {
        let config = ImageConfig::read(&image.config, &blobs.name)?;
        if config.layers.len() != image.layers.len() {
            let (listed, present) = (config.layers.len(), image.layers.len());
            return Err(Error::damaged(&blobs.name, format!("its configuration lists {listed} layers, and it has {present}")));
        }
        let names = match name {
            Some(name) => vec![name.clone()],
            None => image.names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?,
        };
        let layers = config.layers.len();
        for (index, (layer, diff_id)) in image.layers.iter().zip(&config.layers).enumerate() {
            if self.has_layer(*diff_id) {
                continue;
            }
            let archive =
                LayerArchive { source: &blobs.name, name: &layer.name, digest: layer.digest, size: layer.size, diff_id: Some(*diff_id) };
            let mut progress = |bytes| progress(LoadProgress { layer: index + 1, layers, bytes });
            archive.store(blobs.blob(&layer.name)?, &|digest| self.layer_path(digest), scratch, &mut progress)?;
        }
        let id = self.record(&image.config, &names)?;
        Ok(LoadedImage { id, names })
    }
}

/// The images of an archive or layout.
fn find_images(blobs: &Blobs) -> Result<Vec<ImageParts>, Error> {
    if blobs.has(docker::MANIFEST) {
        return docker::images(blobs);
    }
    if blobs.has(layout::INDEX) {
        return layout::images(blobs);
    }
    let found = match blobs.has(docker::REPOSITORIES) {
        true => "it has the format of docker before 1.10: save it again with a newer docker".into(),
        false => format!("it has neither manifest.json nor index.json, but {}", blobs.sample()),
    };
    Err(Error::NotAnImage { path: (&blobs.name).into(), found })
}
