// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench programs`: the cost of common programs in a cell, as whole processes, compared with the host.
//!
//! Each row's note gives the causes of the exits of one run, which is not one of the timed runs. In this run the program
//! must print the same as on the host.

mod builds;
mod comparison;
mod files;
mod forks;
mod memory;
mod starts;

use crate::native::cpu::PinnedThread;
use crate::{BenchError, BenchOptions, Row, clone, unless_absent};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// The options and files that all benchmarks share.
struct Fixture<'a> {
    options: BenchOptions<'a>,
    /// The program that creates cells.
    pando: &'a Path,
    /// A temporary directory for the files that programs work on.
    directory: &'a Path,
    /// An empty directory, in which the programs run.
    empty: PathBuf,
}

/// A benchmark: measures and reports its rows.
type Benchmark = fn(&Fixture<'_>, &mut dyn FnMut(Row)) -> Result<(), BenchError>;

/// The benchmarks that run on one core, each after the names of its rows.
const ON_ONE_CORE: &[(&[&str], Benchmark)] = &[
    (&["true-start"], starts::bin_true),
    (&["numpy-start"], starts::numpy),
    (&["numpy-clone-first-ms"], |fixture, report| clone::first_output(fixture.options, report)),
    (&["node-start"], starts::node),
    (&["java-start"], starts::java),
    (&["perl-forks"], forks::perl),
    (&["pool"], forks::pool),
    (&["shell-forks"], forks::shell),
    (&["git-status"], files::git_status),
    (&["tar-small"], files::tar),
    (&["sort-50m"], files::sort),
    (&["sqlite-inserts", "sqlite-inserts-synced"], files::sqlite),
    (&["make-j2"], builds::make),
    (&["go-build"], builds::go),
    (&["run-python-bytes"], memory::python),
    (&["run-c-bytes"], memory::c),
];
/// The benchmarks that run on all cores.
const ON_ALL_CORES: &[(&[&str], Benchmark)] =
    &[(&["pool-all-cores"], forks::pool_on_all_cores), (&["make-j2-all-cores"], builds::make_on_all_cores)];

/// Runs all benchmarks. `pando` is the program that creates cells.
pub(crate) fn run(
    options: BenchOptions<'_>,
    pando: &Path,
    pinned: PinnedThread,
    report: &mut dyn FnMut(Row),
    absent: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).map_err(BenchError::host("make a temporary directory"))?;
    let fixture = Fixture { options, pando, directory: directory.path(), empty };
    // Several benchmarks may need the same program.
    let mut reported = HashSet::new();
    let mut absent = |what: &str| {
        if reported.insert(what.to_owned()) {
            absent(what);
        }
    };
    let is_included = |rows: &[&str]| rows.iter().any(|row| options.includes(row));
    for (_, benchmark) in ON_ONE_CORE.iter().filter(|(rows, _)| is_included(rows)) {
        unless_absent(benchmark(&fixture, report), &mut absent)?;
    }
    drop(pinned);
    for (_, benchmark) in ON_ALL_CORES.iter().filter(|(rows, _)| is_included(rows)) {
        unless_absent(benchmark(&fixture, report), &mut absent)?;
    }
    Ok(())
}

impl Fixture<'_> {
    /// The number of repetitions; one in a brief run, which starts many cells.
    fn rounds(&self, often: usize) -> usize {
        self.size(often, 1)
    }

    /// A size, or in a brief run a small one.
    fn size(&self, full: usize, brief: usize) -> usize {
        if self.options.brief { brief } else { full }
    }

    /// Writes a file into the temporary directory; returns its path.
    fn write(&self, name: &str, content: &str) -> Result<String, BenchError> {
        let file = self.directory.join(name);
        std::fs::write(&file, content).map_err(BenchError::host("write a file for a program"))?;
        Ok(file.display().to_string())
    }
}
