// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando run`: one program, one cell.

use crate::cli::Run;
use crate::host::{self, NoProgram};
use crate::{OWN_FAILURE, stats};
use pando_image::{Attributes, Builder, HostFile};
use pando_kernel::{CellId, Config, End, Kernel, Outcome};
use pando_launch::{Calls, LaunchError, Program, Root, Streams, Template, Terminals, forward};
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_machine::{HostError, PageCount};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const TIMED_OUT: u8 = 124;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// What ends a program that writes where nobody reads; nobody needs to be told.
const SIGPIPE: u8 = 13;

/// Room beside the cell and the files that it is shown: the machine's own, the libOS's template, tables.
const SLACK: PageCount = PageCount(1 << 14);

/// Why a command could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// There is no such program.
    #[error("{}: not found: give a path, or a name that PATH leads to", .0.display())]
    NotFound(OsString),
    /// The program cannot be executed.
    #[error("{}: {why}", program.display())]
    NotExecutable {
        /// What was named.
        program: OsString,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A file that was to be shown cannot be.
    #[error("-v {}: {why}", file.display())]
    Volume {
        /// What was named.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The host has no KVM for us, or failed.
    #[error("{0}\n       `pando doctor` looks closer")]
    Host(#[from] HostError),
    /// The cell could not be made.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A standard stream failed.
    #[error("cannot write the program's output: {0}")]
    Output(std::io::Error),
    /// A benchmark failed.
    #[error(transparent)]
    Bench(#[from] pando_bench::BenchError),
}

impl Failure {
    /// The exit status that says so.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Failure::NotFound(_) => NOT_FOUND,
            Failure::NotExecutable { .. } => NOT_EXECUTABLE,
            _ => OWN_FAILURE,
        }
    }
}

/// Runs a program and returns the exit status that tells how it ended.
pub(crate) fn run(options: &Run) -> Result<u8, Failure> {
    let path = host::find_program(&options.program).map_err(|problem| match problem {
        NoProgram::NotFound => Failure::NotFound(options.program.clone()),
        NoProgram::NotExecutable(why) => Failure::NotExecutable { program: options.program.clone(), why },
    })?;
    let memory = options.memory.map_or(PageCount(host::memory().0 / 4), |size| size.pages());
    let (kernel, cell) = prepare(options, &path, memory)?;
    let port = kernel.console(cell).map_err(LaunchError::from)?;
    kernel.start(cell).map_err(LaunchError::from)?;
    let kernel = Arc::new(kernel);
    let watch = options.timeout.map(|timeout| watch(Arc::clone(&kernel), cell, timeout));
    let streams = Streams { input: std::io::stdin(), output: std::io::stdout().lock(), errors: std::io::stderr() };
    let forwarded = forward(&kernel, cell, &port, streams);
    let outcome = kernel.wait(cell).map_err(LaunchError::from)?;
    drop(watch);
    forwarded.map_err(Failure::Output)?;
    if options.stats {
        eprint!("{}", stats::table(&outcome));
    }
    Ok(report(&options.program, &outcome))
}

/// Makes the kernel, and in it the cell that waits to be started.
fn prepare(options: &Run, path: &Path, memory: PageCount) -> Result<(Kernel, CellId), Failure> {
    let files = files(options, path)?;
    let shown: u64 = options.files.iter().map(PathBuf::as_path).chain([path]).map(size).sum();
    let arena = memory + PageCount::covering(shown) + SLACK;
    let vcpus = std::thread::available_parallelism().map_or(1, usize::from);
    let machine = Kvm::new(KvmConfig { arena, vcpus, shadow_tables: None, omit: Omit::NOTHING })?;
    let kernel = Kernel::new(machine, Config::default());
    kernel.start_vcpus()?;
    let template = Template::boot(&kernel)?;
    kernel.wait_frozen(template.cell()).map_err(LaunchError::from)?;
    let root = Root::new(&kernel, template, files)?;
    let program = Program {
        path: path.as_os_str().as_bytes().to_vec(),
        directory: directory().as_os_str().as_bytes().to_vec(),
        arguments: std::iter::once(&options.program).chain(&options.arguments).map(|argument| argument.as_bytes().to_vec()).collect(),
        environment: host::environment(),
        terminals: Terminals {
            input: std::io::stdin().is_terminal(),
            output: std::io::stdout().is_terminal(),
            errors: std::io::stderr().is_terminal(),
            rows: 0,
            columns: 0,
        },
        calls: Calls::default(),
        user: 0,
        group: 0,
        memory,
    };
    let cell = program.prepare(&kernel, &root)?;
    Ok((kernel, cell))
}

/// The size of a file; 0 if it is not there, which is reported when it is opened.
fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Where the program starts: where the caller stands, if that can be said.
fn directory() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"))
}

/// The root image's content: the program, the files that were named, and the working directory to find them from.
fn files(options: &Run, program: &Path) -> Result<Builder, Failure> {
    let mut files = Builder::new();
    let host_file = |path: &Path| HostFile::new(path).map_err(|error| error.to_string());
    let file = host_file(program).map_err(|_| Failure::NotExecutable { program: options.program.clone(), why: "cannot be read" })?;
    files.file(program.as_os_str().as_bytes(), file.attributes(), file).map_err(LaunchError::from)?;
    // A second name for the same file, or a directory that is there already, changes nothing.
    let _ = files.directory(directory().as_os_str().as_bytes(), Attributes::root(0o755));
    let _ = files.directory("tmp", Attributes::root(0o1777));
    for given in &options.files {
        let volume = |problem: String| Failure::Volume { file: given.clone(), why: problem };
        let path = std::path::absolute(given).map_err(|error| volume(error.to_string()))?;
        if path == program {
            continue;
        }
        let file = host_file(&path).map_err(volume)?;
        files.file(path.as_os_str().as_bytes(), file.attributes(), file).map_err(|error| volume(error.to_string()))?;
    }
    Ok(files)
}

/// Ends the cell when its time is up, unless what is returned is dropped before.
fn watch(kernel: Arc<Kernel>, cell: CellId, timeout: Duration) -> mpsc::Sender<()> {
    let (alive, ended) = mpsc::channel();
    std::thread::spawn(move || {
        if ended.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout) {
            // It may have ended this very moment.
            let _ = kernel.end(cell, End::TimedOut);
        }
    });
    alive
}

/// Says how the program ended, where that is not its own affair, and with which status to tell the caller.
fn report(program: &OsString, outcome: &Outcome) -> u8 {
    let status = match &outcome.end {
        End::Exited { status } => return *status,
        End::Signalled { signal: SIGPIPE, .. } => return 128 + SIGPIPE,
        End::Signalled { signal, .. } => 128_u8.saturating_add(*signal),
        End::TimedOut => TIMED_OUT,
        End::Fault(_) | End::DoubleFault(_) | End::Violation(_) | End::Stuck { .. } => 128 + 11,
        End::Quota | End::MachineFull | End::Killed => 128 + 9,
        End::Host(_) => OWN_FAILURE,
    };
    eprintln!("pando: {}: {}", program.display(), outcome.end);
    status
}
