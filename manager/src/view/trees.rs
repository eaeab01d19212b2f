// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cached images of host directories: installation prefixes, the current directory, and directories that `-v` names.
//!
//! Each start compares the directories of the tree with the host, but not the files. The directories in which a name came or went are
//! listed again. A file that changed in place is noticed when the cell first reads the block of metadata with its inode.
//! `docs/decisions/0029-trees-are-kept.md` lists the guarantees. For a template, each file is compared at the start, too.

use super::{CONTENT_MAX, WALKED_MAX, parts, walk};
use crate::report::{LongOperation, Reporter};
use crate::view_images::ViewImages;
use pando_confine::{Authority, FileOwner};
use pando_image::{Attributes, Builder, Cache, CachedImage, Error, Fingerprint, Image, Readable};
use rustix::process::{getegid, geteuid, getgroups};
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The directory of these images, in the cache directory.
const DIRECTORY: &str = "trees";
/// Scanning a tree with fewer files is as fast as opening its cached image.
const WORTH_KEEPING: usize = 512;
/// The most trees that are cached; the oldest are removed.
const KEPT_MAX: usize = 32;
/// The bits of a fingerprint that give the needed authority.
const AUTHORITY: u64 = 3;
/// If more than this share of a tree changed, the tree is scanned and cached again as soon as it is [`QUIET`].
const SHARE_MAX: f64 = 0.125;
/// A tree that has not changed within this time will probably not change before the next start.
const QUIET: Duration = Duration::from_secs(10);

/// A directory of the host, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedTree<'a> {
    /// The directory.
    pub(super) directory: &'a Path,
    /// The names in it that are included; `None`: all.
    pub(super) names: Option<&'a [&'a str]>,
    /// It may hold installed languages; Pando's modules for them are added.
    pub(super) is_prefix: bool,
    /// The image is to be what a scan would give, also where files changed in place.
    pub(super) compares_files: bool,
}

