// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando checkpoint` and `pando restore`: a program whose state is written to a directory at intervals, and goes on from there later.

use crate::checkpointed_program::{CHECKPOINTS, CheckpointedProgram};
use crate::failure::Failure;
use crate::monitor::{MonitoredProgram, check_directory, report_end_of};
use crate::run::VIEW_VARIABLE;
use crate::size::{self, Size};
use crate::{diagnostics, nested, options};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use pando_abi::layout::{CPUID_TABLE, CPUID_TABLE_PAGES};
use pando_abi::{HoldingName, PAGE_SIZE};
use pando_machine::CellsDevice;
use pando_manager::host;
use pando_nest::checkpointer::{CheckpointDirectory, CheckpointEvent, CheckpointSettings, Checkpointer, RestoreRequirements};
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The identifier of a running system: each cell has its own.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The beginning of the name of the files that a cell shows to its nested cells.
const CELL_VIEW: &str = "cell ";

#[derive(Debug, Args)]
pub(crate) struct CheckpointOptions {
    /// Write a checkpoint each time that this time has passed: 10s, 5m
    #[arg(long, value_name = "TIME", value_parser = size::duration)]
    every: Duration,

    /// The directory for the checkpoints. It is created; if it exists, it must have none
    #[arg(short = 'o', long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    output: PathBuf,

    /// Keep only the newest NUMBER checkpoints, and files with pages of them [default: all]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,

    /// Print the sizes of each checkpoint, and for how long the program was halted, on standard error
    #[arg(long)]
    stats: bool,

