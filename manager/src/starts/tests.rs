// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of every kind, also those that lie.

use super::record::{Origin, RECORD_BYTES, Record};
use super::{ProgramStart, WORTH_LEARNING, common_key, file_name};
use pando_abi::{BlockNumber, DiskIndex};
use pando_kernel::limits::{START_BLOCKS, START_TABLES};
use pando_kernel::{StartMode, StartTrace};
use pando_launch::{Program, VolumeStart};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const IMAGES: [u64; 2] = [11, 22];

fn program(arguments: &[&str]) -> Program {
    let arguments = arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect();
    Program { path: b"/opt/tool".to_vec(), directory: b"/work".to_vec(), arguments, ..Program::default() }
}

/// Ranges from their ends.
fn ranges(ends: &[(u32, u32)]) -> Vec<Range<u32>> {
    ends.iter().map(|(start, end)| *start..*end).collect()
}

/// A learned start that accesses these blocks of the first volume, and one of the second.
fn learned(blocks: &[(u32, u32)]) -> StartTrace {
    let blocks = ranges(blocks).into_iter().map(|range| (DiskIndex(0), BlockNumber(range.start)..BlockNumber(range.end)));
    let other = (DiskIndex(1), BlockNumber(7)..BlockNumber(8));
    StartTrace { blocks: blocks.chain([other]).collect(), ..StartTrace::new(StartMode::Record) }
}

fn followed(misses: u64) -> StartTrace {
    StartTrace { misses, ..StartTrace::new(StartMode::Prefetched) }
}

fn open(cache: &Path, arguments: &[&str]) -> ProgramStart {
    ProgramStart::open(Some(cache), &program(arguments), IMAGES.to_vec())
}

fn expected(start: &ProgramStart) -> (StartMode, Vec<Range<u32>>) {
    (start.mode().expect("there is a cache"), start.starts()[0].blocks.clone())
}

fn file(cache: &Path) -> PathBuf {
    cache.join("starts").join(file_name(&common_key(&program(&["tool"]))))
}

fn record(blocks: Vec<Range<u32>>, spans: Vec<u32>) -> Record {
    let origin = Origin::Common { commands: vec![Vec::new(); 3] };
    Record::new(common_key(&program(&["tool"])), origin, &IMAGES, &[VolumeStart { blocks, spans }, VolumeStart::default()])
}

#[test]
fn a_start_is_learned_once_and_then_followed() {
    let cache = TempDir::new().expect("a directory");
    let first = open(cache.path(), &["tool"]);
    assert_eq!(expected(&first), (StartMode::Record, vec![]), "there is no record yet");
    first.update(&learned(&[(100, 102), (110, 120)]));
    let second = open(cache.path(), &["tool"]);
    assert_eq!(expected(&second), (StartMode::Prefetched, ranges(&[(100, 102), (110, 120)])));
    assert_eq!(second.starts()[1].blocks, ranges(&[(7, 8)]));
    second.update(&followed(WORTH_LEARNING - 1));
    assert_eq!(expected(&open(cache.path(), &["tool"])).0, StartMode::Prefetched);
}

#[test]
fn commands_of_a_program_share_what_they_have_in_common() {
    let cache = TempDir::new().expect("a directory");
    open(cache.path(), &["tool", "-a"]).update(&learned(&[(100, 120)]));
    let other = open(cache.path(), &["tool", "-b"]);
    assert_eq!(expected(&other), (StartMode::Record, ranges(&[(100, 120)])), "the first commands are learned");
    other.update(&learned(&[(100, 110), (200, 210)]));
    assert_eq!(expected(&open(cache.path(), &["tool", "-c"])), (StartMode::Record, ranges(&[(100, 110)])));
    open(cache.path(), &["tool", "-c"]).update(&learned(&[(90, 115)]));
    // From now on the common record suffices for most commands. One that misses much gets its own.
    let command = || open(cache.path(), &["tool", "-d"]);
    assert_eq!(expected(&command()), (StartMode::Prefetched, ranges(&[(100, 110)])));
    command().update(&followed(WORTH_LEARNING));
    assert_eq!(expected(&command()), (StartMode::Record, ranges(&[(100, 110)])));
    command().update(&learned(&[(300, 310)]));
    assert_eq!(expected(&command()), (StartMode::Prefetched, ranges(&[(300, 310)])));
    // It misses again, because its accesses vary.
    command().update(&followed(100));
    assert_eq!(expected(&command()), (StartMode::Record, ranges(&[(300, 310)])));
    command().update(&learned(&[(305, 320)]));
    assert_eq!(expected(&command()), (StartMode::Prefetched, ranges(&[(300, 320)])));
    assert_eq!(expected(&open(cache.path(), &["tool", "-e"])), (StartMode::Prefetched, ranges(&[(100, 110)])), "others are not concerned");
    // A large record is not extended any more.
    command().update(&followed(100));
    command().update(&learned(&[(1000, 3000)]));
    command().update(&followed(100));
    assert_eq!(expected(&command()).0, StartMode::Prefetched);
}

