// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando run`: one program, one cell.

use crate::cli::Run;
use crate::failure::{Failure, OWN_FAILURE};
use crate::host;
use crate::options::StatsFormat;
use crate::signals::Signals;
use crate::terminal::{self, RawTerminal};
use crate::view::Asked;
use crate::watch::Watch;
use crate::{say, stats};
use pando_kernel::{CellId, Config, End, Kernel, Outcome};
use pando_launch::{Calls, LaunchError, Program, Root, Streams, Template, Terminals, forward};
use pando_machine::PageCount;
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use std::io::IsTerminal;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

const TIMED_OUT: u8 = 124;
const SIGTERM: u8 = 15;
/// What ends a program that writes where nobody reads; nobody needs to be told.
const SIGPIPE: u8 = 13;

/// Room beside the cell and the blocks of files that are kept in memory: the machine's own, the libOS's template, tables.
const SLACK: PageCount = PageCount(1 << 14);

/// Runs a program and returns the exit status that tells how it ended.
pub(crate) fn run(options: &Run) -> Result<u8, Failure> {
    if options.terminal && !terminal::is_there() {
        return Err(Failure::NoTerminal);
    }
    let mut seen = Asked::for_run(options)?;
    let (kernel, cell) = prepare(options, &mut seen)?;
    seen.renew();
    let outcome = attend(options, &Arc::new(kernel), cell)?;
    let (status, said) = told(&outcome);
    match options.stats {
        // Its first line says how the cell ended.
        Some(StatsFormat::Table) => eprint!("{}", stats::table(options.program(), &outcome)),
        Some(StatsFormat::Json) => eprintln!("{}", stats::json(&outcome)),
        None if said => say::problem(&format_args!("{}: {}", options.program().display(), outcome.end)),
        None => {}
    }
    Ok(status)
}

/// Starts the cell and gives it the host's streams, signals and terminal until it has ended.
fn attend(options: &Run, kernel: &Arc<Kernel>, cell: CellId) -> Result<Outcome, Failure> {
    let port = kernel.console(cell).map_err(LaunchError::from)?;
    let terminal = options.terminal.then(RawTerminal::enter).transpose().map_err(Failure::Terminal)?;
    let signals = Signals::pass_on(kernel, cell)?;
    kernel.start(cell).map_err(LaunchError::from)?;
    let watch = options.timeout.map(|timeout| Watch::start(kernel, cell, timeout, End::TimedOut));
    let streams = Streams { input: std::io::stdin(), output: std::io::stdout().lock(), errors: std::io::stderr() };
    let forwarded = forward(kernel, cell, &port, streams);
    let mut outcome = kernel.wait(cell).map_err(LaunchError::from)?;
    drop((watch, terminal));
    forwarded.map_err(Failure::Output)?;
    // A cell knows one way of being asked to end; the host knows several.
    if let (End::Signalled { signal, .. }, Some(asked)) = (&mut outcome.end, signals.asked())
        && *signal == SIGTERM
    {
        *signal = asked;
    }
    Ok(outcome)
}

/// Makes the kernel, and in it the cell that waits to be started.
fn prepare(options: &Run, seen: &mut Asked) -> Result<(Kernel, CellId), Failure> {
    let memory = options.memory.map_or(PageCount(host::memory().0 / 4), |size| size.pages());
    // Memory is taken from the host as it is used, and blocks that no cell maps are given up first.
    let registry = PageCount(host::memory().0 / 4);
    let arena = memory + registry + SLACK;
    let vcpus = std::thread::available_parallelism().map_or(1, usize::from);
    let machine = Kvm::new(KvmConfig { arena, vcpus, shadow_tables: None, omit: Omit::NOTHING })?;
    let kernel = Kernel::new(machine, Config { registry, ..Config::default() });
    kernel.start_vcpus()?;
    let template = Template::boot(&kernel)?;
    kernel.wait_frozen(template.cell()).map_err(LaunchError::from)?;
    let root = Root::new(&kernel, template, mem::take(&mut seen.volumes))?;
    let program = Program {
        path: seen.program.as_os_str().as_bytes().to_vec(),
        directory: seen.directory.as_os_str().as_bytes().to_vec(),
        arguments: options.arguments().iter().map(|argument| argument.as_bytes().to_vec()).collect(),
        environment: host::environment(&options.variables),
        exports: Vec::new(),
        terminals: terminals(options),
        calls: Calls { trap: options.trap_calls },
        user: options.user.user,
        group: options.user.group,
        memory,
    };
    let cell = program.prepare(&kernel, &root)?;
    options.cpus.map_or(Ok(()), |share| kernel.set_share(cell, share)).map_err(LaunchError::from)?;
    Ok((kernel, cell))
}

/// Which of the program's streams are terminals, and how large they are.
fn terminals(options: &Run) -> Terminals {
    let [rows, columns] = terminal::window();
    Terminals {
        input: std::io::stdin().is_terminal(),
        output: std::io::stdout().is_terminal(),
        errors: std::io::stderr().is_terminal(),
        raw: options.terminal,
        rows,
        columns,
    }
}

/// The status that tells the caller how the program ended, and whether that needs a word: it does where it is not the program's own affair.
fn told(outcome: &Outcome) -> (u8, bool) {
    let status = match &outcome.end {
        End::Exited { status } => return (*status, false),
        End::Signalled { signal: SIGPIPE, .. } => return (128 + SIGPIPE, false),
        End::Signalled { signal, .. } => 128_u8.saturating_add(*signal),
        End::TimedOut => TIMED_OUT,
        End::Fault(_) | End::DoubleFault(_) | End::Violation(_) | End::Stuck { .. } => 128 + 11,
        End::Quota | End::MachineFull | End::Killed => 128 + 9,
        End::Host(_) => OWN_FAILURE,
    };
    (status, true)
}
