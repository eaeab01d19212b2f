// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exports: after each sync, an overlay and a host directory that started with the same files contain the same files.

use crate::compare::{ComparedTrees, TreeListing, on_host, see_host};
use crate::operation::{InitialFile, Operation, operations, trees};
use pando_launch::{WritableVolume, WriteBackReport, apply_records};
use pando_libos::errno::Errno;
use pando_libos::files::export::Channel;
use proptest::prelude::*;
use rustix::fs::{Mode, OFlags, open};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// A channel that is connected directly to the host's write-back.
struct DirectChannel<'a> {
    host: &'a Path,
    said: Vec<u8>,
    answers: Vec<u8>,
    reports: Vec<WriteBackReport>,
}

impl Channel for DirectChannel<'_> {
    fn send(&mut self, bytes: &[u8]) {
        self.said.extend(bytes);
    }

    fn receive(&mut self, buffer: &mut [u8]) -> usize {
        if self.answers.is_empty() {
            let directory = open(self.host, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("it is there");
            let said = std::mem::take(&mut self.said);
            let report = apply_records(vec![WritableVolume::Directory(directory)], Arc::default(), u64::MAX, &said[..], |answer| {
                self.answers.extend(answer);
                true
            });
            self.reports.push(report);
        }
        let count = buffer.len().min(self.answers.len());
        buffer[..count].copy_from_slice(&self.answers[..count]);
        self.answers.drain(..count);
        count
    }
}

/// An overlay, its twin, and a directory that only receives exports.
struct ExportFixture {
    trees: ComparedTrees,
    host: TempDir,
}

impl ExportFixture {
    fn new(tree: &[(String, InitialFile)]) -> ExportFixture {
        let mut trees = ComparedTrees::new(tree);
        trees.files().export(b"/").expect("something is mounted at the root");
        ExportFixture { trees, host: on_host(tree) }
    }

    /// Syncs; returns the number of bytes sent. A small buffer, so that records do not fit.
    fn sync(&mut self) -> Result<usize, Errno> {
        let mut channel = DirectChannel { host: self.host.path(), said: Vec::new(), answers: Vec::new(), reports: Vec::new() };
        let mut counted = CountingChannel(&mut channel, 0);
        let outcome = self.trees.files().sync_all_through(&mut counted, &mut [0; 5000]);
        let bytes = counted.1;
        if outcome.is_ok() {
            assert!(channel.reports.iter().all(|report| *report == WriteBackReport::default()), "{:?}", channel.reports);
        }
        outcome.map(|()| bytes)
    }

    /// The trees of the overlay and of the host. Hard links of the overlay are separate files on the host.
    fn trees(&mut self) -> (TreeListing, TreeListing) {
        let (mut overlay, _) = self.trees.trees();
        let mut host = TreeListing::new();
        see_host(self.host.path(), "", &mut host);
        for (_, links, _) in overlay.values_mut().chain(host.values_mut()) {
            *links = (*links).min(1);
        }
        (overlay, host)
    }

    fn perform(&mut self, operation: Operation) {
        self.trees.overlay(&operation).unwrap_or_else(|error| panic!("{operation:?}: {error}"));
    }

    fn check(&mut self) {
        self.sync().expect("the host takes it");
        let (overlay, host) = self.trees();
        assert_eq!(overlay, host);
    }
}

/// Counts the bytes sent.
struct CountingChannel<'a, 'b>(&'a mut DirectChannel<'b>, usize);

impl Channel for CountingChannel<'_, '_> {
    fn send(&mut self, bytes: &[u8]) {
        self.1 += bytes.len();
        self.0.send(bytes);
    }

    fn receive(&mut self, buffer: &mut [u8]) -> usize {
        self.0.receive(buffer)
    }
}

proptest! {
    // Each sync waits for the host's disk.
    #![proptest_config(ProptestConfig { cases: crate::config().cases / 4, ..crate::config() })]

    #[test]
    fn the_host_equals_the_overlay_after_each_sync(tree in trees(), rounds in proptest::collection::vec(operations(), 1..4)) {
        let mut exported = ExportFixture::new(&tree);
        for operations in rounds {
            for operation in &operations {
                // Failed operations change nothing.
                let _ = exported.trees.overlay(operation);
            }
            exported.sync().expect("the host takes it");
            let (overlay, host) = exported.trees();
            prop_assert_eq!(overlay, host);
            // Without changes only the query is sent.
            prop_assert_eq!(exported.sync(), Ok(8));
        }
    }
}

fn word(text: &str) -> String {
    text.to_owned()
}

/// Records the bytes sent, and reports success.
struct RecordingChannel(Vec<u8>);