#[test]
fn scripts_are_programs_of_their_own() {
    let keys = [&["tool"][..], &["tool", "a.py"], &["tool", "b.py"]].map(|arguments| common_key(&program(arguments)));
    assert!(keys[0] != keys[1] && keys[1] != keys[2]);
    assert_eq!(keys[0], common_key(&program(&["tool", "-c", "print(1)"])));
    assert_eq!(keys[1], common_key(&program(&["tool", "a.py", "more"])));
    let elsewhere = Program { directory: b"/other".to_vec(), ..program(&["tool", "a.py"]) };
    assert_ne!(keys[1], common_key(&elsewhere), "another directory has another script");
    let cache = TempDir::new().expect("a directory");
    // The file of one program may hold the record of another, whose hash is the same.
    Record { key: b"other".to_vec(), ..record(ranges(&[(1, 9)]), vec![]) }.write(&file(cache.path()));
    assert_eq!(expected(&open(cache.path(), &["tool"])), (StartMode::Record, vec![]));
}

#[test]
fn a_record_of_a_changed_image_does_not_count() {
    let cache = TempDir::new().expect("a directory");
    open(cache.path(), &["tool"]).update(&learned(&[(100, 108)]));
    let with = |images: Vec<u64>| ProgramStart::open(Some(cache.path()), &program(&["tool"]), images);
    let other_volume = with(vec![11, 33]);
    assert_eq!(expected(&other_volume), (StartMode::Prefetched, ranges(&[(100, 108)])));
    assert!(other_volume.starts()[1].is_empty());
    let other_root = with(vec![33, 22]);
    assert_eq!(expected(&other_root), (StartMode::Record, vec![]));
    assert!(other_root.starts()[1].is_empty());
}

#[test]
fn truncated_damaged_oversized_and_foreign_files_do_not_count() {
    let cache = TempDir::new().expect("a directory");
    open(cache.path(), &["tool"]).update(&learned(&[(100, 108)]));
    let path = file(cache.path());
    let good = std::fs::read(&path).expect("it was written");
    let is_used = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("it can be written");
        !open(cache.path(), &["tool"]).starts()[0].is_empty()
    };
    assert!(is_used(&good));
    for length in 0..good.len() {
        assert!(!is_used(&good[..length]), "truncated to {length}");
    }
    for position in 0..good.len() {
        let mut bad = good.clone();
        bad[position] ^= 1 << (position % 8);
        assert!(!is_used(&bad), "a bit of byte {position} has changed");
    }
    let mut foreign = good.clone();
    foreign[14] = b'2';
    assert!(!is_used(&foreign), "another version");
    assert!(!is_used(&[&good[..], &vec![0; RECORD_BYTES]].concat()), "oversized");
    assert!(is_used(&good));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("it is ours");
    assert!(open(cache.path(), &["tool"]).starts()[0].is_empty(), "everybody could have written it");
}

#[test]
fn a_wrong_record_is_bounded() {
    let decoded = |record: &Record| record.encode().and_then(|bytes| Record::decode(&bytes)).is_some();
    let most = START_BLOCKS as u32;
    assert!(decoded(&record(ranges(&[(0, most)]), vec![])));
    assert!(!decoded(&record(ranges(&[(0, most), (9_000_000, 9_000_001)]), vec![])), "too many blocks");
    assert!(!decoded(&record(ranges(&[(0, u32::MAX), (0, u32::MAX)]), vec![])));
    assert!(decoded(&record(ranges(&[(9, 3), (u32::MAX, 0)]), vec![u32::MAX])), "empty ranges are ignored, and unknown spans later");
    assert!(!decoded(&record(vec![], (0..=START_TABLES as u32).collect())), "too many tables");
    assert!(!decoded(&record(ranges(&[(1, 2); RECORD_BYTES]), vec![])), "too many bytes");
}

#[test]
fn a_record_that_has_grown_too_large_begins_anew() {
    let cache = TempDir::new().expect("a directory");
    record(vec![], vec![]).write(&file(cache.path()));
    let command = || open(cache.path(), &["tool"]);
    command().update(&followed(100));
    command().update(&learned(&[(1000, 1000 + START_BLOCKS as u32 - 1)]));
    command().update(&followed(100));
    command().update(&learned(&[(100, 200)]));
    assert_eq!(expected(&command()), (StartMode::Prefetched, ranges(&[(100, 200)])));
}

#[test]
fn without_a_writable_cache_nothing_is_remembered() {
    let start = ProgramStart::open(None, &program(&["tool"]), IMAGES.to_vec());
    assert!(start.mode().is_none() && start.starts().iter().all(VolumeStart::is_empty));
    start.update(&learned(&[(1, 2)]));
    let missing = Path::new("/proc/no-such-directory");
    open(missing, &["tool"]).update(&learned(&[(1, 2)]));
    assert_eq!(expected(&open(missing, &["tool"])), (StartMode::Record, vec![]));
}
