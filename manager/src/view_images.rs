// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images of host trees that are kept with templates: their clones see the names that the template saw, whatever came or went since.
//! `docs/decisions/0055-templates-keep-what-they-see.md` has the reasons.
//!
//! An image is kept once for all templates that see the same: its name has what it shows, and a fingerprint of its content.
//!
//! Images in use are locked (`flock`): shared by each template that is loaded or being created, for as long as it or a clone of it may be
//! stored. An image is removed if no template in the directory names it and nobody has locked it. A lock of the directory excludes
//! additions and removals at the same time, also by other processes.

use pando_image::{BlockError, Cache, CachedImage, Image, LaterVersion, open_cache_file};
use pando_kernel::CellImage;
use pando_launch::Volume;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// The directory of kept images, in that of templates.
const DIRECTORY: &str = "views";
/// The extension of kept images.
const EXTENSION: &str = "image";
/// The lock of the directory. Its modification time is that of the last complete search for unused images.
const LOCK: &str = "lock";
/// An image that is not complete yet. Only the owner of the lock writes it.
const UNFINISHED: &str = "unfinished";
/// The time between complete searches: images are left over if a process is killed, or if the last cell that used them was not stored.
const SEARCH_INTERVAL: Duration = Duration::from_secs(3600);
/// Maximal number of files of an image that are compared at each start; a number of up to ten digits is stored for each.
const USED_FILES_MAX: usize = 1 << 16;
/// Attempts to lock an image that is being replaced.
const ATTEMPTS: usize = 8;

/// An image that is kept with a template, and what the template's memory depends on in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptImage {
    /// The name of its file.
    pub(crate) name: String,
    /// The files that the template has read or mapped, by their first blocks.
    pub(crate) used: BTreeSet<u32>,
    /// Later versions of files, which have block numbers in the template's memory.
    pub(crate) later: Vec<LaterVersion>,
}

/// How kept images are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageUse {
    /// A new template keeps the images of its view.
    New,
    /// The view is made of them.
    View,
    /// The view is made of the host as it is. They are for sessions that are paused.
    Pause,
}

/// The kept images of one template, which cannot be removed meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct ViewImages {
    directory: PathBuf,
    images: Arc<Mutex<Vec<OpenKeptImage>>>,
    mode: ImageUse,
}

#[derive(Debug)]
struct OpenKeptImage {
    image: KeptImage,
    /// Set until the view takes it.
    opened: Option<CachedImage>,
    /// Until the view has taken it, or one of the host that is the same.
    is_free: bool,
    _lock: File,
}

impl ViewImages {
    /// For a new template. `templates` is the directory of templates.
    pub(crate) fn for_new(templates: &Path) -> ViewImages {
        ViewImages { directory: templates.join(DIRECTORY), images: Arc::default(), mode: ImageUse::New }
    }

    /// Those of a template that exists. `None`: one is missing or damaged.
    ///
    /// # Errors
    /// [`BlockError::Changed`]: a file has changed on which the template depends.
    pub(crate) fn open(templates: &Path, images: &[KeptImage], mode: ImageUse) -> Result<Option<ViewImages>, BlockError> {
        let directory = templates.join(DIRECTORY);
        let mut all = Vec::with_capacity(images.len());
        for image in images {
            let path = directory.join(&image.name);
            let Some(lock) = is_plain(&image.name).then(|| lock_image(&path)).flatten() else { return Ok(None) };
            let opened = match mode {
                ImageUse::View => {
                    let Some(mut found) = Cache::new(path).open() else { return Ok(None) };
                    let used: Vec<u32> = image.used.iter().copied().collect();
                    match found.image.restore(&used, &image.later) {
                        Err(BlockError::Damaged(_)) => return Ok(None),
                        restored => restored?,
                    }
                    Some(found)
                }
                ImageUse::New | ImageUse::Pause => None,
            };
            all.push(OpenKeptImage { image: image.clone(), opened, is_free: true, _lock: lock });
        }
        Ok(Some(ViewImages { directory, images: Arc::new(Mutex::new(all)), mode }))
    }

    /// Records of the images.
    pub(crate) fn images(&self) -> Vec<KeptImage> {
        locked(&self.images).iter().map(|open| open.image.clone()).collect()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        locked(&self.images).len()
    }

    /// The image that shows this.
    pub(crate) fn find(&self, shown: u64) -> Option<CachedImage> {
        let mut all = locked(&self.images);
        let (number, found) = first_free(&mut all, shown).filter(|(_, found)| found.opened.is_some())?;
        found.is_free = false;
        let mut taken = found.opened.take()?;
        taken.image.set_number(number);
        Some(taken)
    }

    /// Keeps the image of a new template, or finds the kept one that is the same as this image of the host. `cache` is the file that has
    /// it. If it cannot be kept, the template depends on the host.
    pub(crate) fn keep(&self, shown: u64, image: &mut Image, cache: Option<&Cache>, host_fingerprint: u64) {
        match self.mode {
            ImageUse::New => {
                let name = format!("{shown:016x}-{:016x}.{EXTENSION}", image.fingerprint());
                let Ok(lock) = self.store(&name, image, cache, host_fingerprint) else { return };
                let mut all = locked(&self.images);
                image.set_number(all.len() as u32);
                let image = KeptImage { name, used: BTreeSet::new(), later: Vec::new() };
                all.push(OpenKeptImage { image, opened: None, is_free: false, _lock: lock });
            }
            ImageUse::Pause => {
                if let Some((number, found)) = first_free(&mut locked(&self.images), shown) {
                    found.is_free = false;
                    image.set_number(number);
                }
            }
            // The kept one could not be used.
            ImageUse::View => {}
        }
    }

