// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando restore`: continues a program from a checkpoint, or takes over a running one from another process.

use crate::checkpoint::{Origin, cannot_use, check, keep, lock, run, settings};
use crate::checkpointed_program::{CHECKPOINTS, CellAround, CheckpointedProgram};
use crate::failure::Failure;
use crate::migration::{self, MoveOptions, Source, source_address};
use crate::monitor::{absolute_volume, check_directory};
use crate::run::VIEW_VARIABLE;
use crate::size::{self, Size};
use crate::{diagnostics, nested, options};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use pando_abi::{HoldingName, PAGE_SIZE};
use pando_machine::{CellsDevice, PageCount};
use pando_manager::host;
use pando_manager::limits::Limits;
use pando_nest::checkpointer::{CheckpointDirectory, Checkpointer};
use std::ffi::{OsStr, OsString};
use std::io::{Error, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Nested cells that a program which moves here may have without an option.
const NEST_DEFAULT_MAX: u32 = 64;

#[derive(Debug, Args)]
pub(crate) struct RestoreOptions {
    /// The directory of the checkpoints, of which the newest one is used, or that with NUMBER; or the address of a `pando checkpoint
    /// --port`, whose running program continues here instead of there
    #[arg(value_name = "DIR[@NUMBER]|ADDR:PORT", value_parser = OsStringValueParser::new().try_map(place), value_hint = ValueHint::DirPath)]
    from: Place,

    /// Write further checkpoints to the directory each time that this time has passed
    #[arg(long, value_name = "TIME", value_parser = size::duration)]
    every: Option<Duration>,

    /// Limit the memory of the program and its monitor: bytes, or with K, M, G or T [default: as for `pando checkpoint`; with
    /// ADDR:PORT up to a quarter of this host's]
    #[arg(short = 'm', long, value_name = "SIZE", allow_hyphen_values = true, value_parser = options::memory)]
    memory: Option<Size>,

    /// Keep only the newest NUMBER checkpoints, and files with pages of them [default: all]
    #[arg(long, requires = "every", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,

    /// Read all pages of the checkpoint before the program continues, and compare their checksums
    #[arg(long)]
    check: bool,

    /// Print the sizes of further checkpoints, and how many pages the program has needed, on standard error
    #[arg(long)]
    stats: bool,

    /// With ADDR:PORT, the files that the program sees, as they were given to `pando checkpoint` (repeatable)
    #[arg(short = 'v', long = "volume", value_name = "HOST:CELL:MODE", value_parser = OsStringValueParser::new().try_map(options::unchanging_volume))]
    volumes: Vec<OsString>,

    /// With ADDR:PORT, let the program have this many nested cells [default: as at its source, up to 64]
    #[arg(long, value_name = "NUMBER")]
    nest: Option<u32>,

    #[command(flatten)]
    moves: MoveOptions,

    /// The name of this process for the user of the source
    #[arg(long, hide = true)]
    own_name: Option<String>,
}

/// Where the program comes from.
#[derive(Clone, Debug)]
enum Place {
    /// A checkpoint in a directory.
    Checkpoint(PathBuf, Option<u32>),
    /// A process at an address.
    Source(String, u16),
}

/// Parses `DIR[@NUMBER]` or `ADDR:PORT`.
fn place(text: OsString) -> std::result::Result<Place, String> {
    if let Some((name, port)) = text.to_str().and_then(source_address) {
        return Ok(Place::Source(name.into(), port));
    }
    let bytes = text.as_bytes();
    let Some(at) = bytes.iter().rposition(|byte| *byte == b'@') else { return Ok(Place::Checkpoint(text.into(), None)) };
    let number = std::str::from_utf8(&bytes[at + 1..]).ok().and_then(|number| number.parse().ok());
    match number {
        Some(number) if at > 0 => Ok(Place::Checkpoint(OsStr::from_bytes(&bytes[..at]).into(), Some(number))),
        _ => Err("give DIR or DIR@NUMBER; a directory whose name has an `@` needs a number".into()),
    }
}

/// Continues a program. Returns its exit status.
///
/// # Errors
/// There is no checkpoint or program that can be used here, the cell cannot be made, or a stream failed.
pub(crate) fn restore(options: &RestoreOptions) -> std::result::Result<u8, Failure> {
    options.check_combination().map_err(Failure::Nested)?;
    let Some(device) = nested::device()? else {
        let started = match &options.from {
            Place::Checkpoint(directory, number) => options.start_from_directory(directory, *number),
            Place::Source(name, port) => options.start_from_source((name, *port)),
        };
        return Err(Failure::Nested(started.unwrap_or_else(|error| error)));
    };
    let restored = match &options.from {
        Place::Checkpoint(directory, number) => options.read(&device, directory, *number),
        Place::Source(name, port) => options.receive(&device, (name, *port)),
    };
    let (checkpointer, program) = restored.map_err(Failure::Nested)?;
    run(checkpointer, options.stats, program.name())
}

impl RestoreOptions {
    fn check_combination(&self) -> Result<()> {
        let is_move = matches!(self.from, Place::Source(..));
        let wrong = [
            (is_move && self.every.is_some(), "--every: it is for a directory of checkpoints; a program that moves has none"),
            (is_move && self.check, "--check: it is for a directory of checkpoints"),
            (
                !is_move && self.moves.is_movable(),
                "--port: a program with a directory of checkpoints does not move: restore it from the directory elsewhere",
            ),
            (!is_move && !self.volumes.is_empty(), "-v: a checkpoint has its own volumes; it is for ADDR:PORT"),
            (!is_move && self.moves.has_token_file(), "--token-file: it is for ADDR:PORT"),
            (!is_move && self.nest.is_some(), "--nest: a checkpoint has its own number; it is for ADDR:PORT"),
        ];
        wrong.into_iter().find(|(is_wrong, _)| *is_wrong).map_or(Ok(()), |(_, reason)| Err(Error::other(reason)))
    }

    /// The cell of a program.
    fn create(&self, device: &CellsDevice, program: &CheckpointedProgram) -> Result<HoldingName> {
        let memory = self.memory.map(Size::in_bytes).or(program.memory);
        let memory = memory.map_or(host::memory().0, |bytes| (bytes / PAGE_SIZE).min(host::memory().0));
        device.clone_cell(HoldingName::ROOT, memory, program.nest)
    }

    /// Builds a program from a checkpoint.
    fn read<'a>(&self, device: &'a CellsDevice, path: &Path, number: Option<u32>) -> Result<(Checkpointer<'a>, CheckpointedProgram)> {
        let began = Instant::now();
        // Otherwise the `pando` on the host has done it.
        if self.every.is_some() && std::env::var_os(VIEW_VARIABLE).is_none() {
            lock(path)?;
        }
        let program = CheckpointedProgram::read(path)?;
        let mut skip = |number: u32, error: &Error| {
            diagnostics::print_error(&format_args!("checkpoint {number} is left out: {}", host::plain(error)));
        };
        let stored = CheckpointDirectory::new(path.into()).open(number, self.check, &mut skip)?;
        let child = self.create(device, &program)?;
        let settings = settings(device, child, Some(path), (self.every, self.keep))?;
        check(stored.requirements(), &settings.requirements, Origin::Checkpoint)?;
        let (number, pages) = (stored.number(), stored.pages());
        let checkpointer = Checkpointer::restore(device, child, stored, settings)?;
        if self.stats {
            let time = began.elapsed().as_secs_f64() * 1e3;
            diagnostics::print_notice(&format_args!("checkpoint {number} with {pages} pages is restored in {time:.3} ms"));
        }
        Ok((checkpointer, program))
    }

    /// Takes a program over from its source.
    fn receive<'a>(&self, device: &'a CellsDevice, source: (&str, u16)) -> Result<(Checkpointer<'a>, CheckpointedProgram)> {
        let connection = migration::connect(source, &self.moves.token()?)?;
        let offer = connection.offer();
        let mut program: CheckpointedProgram =
            serde_json::from_str(&offer.program).map_err(|error| Error::other(format!("the offer of the source is invalid: {error}")))?;
        // Otherwise the `pando` on the host has done it, whose limit the cell around has.
        match (std::env::var_os(VIEW_VARIABLE), self.nest) {
            (Some(_), Some(nest)) => program.nest = nest,
            (Some(_), None) => {}
            (None, _) => self.limit(&mut program)?,
        }
        let child = self.create(device, &program)?;
        let settings = settings(device, child, None, (None, None))?;
        check(&offer.requirements, &settings.requirements, Origin::Source)?;
        let listener = self.moves.listener(&settings.requirements, || Ok(program.clone()))?;
        let name = self.own_name.clone().unwrap_or_else(migration::own_name);
        let mut checkpointer = Checkpointer::receive(device, child, (connection, &name), settings)
            .map_err(|error| Error::new(error.kind(), format!("the program has not moved here: {}", host::plain(&error))))?;
        listener.into_iter().for_each(|listener| checkpointer.listen(listener));
        Ok((checkpointer, program))
    }

    /// Limits what a source chooses for this host: without options, its program gets no more than any other.
    fn limit(&self, program: &mut CheckpointedProgram) -> Result<()> {
        let most = Limits::default().memory();
        match (self.memory, program.memory) {
            (Some(memory), _) => program.memory = Some(memory.in_bytes()),
            (None, Some(memory)) if memory.div_ceil(PAGE_SIZE) > most.0 => {
                let memory = PageCount(memory.div_ceil(PAGE_SIZE));
                return Err(Error::other(format!(
                    "the program has {memory} of memory at its source, and a cell gets {most} here by default: choose a limit with -m SIZE"
                )));
            }
            (None, _) => {}
        }
        match self.nest {
            Some(nest) => program.nest = nest,
            None if program.nest > NEST_DEFAULT_MAX => {
                return Err(Error::other(format!(
                    "the program may have {} nested cells at its source, and up to {NEST_DEFAULT_MAX} here by default: choose a number with \
                     --nest NUMBER",
                    program.nest
                )));
            }
            None => {}
        }
        Ok(())
    }

    /// Replaces this process by the same command in a cell. Returns the error if that fails.
    fn start_from_directory(&self, directory: &Path, number: Option<u32>) -> Result<Error> {
        let path = directory.canonicalize().map_err(|error| cannot_use(directory, &error))?;
        check_directory(&path)?;
        if self.every.is_some() {
            lock(&path)?;
        }
        let mut program = CheckpointedProgram::read(&path)?;
        program.check_volumes(&path)?;
        program.memory = self.memory.map(Size::in_bytes).or(program.memory);
        let mut inside: Vec<OsString> = Vec::new();
        if let Some(every) = self.every {
            inside.extend(["--every".into(), format!("{}ns", every.as_nanos()).into()]);
        }
        inside.extend(keep(self.keep));
        inside.extend(self.check.then(|| "--check".into()));
        inside.extend(self.stats.then(|| "--stats".into()));
        let number = number.map(|number| format!("@{number}")).unwrap_or_default();
        inside.push(format!("{CHECKPOINTS}{number}").into());
        let around = CellAround { directory: Some(&path), ..CellAround::default() };
        Ok(program.start_in_cell("restore", &around, &inside))
    }

    /// The same for a program at an address. Its host names no files of this one: the user does.
    fn start_from_source(&self, source: (&str, u16)) -> Result<Error> {
        let token = self.moves.token()?;
        let found = Source::find(source, &token)?;
        let mut program = found.program.clone();
        if self.volumes.is_empty() && !program.volumes.is_empty() {
            let volumes: Vec<String> = program.volumes.iter().map(|volume| format!("-v {volume}")).collect();
            return Err(Error::other(format!(
                "the program sees files that its source names: show them here as well, with {}, or with the paths that they have here",
                volumes.join(" ")
            )));
        }
        let text = |volume: OsString| volume.into_string().map_err(|volume| Error::other(format!("`{}` is not UTF-8", volume.display())));
        program.volumes = self.volumes.iter().map(|volume| text(absolute_volume(volume)?)).collect::<Result<_>>()?;
        self.limit(&mut program)?;
        let mut around = found.around(&token);
        let own = self.moves.around(&program)?;
        around.options.extend(own.options);
        around.variables.extend(own.variables);
        let mut inside = own.inside;
        inside.extend(self.stats.then(|| "--stats".into()));
        inside.push(format!("--own-name={}", migration::own_name()).into());
        inside.push(format!("--nest={}", program.nest).into());
        inside.extend(around.inside);
        let around = CellAround { directory: None, options: around.options, variables: around.variables };
        Ok(program.start_in_cell("restore", &around, &inside))
    }
}
