// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of cells, and their effects on the host's files; above all those that must not happen.

use super::{FailureReason, WritableVolume, WriteBackReport, Writer};
use pando_abi::channel::{ExportedFile, Header, Kind, MAX_DATA, MAX_PATH, MAX_RECORD};
use rustix::fs::{FileType, Mode, OFlags, mknodat, open};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Records of a cell.
#[derive(Clone, Default)]
struct Records(Vec<u8>);

impl Records {
    fn record(mut self, kind: Kind, parts: &[&[u8]]) -> Records {
        let length = parts.iter().map(|part| part.len()).sum::<usize>() as u32;
        self.0.extend(Header { kind, length }.to_bytes());
        self.0.extend(parts.concat());
        self
    }

    fn entry(self, kind: Kind, entry: ExportedFile, path: &[u8], rest: &[u8]) -> Records {
        let entry = ExportedFile { path_length: path.len() as u32, ..entry };
        self.record(kind, &[&entry.to_bytes(), path, rest])
    }

    /// A whole file.
    fn file(self, path: impl AsRef<[u8]>, permissions: u32, bytes: &[u8]) -> Records {
        let entry = ExportedFile {
            permissions,
            size: bytes.len() as u64,
            modified_seconds: 1_000_000,
            modified_nanoseconds: 7,
            ..ExportedFile::default()
        };
        let mut records = self.entry(Kind::File, entry, path.as_ref(), b"");
        for (index, piece) in bytes.chunks(MAX_DATA).enumerate() {
            records = records.data((index * MAX_DATA) as u64, piece);
        }
        records.record(Kind::Close, &[])
    }

    fn data(self, offset: u64, bytes: &[u8]) -> Records {
        self.record(Kind::Data, &[&offset.to_le_bytes(), bytes])
    }

    fn directory(self, path: impl AsRef<[u8]>, permissions: u32) -> Records {
        self.entry(Kind::Directory, ExportedFile { permissions, ..ExportedFile::default() }, path.as_ref(), b"")
    }

    fn symlink(self, path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Records {
        self.entry(Kind::Symlink, ExportedFile::default(), path.as_ref(), target.as_ref())
    }

    fn remove(self, path: impl AsRef<[u8]>) -> Records {
        self.entry(Kind::Remove, ExportedFile::default(), path.as_ref(), b"")
    }

    fn sync(self) -> Records {
        self.record(Kind::Sync, &[])
    }
}

/// A directory that a cell may change, in one that it may not.
struct Host {
    outside: TempDir,
    export: PathBuf,
}

impl Host {
    fn new() -> Host {
        let outside = tempfile::tempdir().expect("a temporary directory");
        let export = outside.path().join("export");
        fs::create_dir(&export).expect("it was not there");
        fs::write(outside.path().join("secret"), "secret").expect("the directory is ours");
        Host { outside, export }
    }

    fn opened(path: &Path) -> std::os::fd::OwnedFd {
        open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("it is there")
    }

    /// Applies the records. Returns the answers and the report; `None` if a record is malformed.
    fn replies_to(&self, records: &Records) -> (Vec<u32>, Option<WriteBackReport>) {
        self.replies_with(vec![WritableVolume::Directory(Host::opened(&self.export))], records)
    }

    fn replies_with(&self, exports: Vec<WritableVolume>, records: &Records) -> (Vec<u32>, Option<WriteBackReport>) {
        self.replies_within(u64::MAX, exports, records)
    }

    /// Applies the records with this quota.
    fn replies_within(&self, quota: u64, exports: Vec<WritableVolume>, records: &Records) -> (Vec<u32>, Option<WriteBackReport>) {
        let mut writer = Writer::new(exports, Arc::default(), quota);
        let mut answers = Vec::new();
        let sense = writer.serve(
            &records.0[..],
            |answer| {
                answers.push(answer.errno);
                true
            },
            &mut (),
        );
        let report = std::mem::take(&mut writer.report);
        drop(writer);
        (answers, sense.ok().map(|()| report))
    }

    /// Expects that the records are applied without errors.
    fn assert_applied(&self, records: Records) {
        assert_eq!(self.replies_to(&records.sync()), (vec![0], Some(WriteBackReport::default())));
    }

    /// Expects that the records are refused with this error, for a path that contains these letters.
    fn assert_refused(&self, records: Records, errno: Errno, path: &str) {
        self.assert_reported(records, errno, path, FailureReason::Refused(errno));
    }

