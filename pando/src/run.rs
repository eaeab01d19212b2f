// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando run`: runs one program in one cell.

use crate::cli::Run;
use crate::client;
use crate::diagnostics::{self, OWN_FAILURE};
use crate::exports::RunningExports;
use crate::failure::Failure;
use crate::host;
use crate::machine;
use crate::network::{Network, NetworkReport};
use crate::options::StatsFormat;
use crate::signals::Signals;
use crate::size::Size;
use crate::stats;
use crate::terminal::{self, RawTerminal};
use crate::time_limits::TimeLimits;
use crate::timings::Timings;
use crate::view::ViewRequest;
use pando_confine::Needs;
use pando_gateway::PortForward;
use pando_image::escaped_lines;
use pando_kernel::{CellId, End, Kernel, Outcome};
use pando_launch::{Calls, LaunchError, Program, Root, Terminals, carry_input, carry_output};
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) const TIMED_OUT: u8 = 124;
/// Signal that asks a program to end.
pub(crate) const SIGTERM: u8 = 15;
/// Signal that ends a program which writes to a closed pipe; it is not reported.
pub(crate) const SIGPIPE: u8 = 13;

/// Runs a program and returns its exit status.
pub(crate) fn run(options: &Run) -> Result<u8, Failure> {
    if options.detach {
        return client::run(options);
    }
    if options.terminal && !terminal::is_there() {
        return Err(Failure::NoTerminal);
    }
    pando_confine::forbid_dumps()?;
    let mut timings = Timings::start();
    let network = Network::prepare(&options.connection, options.program(), options.terminal)?;
    let mut seen = ViewRequest::for_run(&options.seen, options.program())?;
    timings.end("view");
    let (kernel, cell) = prepare(options, &mut seen, &mut timings)?;
    let single = Single {
        name: options.program(),
        terminal: options.terminal,
        timeout: options.limits.timeout,
        output: options.limits.output_limit.map(Size::in_bytes),
        written: options.write_limit.in_bytes(),
        stats: options.stats,
        publish: &options.connection.publish,
    };
    finish(&single, &Arc::new(kernel), cell, seen, network, &mut timings)
}

/// Options for the only cell of this process.
pub(crate) struct Single<'a> {
    /// The program's name.
    pub(crate) name: &'a OsStr,
    /// It owns the terminal.
    pub(crate) terminal: bool,
    /// Its time limit.
    pub(crate) timeout: Option<Duration>,
    /// Its output limit in bytes.
    pub(crate) output: Option<u64>,
    /// Bytes by which the volumes that it writes may grow.
    pub(crate) written: u64,
    /// Statistics to print at the end.
    pub(crate) stats: Option<StatsFormat>,
    /// The published ports.
    pub(crate) publish: &'a [PortForward],
}

/// Starts a prepared cell and runs it to its end. Returns its exit status.
///
/// # Errors
/// The host cannot run it, or its output cannot be written.
pub(crate) fn finish(
    single: &Single<'_>,
    kernel: &Arc<Kernel>,
    cell: CellId,
    seen: ViewRequest,
    network: Network,
    timings: &mut Timings,
) -> Result<u8, Failure> {
    let EndedCell { outcome, network, whole } = attend(single, kernel, cell, seen, network, timings)?;
    timings.end("program");
    let (status, said) = told(&outcome);
    match single.stats {
        // The table's first line reports how the cell ended.
        Some(StatsFormat::Table) => eprint!("{}", escaped_lines(&stats::table(single.name, &outcome, &network, timings))),
        Some(StatsFormat::Json) => eprintln!("{}", stats::json(&outcome, &network, timings)),
        None if said && outcome.end == End::Quota => {
            diagnostics::problem(&format_args!("{}: {}: give it more with --memory", single.name.display(), outcome.end));
        }
        None if said => diagnostics::problem(&format_args!("{}: {}", single.name.display(), outcome.end)),
        None => {}
    }
    Ok(if whole { status } else { OWN_FAILURE })
}

/// The result of a cell that has ended.
struct EndedCell {
    outcome: Outcome,
    /// Its network's report.
    network: NetworkReport,
    /// All input could be read and all changes written back.
    whole: bool,
}

