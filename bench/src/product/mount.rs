// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bind-read`, `bind-write`: programs that work on a live mount, and the same on the host. The time is that of the work, without the
//! start of the cell: a shell reads the clock before and after it.

use super::Fixture;
use crate::program::number;
use crate::sample::{Side, alternate};
use crate::{BenchError, Row};
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// Files in each directory of the trees.
const IN_DIRECTORY: usize = 50;
/// Reads all files of the current directory.
const READ: &str = "s=$(date +%s%N); find . -type f -exec cat {} + >/dev/null; e=$(date +%s%N); echo $((e - s))";
/// Unpacks an archive into a new directory.
const WRITE: &str = "rm -rf new; mkdir new; s=$(date +%s%N); tar -xf \"$0\" -C new; e=$(date +%s%N); echo $((e - s))";
/// The path of the archive in cells.
const ARCHIVE: &str = "/archive.tar";

/// `bind-read`.
pub(super) fn read(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let files = fixture.size(10_000, 100);
    let tree = fixture.directory.join("tree");
    write_tree(&tree, files).map_err(BenchError::host("write a tree of files"))?;
    let pairs = alternate(fixture.size(3, 1), |side| shell(fixture, side, &tree, &[], &[READ]))?;
    let note = format!("find and cat of {files} files in a live mount");
    report(Row::pairs("bind-read", "the same on the host", &pairs).noting(note));
    Ok(())
}

/// `bind-write`.
pub(super) fn write(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let files = fixture.size(1_500, 100);
    let (source, tree) = (fixture.directory.join("source"), fixture.directory.join("tree"));
    write_tree(&source, files).and_then(|()| fs::create_dir(&tree)).map_err(BenchError::host("write a tree of files"))?;
    let archive = fixture.directory.join("archive.tar");
    let packed = Command::new("tar").arg("-C").arg(&source).arg("-cf").arg(&archive).arg(".").status();
    if !packed.map_err(BenchError::host("start tar"))?.success() {
        return Err(BenchError::Failed("tar of a tree of files".into()));
    }
    let archive = archive.display().to_string();
    let volume = format!("{archive}:{ARCHIVE}:ro");
    let pairs = alternate(fixture.size(3, 1), |side| match side {
        Side::Ours => shell(fixture, side, &tree, &["-v", &volume], &[WRITE, ARCHIVE]),
        Side::Theirs => shell(fixture, side, &tree, &[], &[WRITE, &archive]),
    })?;
    let note = format!("tar -x of a tree of {files} files into a live mount");
    report(Row::pairs("bind-write", "the same on the host", &pairs).noting(note));
    Ok(())
}

/// Runs a script of the shell in this directory, in a cell or on the host. Returns the number that it prints.
fn shell(fixture: &Fixture<'_>, side: Side, directory: &Path, options: &[&str], words: &[&str]) -> Result<f64, BenchError> {
    let mut command = match side {
        Side::Ours => {
            let mut command = crate::service::command(fixture.pando, fixture.directory);
            command
                .args(["run", "-v", &format!("{}:/work:live", directory.display()), "-w", "/work"])
                .args(options)
                .args(["--", "sh", "-c"]);
            command
        }
        Side::Theirs => {
            let mut command = Command::new("sh");
            command.arg("-c").current_dir(directory).stdin(Stdio::null());
            command
        }
    };
    let output = command.args(words).output().map_err(BenchError::host("start a program to measure"))?;
    match number(&String::from_utf8_lossy(&output.stdout)) {
        Ok(nanos) if output.status.success() => Ok(nanos),
        _ => Err(BenchError::Failed(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)))),
    }
}

/// Writes files of one to twenty lines of KiB in directories, like those of a program's source.
pub(super) fn write_tree(tree: &Path, files: usize) -> io::Result<()> {
    let line = "A line of a file in a tree, like those of a program's source.\n".repeat(16);
    for number in 0..files {
        let directory = tree.join(format!("directory-{}", number / IN_DIRECTORY));
        if number % IN_DIRECTORY == 0 {
            fs::create_dir_all(&directory)?;
        }
        fs::write(directory.join(format!("file-{number}")), line.repeat(1 + number * 7 % 20))?;
    }
    Ok(())
}
