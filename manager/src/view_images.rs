// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images of host trees that are kept with templates: their clones see the names that the template saw, whatever came or went since.
//! `docs/decisions/0055-templates-keep-what-they-see.md` has the reasons.
//!
//! An image is kept once for all templates that see the same: its name has what it shows, and a fingerprint of its content.
//!
//! Images in use are locked (`flock`): shared by each template that is loaded or being created, for as long as it or a clone of it may be
//! stored. An image is removed if no template in the directory names it and nobody has locked it. A lock of the directory excludes
//! additions and removals at the same time, also by other processes.

mod contents;
#[cfg(test)]
mod tests;

use contents::{CONTENTS_MAX, FileContent};
use pando_image::{BlockError, Cache, CachedImage, Image, LaterVersion, LaterVersions, open_cache_file};
use pando_kernel::CellImage;
use pando_launch::Volume;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
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
/// Maximal number of files of a template's images that are compared at each start; a number of up to ten digits is stored for each.
const USED_FILES_MAX: usize = 1 << 16;
/// Maximal number of later versions that are recorded for all images of a template, some 100 bytes each: they must not fill the index of
/// its file.
const LATER_MAX: usize = 1 << 15;
/// Attempts to lock an image that is being replaced.
const ATTEMPTS: usize = 8;

/// An image that is kept with a template, and what the template's memory depends on in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TemplateImage {
    /// The name of its file.
    pub(crate) name: String,
    /// The files that the template has read or mapped, by their first blocks.
    pub(crate) used: BTreeSet<u32>,
    /// How many spare blocks of the image the template's memory may know; see [`LaterVersions`].
    #[serde(default)]
    allocated_blocks: u32,
    /// Later versions of files, which have some of these blocks.
    later: Vec<LaterVersion>,
    /// The content of some of the files, by first block.
    #[serde(default)]
    contents: BTreeMap<u32, FileContent>,
}

/// How kept images are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageUse {
    /// A new template keeps the images of its view.
    Creation,
    /// The view of clones is made of them.
    Clone,
    /// The view is made of the host as it is. They are for sessions that are paused.
    Pause,
}

/// The kept images of one template, which cannot be removed meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct ViewImages {
    directory: PathBuf,
    images: Arc<Mutex<Vec<OpenTemplateImage>>>,
    mode: ImageUse,
}

#[derive(Debug)]
struct OpenTemplateImage {
    image: TemplateImage,
    /// Set until the view takes it.
    opened: Option<CachedImage>,
    /// Whether the view has taken it, or one of the host that is the same.
    is_taken: bool,
    /// The file, locked.
    lock: Arc<File>,
}

impl ViewImages {
    /// For a new template. `templates` is the directory of templates.
    pub(crate) fn for_new(templates: &Path) -> ViewImages {
        ViewImages { directory: templates.join(DIRECTORY), images: Arc::default(), mode: ImageUse::Creation }
    }

    /// Those of a template that exists. `None`: one is missing or damaged.
    ///
    /// # Errors
    /// [`BlockError::Changed`]: a file has changed on which the template depends.
    pub(crate) fn open(templates: &Path, images: &[TemplateImage], mode: ImageUse) -> Result<Option<ViewImages>, BlockError> {
        let directory = templates.join(DIRECTORY);
        let mut all = Vec::with_capacity(images.len());
        for image in images {
            let path = directory.join(&image.name);
            let Some(lock) = is_image_name(&image.name).then(|| lock_image(&path)).flatten() else { return Ok(None) };
            let opened = match mode {
                ImageUse::Clone => {
                    let Some(mut found) = Cache::new(path).open() else { return Ok(None) };
                    found.image.set_contents(image.contents());
                    let later = LaterVersions { allocated_blocks: image.allocated_blocks, readable: image.later.clone() };
                    match found.image.restore(&image.used, &later) {
                        Err(BlockError::Damaged(_)) => return Ok(None),
                        restored => restored?,
                    }
                    Some(found)
                }
                ImageUse::Creation => None,
                // It is opened at a start from a paused session.
                ImageUse::Pause if Cache::new(path).open().is_none() => return Ok(None),
                ImageUse::Pause => None,
            };
            all.push(OpenTemplateImage { image: image.clone(), opened, is_taken: false, lock: lock.into() });
        }
        Ok(Some(ViewImages { directory, images: Arc::new(Mutex::new(all)), mode }))
    }

    /// Records of the images.
    pub(crate) fn images(&self) -> Vec<TemplateImage> {
        locked(&self.images).iter().map(|open| open.image.clone()).collect()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        locked(&self.images).len()
    }

    /// Whether the view has taken all of them.
    pub(crate) fn are_all_taken(&self) -> bool {
        locked(&self.images).iter().all(|open| open.is_taken)
    }

    /// The name of one that is no longer in the directory, or is damaged there.
    pub(crate) fn missing(&self) -> Option<String> {
        let all: Vec<(String, Arc<File>)> =
            locked(&self.images).iter().map(|open| (open.image.name.clone(), Arc::clone(&open.lock))).collect();
        let is_missing = |(name, lock): &(String, Arc<File>)| {
            let path = self.directory.join(name);
            !is_named(&path, lock) || Cache::new(path).open().is_none()
        };
        all.into_iter().find(is_missing).map(|(name, _)| name)
    }

