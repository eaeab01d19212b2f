// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cpu-busybox`, `ls-lR` and `grep`: busybox in a cell and on the host, as whole processes.

use crate::lines::write_lines;
use crate::process_runs::{BUSYBOX, WorkDirectory, compare};
use crate::{BenchError, BenchOptions, Row};
use std::fs;
use std::path::Path;

/// The number of bytes that are hashed, compressed and sorted.
const BYTES: usize = 100 << 20;
/// The number of searched files, and the bytes of each: 1 GiB in total.
const FILES: usize = 4096;
const FILE_BYTES: usize = 256 << 10;
/// The factor by which a brief run does less.
const BRIEF: usize = 64;
/// A word in no file, so that a search reads all of them.
const ABSENT: &str = "Zyzzogeton";
/// The file of lines: its name in the temporary directory, and its path in cells.
const LINES: &str = "lines";
const SHOWN: &str = "/lines";

/// Measures the three rows, and the worst of them.
pub(super) fn compute(
    options: BenchOptions<'_>,
    place: &WorkDirectory<'_>,
    directory: &Path,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    let bytes = if options.brief { BYTES / BRIEF } else { BYTES };
    let file = directory.join(LINES);
    write_lines(&file, bytes).map_err(BenchError::host("write a file to compute on"))?;
    let volume = format!("{}:{SHOWN}:ro", file.display());
    let theirs = file.display().to_string();
    let jobs: [(&str, &[&str]); 3] =
        [("cpu-busybox-sha256sum", &["sha256sum"]), ("cpu-busybox-gzip", &["gzip", "-c"]), ("cpu-busybox-sort", &["sort"])];
    let mut worst: Option<Row> = None;
    for (name, job) in jobs {
        let ours = place.cell(&["-v", &volume], BUSYBOX, &[job, &[SHOWN]].concat());
        let theirs = place.native(BUSYBOX, &[job, &[theirs.as_str()]].concat());
        let row = Row::pairs(name, "the same on the host", &compare(options.rounds(3), &[0], ours, theirs)?);
        report(row.clone());
        if worst.as_ref().is_none_or(|worst| row.ratio > worst.ratio) {
            worst = Some(row);
        }
    }
    fs::remove_file(&file).map_err(BenchError::host("remove a file"))?;
    worst.into_iter().for_each(|row| report(Row { name: "cpu-busybox", ..row }.noting("the worst of the three")));
    Ok(())
}

/// Measures the rows with many files.
pub(super) fn search(
    options: BenchOptions<'_>,
    place: &WorkDirectory<'_>,
    directory: &Path,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    let listed = if options.brief { "/usr/lib" } else { "/usr" };
    let list = ["ls", "-lR", listed];
    let pairs = compare(options.rounds(3), &[0], place.cell(&[], BUSYBOX, &list), place.native(BUSYBOX, &list))?;
    report(Row::pairs("ls-lR", "the same on the host", &pairs).noting(format!("of {listed}")));

    let many = directory.join("many");
    let files = if options.brief { FILES / BRIEF } else { FILES };
    write_files(&many, files).map_err(BenchError::host("write files to search"))?;
    let volume = format!("{}:/many:ro", many.display());
    let theirs = many.display().to_string();
    let ours = place.cell(&["-v", &volume], BUSYBOX, &["grep", "-r", ABSENT, "/many"]);
    let theirs = place.native(BUSYBOX, &["grep", "-r", ABSENT, &theirs]);
    // A search without matches exits with 1.
    let pairs = compare(options.rounds(1), &[1], ours, theirs)?;
    report(
        Row::pairs("grep", "the same on the host", &pairs)
            .noting(format!("through {} MiB of files that the host has cached", (files * FILE_BYTES) >> 20)),
    );
    Ok(())
}

fn write_files(directory: &Path, files: usize) -> std::io::Result<()> {
    fs::create_dir(directory)?;
    (0..files).try_for_each(|number| write_lines(&directory.join(format!("file-{number}")), FILE_BYTES))
}
