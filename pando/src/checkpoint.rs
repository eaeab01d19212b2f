// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando checkpoint`: a program whose state is written to a directory at intervals, or which moves to another process.

use crate::checkpointed_program::{CHECKPOINTS, CellAround, CheckpointedProgram};
use crate::failure::Failure;
use crate::migration::{MoveCell, MoveOptions};
use crate::monitor::{MonitoredProgram, check_directory, report_end_of};
use crate::run::VIEW_VARIABLE;
use crate::{diagnostics, nested, size};
use clap::{Args, ValueHint};
use pando_abi::layout::{CPUID_TABLE, CPUID_TABLE_PAGES};
use pando_abi::{HoldingName, PAGE_SIZE};
use pando_machine::CellsDevice;
use pando_manager::host;
use pando_nest::checkpointer::{CheckpointDirectory, CheckpointEvent, CheckpointSettings, Checkpointer, ProgramEnd, RestoreRequirements};
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The identifier of a running system: each cell has its own.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The exit status of a source from which the program has moved.
const MOVED: u8 = 123;
/// The beginning of the name of the files that a cell shows to its nested cells.
const CELL_VIEW: &str = "cell ";

#[derive(Debug, Args)]
pub(crate) struct CheckpointOptions {
    /// Write a checkpoint each time that this time has passed: 10s, 5m
    #[arg(long, value_name = "TIME", required_unless_present = "port", requires = "output", value_parser = size::duration)]
    every: Option<Duration>,

    /// The directory for the checkpoints. It is created; if it exists, it must have none
    #[arg(short = 'o', long, value_name = "DIR", requires = "every", value_hint = ValueHint::DirPath)]
    output: Option<PathBuf>,

    /// Keep only the newest NUMBER checkpoints, and files with pages of them [default: all]
    #[arg(long, requires = "every", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,

    /// Print the sizes of each checkpoint, and for how long the program was halted, on standard error
    #[arg(long)]
    stats: bool,

    #[command(flatten)]
    moves: MoveOptions,

    #[command(flatten)]
    program: MonitoredProgram,
}

/// Runs a program, writes its checkpoints, and lets it move. Returns its exit status.
///
/// # Errors
/// The directory has checkpoints, the cell cannot be made, or a stream failed.
pub(crate) fn checkpoint(options: &CheckpointOptions) -> std::result::Result<u8, Failure> {
    if options.moves.has_token_file() && !options.moves.is_movable() {
        return Err(Failure::Nested(Error::other("--token-file: it is for --port")));
    }
    let Some(device) = nested::device()? else {
        return Err(Failure::Nested(start_in_cell(options).unwrap_or_else(|error| error)));
    };
    // Otherwise the `pando` on the host has done it.
    if std::env::var_os(VIEW_VARIABLE).is_none()
        && let Some(directory) = &options.output
    {
        prepare(directory, &options.program.checkpointed().map_err(Failure::Nested)?).map_err(Failure::Nested)?;
    }
    let program = options.program.program()?;
    let child = options.program.create(&device, &program)?;
    let settings = settings(&device, child, options.output.as_deref(), (options.every, options.keep)).map_err(Failure::Nested)?;
    let listener = options.moves.listener(&settings.requirements, || options.program.checkpointed()).map_err(Failure::Nested)?;
    let mut checkpointer = Checkpointer::new(&device, child, settings).map_err(Failure::Nested)?;
    listener.into_iter().for_each(|listener| checkpointer.listen(listener));
    run(checkpointer, options.stats, options.program.name())
}

/// Runs the child of a checkpointer to its end.
pub(crate) fn run(mut checkpointer: Checkpointer<'_>, has_stats: bool, name: &OsStr) -> std::result::Result<u8, Failure> {
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
        CheckpointEvent::TakenOver { time } if has_stats => {
            diagnostics::print_notice(&format_args!("the program has moved here in {:.3} ms", time.as_secs_f64() * 1e3));
        }
        CheckpointEvent::TakenOver { .. } => {}
        CheckpointEvent::NotMoved { error } => diagnostics::print_error(&format_args!(
            "the program was not moved, and goes on here: {}; it can still be moved with `pando restore`",
            host::plain(error)
        )),
        CheckpointEvent::InterruptedWhileSending { destination } => diagnostics::print_notice(&format_args!(
            "the program has moved to {destination}, and needs pages that are still here: press Ctrl-C twice within a second to end this \
             process, and the program when it needs one"
        )),
        CheckpointEvent::PagesLost { reason } => diagnostics::print_error(&format_args!(
            "the connection to the source is broken: {reason}; the program goes on until it needs a page that has not come"
        )),
        CheckpointEvent::NotRemoved { error } => {
            diagnostics::print_error(&format_args!("cannot remove older checkpoints: {}; remove them by hand", host::plain(error)));
        }
        CheckpointEvent::Failed { number, error } => {
            let advice = match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => ": make room",
                _ => "",
            };
            diagnostics::print_error(&format_args!(
                "cannot write checkpoint {number}: {}{advice}; the program goes on, the earlier checkpoints count, and the next one is tried \
                 when it is due",
                host::plain(error)
            ));
        }
    };
    let ended = checkpointer.run(&interrupted, &mut report);
    if has_stats && checkpointer.pages_given() > 0 {
        diagnostics::print_notice(&format_args!("{} pages were read since the program was restored", checkpointer.pages_given()));
    }
    match ended.map_err(Failure::Nested)? {
        ProgramEnd::Ended(state) => Ok(report_end_of(name, state)),
        ProgramEnd::Moved { destination, pages } => {
            diagnostics::print_notice(&format_args!("moved to {destination}: {pages} pages"));
            Ok(MOVED)
        }
    }
}

