// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of commands that monitor a program in a nested cell, and their start in the cell around it.
//!
//! Outside of cells, such a command starts itself again by `pando run`.

use crate::checkpointed_program::{CellAround, CheckpointedProgram};
use crate::environment::{self, Variable};
use crate::failure::Failure;
use crate::size::Size;
use crate::{diagnostics, options};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use pando_abi::HoldingName;
use pando_abi::holding::ChildState;
use pando_abi::layout::ARGUMENTS;
use pando_launch::{NestedCells, Nesting, Program, end_of};
use pando_machine::{CellsDevice, PageCount};
use pando_manager::host;
use pando_manager::outcome::exit_status;
use pando_manager::view::{self, ViewSpec, program_in_same_view};
use std::ffi::{OsStr, OsString};
use std::io::Error;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, Args)]
pub(crate) struct MonitoredProgram {
    /// Limit the memory of the program and its monitor: bytes, or with K, M, G or T [default: a quarter of the host's]
    #[arg(short = 'm', long, value_name = "SIZE", allow_hyphen_values = true, value_parser = options::memory)]
    memory: Option<Size>,

    #[command(flatten)]
    program: ProgramOptions,
}

impl MonitoredProgram {
    /// Replaces this process by `pando run` of a command, in a cell that may have another. `around` are further options of `pando run`,
    /// `inside` those of the command. Returns the error if that fails.
    pub(crate) fn start_in_cell(&self, command: &str, around: &[OsString], inside: &[OsString]) -> Error {
        let memory = self.memory.iter().flat_map(|memory| ["-m".into(), memory.in_bytes().to_string().into()]);
        let around: Vec<OsString> = memory.chain(around.iter().cloned()).collect();
        self.program.start_in_cell(command, &around, inside)
    }

    /// The program, as a directory of checkpoints has it.
    ///
    /// # Errors
    /// A path or a word is not UTF-8.
    pub(crate) fn checkpointed(&self) -> std::io::Result<CheckpointedProgram> {
        let text = |word: OsString| {
            word.into_string().map_err(|word| Error::other(format!("`{}` is not UTF-8: checkpoints need names that are", word.display())))
        };
        let words = self.program.words.iter().cloned().map(text).collect::<std::io::Result<_>>()?;
        let shown = shown(self.program.name()).filter(|path| !is_software(path)).map(PathBuf::into_os_string);
        let volumes = self.program.volumes.iter().map(|volume| absolute_volume(volume));
        let volumes = shown.into_iter().map(Ok).chain(volumes);
        let volumes = volumes.map(|volume| text(volume?)).collect::<std::io::Result<_>>()?;
        Ok(CheckpointedProgram { words, memory: self.memory.map(Size::in_bytes), volumes, nest: self.program.nest })
    }

    /// Replaces this process by `pando run` of a command, in a cell that shows the files of the program and the directory of its
    /// checkpoints. Returns the error if that fails.
    pub(crate) fn start_in_cell_of(
        &self,
        checkpointed: &CheckpointedProgram,
        around: CellAround<'_>,
        command: &str,
        inside: &[OsString],
    ) -> Error {
        let variables = self.program.variables.iter().flat_map(|variable| ["-e".into(), variable.clone()]);
        let place = self.program.directory.iter().flat_map(|place| ["-w".into(), place.clone().into_os_string()]);
        let options = place.chain(variables).chain(around.options).collect();
        // A path is the same in the cell.
        let name = shown(self.program.name()).map_or_else(|| self.program.name().to_owned(), PathBuf::into_os_string);
        let words = [name].into_iter().chain(self.program.words[1..].iter().cloned());
        let inside: Vec<OsString> = inside.iter().cloned().chain(self.program.inside()).chain(["--".into()]).chain(words).collect();
        checkpointed.start_in_cell(command, &CellAround { options, ..around }, &inside)
    }

    /// The name of the program.
    pub(crate) fn name(&self) -> &OsStr {
        self.program.name()
    }

    /// The only word of the command line: there are no options for a program, no `--`, and no arguments.
    pub(crate) fn only_word(&self) -> Option<&OsStr> {
        self.program.only_word().filter(|_| self.memory.is_none())
    }

