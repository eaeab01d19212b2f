// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cached image of the host's software.
//!
//! A start scans nothing: it compares a few dozen files whose metadata changes when software is installed or removed. A thread scans
//! the rest while the cell runs, for the next start. Reading a file that differs from the image is an error, and drops the cached image.

use super::{add_empty, parts};
use crate::environment::SOFTWARE;
use crate::report::{LongOperation, Reporter};
use crate::view_images::ViewImages;
use pando_image::{Builder, Cache, Error, Fingerprint, Image, Readable, Scan};
use pando_machine::trim_heap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};

/// The file's name.
const FILE: &str = "software.image";
/// Maximal number of entries of the host's software.
const SOFTWARE_MAX: u64 = 8_000_000;
/// An image is checked again after this time.
const FRESH: Duration = Duration::from_secs(60);
/// A check that was begun but not completed is begun again after this time. Where many programs run for a moment each, one of them per
/// period spends time on a check.
const RETRY: Duration = Duration::from_secs(5);
/// Checked files in one directory; more would be slow.
const FINGERPRINT_FILES_MAX: usize = 64;
/// The nice value of the renewing thread: the lowest priority.
const NICE: i32 = 19;

/// The databases of package managers: dpkg, rpm in three places, apk, pacman, xbps, portage; and the list of libraries, which all of
/// them update.
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
/// The directory of the host's variable data: its directories are shown, without content.
pub(super) const STATE: &str = "/var";
/// Directories whose entries are checked.
const WATCHED: [&str; 3] = ["/usr", "/usr/local", "/opt"];

/// An image to compare with the host.
#[derive(Debug)]
pub(super) struct Renewal(Cache);

/// Opens the image of the host's software: the one that a template has kept, from the cache, or made anew and cached if possible. A new
/// template keeps it. Also returns the cache, and a renewal if one is due.
pub(super) fn open(
    directory: Option<&Path>,
    kept: Option<&ViewImages>,
    reporter: &Reporter,
) -> Result<(Image, Option<Cache>, Option<Renewal>), Error> {
    let tree_key = own_parts();
    if let Some(found) = kept.and_then(|kept| kept.find(tree_key)) {
        return Ok((found.image, None, None));
    }
    let (mut image, cache, renewal) = find_or_scan(directory, reporter)?;
    if let Some(kept) = kept {
        kept.keep(tree_key, &mut image, cache.as_ref(), 0);
    }
    Ok((image, cache, renewal))
}

/// Identifies the image among those that a template keeps: it has Pando's own files, too.
fn own_parts() -> u64 {
    let mut hasher = Fingerprint::default();
    FILE.hash(&mut hasher);
    parts::version(&mut hasher);
    hasher.finish()
}

/// The image of the host's software from the cache, or made anew.
fn find_or_scan(directory: Option<&Path>, reporter: &Reporter) -> Result<(Image, Option<Cache>, Option<Renewal>), Error> {
    let cache = directory.map(|directory| Cache::new(directory.join(FILE)));
    // Computed before the scan, so that changes during it show at the next start.
    let software_fingerprint = software_fingerprint();
    if let Some(cache) = &cache
        && let Some(kept) = cache.open().filter(|kept| kept.host_fingerprint == software_fingerprint)
    {
        let due = kept.checked.elapsed().is_ok_and(|age| age > FRESH);
        if due {
            // If the cache cannot be written, every start checks.
            let _ = cache.set_checked(SystemTime::now() - FRESH + RETRY);
        }
        return Ok((kept.image, Some(cache.clone()), due.then(|| Renewal(cache.clone()))));
    }
    let progress = reporter.progress(LongOperation::ScanSoftware);
    let image = builder(true, true, &|count| progress.set(count))?.image()?;
    let Some(cache) = cache else { return Ok((image, None, None)) };
    // If it cannot be cached, every start scans.
    let _ = cache.store(&image, software_fingerprint);
    // The cached image takes little memory; that of the scan goes back to the host.
    let cached = cache.open().filter(|kept| kept.host_fingerprint == software_fingerprint).map(|kept| kept.image);
    let image = cached.unwrap_or(image);
    trim_heap();
    Ok((image, Some(cache), None))
}

impl Renewal {
    /// Scans the host's software and caches the result. Reports when its priority is lowered.
    pub(super) fn run(&self, is_nice: Sender<()>) {
        // If the kernel refuses, it runs at normal priority.
        let _ = rustix::process::setpriority_process(None, NICE);
        drop(is_nice);
        let software_fingerprint = software_fingerprint();
        // A confined process may be unable to read this directory, and must not cache it as empty.
        let state = Some(PathBuf::from(STATE)).filter(|state| state.is_dir());
        if software_directories().iter().chain(&state).any(|top| fs::read_dir(top).is_err()) {
            return;
        }
        // Most cells do not run long enough for a full scan, but long enough for a scan of the directories: changes found there drop the
        // image.
        if self.0.open().is_some_and(|kept| kept.is_outdated()) {
            self.0.forget();
        }
        if let Ok(image) = builder(false, true, &|_| ()).and_then(Builder::image) {
            let _ = self.0.store(&image, software_fingerprint);
        }
        // The process may have little else to do, for hours.
        trim_heap();
    }
}

/// The tree of the host's software as it is now; `identified`: it identifies the files of the host.
pub(super) fn builder(parallel: bool, identified: bool, progress: &dyn Fn(u64)) -> Result<Builder, Error> {
    let mut builder = Builder::new();
    if identified {
        builder.keep_identities();
    }
    let walk = Scan { readable: Readable::ByEveryone, limit: SOFTWARE_MAX, parallel, progress };
    // If the host hides it, there is nothing to show.
    let directories = Scan { readable: Readable::None, ..walk };
    if Path::new(STATE).is_dir() && everyone_may_enter(Path::new(STATE)) {
        builder.host(STATE, Path::new(STATE), &directories)?;
    }
    add_empty(&mut builder)?;
    for top in software_directories() {
        builder.host(top.as_os_str().as_bytes(), &top, &walk)?;
    }
    parts::add(&mut builder)?;
    Ok(builder)
}

/// A fingerprint that changes when software is installed or removed.
fn software_fingerprint() -> u64 {
    let mut hasher = DefaultHasher::new();
    parts::version(&mut hasher);
    SOFTWARE.iter().for_each(|name| hash_version_file(&Path::new("/").join(name), &mut hasher));
    DATABASES.iter().for_each(|database| hash_version_file(Path::new(database), &mut hasher));
    WATCHED.iter().for_each(|directory| hash_entries(Path::new(directory), &mut hasher));
    hasher.finish()
}

/// The directories and links that hold the host's software.
pub(super) fn software_directories() -> Vec<PathBuf> {
    SOFTWARE.iter().map(|name| Path::new("/").join(name)).filter(|top| everyone_may_enter(top)).collect()
}

/// Whether everyone on the host may list and enter a directory. For links, their targets are judged.
fn everyone_may_enter(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink() || metadata.is_dir() && metadata.mode() & 0o005 == 0o005)
}

fn hash_entries(directory: &Path, hasher: &mut DefaultHasher) {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.truncate(FINGERPRINT_FILES_MAX);
    paths.iter().for_each(|path| hash_version_file(path, hasher));
}

fn hash_version_file(path: &Path, hasher: &mut DefaultHasher) {
    let sign = fs::symlink_metadata(path).ok().map(|metadata| {
        let identity = (metadata.dev(), metadata.ino(), metadata.mode(), metadata.size());
        (identity, metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec())
    });
    (path, sign).hash(hasher);
}
