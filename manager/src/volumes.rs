// SPDX-License-Identifier: MIT OR Apache-2.0
//! Named volumes: directories of the caller's data directory, which cells share live. They outlive the cells.
//!
//! A process whose cell uses a volume holds a shared lock (`flock`) of its directory. Removal needs an exclusive one.

use crate::environment::HostEnvironment;
use crate::host;
use crate::template::create_private_directory;
use crate::view::{VolumeName, VolumeSpec};
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The prefix of directories that are being removed; no volume has such a name.
const REMOVED: &str = ".removed-";
/// How often a volume that was removed at the same moment is created again.
const ATTEMPTS: usize = 8;

/// Why a named volume cannot be created, used or removed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The environment names no directory for volumes.
    #[error("there is no directory for volumes: set HOME or XDG_DATA_HOME")]
    NoDirectory,
    /// There is no volume of this name.
    #[error("there is no volume {0}: `pando volume ls` lists the volumes")]
    Missing(VolumeName),
    /// A volume of this name exists.
    #[error("there is a volume {0} already: use it, remove it (`pando volume rm {0}`), or choose another name")]
    Exists(VolumeName),
    /// There is no volume of this name, but a file in the current directory.
    #[error(
        "-v {0}: there is no volume {0}, but a file of this name here: write ./{0} for the file, or create the volume (`pando volume create {0}`)"
    )]
    LikeFile(VolumeName),
    /// A cell uses it.
    #[error("volume {0} is in use by a cell: end the cell first")]
    InUse(VolumeName),
    /// The host refuses.
    #[error("{}: {}", path.display(), host::plain(source))]
    File {
        /// The directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// A volume of the store.
#[derive(Clone, Debug)]
pub struct StoredVolume {
    /// Its name.
    pub name: VolumeName,
    /// Its directory on the host.
    pub directory: PathBuf,
    /// A cell uses it.
    pub is_used: bool,
}

/// The directory of named volumes, each a directory of its name.
#[derive(Clone, Debug)]
pub struct VolumeStore {
    directory: PathBuf,
}

impl VolumeStore {
    /// The caller's volumes.
    ///
    /// # Errors
    /// The environment does not name a directory for them.
    pub fn of(environment: &HostEnvironment) -> Result<VolumeStore, VolumeError> {
        let directory = environment.data.as_ref().ok_or(VolumeError::NoDirectory)?.join("volumes");
        Ok(VolumeStore { directory })
    }

    fn path(&self, name: &VolumeName) -> PathBuf {
        self.directory.join(name.to_string())
    }

    /// Creates an empty volume.
    ///
    /// # Errors
    /// It exists, or the host refuses.
    pub fn create(&self, name: &VolumeName) -> Result<(), VolumeError> {
        let path = self.path(name);
        let created = create_private_directory(&self.directory).and_then(|()| fs::create_dir(&path));
        created.map_err(|source| match source.kind() {
            ErrorKind::AlreadyExists => VolumeError::Exists(name.clone()),
            _ => VolumeError::File { path, source },
        })
    }

    /// All volumes, by name.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn all(&self) -> Result<Vec<StoredVolume>, VolumeError> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(VolumeError::File { path: self.directory.clone(), source }),
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut names: Vec<VolumeName> = names.collect();
        names.sort();
        // One that is removed at this moment is not listed.
        let found = names.iter().map(|name| self.find(name)).filter(|found| !matches!(found, Err(VolumeError::Missing(_))));
        found.collect()
    }

    /// A volume.
    ///
    /// # Errors
    /// There is none of this name, or the host refuses.
    pub fn find(&self, name: &VolumeName) -> Result<StoredVolume, VolumeError> {
        let (file, directory) = (self.open(name)?, self.path(name));
        let is_used = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        Ok(StoredVolume { name: name.clone(), directory, is_used })
    }

    /// Removes a volume with its files.
    ///
    /// # Errors
    /// There is none of this name, a cell uses it, or the host refuses.
    pub fn remove(&self, name: &VolumeName) -> Result<(), VolumeError> {
        let file = self.open(name)?;
        let path = self.path(name);
        let failed = |source| VolumeError::File { path: path.clone(), source };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(VolumeError::InUse(name.clone())),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // From here on a cell that wants it gets a new one.
        let removed = tempfile::Builder::new().prefix(REMOVED).tempdir_in(&self.directory).map_err(failed)?;
        fs::rename(&path, removed.path()).and_then(|()| fs::remove_dir_all(removed.path())).map_err(failed)
    }

    /// Opens the directory of a volume.
    fn open(&self, name: &VolumeName) -> Result<File, VolumeError> {
        let path = self.path(name);
        let is_there = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
        match is_there.then(|| File::open(&path)).transpose() {
            Ok(Some(file)) => Ok(file),
            Ok(None) => Err(VolumeError::Missing(name.clone())),
            Err(source) => Err(VolumeError::File { path, source }),
        }
    }

    /// Opens a volume for a cell, and creates it if there is none of this name. Returns its directory, and a lock of it.
    fn acquire(&self, name: &VolumeName) -> Result<(PathBuf, File), VolumeError> {
        let path = self.path(name);
        let failed = |source| VolumeError::File { path: path.clone(), source };
        for _ in 0..ATTEMPTS {
            match self.create(name) {
                Ok(()) | Err(VolumeError::Exists(_)) => {}
                Err(error) => return Err(error),
            }
            let Ok(file) = self.open(name) else { continue };
            match file.try_lock_shared() {
                Ok(()) if is_at(&file, &path) => return Ok((path, file)),
                // It is being removed.
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
        Err(VolumeError::InUse(name.clone()))
    }
}

/// Whether a path still leads to an open directory.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: &fs::Metadata| (found.dev(), found.ino());
    let opened = file.metadata().map(|found| identity(&found));
    fs::symlink_metadata(path).is_ok_and(|named| opened.is_ok_and(|opened| opened == identity(&named)))
}

/// Locks of the named volumes of a cell, which cannot be removed while this exists.
#[derive(Debug)]
pub struct VolumeLocks(#[expect(dead_code, reason = "held for its locks")] Vec<File>);

/// Replaces the names of volumes by their directories. A volume that does not exist is created.
///
/// # Errors
/// A volume cannot be created or opened, or its name is that of a file here.
pub fn acquire(volumes: &mut [VolumeSpec], environment: &HostEnvironment) -> Result<VolumeLocks, VolumeError> {
    let mut locks = Vec::new();
    for volume in volumes {
        let Some(name) = &volume.name else { continue };
        let store = VolumeStore::of(environment)?;
        let here = environment.directory.as_ref().map(|directory| directory.join(name.to_string()));
        if matches!(store.open(name), Err(VolumeError::Missing(_))) && here.is_some_and(|path| path.symlink_metadata().is_ok()) {
            return Err(VolumeError::LikeFile(name.clone()));
        }
        let (directory, lock) = store.acquire(name)?;
        volume.host = directory;
        locks.push(lock);
    }
    Ok(VolumeLocks(locks))
}

#[cfg(test)]
mod tests {
    use super::{VolumeError, VolumeStore};
    use crate::view::VolumeName;

    fn name(text: &str) -> VolumeName {
        text.parse().expect("it is a name")
    }

    #[test]
    fn a_volume_that_is_used_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = VolumeStore { directory: directory.path().join("volumes") };
        assert!(store.all().is_ok_and(|all| all.is_empty()));
        assert!(matches!(store.remove(&name("data")), Err(VolumeError::Missing(_))));
        let (path, lock) = store.acquire(&name("data")).expect("it is created");
        std::fs::write(path.join("file"), "kept").expect("it can be written");
        assert!(matches!(store.create(&name("data")), Err(VolumeError::Exists(_))));
        assert!(matches!(store.remove(&name("data")), Err(VolumeError::InUse(_))));
        let (again, second) = store.acquire(&name("data")).expect("two cells share it");
        assert_eq!((again, store.find(&name("data")).map(|found| found.is_used).ok()), (path.clone(), Some(true)));
        drop((lock, second));
        assert!(store.all().is_ok_and(|all| all.len() == 1 && !all[0].is_used));
        store.remove(&name("data")).expect("no cell uses it");
        assert!(!path.exists() && store.all().is_ok_and(|all| all.is_empty()));
    }

    #[test]
    fn links_in_the_store_are_no_volumes() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = VolumeStore { directory: directory.path().into() };
        std::os::unix::fs::symlink("/etc", directory.path().join("data")).expect("a link");
        assert!(matches!(store.find(&name("data")), Err(VolumeError::Missing(_))));
        assert!(store.acquire(&name("data")).is_err());
    }
}
