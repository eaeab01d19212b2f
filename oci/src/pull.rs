// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pulls images from registries into the store.

use crate::config::ImageConfig;
use crate::digest::Digest;
use crate::error::Error;
use crate::image_parts::LayerPart;
use crate::layer::LayerArchive;
use crate::layout::{self, Kind};
use crate::limits::{DECOMPRESSED_MAX, INDEX_DEPTH_MAX};
use crate::names::ImageName;
use crate::registry::download::Download;
use crate::registry::{Credentials, Document, Repository};
use crate::scratch::Scratch;
use crate::store::ImageStore;
use oci_spec::image::MediaType;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Layers that are downloaded at a time, as docker does.
const PARALLEL: usize = 3;

/// An image that was pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulledImage {
    /// The digest of its configuration.
    pub id: Digest,
    /// The digest of the manifest or index that its name leads to.
    pub digest: Digest,
    /// The store had this image under this name already.
    pub is_known: bool,
}

/// How far a pull is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullProgress {
    /// Bytes that were downloaded.
    pub bytes: u64,
    /// Bytes of all layers that the store does not have.
    pub all: u64,
}

/// A layer that the store does not have.
struct MissingLayer {
    layer: LayerPart,
    diff_id: Digest,
}

impl ImageStore {
    /// Pulls an image for linux/amd64 from its registry. Layers that are in the store are not downloaded; interrupted downloads continue.
    /// `progress` is called from several threads.
    ///
    /// # Errors
    /// The registry cannot be reached or refuses, the image is damaged or for other platforms, or the store cannot be written.
    pub fn pull(
        &self,
        name: &ImageName,
        credentials: Option<Credentials>,
        progress: &(dyn Fn(PullProgress) + Sync),
    ) -> Result<PulledImage, Error> {
        self.pull_from(&Repository::new(name, credentials), name, progress)
    }

    /// The same for tests, which do not wait between repetitions.
    #[cfg(test)]
    pub(crate) fn pull_at_once(&self, name: &ImageName, credentials: Option<Credentials>) -> Result<PulledImage, Error> {
        let mut repository = Repository::new(name, credentials);
        repository.retry_delay = std::time::Duration::from_millis(1);
        self.pull_from(&repository, name, &|_| ())
    }

    fn pull_from(&self, repository: &Repository, name: &ImageName, progress: &(dyn Fn(PullProgress) + Sync)) -> Result<PulledImage, Error> {
        let source = name.familiar();
        let reference = name.reference();
        let wanted = reference.digest().or(reference.tag()).unwrap_or("latest");
        let document = repository.manifest(wanted)?;
        let digest = Digest::of(&document.bytes);
        let manifest = resolve(repository, document, &source)?;
        let manifest = layout::manifest(&manifest.bytes, &source)?;
        let layers = layout::layers(&manifest, &source)?;
        let id = layout::digest(manifest.config(), &source)?;
        if self.is_complete(id) && self.names()?.get(&name.whole()) == Some(&id) {
            return Ok(PulledImage { id, digest, is_known: true });
        }
        let raw = repository.blob(id)?;
        let config = ImageConfig::read(&raw, &source)?;
        if config.layers.len() != layers.len() {
            let (listed, present) = (config.layers.len(), layers.len());
            return Err(Error::damaged(&source, format!("its configuration lists {listed} layers, and its manifest {present}")));
        }
        let scratch = self.scratch()?;
        let _lock = self.lock_layers()?;
        let mut missing: Vec<MissingLayer> = Vec::new();
        for (layer, diff_id) in layers.into_iter().zip(&config.layers) {
            if !self.has_layer(*diff_id) && !missing.iter().any(|other| other.diff_id == *diff_id) {
                missing.push(MissingLayer { layer, diff_id: *diff_id });
            }
        }
        self.pull_layers(repository, &source, &missing, &scratch, progress)?;
        let id = self.record(&raw, std::slice::from_ref(name))?;
        Ok(PulledImage { id, digest, is_known: false })
    }

    /// Downloads and stores layers, several at a time.
    fn pull_layers(
        &self,
        repository: &Repository,
        source: &str,
        missing: &[MissingLayer],
        scratch: &Scratch,
        progress: &(dyn Fn(PullProgress) + Sync),
    ) -> Result<(), Error> {
        let all = missing.iter().filter_map(|missing| missing.layer.size).fold(0_u64, u64::saturating_add);
        let (next, bytes, failure) = (AtomicUsize::new(0), AtomicU64::new(0), Mutex::new(None));
        let arrived = |count| {
            let bytes = bytes.fetch_add(count, Ordering::Relaxed) + count;
            progress(PullProgress { bytes: bytes.min(all), all });
        };
        let work = || {
            while let Some(missing) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = self.pull_layer(repository, source, missing, scratch, &arrived) {
                    // The others end after their present layer; the first failure is reported.
                    next.store(usize::MAX / 2, Ordering::Relaxed);
                    failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..PARALLEL.min(missing.len()) {
                // A process that may start no more threads does it alone.
                let _ = std::thread::Builder::new().name("pull".into()).spawn_scoped(scope, work);
            }
            work();
        });
        match failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn pull_layer(
        &self,
        repository: &Repository,
        source: &str,
        missing: &MissingLayer,
        scratch: &Scratch,
        arrived: &dyn Fn(u64),
    ) -> Result<(), Error> {
        let MissingLayer { layer: LayerPart { digest, size, .. }, diff_id } = missing;
        let (Some(digest), Some(size)) = (*digest, *size) else { return Err(Error::damaged(source, "a layer has no digest")) };
        if size > DECOMPRESSED_MAX {
            return Err(Error::damaged(source, format!("layer {digest} has {size} bytes, and {DECOMPRESSED_MAX} are supported")));
        }
        let download = Download::open(&self.layers_directory(), digest, size)?;
        if self.has_layer(*diff_id) {
            // Another process was quicker.
            download.discard();
            return Ok(());
        }
        download.complete(repository, scratch, arrived)?;
        let name = digest.to_string();
        let archive = LayerArchive { source, name: &name, digest: Some(digest), size: Some(size), diff_id: Some(*diff_id) };
        let stored = archive.store(download.content()?, &|digest| self.layer_path(digest), scratch, &mut |_| ());
        // Content that is not what it should be would not become so later.
        if stored.is_ok() || matches!(stored, Err(Error::Mismatch { .. } | Error::Damaged { .. })) {
            download.discard();
        }
        stored.map(|_| ())
    }
}

/// The manifest for this platform that a document leads to.
fn resolve(repository: &Repository, mut document: Document, source: &str) -> Result<Document, Error> {
    for _ in 0..=INDEX_DEPTH_MAX {
        match layout::kind(&media_type(&document, source)?, source)? {
            Kind::Manifest => return Ok(document),
            Kind::Index => {
                let entry = layout::select(layout::index(&document.bytes, source)?.manifests(), source)?;
                document = repository.manifest(&layout::digest(&entry, source)?.to_string())?;
            }
        }
    }
    Err(Error::damaged(source, "its indexes are nested too deeply"))
}

/// The type of a document: the one that it names itself, or that of the answer.
///
/// # Errors
/// It could be read as an index and as a manifest.
fn media_type(document: &Document, source: &str) -> Result<MediaType, Error> {
    let read: serde_json::Value = serde_json::from_slice(&document.bytes).unwrap_or_default();
    if read.get("manifests").is_some() && read.get("layers").is_some() {
        return Err(Error::damaged(source, "a document is an index and a manifest at once"));
    }
    Ok(MediaType::from(read["mediaType"].as_str().unwrap_or(&document.media_type)))
}
