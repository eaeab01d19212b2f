// SPDX-License-Identifier: MIT OR Apache-2.0
//! Named volumes: directories of the caller's data directory, which cells share live. They outlive the cells.
//!
//! A process whose cell uses a volume holds a shared lock (`flock`) of its directory. Removal needs an exclusive one.

use crate::environment::HostEnvironment;
use crate::host;
use crate::remove_tree::remove_tree;
use crate::template::create_private_directory;
use crate::view::{VolumeName, VolumeSpec};
use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The prefix of directories that are being removed; no volume has such a name.
const REMOVED: &str = ".removed-";
/// How often a lock that another process holds for a moment is tried, and how long each time.
const ATTEMPTS: usize = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// Why a named volume cannot be created, used or removed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The environment names no directory for volumes.
    #[error("there is no directory for volumes: set HOME or XDG_DATA_HOME")]
    NoDirectory,
    /// There is no volume of this name.
    #[error("there is no volume {0}: `pando volume ls` lists the volumes")]
    Missing(VolumeName),
    /// There is no volume of this name, but a file or directory in the current one.
    #[error(
        "cannot use volume {0}: it does not exist, and ./{0} does: write ./{0} for that, or create the volume (`pando volume create {0}`)"
    )]
    LikeFile(VolumeName),
    /// A cell uses it.
    #[error("volume {0} is in use by a cell: end its `pando run` first")]
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

    /// Creates an empty volume, unless there is one of this name.
    ///
    /// # Errors
    /// The host refuses.
    pub fn create(&self, name: &VolumeName) -> Result<(), VolumeError> {
        let path = self.path(name);
        match create_private_directory(&self.directory).and_then(|()| fs::create_dir(&path)) {
            Err(source) if source.kind() != ErrorKind::AlreadyExists => Err(VolumeError::File { path, source }),
            Ok(()) | Err(_) => Ok(()),
        }
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
        let is_used = match self.open(name) {
            Ok(file) => matches!(file.try_lock(), Err(TryLockError::WouldBlock)),
            Err(VolumeError::Missing(name)) => return Err(VolumeError::Missing(name)),
            // Its permissions forbid this process to know.
            Err(_) => false,
        };
        Ok(StoredVolume { name: name.clone(), directory: self.path(name), is_used })
    }

    /// Removes a volume with its files.
    ///
    /// # Errors
    /// There is none of this name, a cell uses it, or the host refuses.
    pub fn remove(&self, name: &VolumeName) -> Result<(), VolumeError> {
        let path = self.path(name);
        let failed = |source| VolumeError::File { path: path.clone(), source };
        let mut attempts = 0..ATTEMPTS;
        let _lock = loop {
            attempts.next().ok_or_else(|| VolumeError::InUse(name.clone()))?;
            // A cell may have made it unreadable.
            if let Err(VolumeError::File { .. }) = self.open(name) {
                fs::set_permissions(&path, Permissions::from_mode(0o700)).map_err(failed)?;
            }
            let file = self.open(name)?;
            lock(name, &path, || file.try_lock())?;
            if is_at(&file, &path) {
                break file;
            }
            // Another process has removed it meanwhile, and there may be a new one.
        };
        // From here on a cell that wants it gets a new one.
        let removed = tempfile::Builder::new().prefix(REMOVED).tempdir_in(&self.directory).map_err(failed)?.keep();
        fs::rename(&path, &removed).map_err(failed)?;
        let outcome = remove_tree(&removed).map_err(|errno| VolumeError::File { path: removed, source: errno.into() });
        self.remove_leftovers();
        outcome
    }

    /// Removes what earlier removals have left. A failure is tried again with the next removal.
    fn remove_leftovers(&self) {
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if entry.file_name().as_bytes().starts_with(REMOVED.as_bytes()) {
                let _ = remove_tree(&entry.path());
            }
        }
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
        for _ in 0..ATTEMPTS {
            self.create(name)?;
            let file = match self.open(name) {
                Err(VolumeError::Missing(_)) => continue,
                opened => opened?,
            };
            lock(name, &path, || file.try_lock_shared())?;
            if is_at(&file, &path) {
                return Ok((path, file));
            }
            // It was removed meanwhile.
        }
        Err(VolumeError::InUse(name.clone()))
    }
}

/// Takes a lock, which another process may hold for a moment, to see whether the volume is in use.
fn lock(name: &VolumeName, path: &Path, take: impl Fn() -> Result<(), TryLockError>) -> Result<(), VolumeError> {
    for _ in 0..ATTEMPTS {
        match take() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(TryLockError::Error(source)) => return Err(VolumeError::File { path: path.into(), source }),
        }
    }
    Err(VolumeError::InUse(name.clone()))
}

/// Whether a path still leads to an open directory.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: &fs::Metadata| (found.dev(), found.ino());
    let opened = file.metadata().map(|found| identity(&found));
    fs::symlink_metadata(path).is_ok_and(|named| opened.is_ok_and(|opened| opened == identity(&named)))
}

