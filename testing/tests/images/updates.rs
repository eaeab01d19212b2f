// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cached images whose directories changed: an update shows the names that the host has, and lists no other directories.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pando_image::{Attributes, Builder, Cache, CachedImage, Error, Image, Kind, Readable};
use tempfile::TempDir;

use crate::host::walk;

/// A directory on the host and the cache of its image.
struct CachedTree {
    above: TempDir,
    cache: Cache,
}

impl CachedTree {
    /// A tree with nested directories, links, and a file with two names.
    fn new() -> CachedTree {
        let above = tempfile::tempdir().unwrap();
        let cache = Cache::new(above.path().join("cached"));
        let tree = CachedTree { above, cache };
        for directory in ["a/deep/er", "b", "c/many"] {
            fs::create_dir_all(tree.path(directory)).unwrap();
        }
        (0..300).for_each(|number| tree.write(&format!("c/many/f{number}"), &number.to_string()));
        ["top", "a/one", "a/two", "a/deep/three", "a/deep/er/four", "b/five"].into_iter().for_each(|name| tree.write(name, name));
        fs::hard_link(tree.path("a/one"), tree.path("a/deep/one too")).unwrap();
        symlink("one", tree.path("a/link")).unwrap();
        tree.store();
        tree
    }

    fn path(&self, name: &str) -> PathBuf {
        self.above.path().join("tree").join(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    fn scan(&self) -> Image {
        let mut builder = Builder::new();
        builder.keep_identities();
        builder.allow_revisions();
        builder.host("/", &self.path(""), &walk(Readable::ByCaller)).unwrap();
        assert!(builder.is_updatable());
        builder.image().unwrap()
    }

    fn store(&self) {
        self.cache.store(&self.scan(), 0).unwrap();
    }

    fn open(&self) -> CachedImage {
        self.cache.open().expect("it was just stored")
    }

    /// The updated image, and the attributes of what is new; `None`: the tree must be scanned again.
    fn update(&self) -> Option<(Image, Vec<(Attributes, bool)>)> {
        let mut cached = self.open();
        let changes = cached.changes().unwrap();
        let attributes = cached.update(&changes, &walk(Readable::ByCaller), u64::MAX)?;
        Some((cached.image, attributes))
    }

    /// Updates the image and compares it with the host.
    fn check(&self) {
        let (image, _) = self.update().expect("the image has room for the update");
        let mut names = BTreeSet::new();
        hold(&image, &self.path(""), Path::new("/"), &mut names);
        for gone in ["a/one", "a/two", "a/deep/er/four", "b/five", "a/deep/one too", "c/many/f7", "moved/f7", "new", "x/y/z", "top"] {
            assert_eq!(image.find(gone.as_bytes()).unwrap().is_some(), self.path(gone).exists(), "{gone}");
        }
    }
}

/// Compares a directory of the host with the image, with all below.
fn hold(image: &Image, host: &Path, inside: &Path, names: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(host).unwrap().map(Result::unwrap) {
        let name = inside.join(entry.file_name());
        let path = name.to_str().unwrap();
        let kind = image.find(path.as_bytes()).unwrap();
        let Ok(metadata) = fs::metadata(entry.path()) else {
            assert_eq!(kind, None, "{path}");
            continue;
        };
        let expected = if metadata.is_dir() { Kind::Directory } else { Kind::File };
        assert_eq!(kind, Some(expected), "{path}");
        if metadata.is_dir() && !entry.path().is_symlink() {
            hold(image, &entry.path(), &name, names);
        } else if metadata.is_file() {
            assert_eq!(text(image, path).unwrap(), fs::read_to_string(entry.path()).unwrap(), "{path}");
        }
        names.insert(name);
    }
}

fn text(image: &Image, name: &str) -> Result<String, Error> {
    Ok(image.file_text(name.as_bytes())?.expect("it is there, and text"))
}

#[test]
fn an_update_shows_what_the_host_has() {
    let tree = CachedTree::new();
    tree.check();
    // New files and directories, and what is in them.
    tree.write("new", "new");
    fs::create_dir_all(tree.path("x/y/z")).unwrap();
    tree.write("x/y/z/file", "far below");
    symlink("y/z/file", tree.path("x/link")).unwrap();
    tree.check();
    // Names that are gone, and replaced by others.
    fs::remove_file(tree.path("a/two")).unwrap();
    fs::remove_file(tree.path("b/five")).unwrap();
    fs::create_dir(tree.path("b/five")).unwrap();
    fs::remove_file(tree.path("a/link")).unwrap();
    symlink("deep/three", tree.path("a/link")).unwrap();
    fs::remove_dir_all(tree.path("a/deep/er")).unwrap();
    tree.write("a/deep/er", "a file now");
    tree.check();
    // A file that another replaces, as editors do; one that changes in place.
    tree.write("top.new", "a new top");
    fs::rename(tree.path("top.new"), tree.path("top")).unwrap();
    tree.write("c/many/f8", "changed in place");
    tree.check();
    // Whole directories that move.
    fs::rename(tree.path("c/many"), tree.path("moved")).unwrap();
    fs::rename(tree.path("a"), tree.path("c/a")).unwrap();
    tree.check();
}

#[test]
fn a_new_name_of_a_file_is_the_same_file() {
    let tree = CachedTree::new();
    fs::hard_link(tree.path("c/many/f1"), tree.path("another")).unwrap();
    fs::hard_link(tree.path("b/five"), tree.path("b/six")).unwrap();
    tree.write("new", "new");
    fs::hard_link(tree.path("new"), tree.path("a/new too")).unwrap();
    fs::remove_file(tree.path("a/deep/one too")).unwrap();
    tree.check();
    // The name by which the file is read is gone: it is the one that the scan found first, nearest to the top.
    let tree = CachedTree::new();
    fs::rename(tree.path("a/one"), tree.path("a/uno")).unwrap();
    assert!(tree.update().is_none());
    tree.store();
    tree.check();
}

#[test]
fn the_attributes_of_what_is_new_are_reported() {
    let tree = CachedTree::new();
    thread::sleep(Duration::from_millis(2100));
    // Stored again when nothing has changed for two seconds: then only changed directories are listed.
    tree.store();
    assert!(tree.open().changes().unwrap().is_empty());
    assert!(tree.open().changes().unwrap().are_older_than(Duration::from_secs(3600)), "there are none");
    // The image for a template is that of a scan, until a file changes.
    let unchanged = tree.open().into_image_if_unchanged().expect("nothing has changed");
    assert_eq!(unchanged.fingerprint(), tree.scan().fingerprint());
    assert_eq!(text(&unchanged, "c/many/f7").unwrap(), "7");
    tree.write("c/many/f7", "a change in place is no change of names");
    assert!(matches!(text(&unchanged, "c/many/f7"), Err(Error::Changed(_))));
    assert!(tree.open().into_image_if_unchanged().is_none());
    assert!(tree.open().changes().unwrap().is_empty());
    tree.write("b/new", "new");
    let changes = tree.open().changes().unwrap();
    assert!(!changes.is_empty() && changes.share() < 0.1 && !changes.are_older_than(Duration::from_secs(3600)));
    let (image, attributes) = tree.update().unwrap();
    let host = |name: &str| Attributes::of_host(&tree.path(name)).unwrap();
    assert_eq!(attributes, [(host("b"), true), (host("b/new"), false)]);
    assert_eq!(text(&image, "c/many/f7").unwrap(), "a change in place is no change of names");
    // An entry that the image has is not even read again.
    assert_eq!(text(&image, "b/five").unwrap(), "b/five");
}

#[test]
fn a_tree_that_moved_is_scanned_again() {
    let tree = CachedTree::new();
    fs::rename(tree.path(""), tree.above.path().join("other")).unwrap();
    assert!(tree.update().is_none());
    fs::create_dir(tree.path("")).unwrap();
    assert!(tree.update().is_none());
    // An image that was made without room for updates.
    let cache = Cache::new(tree.above.path().join("cached"));
    let mut builder = Builder::new();
    builder.keep_identities();
    builder.host("/", &tree.above.path().join("other"), &walk(Readable::ByCaller)).unwrap();
    cache.store(&builder.image().unwrap(), 0).unwrap();
    tree.write("new", "new");
    assert!(tree.update().is_none());
}

#[test]
fn an_update_has_limits() {
    let tree = CachedTree::new();
    tree.write("new", &"new\n".repeat(5000));
    let mut cached = tree.open();
    let changes = cached.changes().unwrap();
    let size = cached.image.size();
    assert!(cached.update(&changes, &walk(Readable::ByCaller), size + 4096).is_none());
    let few = pando_image::Scan { limit: 5, ..walk(Readable::ByCaller) };
    assert!(tree.open().update(&changes, &few, u64::MAX).is_none());
    assert!(tree.open().update(&changes, &walk(Readable::ByCaller), u64::MAX).is_some());
}

#[test]
fn names_that_come_and_go_meanwhile_do_no_harm() {
    let tree = CachedTree::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let name = |number: u32| tree.path(&format!("c/many/t{}", number % 5));
                let _ = (fs::create_dir(name(round)), File::create(name(round).join("f")), fs::rename(name(round), name(round + 1)));
                let _ = (fs::remove_dir_all(name(round + 3)), fs::rename(tree.path("b"), tree.path("d")));
                let _ = (fs::rename(tree.path("d"), tree.path("b")), symlink("/etc", name(round + 2)), fs::remove_file(name(round + 2)));
            }
        });
        for _ in 0..50 {
            let Some((image, _)) = tree.update() else { continue };
            assert_eq!(text(&image, "c/many/f299").unwrap(), "299");
            assert_eq!(image.find(b"c/many/f300").unwrap(), None);
        }
        done.store(true, Ordering::Relaxed);
    });
    tree.check();
}
