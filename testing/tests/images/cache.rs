// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cached host images: loading yields the same image or none, but never a different one, whatever happens to the file.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
    time::{Duration, SystemTime},
};

use pando_image::{Attributes, BlockError, Builder, Cache, Image, Readable};
use tempfile::TempDir;

use crate::{all_bytes, host::image_of, linux};

/// A directory with a tree, and a cached image of it beside the tree.
fn kept(signs: u64) -> (TempDir, Cache, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("tree")).unwrap();
    linux::sample_directory(&directory.path().join("tree"));
    let image = image_of(&directory.path().join("tree"), Readable::All);
    let cache = Cache::new(file(&directory));
    cache.store(&image, signs).unwrap();
    (directory, cache, all_bytes(&image))
}

fn file(directory: &TempDir) -> std::path::PathBuf {
    directory.path().join("cache/deeper/image")
}

#[test]
fn the_cached_image_equals_the_stored_one() {
    let (directory, cache, bytes) = kept(77);
    let kept = cache.open().unwrap();
    assert_eq!(kept.host_fingerprint, 77);
    assert!(kept.checked.elapsed().unwrap() < Duration::from_secs(60));
    assert!(!kept.is_outdated());
    assert!(all_bytes(&kept.image) == bytes);
    // The file has the metadata and none of the data, and no other file is left beside it.
    assert!(fs::metadata(file(&directory)).unwrap().len() < bytes.len() as u64);
    assert_eq!(fs::read_dir(directory.path().join("cache/deeper")).unwrap().count(), 1);
}

#[test]
fn added_and_removed_files_are_noticed_from_the_directories() {
    let (directory, cache, _) = kept(0);
    fs::write(directory.path().join("tree/sub/deep/new"), "").unwrap();
    assert!(cache.open().unwrap().is_outdated());
    let image = image_of(&directory.path().join("tree"), Readable::All);
    cache.store(&image, 0).unwrap();
    assert!(!cache.open().unwrap().is_outdated());
    fs::remove_dir_all(directory.path().join("tree/sub")).unwrap();
    assert!(cache.open().unwrap().is_outdated());
}

#[test]
fn an_unchanged_image_is_only_marked_as_checked() {
    use std::os::unix::fs::MetadataExt;
    const ATTEMPTS: usize = 10;
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let is_marked = || {
        let (directory, cache, _) = kept(1);
        fs::File::options().write(true).open(file(&directory)).unwrap().set_modified(long_ago).unwrap();
        assert_eq!(cache.open().unwrap().checked, long_ago);
        let open = fs::File::open(file(&directory)).unwrap();
        let image = image_of(&directory.path().join("tree"), Readable::All);
        cache.store(&image, 1).unwrap();
        assert!(cache.open().unwrap().checked > long_ago);
        fs::File::options().write(true).open(file(&directory)).unwrap().set_modified(long_ago).unwrap();
        let later = long_ago + Duration::from_secs(1);
        cache.set_checked(later).unwrap();
        assert_eq!(cache.open().unwrap().checked, later);
        let same = || open.metadata().unwrap().ino() == fs::metadata(file(&directory)).unwrap().ino();
        let is_same = same();
        cache.store(&image, 2).unwrap();
        assert!(!same());
        assert_eq!(cache.open().unwrap().host_fingerprint, 2);
        is_same
    };
    // Two seconds after its last change, a directory counts as one whose later changes would show, and then the image is another.
    assert!((0..ATTEMPTS).any(|_| is_marked()));
}

#[test]
fn an_image_that_others_could_have_written_is_not_used() {
    let (directory, cache, _) = kept(0);
    for mode in [0o620, 0o602] {
        fs::set_permissions(file(&directory), Permissions::from_mode(mode)).unwrap();
        assert!(cache.open().is_none(), "{mode:o}");
    }
    fs::set_permissions(file(&directory), Permissions::from_mode(0o600)).unwrap();
    assert!(cache.open().is_some());
    fs::rename(file(&directory), directory.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(directory.path().join("elsewhere"), file(&directory)).unwrap();
    assert!(cache.open().is_none());
    cache.forget();
    assert!(cache.open().is_none());
    cache.forget();
}

#[test]
fn where_nothing_can_be_written_the_error_says_so() {
    let (directory, _, _) = kept(0);
    let image = image_of(&directory.path().join("tree"), Readable::All);
    let cache = Cache::new("/proc/nonexistent/image");
    let error = cache.store(&image, 0).unwrap_err().to_string();
    assert!(error.starts_with("cannot write '/proc/nonexistent/image': "), "{error}");
    assert!(cache.open().is_none());
    // An image with data of its own, or one stored in a file, is not a host image.
    let grafted = {
        let mut image = Builder::new().image().unwrap();
        image.add_directory(b"/new", Attributes::root(0o755)).unwrap();
        image
    };
    let cache = Cache::new(directory.path().join("other"));
    assert!(cache.store(&grafted, 0).unwrap_err().to_string().ends_with("only a fresh host image can be cached"));
    assert!(!Path::new(&directory.path().join("other")).exists());
}

/// Reads every block individually. Each must be unchanged or refused; returns the number refused.
fn use_all(image: &Image, bytes: &[u8]) -> usize {
    let mut refused = 0;
    for (number, expected) in (0..image.blocks()).zip(bytes.chunks(4096)) {
        let mut block = [0; 4096];
        match image.read_blocks(number, &mut block) {
            Ok(()) => assert!(block == expected, "block {number} is wrong"),
            Err(BlockError::Damaged(_)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    refused
}

#[test]
fn a_file_that_was_cut_is_not_used() {
    let (directory, cache, _) = kept(0);
    let whole = fs::read(file(&directory)).unwrap();
    for length in (0..whole.len()).step_by(1999).chain([whole.len() - 1, whole.len() - 4096, whole.len() - 8192]) {
        fs::write(file(&directory), &whole[..length]).unwrap();
        assert!(cache.open().is_none(), "{length} bytes");
    }
    fs::write(file(&directory), [&whole[..], &[0]].concat()).unwrap();
    assert!(cache.open().is_none());
    fs::write(file(&directory), &whole).unwrap();
    assert!(cache.open().is_some());
}

#[test]
fn a_file_that_was_altered_is_refused_where_it_was() {
    let (directory, cache, bytes) = kept(0);
    let path = file(&directory);
    let whole = fs::read(&path).unwrap();
    let mut random = proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha);
    let mut number = |below: usize| {
        use proptest::prelude::Rng;
        random.next_u64() as usize % below
    };
    let (mut unusable, mut refused) = (0, 0);
    let writer = fs::File::options().write(true).open(&path).unwrap();
    for round in 0..100 {
        // Half of them at the start of the last block: the trailer.
        let at = if round % 2 == 0 { number(whole.len()) } else { whole.len() - 4096 + number(92) };
        writer.write_all_at(&[whole[at] ^ (1 << number(8))], at as u64).unwrap();
        match cache.open() {
            None => unusable += 1,
            Some(kept) => refused += use_all(&kept.image, &bytes),
        }
        writer.write_all_at(&whole[at..=at], at as u64).unwrap();
    }
    assert!(unusable > 10 && refused > 10, "{unusable} unusable, {refused} blocks refused");
    assert_eq!(use_all(&cache.open().unwrap().image, &bytes), 0);
}
