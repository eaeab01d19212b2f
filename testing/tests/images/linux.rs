// SPDX-License-Identifier: MIT OR Apache-2.0
//! The writer's images as seen by Linux and its tools, and images of `mkfs.erofs` as seen by the reader.

use std::{
    fs,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Mutex,
};

use pando_image::{Attributes, Builder, Timestamp};
use pando_libos::erofs::{Error, Image, LastLink};
use pando_testing::host_program;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::{
    image_bytes,
    model::{self, ModelNode, ModelTree, additions, build},
    reading,
};

/// Runs a program that must exist.
fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(host_program(program)).args(arguments).output().unwrap_or_else(|error| panic!("cannot run '{program}': {error}"))
}

/// Runs a program that must succeed.
pub(crate) fn run_well(program: &str, arguments: &[&str]) {
    let output = run(program, arguments);
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&said));
}

/// Runs `fsck.erofs`. Returns whether it found no fault, and its output. Version 1.5 names some faults and still exits with 0.
pub(crate) fn fsck(arguments: &[&str]) -> (bool, String) {
    let output = run("fsck.erofs", arguments);
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.success() && !said.contains("<E>"), said)
}

/// All files below a directory of the host; the directory itself is `/`.
pub(crate) fn host_tree(top: &Path) -> ModelTree {
    let mut tree = ModelTree::new();
    let mut pending = vec![top.to_path_buf()];
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let node = if metadata.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            ModelNode::Directory
        } else if metadata.is_symlink() {
            ModelNode::Symlink(fs::read_link(&path).unwrap().into_os_string().into_vec())
        } else if metadata.is_file() {
            ModelNode::File(fs::read(&path).unwrap())
        } else {
            ModelNode::Special((metadata.mode() >> 12) as u16)
        };
        let attributes = Attributes {
            permissions: (metadata.mode() & 0o7777) as u16,
            uid: metadata.uid(),
            gid: metadata.gid(),
            modified: Timestamp { seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec() as u32 },
        };
        let below = path.strip_prefix(top).unwrap();
        tree.insert([b"/", below.as_os_str().as_bytes()].concat(), (attributes, node));
    }
    tree
}

/// A tree without its attributes, to compare formats that do not keep them.
fn content(tree: ModelTree) -> Vec<(Vec<u8>, ModelNode)> {
    tree.into_iter().map(|(path, (_, node))| (path, node)).collect()
}

/// Writes an image into a file of a new directory.
fn image_file(builder: Builder) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = text(directory.path().join("image"));
    fs::write(&path, image_bytes(builder)).unwrap();
    (directory, path)
}

fn text(path: PathBuf) -> String {
    path.into_os_string().into_string().unwrap()
}

/// Whether this process may mount images. Containers often withhold loop devices; the tools' view is tested there too.
pub(crate) fn can_mount() -> bool {
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    root && run("losetup", &["--find"]).status.success()
}

/// A mounted image.
pub(crate) struct Mount(pub(crate) TempDir);

impl Mount {
    pub(crate) fn new(image: &str) -> Self {
        // Finding a free loop device and attaching it are two steps.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock();
        let directory = tempfile::tempdir().unwrap();
        run_well("mount", &["-t", "erofs", "-o", "loop,ro", image, directory.path().to_str().unwrap()]);
        Mount(directory)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: a child that another test has forked holds copies of this process's descriptors until it executes its program, and one
        // of them may be a file of the mount.
        run_well("umount", &["--lazy", self.0.path().to_str().unwrap()]);
    }
}

