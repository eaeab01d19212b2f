// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that runs in a cell and on the host, from the start of a process to its exit.

use super::Setting;
use crate::exit_causes;
use crate::process_runs::{WorkDirectory, compare, run_with_stats};
use crate::{BenchError, Row};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The usual reference.
const ON_THE_HOST: &str = "the same program on the host";

/// The measured program, with all that its runs need.
pub(super) struct Comparison {
    name: &'static str,
    note: String,
    words: Vec<String>,
    /// A program that does the same work and prints its result, where the measured one prints nothing of it.
    printing: Option<Vec<String>>,
    /// Words before the program's on the host, and the name of the reference.
    sandbox: Option<(&'static [&'static str], &'static str)>,
    volumes: Vec<String>,
    variables: Vec<(&'static str, String)>,
    directory: Option<PathBuf>,
}

impl Comparison {
    /// A row of this program and its arguments.
    pub(super) fn new(name: &'static str, words: &[&str], note: impl Into<String>) -> Comparison {
        let words = owned(words);
        let (printing, sandbox, directory) = (None, None, None);
        Comparison { name, note: note.into(), words, printing, sandbox, volumes: Vec::new(), variables: Vec::new(), directory }
    }

    /// Checks the result with this program, which prints it.
    pub(super) fn printing(self, words: &[&str]) -> Comparison {
        Comparison { printing: Some(owned(words)), ..self }
    }

    /// Compares with the same program in a sandbox of the host: these words before the program's.
    pub(super) fn against(self, sandbox: &'static [&'static str], name: &'static str) -> Comparison {
        Comparison { sandbox: Some((sandbox, name)), ..self }
    }

    /// Shows a file or directory at its own path, read-only.
    pub(super) fn showing(mut self, path: &str) -> Comparison {
        self.volumes.push(format!("{path}:{path}:ro"));
        self
    }

    /// Shows a directory at its own path; changes reach the host.
    pub(super) fn changing(mut self, path: &str) -> Comparison {
        self.volumes.push(format!("{path}:{path}"));
        self
    }

    /// Sets a variable on both sides.
    pub(super) fn setting(mut self, name: &'static str, value: impl Into<String>) -> Comparison {
        self.variables.push((name, value.into()));
        self
    }

    /// Runs in this directory instead of an empty one.
    pub(super) fn inside(self, directory: &Path) -> Comparison {
        Comparison { directory: Some(directory.to_owned()), ..self }
    }

    /// Compares the results once and the times in turn, and reports the row.
    pub(super) fn measure(&self, setting: &Setting<'_>, rounds: usize, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
        let place = WorkDirectory::new(setting.pando, self.directory.as_ref().unwrap_or(&setting.empty));
        let causes = self.check(&place)?;
        let ours = self.cell(&place, &[], &self.words);
        let pairs = compare(setting.rounds(rounds), &[0], ours, self.native(&place, &self.words))?;
        let reference = self.sandbox.map_or(ON_THE_HOST, |(_, name)| name);
        report(Row::pairs(self.name, reference, &pairs).noting(format!("{}; {causes}", self.note)));
        Ok(())
    }

    /// Runs the program on both sides: it must print the same. Returns the exits of the measured program's run by their causes.
    fn check(&self, place: &WorkDirectory<'_>) -> Result<String, BenchError> {
        let words = self.printing.as_ref().unwrap_or(&self.words);
        let native = self.native(place, words).stdout(Stdio::piped()).stderr(Stdio::piped()).output();
        let native = native.map_err(BenchError::host("start a program to measure"))?;
        if !native.status.success() {
            return Err(BenchError::Failed(format!("{words:?}: {}: {}", native.status, String::from_utf8_lossy(&native.stderr))));
        }
        let (output, stats) = run_with_stats(self.cell(place, &["--stats=json"], words))?;
        if output != native.stdout {
            let [ours, theirs] = [&output, &native.stdout].map(|text| excerpt(text));
            return Err(BenchError::Failed(format!("{words:?} printed {ours:?} in a cell, and {theirs:?} on the host")));
        }
        let stats = match self.printing {
            Some(_) => run_with_stats(self.cell(place, &["--stats=json"], &self.words))?.1,
            None => stats,
        };
        Ok(exit_causes::of_stats(&stats))
    }

    /// The program by `pando run`, with these options and its own.
    fn cell(&self, place: &WorkDirectory<'_>, options: &[&str], words: &[String]) -> Command {
        let variables: Vec<String> = self.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let volumes = self.volumes.iter().flat_map(|volume| ["-v", volume]);
        let options: Vec<&str> =
            options.iter().copied().chain(volumes).chain(variables.iter().flat_map(|variable| ["-e", variable.as_str()])).collect();
        let (program, arguments) = split(words);
        place.cell(&options, program, &arguments)
    }

    /// The program on the host.
    fn native(&self, place: &WorkDirectory<'_>, words: &[String]) -> Command {
        let sandbox = self.sandbox.map_or(&[][..], |(words, _)| words);
        let words: Vec<String> = sandbox.iter().map(|word| (*word).to_owned()).chain(words.iter().cloned()).collect();
        let (program, arguments) = split(&words);
        let mut command = place.native(program, &arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A program and its arguments.
fn split(words: &[String]) -> (&str, Vec<&str>) {
    (&words[0], words[1..].iter().map(String::as_str).collect())
}

/// The first hundred characters of an output.
fn excerpt(output: &[u8]) -> String {
    String::from_utf8_lossy(output).chars().take(100).collect()
}