/// Replaces the names of volumes by their directories. A volume that does not exist is created. Returns their locks: the volumes cannot be
/// removed while these files are open.
///
/// # Errors
/// A volume cannot be created or opened, or its name is that of a file here.
pub fn acquire(volumes: &mut [VolumeSpec], environment: &HostEnvironment) -> Result<Vec<File>, VolumeError> {
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
    Ok(locks)
}

#[cfg(test)]
mod tests {
    use super::{Permissions, VolumeError, VolumeStore, remove_tree};
    use crate::view::VolumeName;
    use rustix::fs::{Mode, OFlags, fchmod, mkdirat, open, openat};
    use std::os::unix::fs::PermissionsExt;

    fn name(text: &str) -> VolumeName {
        text.parse().expect("it is a name")
    }

    #[test]
    fn a_volume_that_another_process_has_removed_is_no_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let leftover = directory.path().join("leftover");
        std::fs::create_dir(&leftover).expect("it was not there");
        for _ in 0..2 {
            remove_tree(&leftover).expect("it is gone");
        }
    }

    #[test]
    fn a_volume_that_is_used_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = VolumeStore { directory: directory.path().join("volumes") };
        assert!(store.all().is_ok_and(|all| all.is_empty()));
        assert!(matches!(store.remove(&name("data")), Err(VolumeError::Missing(_))));
        let (path, lock) = store.acquire(&name("data")).expect("it is created");
        std::fs::write(path.join("file"), "kept").expect("it can be written");
        store.create(&name("data")).expect("it exists");
        assert!(matches!(store.remove(&name("data")), Err(VolumeError::InUse(_))));
        let (again, second) = store.acquire(&name("data")).expect("two cells share it");
        assert_eq!((again, store.find(&name("data")).map(|found| found.is_used).ok()), (path.clone(), Some(true)));
        drop((lock, second));
        assert!(store.all().is_ok_and(|all| all.len() == 1 && !all[0].is_used));
        std::fs::create_dir(path.join("closed")).expect("it can be written");
        for closed in [path.join("closed"), path.clone()] {
            std::fs::set_permissions(closed, Permissions::from_mode(0o000)).expect("it is ours");
        }
        assert!(store.all().is_ok_and(|all| all.len() == 1));
        store.remove(&name("data")).expect("no cell uses it");
        assert_eq!(std::fs::read_dir(&store.directory).expect("it exists").count(), 0);
        assert!(!path.exists() && store.all().is_ok_and(|all| all.is_empty()));
    }

    #[test]
    fn a_volume_that_was_made_again_during_its_removal_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = VolumeStore { directory: directory.path().join("volumes") };
        store.create(&name("data")).expect("it was not there");
        let path = store.path(&name("data"));
        // Another process is about to remove it.
        let other = store.open(&name("data")).expect("it is there");
        other.try_lock().expect("nothing uses it");
        let removing = store.clone();
        let removal = std::thread::spawn(move || removing.remove(&name("data")));
        let opened = || {
            let links = std::fs::read_dir("/proc/self/fd").expect("it is there").flatten();
            links.filter(|link| std::fs::read_link(link.path()).is_ok_and(|open| open == path)).count()
        };
        while opened() < 2 && !removal.is_finished() {
            std::thread::yield_now();
        }
        std::fs::rename(&path, directory.path().join("gone")).expect("it is there");
        let (_, _lock) = store.acquire(&name("data")).expect("a cell gets a new one");
        std::fs::write(path.join("file"), "kept").expect("it can be written");
        drop(other);
        let removed = removal.join().expect("it ends");
        assert!(matches!(removed, Err(VolumeError::InUse(_))), "{removed:?}");
        assert_eq!(std::fs::read_to_string(path.join("file")).expect("it is there"), "kept");
    }

    #[test]
    fn a_volume_with_directories_of_any_depth_is_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = VolumeStore { directory: directory.path().into() };
        for volume in ["deep", "data"] {
            store.create(&name(volume)).expect("it was not there");
        }
        // A leftover that cannot be removed is no failure of another removal.
        let leftover = directory.path().join(".removed-file");
        std::fs::write(&leftover, "").expect("it can be written");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut at = open(store.path(&name("deep")), flags, Mode::empty()).expect("it is there");
        for depth in 0..20_000 {
            openat(&at, "file", OFlags::WRONLY | OFlags::CREATE, Mode::RUSR).expect("there is room");
            mkdirat(&at, "d", Mode::RWXU).expect("there is room");
            let below = openat(&at, "d", flags, Mode::empty()).expect("it was made");
            if depth % 1000 == 0 {
                fchmod(&at, Mode::empty()).expect("it is ours");
            }
            at = below;
        }
        store.remove(&name("deep")).expect("no cell uses it");
        store.remove(&name("data")).expect("no cell uses it");
        let left: Vec<_> = std::fs::read_dir(directory.path()).expect("it is there").flatten().map(|entry| entry.path()).collect();
        assert_eq!(left, [leftover]);
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
