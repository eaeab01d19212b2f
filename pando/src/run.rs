// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando run`: one program, one cell.

use crate::cli::Run;
use crate::client;
use crate::exports::Running;
use crate::failure::Failure;
use crate::host;
use crate::laps::Laps;
use crate::machine;
use crate::network::{Network, Story};
use crate::options::StatsFormat;
use crate::say::{self, OWN_FAILURE};
use crate::signals::Signals;
use crate::size::Size;
use crate::stats;
use crate::terminal::{self, RawTerminal};
use crate::view::Asked;
use crate::watch::Watch;
use pando_confine::Needs;
use pando_gateway::Forward;
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
/// What asks a program to end.
pub(crate) const SIGTERM: u8 = 15;
/// What ends a program that writes where nobody reads; nobody needs to be told.
pub(crate) const SIGPIPE: u8 = 13;

/// Runs a program and returns the exit status that tells how it ended.
pub(crate) fn run(options: &Run) -> Result<u8, Failure> {
    if options.detach {
        return client::run(options);
    }
    if options.terminal && !terminal::is_there() {
        return Err(Failure::NoTerminal);
    }
    pando_confine::forbid_dumps()?;
    let mut laps = Laps::start();
    let network = Network::prepare(&options.connection, options.program(), options.terminal)?;
    let mut seen = Asked::for_run(&options.seen, options.program())?;
    seen.reach.ports = network.ports();
    laps.end("view");
    let (kernel, cell) = prepare(options, &mut seen, &mut laps)?;
    let single = Single {
        name: options.program(),
        terminal: options.terminal,
        timeout: options.limits.timeout,
        output: options.limits.output_limit.map(Size::in_bytes),
        written: options.write_limit.in_bytes(),
        stats: options.stats,
        publish: &options.connection.publish,
    };
    finish(&single, &Arc::new(kernel), cell, seen, network, &mut laps)
}

/// A cell that has this process for itself.
pub(crate) struct Single<'a> {
    /// What the program is called.
    pub(crate) name: &'a OsStr,
    /// It has the terminal for itself.
    pub(crate) terminal: bool,
    /// How long it may take.
    pub(crate) timeout: Option<Duration>,
    /// Bytes that it may say.
    pub(crate) output: Option<u64>,
    /// Bytes by which it may let the host's directories grow.
    pub(crate) written: u64,
    /// What it took is told in the end.
    pub(crate) stats: Option<StatsFormat>,
    /// What was asked to lead to it.
    pub(crate) publish: &'a [Forward],
}

/// Runs a cell that waits to be started until it has ended; returns the exit status that tells how.
///
/// # Errors
/// The host does not let it run, or does not take what it says.
pub(crate) fn finish(
    single: &Single<'_>,
    kernel: &Arc<Kernel>,
    cell: CellId,
    seen: Asked,
    network: Network,
    laps: &mut Laps,
) -> Result<u8, Failure> {
    let Ended { outcome, network, whole } = attend(single, kernel, cell, seen, network, laps)?;
    laps.end("program");
    let (status, said) = told(&outcome);
    match single.stats {
        // Its first line says how the cell ended.
        Some(StatsFormat::Table) => eprint!("{}", escaped_lines(&stats::table(single.name, &outcome, &network, laps))),
        Some(StatsFormat::Json) => eprintln!("{}", stats::json(&outcome, &network, laps)),
        None if said && outcome.end == End::Quota => {
            say::problem(&format_args!("{}: {}: give it more with --memory", single.name.display(), outcome.end));
        }
        None if said => say::problem(&format_args!("{}: {}", single.name.display(), outcome.end)),
        None => {}
    }
    Ok(if whole { status } else { OWN_FAILURE })
}

/// A cell that has ended.
struct Ended {
    outcome: Outcome,
    /// What its network did.
    network: Story,
    /// All that it read and changed could be carried.
    whole: bool,
}

/// Starts the cell and gives it the host's streams, signals, terminal, volumes and network until it has ended.
fn attend(
    single: &Single<'_>,
    kernel: &Arc<Kernel>,
    cell: CellId,
    mut seen: Asked,
    network: Network,
    laps: &mut Laps,
) -> Result<Ended, Failure> {
    let port = kernel.console(cell).map_err(LaunchError::from)?;
    // Every thread that there will be, because a confined process starts none.
    seen.renew();
    let connecting = network.connects();
    network.announce(single.publish);
    let network = network.connect(kernel, cell)?;
    let write_back = seen.exports.write_back(kernel, cell, single.written)?;
    let watch = Watch::start(kernel).map_err(Failure::Thread)?;
    let signals = Signals::pass_on(kernel, Some(cell), &watch)?;
    let unread = Arc::<AtomicBool>::default();
    carry_input(&port, std::io::stdin(), complain(&unread)).map_err(Failure::Thread)?;
    let terminal = single.terminal.then(RawTerminal::enter).transpose().map_err(Failure::Terminal)?;
    machine::limit_calls(Needs { writing_back: write_back.is_some(), connecting, ..Needs::default() })?;
    laps.end("confinement");

    kernel.start(cell).map_err(LaunchError::from)?;
    if let Some(time) = single.timeout {
        watch.limit(cell, time, End::TimedOut);
    }
    let carried = carry_output(kernel, cell, &port, (std::io::stdout().lock(), std::io::stderr()), single.output);
    let mut outcome = kernel.wait(cell).map_err(LaunchError::from)?;
    drop(terminal);
    let network = network.finish().map_err(Failure::Gateway);
    let written = write_back.is_none_or(Running::finish);
    carried.map_err(Failure::Output)?;
    let network = network?;
    // A cell knows one way of being asked to end; the host knows several.
    if let (End::Signalled { signal, .. }, Some(asked)) = (&mut outcome.end, signals.asked())
        && *signal == SIGTERM
    {
        *signal = asked;
    }
    Ok(Ended { outcome, network, whole: written && !unread.load(Ordering::Relaxed) })
}

/// Says that standard input could not be read, and notes it.
fn complain(unread: &Arc<AtomicBool>) -> impl FnOnce(std::io::Error) + Send + use<> {
    let unread = Arc::clone(unread);
    move |error| {
        say::problem(&format_args!("cannot read standard input: {}", host::plain(&error)));
        unread.store(true, Ordering::Relaxed);
    }
}

/// Makes the kernel, and in it the cell that waits to be started.
fn prepare(options: &Run, seen: &mut Asked, laps: &mut Laps) -> Result<(Kernel, CellId), Failure> {
    let memory = options.limits.memory();
    let kernel = machine::start(memory, &seen.reach, laps)?;
    let libos = machine::libos(&kernel, laps)?;
    let root = Root::new(&kernel, &libos, mem::take(&mut seen.volumes))?;
    let calls = Calls { trap: options.trap_calls, trace: options.strace };
    let program = Program { terminals: terminals(options.terminal), calls, memory, ..seen.program(&options.seen, options.arguments()) };
    let cell = program.prepare(&kernel, &root)?;
    options.limits.apply(&kernel, cell)?;
    if let Some(name) = &options.host_name {
        kernel.set_host_name(cell, name).map_err(LaunchError::from)?;
    }
    laps.end("cell");
    Ok((kernel, cell))
}

/// Which of the program's streams are terminals, and how large they are.
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

/// The status that tells the caller how the program ended, and whether that needs a word: it does where it is not the program's own affair.
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
