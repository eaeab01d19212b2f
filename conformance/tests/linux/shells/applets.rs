// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every applet of busybox that needs neither another process nor the network, on a root of its own: in a cell and in a chroot.
//!
//! `applets.txt` lists the runs of each, or why it is left out.

use crate::case::{Case, CaseOutcome, Input, succeed};
use crate::chroot::ChrootDirectory;
use pando_testing::host_program;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::SystemTime;

const BUSYBOX: &str = "/bin/busybox";
const TABLE: &str = include_str!("applets.txt");
/// The number of runs in parallel.
const WORKERS: usize = 3;

/// The kind of an applet's line in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Reads,
    Changes,
    LeftOut,
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    applet: &'a str,
    kind: Kind,
    rest: &'a str,
}

impl<'a> Line<'a> {
    fn new(line: &'a str) -> Line<'a> {
        let (applet, rest) = line.split_once(' ').expect("an applet and more");
        let kind = match rest.as_bytes()[0] {
            b'=' => Kind::Reads,
            b'+' => Kind::Changes,
            b'-' => Kind::LeftOut,
            _ => panic!("{line}: unknown kind of line"),
        };
        Line { applet, kind, rest: rest[1..].trim_matches(' ') }
    }

    /// Parses a command line: its words, and the file of the root that it reads.
    fn words(&self) -> (Vec<String>, Option<&'a str>) {
        let (line, input) = match self.rest.rsplit_once("< ") {
            Some((line, input)) if !input.contains('\'') => (line, Some(input)),
            _ => (self.rest, None),
        };
        let mut words = vec![self.applet.to_owned()];
        let mut quoted = false;
        let mut word = None;
        for letter in line.chars() {
            match letter {
                '\'' => {
                    quoted = !quoted;
                    word.get_or_insert_default();
                }
                ' ' if !quoted => words.extend(word.take()),
                _ => String::push(word.get_or_insert_default(), letter),
            }
        }
        assert!(!quoted, "{}: unterminated quote", self.rest);
        words.extend(word);
        (words, input)
    }
}

/// Parses the lines of the table; quotes may span several.
fn lines() -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut rest = TABLE;
    while !rest.is_empty() {
        let comment = rest.starts_with('#');
        let words = !comment && rest.split(' ').nth(1) != Some("-");
        let ends = |&(at, _): &(usize, &str)| !words || rest[..at].matches('\'').count().is_multiple_of(2);
        let end = rest.match_indices('\n').find(ends).expect("the table ends its lines").0;
        if !comment && end > 0 {
            lines.push(Line::new(&rest[..end]));
        }
        rest = &rest[end + 1..];
    }
    lines
}

/// The properties of a file on the host.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    /// The mode with its permissions. Set-user-ID bits and owners are not exported to the host, and two hard links become two files.
    mode: u32,
    /// The modification time; `None` for files that this test has just changed, and for directories: replacing a file
    /// changes its directory.
    modified: Option<(i64, i64)>,
    /// The content of a file, or the target of a link.
    content: Vec<u8>,
}

/// Lists all files below a directory, without the directory itself; files changed after `start` have no time.
fn survey(top: &Path, start: SystemTime) -> BTreeMap<PathBuf, Entry> {
    let start = start.duration_since(SystemTime::UNIX_EPOCH).expect("it is later").as_secs() as i64;
    let mut found = BTreeMap::new();
    let mut pending = vec![top.to_path_buf()];
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).expect("it was listed");
        let content = match metadata.file_type() {
            kind if kind.is_symlink() => fs::read_link(&path).expect("it is a link").as_os_str().as_bytes().to_vec(),
            kind if kind.is_file() => fs::read(&path).expect("it can be read"),
            kind if kind.is_dir() => {
                pending.extend(fs::read_dir(&path).expect("it is a directory").map(|entry| entry.expect("it can be read").path()));
                Vec::new()
            }
            // Devices, FIFOs and sockets are not exported.
            _ => continue,
        };
        let entry = Entry {
            mode: metadata.mode() & !0o7000,
            modified: (!metadata.is_dir() && metadata.mtime() < start).then_some((metadata.mtime(), metadata.mtime_nsec())),
            content,
        };
        found.insert(path.strip_prefix(top).expect("it lies below").to_path_buf(), entry);
    }
    found.remove(Path::new(""));
    found
}

/// Creates the files that the changing lines of the table modify.
const WORK: &str = r#"
cd "$0"
mkdir -p sub/deep empty chain/of/directories
cp "$1/data/short" short; cp "$1/data/text" text; cp "$1/data/dos" dos
cp "$1/data/packed/text.gzip" packed.gz; cp "$1/data/packed/text.bzip2" copied.bz2
echo one > f1; echo two > f2; echo x > sub/x; echo y > sub/deep/y
ln -s text link; ln f2 hardlink; chmod 640 f1; chown 3:4 f2
find . -exec touch -h -d '2015-05-05 05:05:05.5' {} +
"#;

