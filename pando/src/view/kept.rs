// SPDX-License-Identifier: MIT OR Apache-2.0
//! The image of the host's software, kept from one start to the next.
//!
//! At a start nothing is walked: a few dozen quick signs are compared, which change when software is installed or
//! removed. What they do not show is found by a thread that walks the rest while the cell runs, for the next start; and
//! a file that is not what the image says is an error when it is read, and makes the image be forgotten.

use super::{add_empty, parts, places};
use crate::progress::Progress;
use pando_image::{Builder, Cache, Error, Image, Readable, Walk};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// The file's name.
const FILE: &str = "software.image";
/// What of the host's software is taken at most.
const SOFTWARE_MAX: u64 = 8_000_000;
/// An image that was checked so recently is not checked again.
const FRESH: Duration = Duration::from_secs(60);
/// Signs in one directory; more are not quick any more.
const SIGNS_MAX: usize = 64;
/// How much the renewing thread lets others go first: as much as it can.
const NICE: i32 = 19;

/// Where package managers say what they have done: dpkg, rpm in three places, apk, pacman, xbps, portage; and the
/// list of libraries, which all of them renew.
const DATABASES: [&str; 9] = [
    "/var/lib/dpkg/status",
    "/var/lib/rpm/rpmdb.sqlite",
    "/var/lib/rpm/Packages",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/lib/apk/db/installed",
    "/var/lib/pacman/local",
    "/var/db/xbps",
    "/var/db/pkg",
    "/etc/ld.so.cache",
];
/// Where programs of the host keep what they write: its directories are shown, and no content.
pub(super) const STATE: &str = "/var";
/// Directories whose entries are signs.
const WATCHED: [&str; 3] = ["/usr", "/usr/local", "/opt"];

/// An image that should be compared with the host.
#[derive(Debug)]
pub(super) struct Renewal(Cache);

/// The image of the host's software: as it was kept, or made anew and kept if that can be. Comes with the file that keeps
/// it, and with a renewal if one is due.
pub(super) fn open(directory: Option<&Path>) -> Result<(Image, Option<Cache>, Option<Renewal>), Error> {
    let cache = directory.map(|directory| Cache::new(directory.join(FILE)));
    // Before anything is looked at, so that what changes meanwhile shows at the next start.
    let signs = signs();
    if let Some(cache) = &cache
        && let Some(kept) = cache.open().filter(|kept| kept.signs == signs)
    {
        let due = kept.checked.elapsed().is_ok_and(|age| age > FRESH);
        return Ok((kept.image, Some(cache.clone()), due.then(|| Renewal(cache.clone()))));
    }
    let progress = Progress::files("looking at the host's software");
    let image = builder(true, &progress)?.image()?;
    // Where nothing can be kept, every start walks.
    let _ = cache.as_ref().map(|cache| cache.store(&image, signs));
    Ok((image, cache, None))
}

impl Renewal {
    /// Walks through the host's software and keeps what it finds. Tells when it makes way for others.
    pub(super) fn run(&self, is_nice: Sender<()>) {
        // A kernel that says no lets it run like any other thread.
        let _ = rustix::process::setpriority_process(None, NICE);
        drop(is_nice);
        let signs = signs();
        // Where this process may not look any more, it would find nothing and keep that.
        let state = Some(PathBuf::from(STATE)).filter(|state| state.is_dir());
        if tops().iter().chain(&state).any(|top| fs::read_dir(top).is_err()) {
            return;
        }
        // Most cells do not run long enough for a walk, but for a look at the directories: what shows there is not
        // shown again.
        if self.0.open().is_some_and(|kept| kept.is_outdated()) {
            self.0.forget();
        }
        if let Ok(image) = builder(false, &Progress::silent()).and_then(Builder::image) {
            let _ = self.0.store(&image, signs);
        }
    }
}

/// The tree of the host's software as it is now.
pub(super) fn builder(parallel: bool, progress: &Progress) -> Result<Builder, Error> {
    let mut builder = Builder::new();
    let progress = &|count| progress.set(count);
    let walk = Walk { readable: Readable::ByEveryone, limit: SOFTWARE_MAX, parallel, progress };
    // A host that hides it has nothing to show there.
    let directories = Walk { readable: Readable::None, ..walk };
    if Path::new(STATE).is_dir() && everyone_may_enter(Path::new(STATE)) {
        builder.host(STATE, Path::new(STATE), &directories)?;
    }
    add_empty(&mut builder)?;
    for top in tops() {
        builder.host(top.as_os_str().as_bytes(), &top, &walk)?;
    }
    parts::add(&mut builder)?;
    Ok(builder)
}

/// A number that changes when software comes or goes.
fn signs() -> u64 {
    let mut hasher = DefaultHasher::new();
    parts::version(&mut hasher);
    places::SOFTWARE.iter().for_each(|name| hash_sign(&Path::new("/").join(name), &mut hasher));
    DATABASES.iter().for_each(|database| hash_sign(Path::new(database), &mut hasher));
    WATCHED.iter().for_each(|directory| hash_entries(Path::new(directory), &mut hasher));
    hasher.finish()
}

/// The directories and links that hold the host's software.
pub(super) fn tops() -> Vec<PathBuf> {
    places::SOFTWARE.iter().map(|name| Path::new("/").join(name)).filter(|top| everyone_may_enter(top)).collect()
}

/// Whether everyone on the host may list and enter a directory. Links lead to what is judged itself.
fn everyone_may_enter(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink() || metadata.is_dir() && metadata.mode() & 0o005 == 0o005)
}

fn hash_entries(directory: &Path, hasher: &mut DefaultHasher) {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.truncate(SIGNS_MAX);
    paths.iter().for_each(|path| hash_sign(path, hasher));
}

fn hash_sign(path: &Path, hasher: &mut DefaultHasher) {
    let sign = fs::symlink_metadata(path).ok().map(|metadata| {
        let identity = (metadata.dev(), metadata.ino(), metadata.mode(), metadata.size());
        (identity, metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec())
    });
    (path, sign).hash(hasher);
}