    /// The image that shows this.
    pub(crate) fn find(&self, tree_key: u64) -> Option<CachedImage> {
        let mut all = locked(&self.images);
        let (number, found) = first_untaken(&mut all, tree_key).filter(|(_, found)| found.opened.is_some())?;
        found.is_taken = true;
        let mut taken = found.opened.take()?;
        taken.image.set_number(number);
        Some(taken)
    }

    /// Keeps the image of a new template, or finds the kept one that is the same as this image of the host. `cache` is the file that has
    /// it. If it cannot be kept, the template depends on the host.
    pub(crate) fn keep(&self, tree_key: u64, image: &mut Image, cache: Option<&Cache>, host_fingerprint: u64) {
        match self.mode {
            ImageUse::Creation => {
                let name = format!("{tree_key:016x}-{:016x}.{EXTENSION}", image.fingerprint());
                let Ok(lock) = self.store(&name, image, cache, host_fingerprint) else { return };
                let mut all = locked(&self.images);
                image.set_number(all.len() as u32);
                let image =
                    TemplateImage { name, used: BTreeSet::new(), allocated_blocks: 0, later: Vec::new(), contents: BTreeMap::new() };
                all.push(OpenTemplateImage { image, opened: None, is_taken: true, lock: lock.into() });
            }
            ImageUse::Pause => {
                if let Some((number, found)) = first_untaken(&mut locked(&self.images), tree_key) {
                    found.is_taken = true;
                    image.set_number(number);
                    image.set_contents(found.image.contents());
                }
            }
            // The template has none for this tree, or the host's tree is another.
            ImageUse::Clone => {}
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
            remove_unfinished(&new);
            // The cache may have got another image meanwhile, or could not be written.
            let is_linked = cache.is_some_and(|cache| link(cache.path(), new.path()).is_ok()) && is_right(&new);
            if !is_linked {
                remove_unfinished(&new);
                new.store(image, host_fingerprint).map_err(io::Error::other).inspect_err(|_| remove_unfinished(&new))?;
            }
            // The template that names it is written to the device, too.
            let stored = sync(new.path()).and_then(|()| fs::rename(new.path(), kept.path())).and_then(|()| sync(&self.directory));
            stored.inspect_err(|_| remove_unfinished(&new))?;
        }
        lock_image(kept.path()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Removes what a failed or killed process has left of an image.
fn remove_unfinished(new: &Cache) {
    let mut partial = new.path().as_os_str().to_owned();
    partial.push(".new");
    for path in [new.path(), Path::new(&partial)] {
        let _ = fs::remove_file(path);
    }
}

/// Writes a file or directory to its device.
fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The first image that shows this and that no volume has, and its number.
fn first_untaken(all: &mut [OpenTemplateImage], tree_key: u64) -> Option<(u32, &mut OpenTemplateImage)> {
    let start = format!("{tree_key:016x}-");
    (0..).zip(all).find(|(_, open)| !open.is_taken && open.image.name.starts_with(&start))
}

impl TemplateImage {
    /// Whether it could have been stored by this program.
    pub(crate) fn is_valid(&self) -> bool {
        is_image_name(&self.name)
            && self.used.len() <= USED_FILES_MAX
            && self.later.len() <= LATER_MAX
            && self.content_bytes() <= CONTENTS_MAX
    }

    /// Whether the template's memory knows blocks of later versions. They have their numbers in this image only.
    pub(crate) fn has_later_versions(&self) -> bool {
        self.allocated_blocks > 0
    }
}

/// Records the files on which a cell depends: those that it has mapped, and all that were read of the images, if it is a new template's.
/// Returns whether there was room for all. Those without are compared when they are read, and not at the start.
///
/// A file that has changed already does not count for a cell that has run: reading it again is an error anyway. A new template depends on
/// what was read at its creation.
///
/// # Errors
/// An image is damaged.
pub(crate) fn record_files(images: &mut [TemplateImage], volumes: &[Volume], cell: &CellImage, is_new: bool) -> Result<bool, BlockError> {
    let mut room = USED_FILES_MAX.saturating_sub(images.iter().map(|image| image.used.len()).sum());
    let mut later_room = LATER_MAX;
    let mut content_room = CONTENTS_MAX.saturating_sub(images.iter().map(TemplateImage::content_bytes).sum());
    let mut has_room = true;
    for (number, kept) in (0..).zip(images) {
        let Some((disk, image)) = disk_of(volumes, number) else { continue };
        let mut added = image.files_of(&cell.mapped_blocks(disk))?;
        if is_new {
            added.extend(image.read_files());
        }
        has_room &= add_files(&mut kept.used, added, &mut room);
        if !is_new {
            let changed = image.changed_files(&kept.used)?;
            kept.used.retain(|first| !changed.contains_key(first));
        }
        let LaterVersions { allocated_blocks, readable: mut later } = image.later_versions(&kept.used)?;
        if later.len() > later_room {
            later.retain(|version| kept.used.contains(&version.0));
        }
        later_room = later_room.saturating_sub(later.len());
        (kept.allocated_blocks, kept.later) = (allocated_blocks, later);
        content_room = content_room.saturating_sub(kept.add_contents(image, content_room)?);
    }
    Ok(has_room)
}

/// Adds files as long as there is room for more. Returns whether there was room for all.
fn add_files(used: &mut BTreeSet<u32>, mut added: BTreeSet<u32>, room: &mut usize) -> bool {
    added.retain(|first| !used.contains(first));
    used.extend(added.iter().take(*room));
    let has_room = added.len() <= *room;
    *room = room.saturating_sub(added.len());
    has_room
}

/// The first file that has changed of those on which these images' template depends, or of the single files that it sees.
///
/// # Errors
/// An image is damaged.
pub(crate) fn changed_file(images: &[TemplateImage], volumes: &[Volume]) -> Result<Option<PathBuf>, BlockError> {
    for volume in volumes {
        if let Some(path) = volume.image().changed_single_file()? {
            return Ok(Some(path));
        }
    }
    for (number, kept) in (0..).zip(images) {
        let Some((_, image)) = disk_of(volumes, number) else { continue };
        if let Some((_, path)) = image.changed_files(&kept.used)?.pop_first() {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// The volume that shows a kept image, or one of the host that is the same: its place among the disks, and its image.
fn disk_of(volumes: &[Volume], number: u32) -> Option<(usize, &Image)> {
    let mut images = volumes.iter().map(Volume::image).enumerate();
    images.find(|(_, image)| image.number() == Some(number))
}

/// Removes those of these images that no template has any more. `subtract` removes those that templates need from the set, or returns
/// `false` if it is unknown.
pub(crate) fn remove_unused(templates: &Path, mut names: BTreeSet<String>, subtract: impl Fn(&mut BTreeSet<String>) -> bool) {
    let directory = templates.join(DIRECTORY);
    names.retain(|name| is_image_name(name));
    // Most are needed. To read all templates takes long, so no lock is held before there is something to remove.
    if names.is_empty() || !subtract(&mut names) || names.is_empty() {
        return;
    }
    // Without the directory there are no images, and if it cannot be locked, they cost nothing but room.
    let Ok(_lock) = lock_directory(&directory) else { return };
    // Before the templates are read again: an image is locked until the template that names it is stored. The locks stay until the names
    // are gone: a process that waits for one sees that.
    let unused: BTreeMap<String, File> =
        names.into_iter().filter_map(|name| lock_unused(&directory.join(&name)).map(|lock| (name, lock))).collect();
    let mut names: BTreeSet<String> = unused.keys().cloned().collect();
    if !names.is_empty() && subtract(&mut names) {
        for name in &names {
            let _ = fs::remove_file(directory.join(name));
        }
    }
}

/// All images, if the last search for unused ones was long ago.
pub(crate) fn images_to_search(templates: &Path) -> BTreeSet<String> {
    let directory = templates.join(DIRECTORY);
    // Without a lock there were no images.
    let Ok(lock) = File::options().write(true).open(directory.join(LOCK)) else { return BTreeSet::new() };
    let last = lock.metadata().and_then(|found| found.modified());
    // A time in the future is of a clock that was wrong.
    if !last.is_ok_and(|last| last.elapsed().map_or(true, |age| age > SEARCH_INTERVAL)) {
        return BTreeSet::new();
    }
    // Another process does not search at the same time.
    let _ = lock.set_modified(SystemTime::now());
    fs::read_dir(&directory).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Whether a name that was read from a file names an image in this directory.
fn is_image_name(name: &str) -> bool {
    let stem = name.strip_suffix(EXTENSION).and_then(|stem| stem.strip_suffix('.'));
    stem.is_some_and(|stem| stem.len() == 33 && stem.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()))
}

/// Waits for the lock of the directory, which is held while an image is added, or while templates are read before one is removed.
fn lock_directory(directory: &Path) -> io::Result<File> {
    let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(directory.join(LOCK))?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Locks an image, so that it is not removed as long as the file is open. `None`: it cannot be opened.
fn lock_image(path: &Path) -> Option<File> {
    for _ in 0..ATTEMPTS {
        let (file, _) = open_cache_file(path)?;
        // Another process may be about to remove it.
        flock(&file, FlockOperation::LockShared).ok()?;
        if is_named(path, &file) {
            return Some(file);
        }
    }
    None
}

/// Locks an image that nobody uses, so that nobody can use it.
fn lock_unused(path: &Path) -> Option<File> {
    let (file, _) = open_cache_file(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    is_named(path, &file).then_some(file)
}

/// Whether this path is that of an open file.
fn is_named(path: &Path, file: &File) -> bool {
    let named = fs::symlink_metadata(path);
    named.is_ok_and(|named| file.metadata().is_ok_and(|found| (named.dev(), named.ino()) == (found.dev(), found.ino())))
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