impl CachedTree<'_> {
    /// The image of the tree, as far as the caller may read it, and its cache file. Adds the needed authority to `authority`. The image
    /// that a template has kept is preferred; a new template keeps it.
    pub(super) fn image(
        &self,
        (caches, kept): (Option<&Path>, Option<&ViewImages>),
        reporter: &Reporter,
        authority: &mut Authority,
    ) -> Result<(Image, Option<Cache>), Error> {
        let (base, tree_key) = (self.sign(), self.tree_key());
        if let Some(found) = kept.and_then(|kept| kept.find(tree_key)) {
            *authority = authority.and(authority_of(found.host_fingerprint));
            return Ok((found.image, None));
        }
        let (mut image, cache, own) = self.find_or_scan(caches, base, reporter)?;
        *authority = authority.and(own);
        if let Some(kept) = kept {
            kept.keep(tree_key, &mut image, cache.as_ref(), with_authority(base, own));
        }
        Ok((image, cache))
    }

    /// The image of the tree, its cache file, and the needed authority.
    fn find_or_scan(&self, caches: Option<&Path>, base: u64, reporter: &Reporter) -> Result<(Image, Option<Cache>, Authority), Error> {
        let mut own = Authority::default();
        let Some(directory) = caches.map(|caches| caches.join(DIRECTORY)) else {
            return Ok((self.scan(true, reporter, &mut own)?.image()?, None, own));
        };
        let cache = Cache::new(directory.join(format!("{base:016x}.image")));
        if let Some(mut kept) = cache.open().filter(|kept| kept.host_fingerprint & !AUTHORITY == base & !AUTHORITY) {
            let needed = authority_of(kept.host_fingerprint);
            let found = match self.compares_files {
                true => kept.into_image_if_unchanged().map(|image| (image, Authority::default())),
                false => self.update(&mut kept).map(|changed| (kept.image, changed)),
            };
            if let Some((image, changed)) = found {
                return Ok((image, Some(cache), needed.and(changed)));
            }
        }
        let builder = self.scan(true, reporter, &mut own)?;
        let is_kept = if self.is_prefix { builder.is_lasting() } else { builder.is_updatable() };
        let is_kept = is_kept && builder.count() >= WORTH_KEEPING;
        let image = builder.image()?;
        if !is_kept {
            return Ok((image, None, own));
        }
        // If the image cannot be stored, every start scans the tree.
        let _ = cache.store(&image, with_authority(base, own));
        remove_oldest(&directory);
        Ok((image, Some(cache), own))
    }

    /// Brings a cached image up to date. Returns the authority that the changes need; `None`: the tree has to be scanned.
    fn update(&self, kept: &mut CachedImage) -> Option<Authority> {
        let changes = kept.changes().ok()?;
        if changes.is_empty() {
            return Some(Authority::default());
        }
        // Pando's modules are no files of the host, so listing a directory would remove them.
        if self.is_prefix || changes.share() > SHARE_MAX && changes.are_older_than(QUIET) {
            return None;
        }
        let changed = kept.update(&changes, &walk(Readable::ByCaller, WALKED_MAX, &|_| ()), CONTENT_MAX)?;
        Some(authority_over(changed.iter().map(|(attributes, is_directory)| (attributes, *is_directory))))
    }

    /// Scans the tree.
    pub(super) fn walk(&self, reporter: &Reporter, authority: &mut Authority) -> Result<Builder, Error> {
        self.scan(false, reporter, authority)
    }

    /// Scans the tree, for an image that can be cached or not.
    fn scan(&self, is_cached: bool, reporter: &Reporter, authority: &mut Authority) -> Result<Builder, Error> {
        let progress = reporter.progress(LongOperation::ScanDirectory);
        let progress = |count| progress.set(count);
        let walk = walk(Readable::ByCaller, WALKED_MAX, &progress);
        let mut builder = Builder::new();
        builder.limit_content(CONTENT_MAX);
        builder.keep_identities();
        if is_cached {
            builder.allow_revisions();
        }
        match self.names {
            None => builder.host("/", self.directory, &walk)?,
            Some(names) => {
                builder.directory("/", Attributes::of_host(self.directory)?)?;
                for name in names {
                    let path = self.directory.join(name);
                    if path.symlink_metadata().is_ok() {
                        builder.host(name, &path, &walk)?;
                    }
                }
            }
        }
        *authority = authority.and(authority_over(builder.attributes()));
        if self.is_prefix {
            parts::add_modules(&mut builder)?;
        }
        Ok(builder)
    }

    /// Identifies the tree among those that a template keeps. Their names are those of its creation, so the present ones do not count. The
    /// caller's groups do not count either, because content is read with the present ones.
    fn tree_key(&self) -> u64 {
        let mut hasher = Fingerprint::default();
        parts::version(&mut hasher);
        (self.directory, self.names, self.is_prefix, geteuid().as_raw(), has_authority()).hash(&mut hasher);
        hasher.finish()
    }

    /// A fingerprint of the tree, the caller, and the version of the added files.
    fn sign(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        parts::version(&mut hasher);
        (self.directory, self.names, self.is_prefix).hash(&mut hasher);
        for name in self.names.into_iter().flatten() {
            // The change times of the tree's directories do not show that one of these came, went, or is another link.
            let found = self.directory.join(name).symlink_metadata().ok();
            let link = |found: Metadata| found.is_symlink().then(|| (found.ino(), found.ctime(), found.ctime_nsec()));
            found.map(link).hash(&mut hasher);
        }
        let groups: Vec<u32> = getgroups().unwrap_or_default().iter().map(|group| group.as_raw()).collect();
        (geteuid().as_raw(), getegid().as_raw(), groups).hash(&mut hasher);
        // With root's authority over files, the caller gets another image, which records the needed authority.
        has_authority().hash(&mut hasher);
        hasher.finish()
    }
}

/// Whether the caller has root's authority over files.
fn has_authority() -> bool {
    Authority::over([FileOwner { user: u32::MAX, group: u32::MAX, mode: 0, is_directory: false }]).read
}

/// The authority that a cached image needs, which its fingerprint gives.
fn authority_of(fingerprint: u64) -> Authority {
    Authority { read: fingerprint & 1 != 0, change: fingerprint & 2 != 0 }
}

/// The fingerprint of a tree, with the authority that it needs.
fn with_authority(base: u64, needed: Authority) -> u64 {
    base & !AUTHORITY | u64::from(needed.read) | u64::from(needed.change) << 1
}

/// The authority over files with these attributes, each with whether it is a directory.
fn authority_over<'a>(files: impl Iterator<Item = (&'a Attributes, bool)>) -> Authority {
    let owned = |(found, is_directory): (&Attributes, bool)| FileOwner {
        user: found.uid,
        group: found.gid,
        mode: found.permissions.into(),
        is_directory,
    };
    Authority::over(files.map(owned))
}

/// Removes the oldest trees beyond [`KEPT_MAX`].
fn remove_oldest(directory: &Path) {
    let age = |path: PathBuf| Some((fs::symlink_metadata(&path).ok()?.modified().ok()?, path));
    let mut found: Vec<(SystemTime, PathBuf)> =
        fs::read_dir(directory).into_iter().flatten().flatten().filter_map(|entry| age(entry.path())).collect();
    found.sort();
    let surplus = found.len().saturating_sub(KEPT_MAX);
    for (_, path) in &found[..surplus] {
        // Another process may have removed it already.
        let _ = fs::remove_file(path);
    }
}