proptest! {
    #![proptest_config(model::config(24))]

    #[test]
    fn fsck_finds_no_fault_and_extracts_the_tree(additions in additions()) {
        let (builder, tree) = build(&additions);
        let (directory, image) = image_file(builder);
        let extracted = directory.path().join("extracted");
        let (sound, said) = fsck(&[&format!("--extract={}", extracted.display()), "--no-preserve", &image]);
        prop_assert!(sound, "{}", said);
        // Only root can read directories that their owner may not read.
        let root = fs::metadata("/proc/self").unwrap().uid() == 0;
        if root || tree.values().all(|(attributes, _)| attributes.permissions & 0o500 == 0o500) {
            prop_assert_eq!(content(host_tree(&extracted)), content(tree));
        }
    }

    #[test]
    fn linux_mounts_the_tree_with_all_attributes(additions in additions()) {
        if !can_mount() {
            eprintln!("left out: mounting images needs root and a loop device");
            return Ok(());
        }
        let (builder, tree) = build(&additions);
        let (_directory, image) = image_file(builder);
        let mount = Mount::new(&image);
        prop_assert_eq!(host_tree(mount.0.path()), tree);
    }
}

#[test]
fn fsck_notices_a_wrong_checksum() {
    let (_directory, path) = image_file(Builder::new());
    assert!(fsck(&[&path]).0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[2000] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(!fsck(&[&path]).0);
}

/// A directory of the host to make images of.
pub(crate) fn sample_directory(top: &Path) {
    for (path, size) in
        [("empty", 0), ("small", 100), ("block", 4096), ("tail", 5000), ("blocks", 12_288), ("large", 100_001), ("sub/deep/x", 7)]
    {
        let path = top.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, (0..size).map(|at: u32| (at / 3) as u8).collect::<Vec<_>>()).unwrap();
    }
    for number in 0..1000 {
        let path = top.join(format!("sub/many/{number}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{number}")).unwrap();
    }
    symlink("../sub/deep/x", top.join("sub/link")).unwrap();
    symlink("t".repeat(3000), top.join("long")).unwrap();
    fs::set_permissions(top.join("small"), fs::Permissions::from_mode(0o4711)).unwrap();
}

/// The image that `mkfs.erofs` creates from a directory.
pub(crate) fn mkfs(options: &[&str], directory: &Path) -> Vec<u8> {
    let target = tempfile::tempdir().unwrap();
    let image = text(target.path().join("image"));
    run_well("mkfs.erofs", &[options, &[&image, directory.to_str().unwrap()]].concat());
    fs::read(image).unwrap()
}

/// A small image by `mkfs.erofs`, with compact inodes and inline data.
pub(crate) fn compact_image() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), [7; 5000]).unwrap();
    fs::create_dir(directory.path().join("directory")).unwrap();
    fs::write(directory.path().join("directory/small"), "small").unwrap();
    symlink("directory/../link", directory.path().join("link")).unwrap();
    mkfs(&["-T0", "-Eforce-inode-compact"], directory.path())
}

#[test]
fn images_of_mkfs_are_read() {
    let directory = tempfile::tempdir().unwrap();
    sample_directory(directory.path());
    let tree = host_tree(directory.path());
    for options in [&[][..], &["-Eforce-inode-extended"], &["-Enoinline_data"]] {
        let bytes = mkfs(options, directory.path());
        assert_eq!(reading::tree(&Image::new(&bytes).unwrap()), tree, "{options:?}");
    }
    // Compact inodes keep no times.
    let bytes = mkfs(&["-Eforce-inode-compact", "-T77"], directory.path());
    let mut timeless = tree.clone();
    timeless.values_mut().for_each(|(attributes, _)| attributes.modified = Timestamp { seconds: 77, nanoseconds: 0 });
    assert_eq!(reading::tree(&Image::new(&bytes).unwrap()), timeless);
}

#[test]
fn compressed_and_chunked_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    sample_directory(directory.path());
    let refused = |options: &[&str]| {
        let bytes = mkfs(options, directory.path());
        let image = Image::new(&bytes).unwrap();
        let inode = image.resolve(image.root(), b"large", LastLink::Follow).unwrap();
        (image.data(&inode).unwrap_err(), inode.nid)
    };
    let (error, nid) = refused(&["-zlz4hc"]);
    assert_eq!(error, Error::Compressed(nid));
    let (error, nid) = refused(&["--chunksize=4096"]);
    assert_eq!(error, Error::Chunked(nid));
}