/// Runs a line of the table; returns the files that it leaves.
fn run(root: &ChrootDirectory, line: Line<'_>, in_cell: bool) -> (Case<'static>, CaseOutcome, BTreeMap<PathBuf, Entry>) {
    let (words, input) = line.words();
    let case = Case::new(BUSYBOX, &words);
    let file = input.map(|name| root.tree.join(name.trim_start_matches('/')));
    let fed = match &file {
        Some(path) => case.clone().input(Input::File(path)),
        None => case.clone(),
    };
    let go = |start: &str, work| if in_cell { root.cell(&fed, start, work) } else { root.native(&fed, start, work) };
    if line.kind == Kind::Reads {
        return (case, go("/", None), BTreeMap::new());
    }
    let work = tempfile::tempdir().expect("a temporary directory");
    let mut fill = Command::new(host_program("sh"));
    fill.args(["-ec", WORK]).args([work.path(), &root.tree]);
    succeed(fill);
    let start = SystemTime::now();
    let outcome = go("/work", Some(work.path()));
    (case, outcome, survey(work.path(), start))
}

/// Compares a cell with the host; describes the first difference.
fn problem(root: &ChrootDirectory, line: Line<'_>) -> Option<String> {
    let [(case, native, left), (_, cell, left_by_cell)] = [false, true].map(|in_cell| run(root, line, in_cell));
    if let Err(text) = case.hold(&native, &cell) {
        return Some(text);
    }
    let differs = |path: &&PathBuf| left.get(*path) != left_by_cell.get(*path);
    let path = left.keys().chain(left_by_cell.keys()).find(differs)?;
    let shown = |entry: Option<&Entry>| {
        let Some(Entry { mode, modified, content }) = entry else { return "nothing".into() };
        let start = String::from_utf8_lossy(&content[..content.len().min(60)]);
        format!("mode {mode:o}, {modified:?}: {start:?}")
    };
    let sides = format!("native: {}\n  cell:   {}", shown(left.get(path)), shown(left_by_cell.get(path)));
    Some(format!("`{} {}` leaves another {} in a cell:\n  {sides}\n", line.applet, line.rest, path.display()))
}

/// Runs these lines both ways, some in parallel.
fn check(kind: Kind) {
    let Some(root) = ChrootDirectory::get() else { return };
    let queue = Mutex::new(lines().into_iter().filter(|line| line.kind == kind).collect::<Vec<_>>().into_iter());
    let next = || queue.lock().expect("nobody panics with it").next();
    let work = || std::iter::from_fn(next).filter_map(|line| problem(root, line)).collect::<Vec<_>>();
    let problems: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("its lines can be run")).collect()
    });
    assert!(problems.is_empty(), "{} differ:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn every_applet_has_its_place_in_the_table() {
    let output = Command::new(host_program("busybox")).arg("--list").output().expect("busybox is there");
    let output = String::from_utf8(output.stdout).expect("names are text");
    let listed: BTreeSet<&str> = output.lines().collect();
    let lines = lines();
    let known: BTreeSet<&str> = lines.iter().map(|line| line.applet).collect();
    assert_eq!(listed.difference(&known).collect::<Vec<_>>(), [&""; 0], "applets without a line");
    let reasons = lines.iter().filter(|line| line.kind == Kind::LeftOut);
    assert!(reasons.clone().all(|line| line.rest.len() > 5), "a reason is missing");
}

#[test]
fn applets_that_read() {
    check(Kind::Reads);
}

#[test]
fn applets_that_change_files() {
    check(Kind::Changes);
}

/// The entries of a listing without those that a cell generates itself: /dev, /proc and /sys, and the root with them and /work.
fn without_own(listing: &[u8]) -> Vec<String> {
    let listing = String::from_utf8_lossy(listing);
    let own = |section: &str| {
        let name = section.lines().next().unwrap_or_default().trim_end_matches(':');
        name == "/" || ["/dev", "/proc", "/sys"].iter().any(|top| name == *top || name.starts_with(&format!("{top}/")))
    };
    listing.split("\n\n").filter(|section| !own(section)).map(str::to_owned).collect()
}

#[test]
fn the_whole_root_is_listed() {
    let Some(root) = ChrootDirectory::get() else { return };
    let case = Case::new("/bin/busybox", &["ls", "-lnR", "--full-time", "/"]);
    let [native, cell] = [root.native(&case, "/", None), root.cell(&case, "/", None)].map(|outcome| without_own(&outcome.output));
    assert!(native.len() > 20 && native.iter().any(|section| section.starts_with("/odd/many:")), "{native:?}");
    for (native, cell) in native.iter().zip(&cell) {
        assert_eq!(native, cell);
    }
    assert_eq!(native.len(), cell.len());
    let top = Case::new("/bin/busybox", &["ls", "-a", "/"]);
    assert_eq!(root.native(&top, "/", None), root.cell(&top, "/", None));
}
