// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file system exerciser: the same random operations by the same seed on one file, natively and in a cell; each verifies
//! its writes by reading back.
//!
//! One run stays below a process's limit of mappings: the exerciser never unmaps what it has read.

use crate::case::{Case, long_runs, text};
use crate::compile::{Linkage, program};
use crate::suites::ripgrep_and_sqlite::fetched;
use pando_testing::needs_kvm;
use std::path::Path;

/// All operations of the exerciser, mappings first. No operation is empty: the exerciser counts a failing allocation of zero bytes as
/// an error of the file system.
const SETTINGS: &str = "[opsize]
min = 1

[weights]
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 1
close_open = 1
invalidate = 1
fsync = 1
fdatasync = 1
punch_hole = 2
posix_fallocate = 1
sendfile = 2
posix_fadvise = 1
copy_file_range = 2
";

/// A directory of the cell, and thus a file system type, with the number of operations of a run. In long tests `long` runs
/// are made: an hour for all places together.
struct Place {
    directory: &'static str,
    /// The kind of the volume of the host that lies there, if any does.
    volume: Option<&'static str>,
    operations: u32,
    long: u32,
}

impl Place {
    /// The option that mounts a directory of the host there, if it is a volume.
    fn options(&self, host: &Path) -> Vec<String> {
        self.volume.map_or(Vec::new(), |kind| vec!["-v".into(), format!("{}:{}:{kind}", host.display(), self.directory)])
    }
}

const OVERLAY: Place = Place { directory: "/var/tmp", volume: None, operations: 20_000, long: 600 };
const MEMORY: Place = Place { directory: "/dev/shm", volume: None, operations: 20_000, long: 600 };
/// Each sync of this one writes the whole file to the host.
const VOLUME: Place = Place { directory: "/volume", volume: Some("copy"), operations: 600, long: 1000 };
const LIVE_MOUNT: Place = Place { directory: "/volume", volume: Some("live"), operations: 5_000, long: 1000 };

/// Exercises a file by a seed, natively and in a cell, and compares the two files.
fn exercise(program: &str, place: &Place, seed: u32) {
    let [volume, settings] = [0; 2].map(|_| tempfile::tempdir().expect("a temporary directory"));
    // Not on a disk, because each sync would wait for it.
    let native = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory");
    let settings = settings.path().join("settings.toml");
    std::fs::write(&settings, SETTINGS).expect("the directory is ours");
    let run = |directory: &str| {
        let Place { operations, .. } = place;
        let script = format!("cd {directory} && {program} -f {} -S {seed} -N {operations} file 2>&1 && cksum < file", settings.display());
        Case::new("sh", &["-c", &script])
    };
    let options = place.options(volume.path());
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let in_cell = run(place.directory).file(program).file(&settings).options(&options);
    let natively = run(&native.path().display().to_string()).native();
    assert_eq!(natively.status, 0, "seed {seed}: {}", text(&natively.output));
    if let Err(problem) = in_cell.hold(&natively, &in_cell.cell()) {
        panic!("seed {seed}: {problem}");
    }
    if place.volume.is_some() {
        let [ours, theirs] = [native.path(), volume.path()].map(|path| std::fs::read(path.join("file")).expect("it was written"));
        assert!(ours == theirs, "seed {seed}: the files of the host and the cell differ");
    }
}

/// Exercises a place with one seed, or with many.
fn exercise_all(place: &Place) {
    needs_kvm!();
    let Some(program) = fetched("tools/bin/fsx") else { return };
    let program = program.to_str().expect("a path in UTF-8");
    let seeds = if long_runs() { place.long } else { 1 };
    (1..=seeds).for_each(|seed| exercise(program, place, seed));
    println!("{}: {} operations by {seeds} seeds", place.directory, u64::from(seeds) * u64::from(place.operations));
}

#[test]
fn files_of_the_overlay_bear_exercise() {
    exercise_all(&OVERLAY);
}

#[test]
fn files_in_memory_bear_exercise() {
    exercise_all(&MEMORY);
}

#[test]
fn files_of_a_volume_bear_exercise() {
    exercise_all(&VOLUME);
}

#[test]
fn files_of_a_live_mount_bear_exercise() {
    exercise_all(&LIVE_MOUNT);
}

/// Places of one file under several processes, which read, write, map, truncate and replace it: the same order of operations by
/// a seed, natively and in a cell.
const SHARED_PLACES: [Place; 4] = [
    Place { directory: "/var/tmp", volume: None, operations: 20_000, long: 200 },
    Place { directory: "/dev/shm", volume: None, operations: 20_000, long: 200 },
    Place { directory: "/volume", volume: Some("copy"), operations: 4_000, long: 500 },
    Place { directory: "/volume", volume: Some("live"), operations: 4_000, long: 500 },
];

/// Runs one seed both ways, and compares the result of each operation, and the files at the end.
fn share(place: &Place, seed: u32) {
    let is_shown = place.volume.is_some();
    let volume = tempfile::tempdir().expect("a temporary directory");
    let native = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory");
    // The lower file system may be a volume: then every other seed starts with a file in it.
    let old = vec![b'v'; 10_000];
    for directory in [native.path(), volume.path()].into_iter().filter(|_| is_shown && seed.is_multiple_of(2)) {
        std::fs::write(directory.join("file"), &old).expect("the directory is ours");
    }
    let one_file = program("one_file", Linkage::GLIBC);
    let run = |directory: &str| Case::new(&one_file, &[directory, &seed.to_string(), &place.operations.to_string()]);
    let natively = run(&native.path().display().to_string()).native();
    assert_eq!(natively.status, 0, "seed {seed}: {}", text(&natively.output));
    let options = place.options(volume.path());
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let in_cell = run(place.directory).file(&one_file).options(&options);
    if let Err(problem) = in_cell.hold(&natively, &in_cell.cell()) {
        panic!("{}, seed {seed}: {problem}", place.directory);
    }
    if is_shown {
        let [ours, theirs] = [native.path(), volume.path()].map(|path| std::fs::read(path.join("file")).expect("it was written"));
        assert!(ours == theirs, "seed {seed}: the files of the host and the cell differ");
    }
}

#[test]
fn several_processes_share_one_file() {
    needs_kvm!();
    for place in &SHARED_PLACES {
        let Place { directory, operations, long, .. } = *place;
        let seeds = if long_runs() { long } else { 2 };
        (1..=seeds).for_each(|seed| share(place, seed));
        println!("{directory}: {operations} operations with {seeds} seeds");
    }
}
