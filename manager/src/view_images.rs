// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images of host trees that are kept with templates: their clones see the names that the template saw, whatever came or went since.
//! `docs/decisions/0053-templates-keep-what-they-see.md` has the reasons.
//!
//! An image is kept once for all templates that see the same: its name has what it shows, and a fingerprint of its content.

use pando_image::{Cache, CachedImage, Image};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tempfile::NamedTempFile;

/// The directory of kept images, in that of templates.
const DIRECTORY: &str = "views";
/// The extension of kept images.
const EXTENSION: &str = "image";
/// An image may belong to a template that is not complete yet for this time.
const UNFINISHED: Duration = Duration::from_secs(3600);

/// The kept images of one template.
#[derive(Clone, Debug)]
pub(crate) struct ViewImages {
    directory: PathBuf,
    /// The names of their files. A new template gets them while its view is prepared.
    names: Arc<Mutex<Vec<String>>>,
    is_new: bool,
}

impl ViewImages {
    /// For a new template. `templates` is the directory of templates.
    pub(crate) fn for_new(templates: &Path) -> ViewImages {
        ViewImages { directory: templates.join(DIRECTORY), names: Arc::default(), is_new: true }
    }

    /// Those of a template that exists.
    pub(crate) fn of(templates: &Path, names: &[String]) -> ViewImages {
        let names = names.iter().filter(|name| is_plain(name)).cloned().collect();
        ViewImages { directory: templates.join(DIRECTORY), names: Arc::new(Mutex::new(names)), is_new: false }
    }

    /// The names of their files.
    pub(crate) fn names(&self) -> Vec<String> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The image that shows this.
    pub(crate) fn find(&self, shown: u64) -> Option<CachedImage> {
        if self.is_new {
            return None;
        }
        let start = format!("{shown:016x}-");
        self.names().iter().filter(|name| name.starts_with(&start)).find_map(|name| Cache::new(self.directory.join(name)).open())
    }

    /// Keeps an image of a new template. `cache` is the file that has it. If it cannot be kept, the template depends on the host.
    pub(crate) fn keep(&self, shown: u64, image: &Image, cache: Option<&Cache>, host_fingerprint: u64) {
        if !self.is_new {
            return;
        }
        let fingerprint = image.fingerprint();
        let name = format!("{shown:016x}-{fingerprint:016x}.{EXTENSION}");
        let kept = Cache::new(self.directory.join(&name));
        let is_right = || kept.open().is_some_and(|found| found.image.fingerprint() == fingerprint);
        if !is_right() {
            let stored = create(&self.directory).and_then(|()| match cache {
                Some(cache) => link(cache.path(), kept.path()),
                None => kept.store(image, host_fingerprint).map_err(io::Error::other),
            });
            // The cache may have got another image meanwhile.
            if stored.is_err() || !is_right() {
                kept.forget();
                return;
            }
        }
        self.names.lock().unwrap_or_else(PoisonError::into_inner).push(name);
    }
}

/// Removes images that no template has. `used` are the names of the others.
pub(crate) fn remove_unused(templates: &Path, used: &[String]) {
    for entry in fs::read_dir(templates.join(DIRECTORY)).into_iter().flatten().flatten() {
        let is_used = entry.file_name().to_str().is_none_or(|name| used.iter().any(|used| used == name));
        // The change time is that of the link to the image.
        let is_old = entry.metadata().is_ok_and(|found| {
            let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(found.ctime()).unwrap_or(0));
            changed.elapsed().is_ok_and(|age| age > UNFINISHED)
        });
        if !is_used && is_old {
            // It costs nothing but room.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a name that was read from a file names an image in this directory.
fn is_plain(name: &str) -> bool {
    let stem = name.strip_suffix(EXTENSION).and_then(|stem| stem.strip_suffix('.'));
    stem.is_some_and(|stem| stem.len() == 33 && stem.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()))
}

fn create(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Gives a file a second name, or copies it if the host does not allow that. Files of the cache are replaced, never written to.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    // It is damaged if it exists.
    let _ = fs::remove_file(to);
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    let mut copy = NamedTempFile::new_in(to.parent().unwrap_or(Path::new(".")))?;
    io::copy(&mut fs::File::open(from)?, copy.as_file_mut())?;
    copy.persist(to).map(drop).map_err(|error| error.error)
}
