// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file system exerciser: the same random operations by the same seed on one file, natively and in a cell; each verifies
//! its writes by reading back.
//!
//! One run stays below a process's limit of mappings: the exerciser never unmaps what it has read.

use crate::case::{Case, long_runs, text};
use crate::compile::{Linkage, program};
use crate::suites::ripgrep_and_sqlite::fetched;
use pando_testing::needs_kvm;

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
    operations: u32,
    long: u32,
}

const OVERLAY: Place = Place { directory: "/var/tmp", operations: 20_000, long: 600 };
const MEMORY: Place = Place { directory: "/dev/shm", operations: 20_000, long: 600 };
/// Each sync of this one writes the whole file to the host.
const VOLUME: Place = Place { directory: "/volume", operations: 600, long: 1000 };

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
    let shown = format!("{}:{}", volume.path().display(), VOLUME.directory);
    let in_cell = run(place.directory).file(program).file(&settings).options(&["-v", &shown]);
    let natively = run(&native.path().display().to_string()).native();
    assert_eq!(natively.status, 0, "seed {seed}: {}", text(&natively.output));
    if let Err(problem) = in_cell.hold(&natively, &in_cell.cell()) {
        panic!("seed {seed}: {problem}");
    }
    if place.directory == VOLUME.directory {
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

/// One file under several processes, which read, write, map, truncate and replace it: the same order of operations by a
/// seed, natively and in a cell.
struct Sharing {
    place: Place,
    /// The cell's directory is a volume of the host.
    is_shown: bool,
}

const SHARED_PLACES: [Sharing; 3] = [
    Sharing { place: Place { directory: "/var/tmp", operations: 20_000, long: 200 }, is_shown: false },
    Sharing { place: Place { directory: "/dev/shm", operations: 20_000, long: 200 }, is_shown: false },
    Sharing { place: Place { directory: "/volume", operations: 4_000, long: 500 }, is_shown: true },
];

/// Runs one seed both ways, and compares the result of each operation, and the files at the end.
fn share(Sharing { place, is_shown }: &Sharing, seed: u32) {
    let volume = tempfile::tempdir().expect("a temporary directory");
    let native = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory");
    // The lower file system may be a volume: then every other seed starts with a file in it.
    let old = vec![b'v'; 10_000];
    for directory in [native.path(), volume.path()].into_iter().filter(|_| *is_shown && seed.is_multiple_of(2)) {
        std::fs::write(directory.join("file"), &old).expect("the directory is ours");
    }
    let one_file = program("one_file", Linkage::GLIBC);
    let run = |directory: &str| Case::new(&one_file, &[directory, &seed.to_string(), &place.operations.to_string()]);
    let natively = run(&native.path().display().to_string()).native();
    assert_eq!(natively.status, 0, "seed {seed}: {}", text(&natively.output));
    let shown = format!("{}:{}", volume.path().display(), place.directory);
    let options: &[&str] = if *is_shown { &["-v", &shown] } else { &[] };
    let in_cell = run(place.directory).file(&one_file).options(options);
    if let Err(problem) = in_cell.hold(&natively, &in_cell.cell()) {
        panic!("{}, seed {seed}: {problem}", place.directory);
    }
    if *is_shown {
        let [ours, theirs] = [native.path(), volume.path()].map(|path| std::fs::read(path.join("file")).expect("it was written"));
        assert!(ours == theirs, "seed {seed}: the files of the host and the cell differ");
    }
}

#[test]
fn several_processes_share_one_file() {
    needs_kvm!();
    for sharing in &SHARED_PLACES {
        let Place { directory, operations, long } = sharing.place;
        let seeds = if long_runs() { long } else { 2 };
        (1..=seeds).for_each(|seed| share(sharing, seed));
        println!("{directory}: {operations} operations with {seeds} seeds");
    }
}