    /// The program, in a nested cell.
    ///
    /// # Errors
    /// It is not found, or an option is not possible in a nested cell.
    pub(crate) fn program(&self) -> Result<Program, Failure> {
        self.program.program()
    }

    /// Makes the nested cell of a program. It has not started.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn create(&self, device: &CellsDevice, program: &Program) -> Result<HoldingName, Failure> {
        // Without a limit of its own it may use whatever this cell may.
        self.program.create(device, program, self.memory.map_or_else(host::memory, Size::pages))
    }

    /// Reports how the nested cell has ended, unless the program has chosen it. Returns the exit status.
    pub(crate) fn report(&self, state: ChildState) -> u8 {
        self.program.report(state)
    }
}

/// The program, and what its cell shows.
#[derive(Debug, Args)]
pub(crate) struct ProgramOptions {
    /// Show a file or directory of the host, as for `pando run` (repeatable). The program's changes of files are lost with its cell, so
    /// HOST:CELL needs `:ro`, `:live,ro` or `:snapshot`
    #[arg(short = 'v', long = "volume", value_name = "HOST:CELL:MODE", value_parser = OsStringValueParser::new().try_map(options::unchanging_volume))]
    volumes: Vec<OsString>,

    /// Set a variable in the program's environment, as for `pando run` (repeatable)
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]")]
    variables: Vec<OsString>,

    /// Set the working directory in the cell [default: the current directory]
    #[arg(short = 'w', long = "workdir", value_name = "DIR", value_parser = OsStringValueParser::new().try_map(options::directory))]
    directory: Option<PathBuf>,

    /// Let the program have this many nested cells at a time, with all of theirs: `pando run` and monitors work inside. They share the
    /// program's limits
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true)]
    nest: u32,

    /// The program (a path, or a name to find in PATH) and its arguments. Options after the program belong to it
    #[arg(value_name = "PROGRAM [ARGS]", num_args = 1.., required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    words: Vec<OsString>,
}

impl ProgramOptions {
    /// Replaces this process by `pando run` of a command, in a cell that may have another. `around` are further options of `pando run`,
    /// `inside` those of the command. Returns the error if that fails.
    pub(crate) fn start_in_cell(&self, command: &str, around: &[OsString], inside: &[OsString]) -> Error {
        let itself = match std::env::current_exe() {
            Ok(itself) => itself,
            Err(error) => return error,
        };
        let mut run = Command::new(&itself);
        // The program's cell is one of the descendants.
        run.args(["run", "--nest", &self.nest.saturating_add(1).to_string()]).args(around);
        if let Some(path) = shown(self.name()) {
            run.arg("-v").arg(path);
        }
        for volume in &self.volumes {
            run.arg("-v").arg(volume);
        }
        if let Some(directory) = &self.directory {
            run.arg("-w").arg(directory);
        }
        run.args(self.variables.iter().flat_map(|variable| [OsStr::new("-e"), variable]))
            .arg("--")
            .arg(&itself)
            .arg(command)
            .args(inside)
            .args(self.inside())
            .arg("--")
            .args(&self.words);
        run.exec()
    }

    /// The options of the command in the cell around: the view is that cell's.
    fn inside(&self) -> Vec<OsString> {
        let variables = self.variables.iter().flat_map(|variable| ["-e".into(), variable.clone()]);
        let nest = (self.nest > 0).then(|| ["--nest".into(), self.nest.to_string().into()]);
        variables.chain(nest.into_iter().flatten()).collect()
    }

    /// The name of the program.
    pub(crate) fn name(&self) -> &OsStr {
        &self.words[0]
    }

    /// The only word, without options for a program and without `--` before it.
    fn only_word(&self) -> Option<&OsStr> {
        let has_options = !self.volumes.is_empty() || !self.variables.is_empty() || self.directory.is_some() || self.nest > 0;
        let [word] = &self.words[..] else { return None };
        let is_after_dashes = std::env::args_os().rev().nth(1).is_some_and(|before| before == "--");
        (!has_options && !is_after_dashes).then_some(word)
    }