/// The settings of a checkpointer in this cell. `child` was not started.
pub(crate) fn settings(
    device: &CellsDevice,
    child: HoldingName,
    directory: Option<&Path>,
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
    let directory = directory.map(|directory| CheckpointDirectory::new(directory.into()));
    Ok(CheckpointSettings { directory, interval, requirements, memory: host::memory().0, keep })
}

/// Where a program comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A checkpoint.
    Checkpoint,
    /// Another process, in which it runs.
    Source,
}

/// Checks that a program can continue here.
///
/// # Errors
/// It cannot.
pub(crate) fn check(stored: &RestoreRequirements, here: &RestoreRequirements, origin: Origin) -> Result<()> {
    let [whole, since, elsewhere] = match origin {
        Origin::Checkpoint => ["restore", "the checkpoint is", "it was written by a `pando` in a cell, and continues in that cell only"],
        Origin::Source => ["move", "the source is", "one of both runs in a cell, and the program moves only to the same cell"],
    };
    if stored.interface != here.interface {
        let RestoreRequirements { interface, .. } = stored;
        return Err(Error::other(format!(
            "cannot {whole} it: {since} of version {interface} of the interface between cells and kernel, and this is version {}: use the \
             same version of Pando",
            here.interface
        )));
    }
    if let Some(missing) = pando_store::missing_features(&stored.features, &here.features) {
        return Err(Error::other(format!("cannot {whole} it: this CPU lacks {missing}, which the program may use")));
    }
    if stored.files_fingerprint == here.files_fingerprint {
        return Ok(());
    }
    if [stored, here].iter().any(|requirements| requirements.files_fingerprint.starts_with(CELL_VIEW)) {
        return Err(Error::other(format!("cannot {whole} it: {elsewhere}")));
    }
    Err(Error::other(match origin {
        Origin::Checkpoint => {
            "cannot restore it: files that the program sees have changed since the checkpoint (those of -v, the host's software, or pando \
             itself): restore them, or start the program again"
        }
        Origin::Source => {
            "cannot move it: it sees other files there than it would see here (those of -v, the host's software, or pando itself): both \
             sides need the same, unchanged since its start"
        }
    }))
}

/// Creates a directory, and writes the program to it. Returns the directory's path.
fn prepare(directory: &Path, program: &CheckpointedProgram) -> Result<PathBuf> {
    let failed = |error: Error| cannot_use(directory, &error);
    // A refused command leaves no directory.
    check_directory(&host::absolute(directory)?)?;
    std::fs::create_dir_all(directory).map_err(failed)?;
    let path = directory.canonicalize().map_err(failed)?;
    check_directory(&path)?;
    lock(&path)?;
    if let Some(newest) = CheckpointDirectory::new(path.clone()).checkpoints().map_err(failed)?.first() {
        return Err(Error::other(format!(
            "{} has checkpoints already, the newest is {newest}: continue with `pando restore`, or choose another directory",
            directory.display()
        )));
    }
    program.write(&path).map_err(failed)?;
    Ok(path)
}

/// Replaces this process by the same command in a cell. Returns the error if that fails.
fn start_in_cell(options: &CheckpointOptions) -> Result<Error> {
    let program = options.program.checkpointed()?;
    let path = options.output.as_ref().map(|directory| prepare(directory, &program)).transpose()?;
    let MoveCell { options: around, variables, mut inside } = options.moves.around(&program)?;
    if let Some(every) = options.every {
        inside.extend(["--every".into(), format!("{}ns", every.as_nanos()).into(), "-o".into(), CHECKPOINTS.into()]);
    }
    inside.extend(keep(options.keep));
    inside.extend(options.stats.then(|| "--stats".into()));
    let around = CellAround { directory: path.as_deref(), options: around, variables };
    Ok(options.program.start_in_cell_of(&program, around, "checkpoint", &inside))
}

/// Locks a directory to which this process writes checkpoints, until the process ends: also after it has become `pando run`.
///
/// # Errors
/// Another process has locked it.
pub(crate) fn lock(directory: &Path) -> Result<()> {
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
pub(crate) fn keep(number: Option<u32>) -> impl Iterator<Item = OsString> {
    number.into_iter().flat_map(|number| ["--keep".into(), number.to_string().into()])
}

/// The error about a directory.
pub(crate) fn cannot_use(directory: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("cannot use the directory {}: {}", directory.display(), host::plain(error)))
}
