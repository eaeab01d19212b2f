// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole runs of real programs, from the start of a process to its exit: with `pando run`, and directly on the host.

use crate::BenchError;
use crate::sample::{Pairs, Side, alternate};
use serde_json::Value;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The measured program: static, and the same everywhere.
pub(crate) const BUSYBOX: &str = "busybox";
/// Debian's Python.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// Checks that the host has a program.
pub(crate) fn needs(program: &str, what: &'static str) -> Result<(), BenchError> {
    let started = Command::new(program).arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match started {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(BenchError::Absent(what)),
        // The exit status does not matter.
        started => started.map(drop).map_err(BenchError::host("start a program to measure")),
    }
}

/// The directory of the commands: separate, so that cells see no files of the caller.
pub(crate) struct WorkDirectory<'a> {
    pando: &'a Path,
    directory: PathBuf,
}

impl<'a> WorkDirectory<'a> {
    /// Commands run in `directory`; `pando` is the program that creates cells.
    pub(crate) fn new(pando: &'a Path, directory: &Path) -> WorkDirectory<'a> {
        WorkDirectory { pando, directory: directory.to_owned() }
    }

    /// A program of the host with its arguments.
    pub(crate) fn native(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.directory).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// `pando run` with its options, and the program to run.
    pub(crate) fn cell(&self, options: &[&str], program: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.pando);
        command.arg("run").args(options).arg("--").arg(program).args(arguments);
        command.current_dir(&self.directory).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

/// Runs two commands in turn; both must exit with one of `statuses`.
pub(crate) fn compare(rounds: usize, statuses: &[i32], mut ours: Command, mut theirs: Command) -> Result<Pairs, BenchError> {
    alternate(rounds, |side| {
        let command = if side == Side::Ours { &mut ours } else { &mut theirs };
        let start = Instant::now();
        let ended = command.status().map_err(BenchError::host("start a program to measure"))?;
        let nanos = start.elapsed().as_nanos() as f64;
        if ended.code().is_some_and(|code| statuses.contains(&code)) {
            Ok(nanos)
        } else {
            Err(BenchError::Failed(format!("{command:?}: {ended}")))
        }
    })
}

/// The result of a run of `pando run --stats=json`.
#[derive(Debug)]
pub(crate) struct StatsRun {
    /// The program's standard output.
    pub(crate) output: Vec<u8>,
    /// Its standard error, with the statistics as its last line.
    pub(crate) errors: String,
    pub(crate) stats: Value,
}

/// Runs `pando run --stats=json` once; it must exit with status 0.
pub(crate) fn run_with_stats(mut command: Command) -> Result<StatsRun, BenchError> {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().map_err(BenchError::host("start a cell"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    // The program may have written to standard error too; the statistics come last.
    let stats = errors.lines().last().and_then(|line| serde_json::from_str(line).ok());
    match stats {
        Some(stats) if output.status.success() => Ok(StatsRun { errors: errors.into_owned(), output: output.stdout, stats }),
        _ => Err(BenchError::Failed(format!("{command:?}: {}: {errors}", output.status))),
    }
}