    /// The program, in a nested cell.
    ///
    /// # Errors
    /// It is not found, or an option is not possible in a nested cell.
    pub(crate) fn program(&self) -> Result<Program, Failure> {
        if !self.volumes.is_empty() {
            return Err(Failure::NotInside("-v"));
        }
        let variables: Result<Vec<Variable>, String> = self.variables.iter().cloned().map(Variable::parse).collect();
        let spec = ViewSpec {
            variables: environment::values(&variables.map_err(Failure::Variable)?).collect(),
            directory: self.directory.clone(),
            ..ViewSpec::default()
        };
        let nesting = NonZeroU32::new(self.nest).map(|descendants| Nesting { descendants, root: NestedCells::root().cell() });
        Ok(Program { nesting, ..program_in_same_view(&spec, self.name(), &environment::caller(), &self.words)? })
    }

    /// Makes the nested cell of a program, which may use so much memory. It has not started.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn create(&self, device: &CellsDevice, program: &Program, memory: PageCount) -> Result<HoldingName, Failure> {
        let block = program.argument_block()?;
        let child = device.clone_cell(HoldingName::ROOT, memory.0, self.nest).map_err(Failure::Nested)?;
        device.write(child, ARGUMENTS, &block).map_err(Failure::Nested)?;
        if self.nest > 0 {
            device.grant(child, HoldingName::ROOT).map_err(Failure::Nested)?;
        }
        Ok(child)
    }

    /// Reports how the nested cell has ended, unless the program has chosen it. Returns the exit status.
    pub(crate) fn report(&self, state: ChildState) -> u8 {
        report_end_of(self.name(), state)
    }
}

/// Reports how the nested cell of a program has ended, unless the program has chosen it. Returns the exit status.
pub(crate) fn report_end_of(name: &OsStr, state: ChildState) -> u8 {
    let end = end_of(state);
    diagnostics::report_end(name, &end);
    exit_status(&end)
}

/// Checks that a directory of the host can be shown to a cell by a `-v` option.
///
/// # Errors
/// Its path has a colon.
pub(crate) fn check_directory(directory: &Path) -> std::io::Result<()> {
    if !directory.as_os_str().as_bytes().contains(&b':') {
        return Ok(());
    }
    let directory = directory.display();
    Err(Error::other(format!("cannot use the directory {directory}: it has a colon in its path, and volumes cannot: choose another one")))
}

/// A `-v` option with an absolute path of the host. A name of a volume stays.
pub(crate) fn absolute_volume(volume: &OsStr) -> std::io::Result<OsString> {
    let bytes = volume.as_bytes();
    let end = bytes.iter().position(|byte| *byte == b':').unwrap_or(bytes.len());
    let (path, rest) = (OsStr::from_bytes(&bytes[..end]), OsStr::from_bytes(&bytes[end..]));
    if end < bytes.len() && path.to_str().is_some_and(host::is_plain_name) {
        return Ok(volume.to_owned());
    }
    let mut absolute = host::absolute(Path::new(path))?.into_os_string();
    absolute.push(rest);
    Ok(absolute)
}

/// The path of a program that the cell must be shown, if it is given as a path.
fn shown(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    (path.components().count() > 1 || path.is_absolute()).then(|| host::absolute(path).ok()).flatten().filter(|path| path.is_file())
}

/// Whether a file is part of the host's software, which each cell sees.
fn is_software(file: &Path) -> bool {
    let tops = view::software(&environment::caller()).read;
    let everyone_may_execute = file.metadata().is_ok_and(|metadata| metadata.mode() & 0o005 == 0o005);
    everyone_may_execute
        && [Some(file.to_owned()), file.canonicalize().ok()].iter().flatten().all(|file| tops.iter().any(|top| file.starts_with(top)))
}

#[cfg(test)]
mod tests {
    use super::check_directory;
    use std::path::Path;

    #[test]
    fn a_directory_with_a_colon_is_refused_with_the_reason() {
        assert!(check_directory(Path::new("/data/swap")).is_ok());
        let refused = check_directory(Path::new("/data/a:b/swap")).map_err(|error| error.to_string());
        assert!(refused.is_err_and(|text| text.contains("/data/a:b/swap: it has a colon")));
    }
}
