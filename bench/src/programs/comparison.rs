// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that runs in a cell and on the host, from the start of a process to its exit.

use super::Fixture;
use crate::exit_causes;
use crate::process_runs::{StatsRun, WorkDirectory, compare, run_with_stats};
use crate::{BenchError, Row};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The usual reference.
const ON_THE_HOST: &str = "the same program on the host";

/// The measured program, with all that its runs need.
pub(super) struct Comparison {
    name: &'static str,
    note: String,
    argv: Vec<String>,
    /// A program that does the same work and prints its result, where the measured one prints nothing of it.
    check_argv: Option<Vec<String>>,
    /// The sandbox of the host as arguments before the program's, and the name of the reference.
    sandbox: Option<(&'static [&'static str], &'static str)>,
    volumes: Vec<String>,
    environment: Vec<(&'static str, String)>,
    current_dir: Option<PathBuf>,
}

impl Comparison {
    /// A row of this program and its arguments.
    pub(super) fn new(name: &'static str, argv: &[&str], note: impl Into<String>) -> Comparison {
        let argv = owned(argv);
        let (check_argv, sandbox, current_dir) = (None, None, None);
        Comparison { name, note: note.into(), argv, check_argv, sandbox, volumes: Vec::new(), environment: Vec::new(), current_dir }
    }

    /// Checks the result with this program, which prints it.
    pub(super) fn checked_by(self, argv: &[&str]) -> Comparison {
        Comparison { check_argv: Some(owned(argv)), ..self }
    }

    /// Compares with the same program in a sandbox of the host, started by these arguments before the program's.
    pub(super) fn sandboxed_by(self, sandbox: &'static [&'static str], name: &'static str) -> Comparison {
        Comparison { sandbox: Some((sandbox, name)), ..self }
    }

    /// Maps a file or directory into the cell at its own path, read-only.
    pub(super) fn read_only_volume(mut self, path: &str) -> Comparison {
        self.volumes.push(format!("{path}:{path}:ro"));
        self
    }

    /// Maps a directory into the cell at its own path; changes reach the host.
    pub(super) fn volume(mut self, path: &str) -> Comparison {
        self.volumes.push(format!("{path}:{path}"));
        self
    }

    /// Sets an environment variable on both sides.
    pub(super) fn env(mut self, name: &'static str, value: impl Into<String>) -> Comparison {
        self.environment.push((name, value.into()));
        self
    }

    /// Runs in this directory instead of an empty one.
    pub(super) fn current_dir(self, directory: &Path) -> Comparison {
        Comparison { current_dir: Some(directory.to_owned()), ..self }
    }

    /// Compares the results once and the times in turn, and reports the row.
    pub(super) fn measure(&self, fixture: &Fixture<'_>, rounds: usize, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
        let directory = WorkDirectory::new(fixture.pando, self.current_dir.as_ref().unwrap_or(&fixture.empty));
        let causes = self.check(&directory)?;
        let ours = self.cell(&directory, &[], &self.argv);
        let pairs = compare(fixture.rounds(rounds), &[0], ours, self.native(&directory, &self.argv))?;
        let reference = self.sandbox.map_or(ON_THE_HOST, |(_, name)| name);
        report(Row::pairs(self.name, reference, &pairs).noting(format!("{}; {causes}", self.note)));
        Ok(())
    }

    /// Runs the program on both sides: it must print the same. Returns the exits of the measured program's run by their causes.
    fn check(&self, directory: &WorkDirectory<'_>) -> Result<String, BenchError> {
        let argv = self.check_argv.as_ref().unwrap_or(&self.argv);
        let native = self.native(directory, argv).stdout(Stdio::piped()).stderr(Stdio::piped()).output();
        let native = native.map_err(BenchError::host("start a program to measure"))?;
        if !native.status.success() {
            return Err(BenchError::Failed(format!("{argv:?}: {}: {}", native.status, String::from_utf8_lossy(&native.stderr))));
        }
        let StatsRun { output, stats, .. } = run_with_stats(self.cell(directory, &["--stats=json"], argv))?;
        if output != native.stdout {
            let [ours, theirs] = [&output, &native.stdout].map(|text| excerpt(text));
            return Err(BenchError::Failed(format!("{argv:?} printed {ours:?} in a cell, and {theirs:?} on the host")));
        }
        let stats = match self.check_argv {
            Some(_) => run_with_stats(self.cell(directory, &["--stats=json"], &self.argv))?.stats,
            None => stats,
        };
        Ok(exit_causes::of_stats(&stats))
    }

    /// The program by `pando run`, with these options and its own.
    fn cell(&self, directory: &WorkDirectory<'_>, options: &[&str], argv: &[String]) -> Command {
        let variables: Vec<String> = self.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let volumes = self.volumes.iter().flat_map(|volume| ["-v", volume]);
        let options: Vec<&str> =
            options.iter().copied().chain(volumes).chain(variables.iter().flat_map(|variable| ["-e", variable.as_str()])).collect();
        let (program, arguments) = split(argv);
        directory.cell(&options, program, &arguments)
    }

    /// The program on the host.
    fn native(&self, directory: &WorkDirectory<'_>, argv: &[String]) -> Command {
        let sandbox = self.sandbox.map_or(&[][..], |(prefix, _)| prefix);
        let argv: Vec<String> = owned(sandbox).into_iter().chain(argv.iter().cloned()).collect();
        let (program, arguments) = split(&argv);
        let mut command = directory.native(program, &arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

fn owned(argv: &[&str]) -> Vec<String> {
    argv.iter().map(|argument| (*argument).to_owned()).collect()
}

/// A program and its arguments.
fn split(argv: &[String]) -> (&str, Vec<&str>) {
    (&argv[0], argv[1..].iter().map(String::as_str).collect())
}

/// The first hundred characters of an output.
fn excerpt(output: &[u8]) -> String {
    String::from_utf8_lossy(output).chars().take(100).collect()
}