    /// Expects that the records are answered with this error, and reported once with this reason.
    fn assert_reported(&self, records: Records, errno: Errno, path: &str, why: FailureReason) {
        let (answers, report) = self.replies_to(&records.sync());
        assert_eq!(answers, [errno.raw_os_error().unsigned_abs()], "{report:?}");
        let report = report.expect("the words make sense");
        let [failed] = &report.failures[..] else { panic!("{report:?}") };
        assert!(report.failed == 1 && failed.path.contains(path) && failed.why == why, "{report:?}");
    }

    /// All files outside and inside, with their content.
    fn all(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        fn walk(directory: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
            for entry in fs::read_dir(directory).expect("it is ours") {
                let path = entry.expect("it is ours").path();
                let kind = fs::symlink_metadata(&path).expect("nobody removes it").file_type();
                let content = match kind {
                    _ if kind.is_symlink() => fs::read_link(&path).expect("it is a link").into_os_string().into_encoded_bytes(),
                    _ if kind.is_file() => fs::read(&path).expect("it is ours"),
                    _ => Vec::new(),
                };
                if kind.is_dir() {
                    walk(&path, found);
                }
                found.insert(path, content);
            }
        }
        let mut found = BTreeMap::new();
        walk(self.outside.path(), &mut found);
        found
    }

    fn names(&self) -> Vec<String> {
        let relative = |path: &Path| path.strip_prefix(&self.export).ok().map(|path| path.display().to_string());
        self.all().keys().filter_map(|path| relative(path)).filter(|name| !name.is_empty()).collect()
    }

