// SPDX-License-Identifier: MIT OR Apache-2.0
//! The store of images.
//!
//! ```text
//! images/DIGEST.json    configurations, by their digests, which are the images' IDs
//! layers/DIGEST.image   layers, by the digests of their archives (diff IDs)
//! stacks/DIGEST.cache   the united metadata of an image's layers; made again if it is missing
//! names.json            names of images, with their IDs
//! lock                  shared while layers are added, exclusive while unused ones are removed
//! ```
//!
//! All files are written under temporary names and renamed. A process that uses an image holds a shared lock of its configuration.

use crate::config::ImageConfig;
use crate::digest::Digest;
use crate::error::Error;
use crate::limits::JSON_MAX;
use crate::names::ImageName;
use crate::scratch::Scratch;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The shortest abbreviation of an ID.
const SHORTEST_ID: usize = 4;

/// The store of images, which may not exist yet.
#[derive(Clone, Debug)]
pub struct ImageStore {
    directory: PathBuf,
}

/// An image in the store.
#[derive(Clone, Debug)]
pub struct StoredImage {
    /// The digest of its configuration.
    pub id: Digest,
    /// Its names.
    pub names: Vec<ImageName>,
    /// Its configuration.
    pub config: ImageConfig,
    /// The bytes of its layers, as they are stored.
    pub size: u64,
    /// When it was loaded.
    pub loaded: SystemTime,
}

/// An image in the store whose configuration cannot be read.
#[derive(Debug)]
pub struct DamagedImage {
    /// The digest that its configuration should have.
    pub id: Digest,
    /// The damage.
    pub error: Error,
}

/// An image that is used, and so cannot be removed.
#[derive(Debug)]
pub struct OpenImage {
    /// The image.
    pub image: StoredImage,
    /// Its layers, the lowest first.
    pub layers: Vec<PathBuf>,
    /// A file for its united metadata.
    pub stack: PathBuf,
    /// Holds the lock.
    _lock: File,
}

impl ImageStore {
    /// The store in this directory.
    pub fn new(directory: impl Into<PathBuf>) -> ImageStore {
        ImageStore { directory: directory.into() }
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// All images whose configuration can be read, the newest first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn all(&self) -> Result<Vec<StoredImage>, Error> {
        self.all_and_damaged().map(|(images, _)| images)
    }