    #[command(flatten)]
    program: MonitoredProgram,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreOptions {
    /// The directory of the checkpoints. The newest one is used, or that with NUMBER
    #[arg(value_name = "DIR[@NUMBER]", value_parser = OsStringValueParser::new().try_map(checkpoint_name), value_hint = ValueHint::DirPath)]
    checkpoint: (PathBuf, Option<u32>),

    /// Write further checkpoints to the directory each time that this time has passed
    #[arg(long, value_name = "TIME", value_parser = size::duration)]
    every: Option<Duration>,

    /// Limit the memory of the program and its monitor: bytes, or with K, M, G or T [default: as for `pando checkpoint`]
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
}

/// Parses `DIR[@NUMBER]`.
fn checkpoint_name(text: OsString) -> std::result::Result<(PathBuf, Option<u32>), String> {
    let bytes = text.as_bytes();
    let Some(at) = bytes.iter().rposition(|byte| *byte == b'@') else { return Ok((text.into(), None)) };
    let number = std::str::from_utf8(&bytes[at + 1..]).ok().and_then(|number| number.parse().ok());
    match number {
        Some(number) if at > 0 => Ok((OsStr::from_bytes(&bytes[..at]).into(), Some(number))),
        _ => Err("give DIR or DIR@NUMBER; a directory whose name has an `@` needs a number".into()),
    }
}

/// Runs a program and writes its checkpoints. Returns its exit status.
///
/// # Errors
/// The directory has checkpoints, the cell cannot be made, or a stream failed.
pub(crate) fn checkpoint(options: &CheckpointOptions) -> std::result::Result<u8, Failure> {
    let Some(device) = nested::device()? else {
        return Err(Failure::Nested(start_checkpointer(options).unwrap_or_else(|error| error)));
    };
    // Otherwise the `pando` on the host has done it.
    if std::env::var_os(VIEW_VARIABLE).is_none() {
        prepare(options).map_err(Failure::Nested)?;
    }
    let program = options.program.program()?;
    let child = options.program.create(&device, &program)?;
    let settings = settings(&device, child, &options.output, (Some(options.every), options.keep)).map_err(Failure::Nested)?;
    let checkpointer = Checkpointer::new(&device, child, settings).map_err(Failure::Nested)?;
    run(checkpointer, options.stats, options.program.name())
}

/// Continues a program from a checkpoint. Returns its exit status.
///
/// # Errors
/// There is no checkpoint that can be used here, the cell cannot be made, or a stream failed.
pub(crate) fn restore(options: &RestoreOptions) -> std::result::Result<u8, Failure> {
    let Some(device) = nested::device()? else {
        return Err(Failure::Nested(start_restorer(options).unwrap_or_else(|error| error)));
    };
    let began = Instant::now();
    let (path, number) = &options.checkpoint;
    // Otherwise the `pando` on the host has done it.
    if options.every.is_some() && std::env::var_os(VIEW_VARIABLE).is_none() {
        lock(path).map_err(Failure::Nested)?;
    }
    let checkpointed = CheckpointedProgram::read(path).map_err(Failure::Nested)?;
    let directory = CheckpointDirectory::new(path.clone());
    let mut skip = |number: u32, error: &Error| {
        diagnostics::print_error(&format_args!("checkpoint {number} is left out: {}", host::plain(error)));
    };
    let stored = directory.open(*number, options.check, &mut skip).map_err(Failure::Nested)?;
    let memory = options.memory.map(Size::in_bytes).or(checkpointed.memory);
    let memory = memory.map_or(host::memory().0, |bytes| (bytes / PAGE_SIZE).min(host::memory().0));
    let child = device.clone_cell(HoldingName::ROOT, memory, checkpointed.nest).map_err(Failure::Nested)?;
    let settings = settings(&device, child, path, (options.every, options.keep)).map_err(Failure::Nested)?;
    check(stored.requirements(), &settings.requirements).map_err(Failure::Nested)?;
    let (number, pages) = (stored.number(), stored.pages());
    let checkpointer = Checkpointer::restore(&device, child, stored, settings).map_err(Failure::Nested)?;
    if options.stats {
        let time = began.elapsed().as_secs_f64() * 1e3;
        diagnostics::print_notice(&format_args!("checkpoint {number} with {pages} pages is restored in {time:.3} ms"));
    }
    run(checkpointer, options.stats, checkpointed.name())
}

/// Runs the child of a checkpointer to its end.
fn run(mut checkpointer: Checkpointer<'_>, has_stats: bool, name: &OsStr) -> std::result::Result<u8, Failure> {
    let interrupted = Arc::<AtomicBool>::default();
    flag::register(SIGINT, Arc::clone(&interrupted)).map_err(Failure::Signals)?;
    let mut report = |event: CheckpointEvent<'_>| match event {
        CheckpointEvent::Written { number, size, pause } if has_stats => diagnostics::print_notice(&format_args!(
            "checkpoint {number}: {} pages, {} of them written, {} KiB, halted for {:.3} ms",
            size.pages,
            size.written_pages,
            size.bytes.div_ceil(1024),
            pause.as_secs_f64() * 1e3
        )),
        CheckpointEvent::Written { .. } => {}
        CheckpointEvent::NotRemoved { error } => {
            diagnostics::print_error(&format_args!("cannot remove older checkpoints: {}; remove them by hand", host::plain(error)));
        }
        CheckpointEvent::Failed { number, error } => {
            let advice = match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => ": make room",
                _ => "",
            };
            diagnostics::print_error(&format_args!(
                "cannot write checkpoint {number}: {}{advice}; the program goes on, and the earlier checkpoints count",
                host::plain(error)
            ));
        }
    };
    let ended = checkpointer.run(&interrupted, &mut report);
    if has_stats && checkpointer.pages_given() > 0 {
        diagnostics::print_notice(&format_args!("{} pages were read since the program was restored", checkpointer.pages_given()));
    }
    Ok(report_end_of(name, ended.map_err(Failure::Nested)?))
}

/// The settings of a checkpointer in this cell. `child` was not started.
fn settings(
    device: &CellsDevice,
    child: HoldingName,
    directory: &Path,
    (interval, keep): (Option<Duration>, Option<u32>),
) -> Result<CheckpointSettings> {
    let files_fingerprint = match std::env::var_os(VIEW_VARIABLE) {
        Some(fingerprint) => fingerprint.to_string_lossy().into_owned(),
        None => format!("{CELL_VIEW}{}", std::fs::read_to_string(BOOT_ID)?.trim()),
    };
    let mut table = vec![0; (CPUID_TABLE_PAGES * PAGE_SIZE) as usize];
    device.read(child.current_space(), CPUID_TABLE, &mut table)?;
    let features = pando_store::features_of_table(&table);
    let requirements = RestoreRequirements { interface: pando_abi::VERSION, features, files_fingerprint };
    let directory = CheckpointDirectory::new(directory.into());
    Ok(CheckpointSettings { directory, interval, requirements, memory: host::memory().0, keep })
}