    fn content(&self, name: &str) -> Vec<u8> {
        fs::read(self.export.join(name)).expect("it is there")
    }
}

#[test]
fn files_are_made_and_replaced() {
    let host = Host::new();
    fs::write(host.export.join("old"), "old").expect("the directory is ours");
    fs::set_permissions(host.export.join("old"), Permissions::from_mode(0o640)).expect("it is ours");
    let long: Vec<u8> = (0..3 * MAX_DATA as u32 + 5).map(|index| (index % 251) as u8).collect();
    host.assert_applied(Records::default().file("old", 0o755, b"new").file("made", 0o600, &long).file(b"\xff\n", 0o444, b""));
    assert_eq!((host.content("old"), host.content("made") == long), (b"new".to_vec(), true));
    let metadata = fs::metadata(host.export.join("old")).expect("it is there");
    assert_eq!((metadata.mode() & 0o7777, metadata.mtime(), metadata.mtime_nsec()), (0o755, 1_000_000, 7));
    assert_eq!(host.names().len(), 3);
}

#[test]
fn ranges_of_a_file_without_data_are_zero() {
    let host = Host::new();
    let entry = ExportedFile { permissions: 0o600, size: 10_000, ..ExportedFile::default() };
    host.assert_applied(
        Records::default().entry(Kind::File, entry, b"holes", b"").data(5000, b"middle").data(0, b"start").record(Kind::Close, &[]),
    );
    let found = host.content("holes");
    assert_eq!((found.len(), &found[..5], &found[5000..5006]), (10_000, &b"start"[..], &b"middle"[..]));
    assert_eq!(found.iter().filter(|byte| **byte != 0).count(), 11);
}

#[test]
fn a_file_that_is_not_complete_is_the_old_one() {
    let host = Host::new();
    host.assert_applied(Records::default().file("file", 0o600, b"old"));
    let before = host.all();
    let entry = ExportedFile { permissions: 0o600, size: 3, ..ExportedFile::default() };
    let begun = Records::default().entry(Kind::File, entry, b"file", b"").data(0, b"new");
    // The cell ends, asks, begins another, or ends within a record.
    host.assert_applied(begun.clone());
    host.assert_applied(begun.clone().remove("nothing"));
    for cut in [1, 20, begun.0.len() - 1] {
        assert!(host.replies_to(&Records(begun.0[..cut].to_vec())).1.is_some());
    }
    assert_eq!(host.all(), before);
    host.assert_refused(begun.data(1, b"too long").record(Kind::Close, &[]), Errno::FBIG, "file");
    assert_eq!(host.all(), before);
}

#[test]
fn directories_and_links_are_made_and_removed() {
    let host = Host::new();
    host.assert_applied(
        Records::default().directory("a", 0o750).directory("a/b", 0o700).file("a/b/c", 0o600, b"x").symlink("a/link", "../anywhere"),
    );
    assert_eq!(host.names(), ["a", "a/b", "a/b/c", "a/link"]);
    assert_eq!(fs::metadata(host.export.join("a")).expect("it is there").mode() & 0o7777, 0o750);
    assert_eq!(fs::read_link(host.export.join("a/link")).expect("it is a link"), Path::new("../anywhere"));
    // A link becomes another, then a file; what is there already only changes its attributes.
    host.assert_applied(Records::default().symlink("a/link", "x").directory("a", 0o700));
    assert_eq!(fs::read_link(host.export.join("a/link")).expect("it is a link"), Path::new("x"));
    host.assert_applied(Records::default().file("a/link", 0o600, b"file"));
    host.assert_refused(Records::default().remove("a"), Errno::NOTEMPTY, "a");
    host.assert_refused(Records::default().file("a", 0o600, b""), Errno::ISDIR, "a");
    host.assert_refused(Records::default().directory("a/link/x", 0o700), Errno::NOTDIR, "a/link/x");
    host.assert_applied(Records::default().remove("a/b/c").remove("a/b").remove("a/link").remove("a").remove("a"));
    assert_eq!(host.names(), [""; 0]);
}

#[test]
fn names_that_lead_out_of_the_export_are_refused() {
    let host = Host::new();
    let before = host.all();
    let outside = host.outside.path().join("secret").display().to_string();
    let long = "x".repeat(256);
    let names: [&[u8]; 16] = [
        b"",
        b".",
        b"..",
        b"/",
        b"../secret",
        b"a/../../secret",
        b"./x",
        b"x/",
        b"/x",
        b"a//b",
        b"a/..",
        b"x\0y",
        b"\0",
        outside.as_bytes(),
        long.as_bytes(),
        b"../export/x",
    ];
    for name in names {
        for records in [
            Records::default().file(name, 0o600, b"attack"),
            Records::default().directory(name, 0o700),
            Records::default().symlink(name, "x"),
            Records::default().remove(name),
        ] {
            let (answers, report) = host.replies_to(&records.sync());
            assert_eq!(
                (&answers[..], report.map(|report| report.failed)),
                (&[Errno::INVAL.raw_os_error().unsigned_abs()][..], Some(1)),
                "{name:?}"
            );
        }
    }
    assert_eq!(host.all(), before);
}

#[test]
fn links_are_never_followed() {
    let host = Host::new();
    symlink("..", host.export.join("up")).expect("it was not there");
    symlink(host.outside.path(), host.export.join("out")).expect("it was not there");
    symlink("../secret", host.export.join("secret")).expect("it was not there");
    symlink("/proc/self/cwd", host.export.join("magic")).expect("it was not there");
    for way in ["up", "out", "magic"] {
        let name = format!("{way}/secret");
        for records in
            [Records::default().file(&name, 0o600, b"attack"), Records::default().remove(&name), Records::default().directory(&name, 0o777)]
        {
            host.assert_refused(records, Errno::LOOP, &name);
        }
    }
    // A link planted by the cell itself is no better.
    host.assert_refused(
        Records::default().symlink("planted", "..").file("planted/secret", 0o600, b"attack"),
        Errno::LOOP,
        "planted/secret",
    );
    host.assert_refused(Records::default().directory("out", 0o777), Errno::NOTDIR, "out");
    // The link itself may be replaced, like any file.
    host.assert_applied(Records::default().file("secret", 0o600, b"mine").remove("out"));
    assert_eq!(fs::read(host.outside.path().join("secret")).expect("it is there"), b"secret");
    assert_eq!(host.content("secret"), b"mine");
    assert!(!fs::symlink_metadata(host.export.join("secret")).expect("it is there").is_symlink());
}

#[test]
fn cells_cannot_grant_special_permissions() {
    let host = Host::new();
    host.assert_reported(Records::default().file("suid", 0o6755, b"program"), Errno::PERM, "suid", FailureReason::WithoutSetId);
    assert_eq!(fs::metadata(host.export.join("suid")).expect("the file is there").mode() & 0o7777, 0o755);
    mknodat(Host::opened(&host.export), "pipe", FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("it was not there");
    host.assert_refused(Records::default().file("pipe", 0o600, b"x"), Errno::PERM, "pipe");
    host.assert_applied(Records::default().directory("shared", 0o7777));
    assert_eq!(fs::metadata(host.export.join("shared")).expect("it is there").mode() & 0o7777, 0o777);
    // Bits that the host has set stay.
    fs::set_permissions(host.export.join("shared"), Permissions::from_mode(0o3770)).expect("it is ours");
    host.assert_applied(Records::default().directory("shared", 0o755));
    assert_eq!(fs::metadata(host.export.join("shared")).expect("it is there").mode() & 0o7777, 0o3755);
}

#[test]
fn one_file_may_be_exported_alone() {
    let host = Host::new();
    fs::write(host.export.join("one"), "old").expect("the directory is ours");
    fs::write(host.export.join("other"), "other").expect("the directory is ours");
    let exports = || vec![WritableVolume::File { directory: Host::opened(&host.export), name: "one".into() }];
    let (answers, report) = host.replies_with(exports(), &Records::default().file("", 0o600, b"new").sync());
    assert_eq!((&answers[..], report), (&[0][..], Some(WriteBackReport::default())));
    for name in ["other", "one", ".", "..", "/"] {
        let (answers, _) = host.replies_with(exports(), &Records::default().file(name, 0o600, b"attack").remove(name).sync());
        assert_eq!(answers, [Errno::NOTDIR.raw_os_error().unsigned_abs()], "{name}");
    }
    assert_eq!((host.content("one"), host.content("other"), host.names().len()), (b"new".to_vec(), b"other".to_vec(), 2));
}

#[test]
fn changes_that_a_cell_cannot_send_are_reported() {
    let host = Host::new();
    host.assert_applied(Records::default().file("file", 0o600, b"old"));
    let before = host.all();
    let lost = |size: u64, path: &[u8]| {
        let begun =
            Records::default().entry(Kind::File, ExportedFile { permissions: 0o600, size: 3, ..ExportedFile::default() }, b"file", b"");
        begun.data(0, b"n").entry(Kind::Lost, ExportedFile { size, ..ExportedFile::default() }, path, b"").record(Kind::Close, &[])
    };
    host.assert_refused(lost(5, b"file"), Errno::IO, "file");
    for number in [0, 134, u64::from(u32::MAX), u64::MAX] {
        host.assert_refused(lost(number, &[b'x'; MAX_PATH]), Errno::INVAL, "xxx");
    }
    assert_eq!(host.all(), before);
}

#[test]
fn words_that_make_no_sense_end_it() {
    let host = Host::new();
    let word = |kind: u32, length: u32, body: &[u8]| Records([&kind.to_le_bytes()[..], &length.to_le_bytes(), body].concat());
    let lying = |path_length: u32| ExportedFile { path_length, ..ExportedFile::default() }.to_bytes();
    for records in [
        word(0, 0, b""),
        word(8, 0, b""),
        word(9, 0, b""),
        word(u32::MAX, u32::MAX, b""),
        word(Kind::Data as u32, MAX_RECORD as u32 + 1, b""),
        word(Kind::Data as u32, 7, &[0; 7]),
        word(Kind::File as u32, 0, b""),
        word(Kind::File as u32, 31, &[0; 31]),
        word(Kind::File as u32, 32, &lying(1)),
        word(Kind::Remove as u32, 32, &lying(u32::MAX)),
        word(Kind::Remove as u32, 33 + MAX_PATH as u32, &[&lying(MAX_PATH as u32 + 1)[..], &vec![b'x'; MAX_PATH + 1]].concat()),
    ] {
        assert_eq!(host.replies_to(&records), (vec![], None), "{:?}", &records.0[..8]);
    }
    let bad = [
        ExportedFile { export: 1, ..ExportedFile::default() },
        ExportedFile { modified_nanoseconds: 1_000_000_000, ..ExportedFile::default() },
    ];
    for entry in bad {
        host.assert_refused(Records::default().entry(Kind::Directory, entry, b"x", b""), Errno::INVAL, "x");
    }
    for target in [&b""[..], b"x\0y", &vec![b'x'; MAX_PATH + 1]] {
        host.assert_refused(Records::default().symlink("link", target), Errno::INVAL, "link");
    }
    assert_eq!(host.names(), [""; 0]);
}

#[test]
fn each_answer_covers_the_records_since_the_last() {
    let host = Host::new();
    let records = Records::default().remove("..").sync().file("good", 0o600, b"").sync().file("x/y", 0o600, b"").remove("..").sync();
    let number = |errno: Errno| errno.raw_os_error().unsigned_abs();
    let (answers, report) = host.replies_to(&records);
    assert_eq!(answers, [number(Errno::INVAL), 0, number(Errno::NOENT)]);
    assert_eq!(report.map(|report| (report.failed, report.failures.len())), Some((3, 3)));
    // Reported names are escaped, and bounded in number.
    let mut many = Records::default();
    for index in 0..100 {
        many = many.remove(format!("\x1b[31m/{index}/.."));
    }
    let report = host.replies_to(&many).1.expect("the words make sense");
    assert_eq!((report.failed, report.failures.len()), (100, 10));
    assert!(report.failures[0].path == "\\u{1b}[31m/0/..", "{report:?}");
}

/// Random bytes and damaged records: nothing outside changes, and only exported files exist.
#[test]
fn damaged_records_change_nothing_outside() {
    let seed = 4;
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..300 {
        let host = Host::new();
        symlink("..", host.export.join("up")).expect("it was not there");
        let good = Records::default()
            .directory("d", 0o700)
            .file("d/f", 0o644, b"content")
            .symlink("l", "d/f")
            .file("up/secret", 0o600, b"attack")
            .remove("d/f")
            .sync();
        let mut records = good.clone();
        for _ in 0..1 + random.usize(..8) {
            let at = random.usize(..records.0.len());
            match random.u8(..4) {
                0 => records.0[at] = random.u8(..),
                1 => records.0[at] ^= 1 << random.u8(..8),
                2 => drop(records.0.splice(at..at, *b"../")),
                _ => drop(records.0.drain(at..(at + 3).min(records.0.len()))),
            }
        }
        host.replies_to(&records);
        let outside: Vec<_> = host.all().into_iter().filter(|(path, _)| !path.starts_with(&host.export)).collect();
        assert_eq!(outside, [(host.outside.path().join("secret"), b"secret".to_vec())], "seed {seed}, round {round}");
        assert!(host.names().iter().all(|name| !name.contains(".pando-")), "seed {seed}, round {round}: {:?}", host.names());
    }
}

#[test]
fn only_leftovers_of_killed_processes_are_removed() {
    let host = Host::new();
    let root = &host.export;
    fs::create_dir_all(root.join("deep/er")).expect("the directory is ours");
    for name in [".pando-7-0", "deep/er/.pando-4194304-18"] {
        fs::write(root.join(name), "half").expect("the directory is ours");
    }
    let kept = [".pando-", ".pando-7", ".pando-7-", ".pando-7-x", ".pando-7-0-0", "pando-7-0", ".pando-8-1"];
    kept.iter().for_each(|name| fs::write(root.join(name), "kept").expect("the directory is ours"));
    symlink("somewhere", root.join(".pando-9-9")).expect("it was not there");
    // This one is being received.
    let received = fs::File::open(root.join(".pando-8-1")).expect("it was just written");
    received.lock().expect("the host has locks");
    WritableVolume::Directory(Host::opened(root)).remove_leftovers();
    assert!(!root.join(".pando-7-0").exists() && !root.join("deep/er/.pando-4194304-18").exists());
    assert!(kept.iter().all(|name| root.join(name).exists()) && root.join(".pando-9-9").is_symlink());
}

#[test]
fn a_quota_grows_only_by_what_was_removed() {
    const LARGE: u64 = 64 << 20;
    let sized = |records: Records, path: &str, size: u64| {
        records.entry(Kind::File, ExportedFile { permissions: 0o644, size, ..ExportedFile::default() }, path.as_bytes(), b"")
    };
    // The files of a host, of which the cell may replace one by a file of the same size.
    let begun = (0..3).fold(Records::default(), |records, _| sized(records, "large", 0));
    let over = (0..3).fold(Records::default(), |records, _| records.directory("large", 0o755).symlink("large", ""));
    for attempts in [Records::default(), begun, over] {
        let host = Host::new();
        fs::File::create(host.export.join("large")).and_then(|file| file.set_len(LARGE)).expect("it is ours");
        let exports = || vec![WritableVolume::Directory(Host::opened(&host.export))];
        let records = sized(attempts, "new", LARGE).record(Kind::Close, &[]);
        let report = host.replies_within(LARGE / 2, exports(), &records).1.expect("the records are well-formed");
        let last = report.failures.last().expect("it is larger than the quota");
        assert!(last.path == "new" && last.why == FailureReason::Refused(Errno::DQUOT), "{report:?}");
        assert!(!host.export.join("new").exists());
        // A file that is replaced by a smaller one leaves room; so does a removed one.
        for making_room in [Records::default().file("large", 0o644, b"small"), Records::default().remove("large")] {
            fs::File::create(host.export.join("large")).and_then(|file| file.set_len(LARGE)).expect("it is ours");
            let records = sized(making_room, "new", LARGE).record(Kind::Close, &[]);
            assert_eq!(host.replies_within(LARGE / 2, exports(), &records).1, Some(WriteBackReport::default()));
        }
    }
}