impl Channel for RecordingChannel {
    fn send(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    fn receive(&mut self, buffer: &mut [u8]) -> usize {
        buffer.fill(0);
        buffer.len()
    }
}

#[test]
fn an_interrupted_sync_leaves_old_or_new_files_and_loses_no_moved_one() {
    let tree = [
        (word("/a"), InitialFile::Directory),
        (word("/a/moves"), InitialFile::File(5000)),
        (word("/b"), InitialFile::Directory),
        (word("/changes"), InitialFile::File(6000)),
    ];
    let mut exported = ExportFixture::new(&tree);
    exported.perform(Operation::Rename(word("/a/moves"), word("/b/moved")));
    exported.perform(Operation::Write(word("/changes"), 100, 7000));
    let mut noted = RecordingChannel(Vec::new());
    exported.trees.files().sync_all_through(&mut noted, &mut [0; 5000]).expect("all is well");
    let old = fs::read(exported.host.path().join("changes")).expect("it is there");
    for cut in (0..noted.0.len()).step_by(311).chain([noted.0.len()]) {
        let host = on_host(&tree);
        let directory = open(host.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("it is there");
        assert_eq!(
            apply_records(vec![WritableVolume::Directory(directory)], Arc::default(), u64::MAX, &noted.0[..cut], |_| true),
            WriteBackReport::default()
        );
        let read = |name: &str| fs::read(host.path().join(name));
        let moved = read("b/moved").or_else(|_| read("a/moves")).expect("it is somewhere");
        let changed = read("changes").expect("it is there");
        assert!(moved.len() == 5000 && (changed == old || changed.len() == 7100), "cut at {cut}");
        let names = walked(host.path());
        assert!(names.iter().all(|name| !name.contains(".pando-")), "cut at {cut}: {names:?}");
    }
}

/// All paths below a directory.
fn walked(directory: &Path) -> Vec<String> {
    let mut seen = TreeListing::new();
    see_host(directory, "", &mut seen);
    seen.into_keys().collect()
}

#[test]
fn only_changes_are_sent() {
    let many: Vec<(String, InitialFile)> = (0..50).map(|number| (format!("/{number}"), InitialFile::File(9000))).collect();
    let mut exported = ExportFixture::new(&many);
    assert_eq!(exported.sync(), Ok(8));
    exported.perform(Operation::Write(word("/7"), 3, 1));
    let said = exported.sync().expect("the host takes it");
    assert!((9000..10_000).contains(&said), "{said} bytes were sent");
    exported.perform(Operation::Permissions(word("/8"), 0o600));
    exported.perform(Operation::Unlink(word("/9")));
    let said = exported.sync().expect("the host takes it");
    assert!((9000..10_000).contains(&said), "{said} bytes were sent");
    exported.check();
}

#[test]
fn holes_stay_holes() {
    let mut exported = ExportFixture::new(&[]);
    exported.perform(Operation::Write(word("/a"), 1 << 30, 10));
    let said = exported.sync().expect("the host takes it");
    let metadata = fs::metadata(exported.host.path().join("a")).expect("it is there");
    assert!(said < 10_000 && metadata.len() == (1 << 30) + 10 && metadata.blocks() < 100, "{said} {metadata:?}");
}

#[test]
fn changes_that_the_host_refused_are_sent_again() {
    let mut exported = ExportFixture::new(&[(word("/a"), InitialFile::Directory)]);
    exported.perform(Operation::Write(word("/a/b"), 0, 10));
    // The directory was replaced by a file.
    fs::remove_dir(exported.host.path().join("a")).expect("it is empty");
    fs::write(exported.host.path().join("a"), "in the way").expect("the directory is ours");
    assert_eq!(exported.sync(), Err(Errno::ENOTDIR));
    fs::remove_file(exported.host.path().join("a")).expect("the directory is ours");
    fs::create_dir(exported.host.path().join("a")).expect("nothing is there");
    exported.check();
}

#[test]
fn files_stay_in_place_when_the_host_cannot_move_them() {
    let mut exported = ExportFixture::new(&[
        (word("/a"), InitialFile::File(5000)),
        (word("/b"), InitialFile::Directory),
        (word("/c"), InitialFile::File(10)),
    ]);
    exported.perform(Operation::Rename(word("/a"), word("/b/a")));
    exported.perform(Operation::Write(word("/d"), 0, 10));
    let host = exported.host.path().to_owned();
    fs::remove_dir(host.join("b")).expect("it is empty");
    fs::write(host.join("b"), "in the way").expect("the directory is ours");
    assert_eq!(exported.sync(), Err(Errno::ENOTDIR));
    assert_eq!(fs::read(host.join("a")).expect("it is there").len(), 5000);
    assert!(host.join("d").exists(), "the rest is written");
    fs::remove_file(host.join("b")).expect("the directory is ours");
    fs::create_dir(host.join("b")).expect("nothing is there");
    exported.check();
}

#[test]
fn a_path_that_is_too_long_is_an_error_and_the_rest_is_written() {
    let mut exported = ExportFixture::new(&[]);
    let (top, above) = ("x".repeat(250), "y".repeat(250));
    let mut deep = format!("/{top}");
    while deep.len() < 3800 {
        exported.perform(Operation::Directory(deep.clone()));
        deep += "/0123456789";
    }
    exported.perform(Operation::Directory(format!("/{above}")));
    exported.perform(Operation::Directory(format!("/{above}/{above}")));
    exported.perform(Operation::Rename(format!("/{top}"), format!("/{above}/{above}/{top}")));
    exported.perform(Operation::Write(word("/z"), 0, 10));
    assert_eq!(exported.sync(), Err(Errno::ENAMETOOLONG));
    assert!(exported.host.path().join("z").exists());
}

#[test]
fn files_of_others_in_a_removed_directory_stay() {
    let mut exported = ExportFixture::new(&[(word("/a"), InitialFile::Directory), (word("/a/b"), InitialFile::File(10))]);
    fs::write(exported.host.path().join("a/theirs"), "theirs").expect("the directory is ours");
    exported.perform(Operation::Unlink(word("/a/b")));
    exported.perform(Operation::RemoveDirectory(word("/a")));
    assert_eq!(exported.sync(), Err(Errno::ENOTEMPTY));
    assert_eq!(fs::read(exported.host.path().join("a/theirs")).expect("it is there"), b"theirs");
    assert!(!exported.host.path().join("a/b").exists());
}