/// Checks that a program can continue here.
fn check(stored: &RestoreRequirements, here: &RestoreRequirements) -> Result<()> {
    if stored.interface != here.interface {
        let RestoreRequirements { interface, .. } = stored;
        return Err(Error::other(format!(
            "cannot restore it: the checkpoint is of version {interface} of the interface between cells and kernel, and this is version {}: \
             use the Pando that has written it",
            here.interface
        )));
    }
    if let Some(missing) = pando_store::missing_features(&stored.features, &here.features) {
        return Err(Error::other(format!("cannot restore it: this CPU lacks {missing}, which the program may use")));
    }
    if stored.files_fingerprint != here.files_fingerprint
        && [stored, here].iter().any(|requirements| requirements.files_fingerprint.starts_with(CELL_VIEW))
    {
        return Err(Error::other("cannot restore it: it was written by a `pando` in a cell, and continues in that cell only"));
    }
    if stored.files_fingerprint != here.files_fingerprint {
        return Err(Error::other(
            "cannot restore it: files that the program sees have changed since the checkpoint (those of -v, the host's software, or pando \
             itself): restore them, or start the program again",
        ));
    }
    Ok(())
}

/// Creates the directory, and writes the program to it. Returns the directory's path and the program.
fn prepare(options: &CheckpointOptions) -> Result<(PathBuf, CheckpointedProgram)> {
    let failed = |error: Error| cannot_use(&options.output, &error);
    // A refused command leaves no directory.
    check_directory(&host::absolute(&options.output)?)?;
    std::fs::create_dir_all(&options.output).map_err(failed)?;
    let path = options.output.canonicalize().map_err(failed)?;
    check_directory(&path)?;
    lock(&path)?;
    if let Some(newest) = CheckpointDirectory::new(path.clone()).checkpoints().map_err(failed)?.first() {
        return Err(Error::other(format!(
            "{} has checkpoints already, the newest is {newest}: continue with `pando restore`, or choose another directory",
            options.output.display()
        )));
    }
    let checkpointed = options.program.checkpointed()?;
    checkpointed.write(&path).map_err(failed)?;
    Ok((path, checkpointed))
}

/// Replaces this process by the same command in a cell. Returns the error if that fails.
fn start_checkpointer(options: &CheckpointOptions) -> Result<Error> {
    let (path, checkpointed) = prepare(options)?;
    let mut inside: Vec<OsString> = vec!["--every".into(), format!("{}ns", options.every.as_nanos()).into()];
    inside.extend(["-o".into(), CHECKPOINTS.into()]);
    inside.extend(keep(options.keep));
    inside.extend(options.stats.then(|| "--stats".into()));
    Ok(options.program.start_in_cell_of(&checkpointed, &path, "checkpoint", &inside))
}

/// The same for a restored program.
fn start_restorer(options: &RestoreOptions) -> Result<Error> {
    let (directory, number) = &options.checkpoint;
    let path = directory.canonicalize().map_err(|error| cannot_use(directory, &error))?;
    check_directory(&path)?;
    if options.every.is_some() {
        lock(&path)?;
    }
    let mut checkpointed = CheckpointedProgram::read(&path)?;
    checkpointed.check_volumes(&path)?;
    if let Some(memory) = options.memory {
        checkpointed.memory = Some(memory.in_bytes());
    }
    let mut inside: Vec<OsString> = Vec::new();
    if let Some(every) = options.every {
        inside.extend(["--every".into(), format!("{}ns", every.as_nanos()).into()]);
    }
    inside.extend(keep(options.keep));
    inside.extend(options.check.then(|| "--check".into()));
    inside.extend(options.stats.then(|| "--stats".into()));
    let number = number.map(|number| format!("@{number}")).unwrap_or_default();
    inside.push(format!("{CHECKPOINTS}{number}").into());
    Ok(checkpointed.start_in_cell(&path, "restore", &[], &inside))
}

/// Locks a directory to which this process writes checkpoints, until the process ends: also after it has become `pando run`.
fn lock(directory: &Path) -> Result<()> {
    let file = File::open(directory).map_err(|error| cannot_use(directory, &error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(Error::other(format!(
                "another process writes checkpoints to {}: wait until it has ended, or choose another directory",
                directory.display()
            )));
        }
        Err(TryLockError::Error(error)) => return Err(cannot_use(directory, &error)),
    }
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty())?;
    // It stays open.
    let _ = file.into_raw_fd();
    Ok(())
}

/// The option `--keep`.
fn keep(number: Option<u32>) -> impl Iterator<Item = OsString> {
    number.into_iter().flat_map(|number| ["--keep".into(), number.to_string().into()])
}

fn cannot_use(directory: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("cannot use the directory {}: {}", directory.display(), host::plain(error)))
}
