// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando run`: runs one program in one cell.

use crate::arguments::{NetworkOptions, RunOptions};
use crate::client;
use crate::failure::Failure;
use crate::observer::TerminalObserver;
use crate::options::StatsFormat;
use crate::signals::Signals;
use crate::stats;
use crate::terminal::{self, RawTerminal};
use crate::{diagnostics, environment, messages, nested};
use pando_confine::SyscallGroups;
use pando_gateway::PortForward;
use pando_image::escaped_lines;
use pando_kernel::{End, Kernel, Outcome};
use pando_launch::{Calls, LaunchError, Nesting, Program, copy_input, copy_output};
use pando_manager::cell::{CellGuard, CellSpec};
use pando_manager::limits::Limits;
use pando_manager::machine::{self, SleepConfig};
use pando_manager::mounts::{self, LiveMounts};
use pando_manager::network::{NetworkReport, NetworkSpec, PreparedNetwork};
use pando_manager::outcome::{PANDO_FAILURE_STATUS, exit_status};
use pando_manager::report::Reporter;
use pando_manager::starts::ProgramStart;
use pando_manager::time_limits::TimeLimits;
use pando_manager::timings::Timings;
use pando_manager::view::{self, PreparedView, ViewError, ViewSpec};
use pando_manager::volumes;
use pando_manager::write_back::RunningWriteBack;
use std::ffi::OsStr;
use std::mem;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The variable that names the files which a cell sees.
pub(crate) const VIEW_VARIABLE: &str = "PANDO_VIEW";

/// Runs a program and returns its exit status.
pub(crate) fn run(options: &RunOptions) -> Result<u8, Failure> {
    if options.terminal && !terminal::stdin_is_terminal() {
        return Err(Failure::NoTerminal);
    }
    if options.detach {
        return client::run(options);
    }
    if let Some(device) = nested::device()? {
        return nested::run(options, device);
    }
    pando_confine::forbid_dumps()?;
    let mut timings = Timings::start();
    let observer = TerminalObserver::deferring(options.terminal);
    let caller = environment::caller();
    let mut spec = ViewSpec::from(&options.view);
    let mut connection = options.network.clone();
    if let Some(image) = &mut spec.image {
        image.has_terminal = options.terminal;
        let found = view::image_store(&caller)?.find(&image.name).map_err(ViewError::from)?;
        connection = connection.with_exposed(&found.config.ports);
    }
    // Held until the program has ended.
    let _locks = volumes::acquire(&mut spec.volumes, &caller)?;
    let network = prepare_network(&connection, options.program(), &observer)?;
    let mut view = PreparedView::for_run(&spec, options.arguments(), &caller)?;
    let mut program = view.program(&spec, &caller);
    if options.name_view {
        program.environment.push(name_of(&view)?);
    }
    let start = ProgramStart::open(caller.cache.as_deref(), &program, mem::take(&mut view.fingerprints));
    let growth_max = options.write_limit.in_bytes();
    let mounts = mounts::start(&view.live, growth_max).map_err(|(volume, reason)| ViewError::Volume { volume, reason })?;
    timings.end("view");
    let limits = Limits::from(&options.limits);
    let memory = limits.memory();
    // Nested cells may run at the same time.
    let vcpus = if options.nest > 0 { machine::vcpus_for_many_cells() } else { 1 };
    let sleep = if environment::sleeps_when_idle() { SleepConfig::for_tests(memory.bytes()) } else { SleepConfig::default() };
    let kernel = Arc::new(machine::start_for_program(memory, vcpus, sleep, &view.visible, &mut timings)?);
    let root = machine::prefetched_root(&kernel, mem::take(&mut view.volumes), &start, &mut timings)?;
    let calls = Calls { trap: options.trap_calls, trace: options.strace };
    let nesting = NonZeroU32::new(options.nest).map(|descendants| Nesting { descendants, root: root.cell() });
    let program = Program { terminals: terminal::of_program(options.terminal), calls, memory, nesting, ..program };
    let cell = CellSpec { program, limits, host_name: options.host_name() }.create(Arc::<Kernel>::clone(&kernel), &root)?;
    if let Some(mode) = start.mode() {
        kernel.trace_start(cell.id(), mode).map_err(LaunchError::from)?;
    }
    timings.end("cell");
    let single = SingleCell {
        name: options.program(),
        terminal: options.terminal,
        limits,
        write_limit: options.write_limit.in_bytes(),
        stats: options.stats,
        publish: &connection.forwards(),
        observer: &observer,
        start: Some(&start),
    };
    start_and_wait(&single, &kernel, cell, (view, mounts), network, &mut timings)
}

/// The line of the environment that names the files of a view: the same as long as none has changed.
fn name_of(view: &PreparedView) -> Result<Vec<u8>, Failure> {
    if view.fingerprints.is_empty() {
        let error = std::io::Error::other("checkpoints need a directory for caches: set HOME or XDG_CACHE_HOME");
        return Err(Failure::Nested(error));
    }
    let name: String = view.fingerprints.iter().map(|fingerprint| format!("{fingerprint:016x}")).collect();
    Ok(format!("{VIEW_VARIABLE}={name}").into_bytes())
}

