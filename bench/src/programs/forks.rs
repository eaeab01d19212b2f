// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that start many processes: perl with a large heap, Python's pool of processes, a shell.

use super::Fixture;
use super::comparison::Comparison;
use crate::process_runs::{PYTHON, needs};
use crate::{BenchError, Row};

const PERL: &str = include_str!("sources/perl_forks.pl");
const POOL: &str = include_str!("sources/pool.py");
/// Runs a program as often as its argument says.
const SHELL: &str = "i=0; while [ $i -lt $0 ]; do /bin/true || exit 1; i=$((i + 1)); done; echo $i";

/// `perl-forks`: a heap of 100 MB, and 20 children.
pub(super) fn perl(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs("perl", "perl (Debian: perl-base)")?;
    let (strings, children) = (fixture.size(100_000, 2_000), fixture.size(20, 2));
    let argv = ["perl", "-e", PERL, &strings.to_string(), &children.to_string()];
    let note = format!("perl with {strings} strings of 1,000 bytes forks {children} children, each of which overwrites its part of them");
    Comparison::new("perl-forks", &argv, note).measure(fixture, 5, report)
}

/// `pool`.
pub(super) fn pool(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    map_in_pool(fixture, "pool", report)
}

/// `pool-all-cores`: the same where the host's processes may run on several cores at once, unlike those of a cell.
pub(super) fn pool_on_all_cores(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    map_in_pool(fixture, "pool-all-cores", report)
}

fn map_in_pool(fixture: &Fixture<'_>, name: &'static str, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs(PYTHON, "/usr/bin/python3 (Debian: python3)")?;
    let tasks = fixture.size(50, 2).to_string();
    let note = format!("Python's multiprocessing.Pool(2) maps a function over {tasks} tasks");
    Comparison::new(name, &[PYTHON, "-c", POOL, &tasks], note).measure(fixture, 8, report)
}

/// `shell-forks`.
pub(super) fn shell(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let times = fixture.size(1000, 5).to_string();
    Comparison::new("shell-forks", &["sh", "-c", SHELL, &times], format!("sh that runs /bin/true {times} times"))
        .measure(fixture, 3, report)
}
