// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removal of images, and of layers that no image has.

use crate::digest::Digest;
use crate::error::Error;
use crate::names::ImageName;
use crate::store::{DamagedImage, ImageStore, is_at};
use rustix::fs::{FlockOperation, flock};
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;

/// Other users of images: the images' IDs, and a sentence that names each user.
pub type Users = BTreeMap<Digest, String>;

/// The result of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// Names that no image has any more.
    pub names: Vec<String>,
    /// Images.
    pub images: Vec<Digest>,
    /// Layers.
    pub layers: Vec<Digest>,
    /// Bytes that are free again.
    pub bytes: u64,
}

impl ImageStore {
    /// Removes a name; the image too if it was its last one, or if it is given by its ID. An image with several names must be named unless
    /// `force` is set; so must one that a template uses. Layers that no image has are removed, unless another process adds some.
    ///
    /// # Errors
    /// There is no such image, it is in use, or it has several names.
    pub fn remove(&self, name: &str, users: &Users, force: bool) -> Result<Removal, Error> {
        let image = self.find(name)?;
        let named: Option<ImageName> = name.parse().ok().filter(|named| image.names.contains(named));
        let mut removed = Removal::default();
        match named {
            Some(named) if image.names.len() > 1 => {
                self.change_names(|names| _ = names.remove(&named.whole()))?;
                removed.names.push(named.familiar());
                return Ok(removed);
            }
            None if image.names.len() > 1 && !force => {
                let names = image.names.iter().map(ImageName::familiar).collect();
                return Err(Error::SeveralNames { id: image.short_id(), names });
            }
            _ => {}
        }
        if let Some(user) = users.get(&image.id).filter(|_| !force) {
            return Err(Error::InUse { name: name.into(), user: user.clone() });
        }
        self.remove_image(image.id, name, &mut removed)?;
        match self.collect(&mut removed) {
            // They go with the next removal.
            Err(Error::Busy) => {}
            collected => collected?,
        }
        Ok(removed)
    }

    /// Removes images without a name, or with `all` every image that nothing uses, images whose configuration is damaged, and layers that
    /// no image has.
    ///
    /// # Errors
    /// A file cannot be removed, or another process adds an image.
    pub fn prune(&self, users: &Users, all: bool) -> Result<Removal, Error> {
        let mut removed = Removal::default();
        if !self.directory().exists() {
            return Ok(removed);
        }
        // An image that is being added has no name yet.
        let _lock = self.lock("lock", FlockOperation::NonBlockingLockExclusive)?;
        for image in self.all()? {
            if users.contains_key(&image.id) || !image.names.is_empty() && !all {
                continue;
            }
            match self.remove_image(image.id, &image.label(), &mut removed) {
                Err(Error::InUse { .. }) => {}
                outcome => outcome?,
            }
        }
        for DamagedImage { id, .. } in self.damaged()? {
            match self.remove_image(id, &id.to_string(), &mut removed) {
                Err(Error::InUse { .. }) => {}
                outcome => outcome?,
            }
        }
        self.collect_locked(&mut removed)?;
        Ok(removed)
    }

    fn remove_image(&self, id: Digest, name: &str, removed: &mut Removal) -> Result<(), Error> {
        let path = self.image_path(id);
        let lock = File::open(&path).map_err(Error::read(&path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::InUse { name: name.into(), user: "a cell runs it".into() }),
            Err(errno) => return Err(Error::read(&path)(errno.into())),
        }
        // Another process may have removed it and stored it again since.
        if !is_at(&lock, &path) {
            return Err(Error::Missing(name.into()));
        }
        self.change_names(|names| {
            names.retain(|name, named| {
                if *named == id {
                    removed.names.push(name.parse::<ImageName>().map_or_else(|_| name.clone(), |name| name.familiar()));
                }
                *named != id
            });
        })?;
        fs::remove_file(&path).map_err(Error::write(&path))?;
        removed.images.push(id);
        Ok(())
    }

    /// Removes layers and stacks that no image has, unless another process adds some.
    pub(crate) fn collect(&self, removed: &mut Removal) -> Result<(), Error> {
        let _lock = self.lock("lock", FlockOperation::NonBlockingLockExclusive)?;
        self.collect_locked(removed)
    }

    /// The same while the lock is held.
    fn collect_locked(&self, removed: &mut Removal) -> Result<(), Error> {
        let images = self.all()?;
        let used: HashSet<Digest> = images.iter().flat_map(|image| image.config.layers.iter().copied()).collect();
        for layer in self.ids("layers", "image")?.into_iter().filter(|layer| !used.contains(layer)) {
            let path = self.layer_path(layer);
            removed.bytes += path.metadata().map_or(0, |metadata| std::os::unix::fs::MetadataExt::blocks(&metadata) * 512);
            fs::remove_file(&path).map_err(Error::write(&path))?;
            removed.layers.push(layer);
        }
        let ids: HashSet<Digest> = images.iter().map(|image| image.id).collect();
        for stack in self.ids("stacks", "cache")?.into_iter().filter(|id| !ids.contains(id)) {
            // It is made again if it is needed.
            let _ = fs::remove_file(self.directory().join("stacks").join(format!("{}.cache", stack.hex())));
        }
        self.remove_leftovers();
        Ok(())
    }

    /// Removes temporary files that killed processes left: nothing else writes any while the lock is held.
    fn remove_leftovers(&self) {
        let entries: io::Result<fs::ReadDir> = fs::read_dir(self.directory().join("layers"));
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b".pando-") || name.as_encoded_bytes().ends_with(b".part") {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}