    /// Stores an image under this name unless it is there. Returns its lock.
    fn store(&self, name: &str, image: &Image, cache: Option<&Cache>, host_fingerprint: u64) -> io::Result<File> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let _lock = lock_directory(&self.directory)?;
        let fingerprint = image.fingerprint();
        let is_right = |file: &Cache| file.open().is_some_and(|found| found.image.fingerprint() == fingerprint && found.is_intact());
        let kept = Cache::new(self.directory.join(name));
        if !is_right(&kept) {
            let new = Cache::new(self.directory.join(UNFINISHED));
            // A killed process may have left it.
            let _ = fs::remove_file(new.path());
            match cache {
                Some(cache) => link(cache.path(), new.path())?,
                None => new.store(image, host_fingerprint).map_err(io::Error::other)?,
            }
            // The cache may have got another image meanwhile.
            if !is_right(&new) {
                let _ = fs::remove_file(new.path());
                return Err(io::ErrorKind::InvalidData.into());
            }
            fs::rename(new.path(), kept.path())?;
        }
        lock_image(kept.path()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The first image that shows this and that no volume has, and its number.
fn first_free(all: &mut [OpenKeptImage], shown: u64) -> Option<(u32, &mut OpenKeptImage)> {
    let start = format!("{shown:016x}-");
    (0..).zip(all).find(|(_, open)| open.is_free && open.image.name.starts_with(&start))
}

impl KeptImage {
    /// Whether it could have been stored by this program.
    pub(crate) fn is_possible(&self) -> bool {
        is_plain(&self.name) && self.used.len() <= USED_FILES_MAX
    }

    /// Whether its file is there.
    pub(crate) fn exists(&self, templates: &Path) -> bool {
        templates.join(DIRECTORY).join(&self.name).exists()
    }

    /// Adds the files on which a cell depends: those that it has mapped, and all that were read of the image, if it is a new template's.
    /// Files beyond a limit are compared when they are read, and not at the start.
    ///
    /// # Errors
    /// The image is damaged.
    pub(crate) fn add_files(&mut self, volumes: &[Volume], cell: &CellImage, number: u32, is_new: bool) -> Result<(), BlockError> {
        let volume = volumes.iter().enumerate().find(|(_, volume)| volume.image().number() == Some(number));
        let Some((disk, volume)) = volume else { return Ok(()) };
        let image = volume.image();
        let read = if is_new { image.read_files() } else { Vec::new() };
        let room = USED_FILES_MAX.saturating_sub(self.used.len());
        let mapped = image.files_of(&cell.mapped_blocks(disk))?;
        self.used.extend(mapped.into_iter().chain(read).take(room));
        self.later = image.later_versions();
        Ok(())
    }
}

/// Removes images that no template has any more: those of `candidates`, and from time to time all others. `retain` removes those that
/// templates need from the set, or returns `false` if it is unknown.
pub(crate) fn remove_unused(templates: &Path, candidates: BTreeSet<String>, retain: impl FnOnce(&mut BTreeSet<String>) -> bool) {
    let directory = templates.join(DIRECTORY);
    // Without the directory there are no images, and if it cannot be locked, they cost nothing but room.
    let Ok(lock) = lock_directory(&directory) else { return };
    let mut unused = candidates;
    let is_due = lock.metadata().and_then(|found| found.modified()).is_ok_and(|last| last.elapsed().is_ok_and(|age| age > SEARCH_INTERVAL));
    if is_due {
        let _ = lock.set_modified(SystemTime::now());
        unused.extend(fs::read_dir(&directory).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok()));
    }
    // Before the templates are read: an image is locked until the template that names it is stored.
    unused.retain(|name| is_plain(name) && is_unlocked(&directory.join(name)));
    if !unused.is_empty() && retain(&mut unused) {
        for name in unused {
            let _ = fs::remove_file(directory.join(name));
        }
    }
}

/// Whether a name that was read from a file names an image in this directory.
fn is_plain(name: &str) -> bool {
    let stem = name.strip_suffix(EXTENSION).and_then(|stem| stem.strip_suffix('.'));
    stem.is_some_and(|stem| stem.len() == 33 && stem.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()))
}

/// Waits for the lock of the directory, which is held for short sections.
fn lock_directory(directory: &Path) -> io::Result<File> {
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(directory.join(LOCK))?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Locks an image, so that it is not removed as long as the file is open. `None`: it cannot be opened.
fn lock_image(path: &Path) -> Option<File> {
    for _ in 0..ATTEMPTS {
        let (file, found) = open_cache_file(path)?;
        // Another process may test at present whether it is locked.
        flock(&file, FlockOperation::LockShared).ok()?;
        if fs::symlink_metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (found.dev(), found.ino())) {
            return Some(file);
        }
    }
    None
}

/// Whether nobody has locked an image.
fn is_unlocked(path: &Path) -> bool {
    open_cache_file(path).is_some_and(|(file, _)| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// Gives a file a second name, or copies it if the host does not allow that. Files of the cache are replaced, never written to.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    let mut copy = File::options().write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(&mut File::open(from)?, &mut copy).map(drop)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data is consistent at every step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