/// Options for the only cell of this process.
pub(crate) struct SingleCell<'a> {
    /// The program's name.
    pub(crate) name: &'a OsStr,
    /// It owns the terminal.
    pub(crate) terminal: bool,
    /// Its limits.
    pub(crate) limits: Limits,
    /// Bytes by which the volumes that it writes may grow.
    pub(crate) write_limit: u64,
    /// Statistics to print at the end.
    pub(crate) stats: Option<StatsFormat>,
    /// The published ports.
    pub(crate) publish: &'a [PortForward],
    /// The observer of its network.
    pub(crate) observer: &'a TerminalObserver,
    /// The record of the program's starts.
    pub(crate) start: Option<&'a ProgramStart>,
}

/// Starts a prepared cell and runs it to its end. Returns its exit status.
///
/// # Errors
/// The host cannot run it, or its output cannot be written.
pub(crate) fn start_and_wait(
    single: &SingleCell<'_>,
    kernel: &Arc<Kernel>,
    cell: CellGuard,
    files: (PreparedView, LiveMounts),
    network: PreparedNetwork,
    timings: &mut Timings,
) -> Result<u8, Failure> {
    let EndedCell { outcome, network, is_complete } = run_attached(single, kernel, cell, files, network, timings)?;
    timings.end("program");
    if let (Some(start), Some(trace)) = (single.start, &outcome.start) {
        start.update(trace);
    }
    match single.stats {
        // The table's first line reports how the cell ended.
        Some(StatsFormat::Table) => eprint!("{}", escaped_lines(&stats::table(single.name, &outcome, &network, timings))),
        Some(StatsFormat::Json) => eprintln!("{}", stats::json(&outcome, &network, timings)),
        None => diagnostics::report_end(single.name, &outcome.end),
    }
    Ok(if is_complete { exit_status(&outcome.end) } else { PANDO_FAILURE_STATUS })
}

/// The result of a cell that has ended.
struct EndedCell {
    outcome: Outcome,
    /// Its network's report.
    network: NetworkReport,
    /// All input could be read and all changes written back.
    is_complete: bool,
}

/// Starts the cell and connects it to the host's streams, signals, terminal, volumes and network until it has ended.
fn run_attached(
    single: &SingleCell<'_>,
    kernel: &Arc<Kernel>,
    cell: CellGuard,
    (mut view, mounts): (PreparedView, LiveMounts),
    network: PreparedNetwork,
    timings: &mut Timings,
) -> Result<EndedCell, Failure> {
    let port = cell.console()?;
    // All threads start here, because a confined process cannot start any.
    view.renew();
    let receiving = network.has_gateway();
    announce(network.forwards(), single.publish);
    let network = network.connect(kernel, cell.id())?;
    let write_back = view.exports.write_back(kernel, cell.id(), single.write_limit, mounts)?;
    let time_limits = TimeLimits::start(Arc::<Kernel>::clone(kernel)).map_err(Failure::Thread)?;
    let signals = Signals::forward(Arc::<Kernel>::clone(kernel), Some(cell.id()), &time_limits)?;
    let unread = Arc::<AtomicBool>::default();
    copy_input(&port, std::io::stdin(), diagnostics::input_reporter(&unread)).map_err(Failure::Thread)?;
    let terminal = single.terminal.then(RawTerminal::enter).transpose().map_err(Failure::Terminal)?;
    machine::install_seccomp_filter(SyscallGroups { writing_back: write_back.is_some(), receiving, ..SyscallGroups::default() })?;
    timings.end("confinement");

    cell.start(&single.limits, &time_limits)?;
    let carried = copy_output(&**kernel, cell.id(), &port, (std::io::stdout().lock(), std::io::stderr()), single.limits.output);
    let mut outcome = cell.wait()?;
    drop(terminal);
    if write_back.is_some() {
        signals.note_end();
    }
    let network = network.finish().map_err(Failure::Gateway);
    single.observer.flush();
    let written = write_back.map(RunningWriteBack::finish).unwrap_or_default();
    messages::write_back(&written).iter().for_each(|message| diagnostics::print_error(message));
    if !carried.map_err(Failure::Output)? {
        outcome.end = End::OutputLimit;
    }
    let network = network?;
    signals.name_request(&mut outcome.end);
    Ok(EndedCell { outcome, network, is_complete: written.is_complete() && !unread.load(Ordering::Relaxed) })
}

/// Opens the host resources of a network, before the process is confined.
///
/// # Errors
/// The options contradict each other, or a port, device or file of the host cannot be opened.
pub(crate) fn prepare_network(
    options: &NetworkOptions,
    program: &OsStr,
    observer: &Arc<TerminalObserver>,
) -> Result<PreparedNetwork, Failure> {
    let spec = NetworkSpec::try_from(options)?;
    let observer: Arc<TerminalObserver> = Arc::clone(observer);
    Ok(PreparedNetwork::open(&spec, program.display().to_string(), Reporter::new(observer))?)
}

/// Prints the addresses of forwards whose port the host chose.
fn announce(forwards: &[PortForward], requested: &[PortForward]) {
    for (PortForward { host, cell, .. }, _) in forwards.iter().zip(requested).filter(|(_, requested)| requested.host.port() == 0) {
        diagnostics::print_notice(&format_args!("{host} is forwarded to port {cell}"));
    }
}