/// Starts the cell and connects it to the host's streams, signals, terminal, volumes and network until it has ended.
fn attend(
    single: &Single<'_>,
    kernel: &Arc<Kernel>,
    cell: CellId,
    mut seen: ViewRequest,
    network: Network,
    timings: &mut Timings,
) -> Result<EndedCell, Failure> {
    let port = kernel.console(cell).map_err(LaunchError::from)?;
    // All threads start here, because a confined process cannot start any.
    seen.renew();
    let receiving = network.has_gateway();
    network.announce(single.publish);
    let network = network.connect(kernel, cell)?;
    let write_back = seen.exports.write_back(kernel, cell, single.written)?;
    let watch = TimeLimits::start(kernel).map_err(Failure::Thread)?;
    let signals = Signals::pass_on(kernel, Some(cell), &watch)?;
    let unread = Arc::<AtomicBool>::default();
    carry_input(&port, std::io::stdin(), complain(&unread)).map_err(Failure::Thread)?;
    let terminal = single.terminal.then(RawTerminal::enter).transpose().map_err(Failure::Terminal)?;
    machine::limit_calls(Needs { writing_back: write_back.is_some(), receiving, ..Needs::default() })?;
    timings.end("confinement");

    kernel.start(cell).map_err(LaunchError::from)?;
    if let Some(time) = single.timeout {
        watch.limit(cell, time, End::TimedOut);
    }
    let carried = carry_output(kernel, cell, &port, (std::io::stdout().lock(), std::io::stderr()), single.output);
    let mut outcome = kernel.wait(cell).map_err(LaunchError::from)?;
    drop(terminal);
    let network = network.finish().map_err(Failure::Gateway);
    let written = write_back.is_none_or(RunningExports::finish);
    carried.map_err(Failure::Output)?;
    let network = network?;
    // The kernel reports one signal for every request to end; the host has several.
    if let (End::Signalled { signal, .. }, Some(asked)) = (&mut outcome.end, signals.asked())
        && *signal == SIGTERM
    {
        *signal = asked;
    }
    Ok(EndedCell { outcome, network, whole: written && !unread.load(Ordering::Relaxed) })
}

/// Reports that standard input could not be read, and sets the flag.
fn complain(unread: &Arc<AtomicBool>) -> impl FnOnce(std::io::Error) + Send + use<> {
    let unread = Arc::clone(unread);
    move |error| {
        diagnostics::problem(&format_args!("cannot read standard input: {}", host::plain(&error)));
        unread.store(true, Ordering::Relaxed);
    }
}

/// Creates the kernel, and in it the cell, which is not started yet.
fn prepare(options: &Run, seen: &mut ViewRequest, timings: &mut Timings) -> Result<(Kernel, CellId), Failure> {
    let memory = options.limits.memory();
    let kernel = machine::start(memory, &seen.reach, timings)?;
    let libos = machine::libos(&kernel, timings)?;
    let root = Root::new(&kernel, &libos, mem::take(&mut seen.volumes))?;
    let calls = Calls { trap: options.trap_calls, trace: options.strace };
    let program = Program { terminals: terminals(options.terminal), calls, memory, ..seen.program(&options.seen, options.arguments()) };
    let cell = program.prepare(&kernel, &root)?;
    options.limits.apply(&kernel, cell)?;
    if let Some(name) = &options.host_name {
        kernel.set_host_name(cell, name).map_err(LaunchError::from)?;
    }
    timings.end("cell");
    Ok((kernel, cell))
}

/// Determines which of the program's streams are terminals, and their size.
fn terminals(raw: bool) -> Terminals {
    let [rows, columns] = terminal::window();
    Terminals {
        input: std::io::stdin().is_terminal(),
        output: std::io::stdout().is_terminal(),
        errors: std::io::stderr().is_terminal(),
        raw,
        rows,
        columns,
    }
}

/// The exit status for how the program ended, and whether to print a message: only for ends that the program did not choose.
pub(crate) fn told(outcome: &Outcome) -> (u8, bool) {
    let status = match &outcome.end {
        End::Exited { status } => return (*status, false),
        End::Signalled { signal: SIGPIPE, .. } => return (128 + SIGPIPE, false),
        End::Signalled { signal, .. } => 128_u8.saturating_add(*signal),
        End::TimedOut => TIMED_OUT,
        End::Fault(_) | End::DoubleFault(_) | End::Violation(_) | End::Stuck { .. } => 128 + 11,
        End::Quota | End::MachineFull | End::Killed | End::OutputLimit => 128 + 9,
        End::Host(_) => OWN_FAILURE,
    };
    (status, true)
}
