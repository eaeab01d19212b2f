// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's Python: its start, computing, and a database in memory.

use super::{LineServer, REFERENCE};
use crate::process_runs::{PYTHON, WorkDirectory, compare, needs};
use crate::{BenchError, BenchOptions, Row};

/// The source of a program that answers lines: a script that defines `work`, and a loop around it.
macro_rules! script {
    ($file:literal) => {
        concat!(include_str!($file), include_str!("python/answer.py"))
    };
}
/// Computations in Python, and their sizes.
const COMPUTED: &[(&str, &str, u32)] = &[
    ("python-pidigits", script!("python/pidigits.py"), 1000),
    ("python-nbody", script!("python/nbody.py"), 8000),
    ("python-json-dumps", script!("python/json_dumps.py"), 150),
];
/// Rows of the database.
const DATABASE: (&str, &str, u32) = ("sqlite-memory", script!("python/sqlite.py"), 20_000);
/// The factor by which a brief run does less.
const BRIEF: u32 = 20;

pub(super) fn run(options: BenchOptions<'_>, place: &WorkDirectory<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs(PYTHON, "/usr/bin/python3 (Debian: python3)")?;
    let nothing = ["-c", "pass"];
    let pairs = compare(options.rounds(20), &[0], place.cell(&[], PYTHON, &nothing), place.native(PYTHON, &nothing))?;
    report(Row::pairs("python-start", REFERENCE, &pairs).noting("python3 -c pass by pando run, the whole process"));
    let mut worst: Option<Row> = None;
    for script in COMPUTED {
        let row = ask(options, place, script)?;
        report(row.clone());
        if worst.as_ref().is_none_or(|worst| row.ratio > worst.ratio) {
            worst = Some(row);
        }
    }
    worst.into_iter().for_each(|row| report(Row { name: "python-cpu", ..row }.noting("the worst of the three")));
    report(ask(options, place, &DATABASE)?.noting("Python's sqlite3, for each row of the database"));
    Ok(())
}

fn ask(options: BenchOptions<'_>, place: &WorkDirectory<'_>, (name, script, size): &(&'static str, &str, u32)) -> Result<Row, BenchError> {
    let size = if options.brief { size / BRIEF } else { *size };
    let pairs = LineServer::start(place, &[], PYTHON, &["-c", script])?.compare(options.rounds(10), size)?;
    Ok(Row::pairs(name, REFERENCE, &pairs))
}