    /// The images whose configuration is damaged. Nothing can use them; [`ImageStore::prune`] removes them.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn damaged(&self) -> Result<Vec<DamagedImage>, Error> {
        self.all_and_damaged().map(|(_, damaged)| damaged)
    }

    fn all_and_damaged(&self) -> Result<(Vec<StoredImage>, Vec<DamagedImage>), Error> {
        let names = self.names()?;
        let (mut images, mut damaged) = (Vec::new(), Vec::new());
        for id in self.ids("images", "json")? {
            match self.image(id, &names) {
                Ok(image) => images.push(image),
                // Another process may have just removed it.
                Err(Error::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error @ (Error::Damaged { .. } | Error::Unsupported { .. })) => damaged.push(DamagedImage { id, error }),
                Err(error) => return Err(error),
            }
        }
        images.sort_by_key(|image| std::cmp::Reverse((image.loaded, image.id)));
        Ok((images, damaged))
    }

    /// Finds an image by its name, or by its ID or the beginning of it. A whole ID is never taken for a name.
    ///
    /// # Errors
    /// There is none, or the ID is ambiguous.
    pub fn find(&self, name: &str) -> Result<StoredImage, Error> {
        let names = self.names()?;
        let named = name.parse::<ImageName>();
        let digits = name.strip_prefix("sha256:").unwrap_or(name);
        if Digest::from_hex(digits).is_none()
            && let Ok(named) = &named
            && let Some(id) = names.get(&named.whole())
        {
            return self.image(*id, &names);
        }
        let is_id = digits.len() >= SHORTEST_ID && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_id {
            let found: Vec<Digest> = self.ids("images", "json")?.into_iter().filter(|id| id.hex().starts_with(digits)).collect();
            match found[..] {
                [] => {}
                [id] => return self.image(id, &names),
                _ => return Err(Error::Ambiguous(digits.into())),
            }
        }
        // A name that is no name is reported as such.
        Err(named.err().filter(|_| !is_id).unwrap_or_else(|| Error::Missing(name.into())))
    }

    /// Opens an image in order to run it.
    ///
    /// # Errors
    /// There is none, or a layer is missing.
    pub fn open(&self, name: &str) -> Result<OpenImage, Error> {
        let image = self.find(name)?;
        let path = self.image_path(image.id);
        let lock = File::open(&path).map_err(|_| Error::Missing(name.into()))?;
        flock(&lock, FlockOperation::LockShared).map_err(|errno| Error::read(&path)(errno.into()))?;
        // It may have been removed before it was locked, and stored again.
        if !is_at(&lock, &path) {
            return Err(Error::Missing(name.into()));
        }
        let layers = image.config.layers.iter().map(|layer| self.layer_path(*layer)).collect();
        let stack = self.directory.join("stacks").join(format!("{}.cache", image.id.hex()));
        Ok(OpenImage { image, layers, stack, _lock: lock })
    }

    /// Gives an image another name.
    ///
    /// # Errors
    /// There is no such image, or the store cannot be written.
    pub fn tag(&self, name: &str, new: &ImageName) -> Result<(), Error> {
        let id = self.find(name)?.id;
        self.change_names(|names| _ = names.insert(new.whole(), id))
    }

    /// The configuration of an image as it was loaded.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn raw_config(&self, id: Digest) -> Result<Vec<u8>, Error> {
        let path = self.image_path(id);
        let failed = Error::read(&path);
        let mut bytes = Vec::new();
        File::open(&path).and_then(|file| file.take(JSON_MAX).read_to_end(&mut bytes)).map_err(failed)?;
        if Digest::of(&bytes) != id {
            return Err(Error::damaged(&path.display().to_string(), "its content does not have its digest"));
        }
        Ok(bytes)
    }

    /// Records an image whose layers are stored, and gives it names.
    pub(crate) fn record(&self, config: &[u8], names: &[ImageName]) -> Result<Digest, Error> {
        let id = Digest::of(config);
        if config.len() as u64 > JSON_MAX {
            let label = names.first().map_or_else(|| id.to_string(), ImageName::familiar);
            return Err(Error::unsupported(&label, format!("its configuration would have more than {JSON_MAX} bytes")));
        }
        let path = self.image_path(id);
        let _lock = loop {
            // Cells that run the image have locked the file: it is not replaced by one with the same content.
            if self.raw_config(id).is_err() {
                self.write(&path, config)?;
            }
            // Held until it has its names. It may have been removed before it was locked.
            let file = match File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(Error::write(&path))?,
            };
            flock(&file, FlockOperation::LockShared).map_err(|errno| Error::write(&path)(errno.into()))?;
            if is_at(&file, &path) {
                file.set_modified(SystemTime::now()).map_err(Error::write(&path))?;
                break file;
            }
        };
        self.change_names(|all| names.iter().for_each(|name| _ = all.insert(name.whole(), id)))?;
        Ok(id)
    }

    /// Creates the store's directories unless they exist; returns where temporary files go.
    pub(crate) fn scratch(&self) -> Result<Scratch, Error> {
        for name in ["images", "layers", "stacks"] {
            let path = self.directory.join(name);
            DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(Error::write(&path))?;
        }
        Ok(Scratch::new(&self.directory.join("layers")))
    }

    /// Holds off the removal of layers.
    pub(crate) fn lock_layers(&self) -> Result<File, Error> {
        self.lock("lock", FlockOperation::LockShared)
    }

    pub(crate) fn lock(&self, name: &str, operation: FlockOperation) -> Result<File, Error> {
        let path = self.directory.join(name);
        let failed = Error::write(&path);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(&failed)?;
        match flock(&file, operation) {
            Ok(()) => Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Busy),
            Err(errno) => Err(failed(errno.into())),
        }
    }

    /// Whether an image's configuration is sound, and all its layers are there.
    pub(crate) fn is_complete(&self, id: Digest) -> bool {
        let config = self.raw_config(id).and_then(|raw| ImageConfig::read(&raw, &id.to_string()));
        config.is_ok_and(|config| config.layers.iter().all(|layer| self.has_layer(*layer)))
    }

    pub(crate) fn layers_directory(&self) -> PathBuf {
        self.directory.join("layers")
    }

    pub(crate) fn has_layer(&self, diff_id: Digest) -> bool {
        self.layer_path(diff_id).exists()
    }

    pub(crate) fn layer_path(&self, diff_id: Digest) -> PathBuf {
        self.directory.join("layers").join(format!("{}.image", diff_id.hex()))
    }

    pub(crate) fn image_path(&self, id: Digest) -> PathBuf {
        self.directory.join("images").join(format!("{}.json", id.hex()))
    }

    /// The digests that files in a directory of the store are named by.
    pub(crate) fn ids(&self, directory: &str, extension: &str) -> Result<Vec<Digest>, Error> {
        let path = self.directory.join(directory);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::read(&path)(error)),
        };
        let id = |path: PathBuf| match path.extension() {
            Some(found) if found == extension => Digest::from_hex(path.file_stem()?.to_str()?),
            _ => None,
        };
        Ok(entries.flatten().filter_map(|entry| id(entry.path())).collect())
    }

    /// The names of images.
    pub(crate) fn names(&self) -> Result<BTreeMap<String, Digest>, Error> {
        let path = self.directory.join("names.json");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(Error::read(&path)(error)),
        };
        let names: BTreeMap<String, String> =
            serde_json::from_slice(&text).map_err(|error| Error::damaged(&path.display().to_string(), error.to_string()))?;
        Ok(names.into_iter().filter_map(|(name, id)| Some((name, id.parse().ok()?))).collect())
    }

    /// Changes the names, while no other process does.
    pub(crate) fn change_names(&self, change: impl FnOnce(&mut BTreeMap<String, Digest>)) -> Result<(), Error> {
        let _lock = self.lock("names.lock", FlockOperation::LockExclusive)?;
        let mut names = self.names()?;
        let before = names.clone();
        change(&mut names);
        if names == before {
            return Ok(());
        }
        let names: BTreeMap<String, String> = names.into_iter().map(|(name, id)| (name, id.to_string())).collect();
        self.write(&self.directory.join("names.json"), &serde_json::to_vec_pretty(&names).unwrap_or_default())
    }

    fn image(&self, id: Digest, names: &BTreeMap<String, Digest>) -> Result<StoredImage, Error> {
        let path = self.image_path(id);
        let config = ImageConfig::read(&self.raw_config(id)?, &path.display().to_string())?;
        let loaded = path.metadata().and_then(|metadata| metadata.modified()).map_err(Error::read(&path))?;
        let names = names.iter().filter(|(_, named)| **named == id).filter_map(|(name, _)| name.parse().ok()).collect();
        let size = |layer: &Digest| fs::metadata(self.layer_path(*layer)).map_or(0, |metadata| metadata.len());
        let size = config.layers.iter().map(size).sum();
        Ok(StoredImage { id, names, config, size, loaded })
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let failed = Error::write(path);
        let mut file = tempfile::Builder::new().prefix(".pando-").tempfile_in(path.parent().unwrap_or(&self.directory)).map_err(&failed)?;
        file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(&failed)?;
        file.persist(path).map(|_| ()).map_err(|error| failed(error.error))
    }
}

impl StoredImage {
    /// Its first name, or its abbreviated ID.
    #[must_use]
    pub fn label(&self) -> String {
        self.names.first().map_or_else(|| self.short_id(), ToString::to_string)
    }

    /// Its ID as docker abbreviates it.
    #[must_use]
    pub fn short_id(&self) -> String {
        self.id.hex()[..12].into()
    }
}

/// Whether a file is the one at a path.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let inode = |metadata: io::Result<fs::Metadata>| metadata.map(|metadata| (metadata.dev(), metadata.ino())).ok();
    inode(file.metadata()).is_some_and(|open| inode(fs::metadata(path)) == Some(open))
}
