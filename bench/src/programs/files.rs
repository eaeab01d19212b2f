// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that read many files or much data, or write a database: git, tar, sort, sqlite.

use super::Fixture;
use super::comparison::Comparison;
use crate::lines::write_lines;
use crate::process_runs::{PYTHON, needs};
use crate::{BenchError, Row};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// Files in each directory of the tree.
const IN_DIRECTORY: usize = 50;
/// The age of the tree's files.
const AGE: Duration = Duration::from_secs(3600);
/// The archived directory, and that of a brief run.
const DOCUMENTS: [&str; 2] = ["/usr/share/doc", "/usr/share/dpkg"];
const INSERTS: &str = include_str!("sources/sqlite_inserts.py");

/// `git-status`: in a committed tree without changes.
pub(super) fn git_status(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs("git", "git (Debian: git)")?;
    let tree = fixture.directory.join("tree");
    let files = fixture.size(5000, 100);
    write_tree(&tree, files).map_err(BenchError::host("write a tree of files"))?;
    let identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
    for arguments in [&["init", "--quiet"][..], &["add", "--all"], &["commit", "--quiet", "--message", "Add the files"], &["status"]] {
        let done =
            Command::new("git").args(identity).args(arguments).current_dir(&tree).stdin(Stdio::null()).stdout(Stdio::null()).status();
        if !done.map_err(BenchError::host("start git"))?.success() {
            return Err(BenchError::Failed(format!("git {arguments:?}")));
        }
    }
    // In the cell the tree belongs to another user, unless root measures.
    let argv = ["git", "-c", "safe.directory=*", "status"];
    let note = format!("git status in the current directory, a tree of {files} committed files");
    Comparison::new("git-status", &argv, note).current_dir(&tree).measure(fixture, 10, report)
}

/// `tar-small`: many small files. GNU tar reads no file whose archive goes to /dev/null, so it writes into a pipe.
pub(super) fn tar(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs("tar", "tar (Debian: tar)")?;
    let directory = DOCUMENTS[usize::from(fixture.options.brief)];
    // The order of a directory differs between file systems.
    let archive = format!("tar --sort=name -cf - -C / {}", directory.trim_start_matches('/'));
    let [measured, check] = ["cat >/dev/null", "sha256sum"].map(|reader| format!("{archive} | {reader}"));
    Comparison::new("tar-small", &["sh", "-c", &measured], format!("tar of {directory} into a pipe to cat"))
        .checked_by(&["sh", "-c", &check])
        .measure(fixture, 5, report)
}

/// `sort-50m`.
pub(super) fn sort(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs("sort", "sort (Debian: coreutils)")?;
    let megabytes = fixture.size(50, 1);
    let file = fixture.write("lines", "")?;
    write_lines(Path::new(&file), megabytes * 1_000_000).map_err(BenchError::host("write a file to sort"))?;
    let note = format!("sort of {megabytes} MB of lines, output to /dev/null");
    Comparison::new("sort-50m", &["sort", &file], note).read_only_volume(&file).measure(fixture, 3, report)
}

/// `sqlite-inserts`, and the same as sqlite writes by default: there the host waits for its disk, and a cell's `/tmp` has none.
pub(super) fn sqlite(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs(PYTHON, "/usr/bin/python3 (Debian: python3)")?;
    let (transactions, rows) = (fixture.size(200, 5), fixture.size(500, 20));
    for (name, mode) in [("sqlite-inserts", "OFF"), ("sqlite-inserts-synced", "FULL")] {
        let argv = [PYTHON, "-c", INSERTS, &transactions.to_string(), &rows.to_string(), mode];
        let note = format!("Python's sqlite3: {transactions} transactions of {rows} inserts into a file in /tmp, synchronous = {mode}");
        Comparison::new(name, &argv, note).measure(fixture, 5, report)?;
    }
    Ok(())
}

/// Writes small files in directories. They are older than an index that is written next: git reads files as young as its index again.
fn write_tree(tree: &Path, files: usize) -> io::Result<()> {
    let modified = SystemTime::now() - AGE;
    for number in 0..files {
        let directory = tree.join(format!("directory-{}", number / IN_DIRECTORY));
        fs::create_dir_all(&directory)?;
        let mut file = fs::File::create(directory.join(format!("file-{number}")))?;
        file.write_all(format!("This is file {number}.\n").repeat(20).as_bytes())?;
        file.set_modified(modified)?;
    }
    Ok(())
}
