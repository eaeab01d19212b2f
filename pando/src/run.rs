// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando run`: one program, one cell.

use crate::cli::Run;
use crate::exports::Running;
use crate::failure::Failure;
use crate::host;
use crate::laps::Laps;
use crate::network::{Network, Story};
use crate::options::StatsFormat;
use crate::say::{self, OWN_FAILURE};
use crate::signals::Signals;
use crate::stats;
use crate::terminal::{self, RawTerminal};
use crate::view::Asked;
use crate::watch::Watch;
use pando_confine::Needs;
use pando_kernel::{CellId, Config, End, Kernel, Outcome};
use pando_launch::{Calls, LaunchError, Program, Root, Template, Terminals, carry_input, carry_output};
use pando_machine::PageCount;
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use std::io::IsTerminal;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    pando_confine::forbid_dumps()?;
    let mut laps = Laps::start();
    let network = Network::prepare(&options.connection, options.program(), options.terminal)?;
    let mut seen = Asked::for_run(&options.seen, options.program())?;
    seen.reach.ports = network.ports();
    laps.end("view");
    let (kernel, cell) = prepare(options, &mut seen, &mut laps)?;
    let ended = attend(options, &Arc::new(kernel), cell, seen, network, &mut laps)?;
    let Ended { outcome, network, whole } = ended;
    laps.end("program");
    let (status, said) = told(&outcome);
    match options.stats {
        // Its first line says how the cell ended.
        Some(StatsFormat::Table) => eprint!("{}", stats::table(options.program(), &outcome, &network, &laps)),
        Some(StatsFormat::Json) => eprintln!("{}", stats::json(&outcome, &network, &laps)),
        None if said && outcome.end == End::Quota => {
            say::problem(&format_args!("{}: {}: give it more with --memory", options.program().display(), outcome.end));
        }
        None if said => say::problem(&format_args!("{}: {}", options.program().display(), outcome.end)),
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
fn attend(options: &Run, kernel: &Arc<Kernel>, cell: CellId, mut seen: Asked, network: Network, laps: &mut Laps) -> Result<Ended, Failure> {
    let port = kernel.console(cell).map_err(LaunchError::from)?;
    // Every thread that there will be, because a confined process starts none.
    seen.renew();
    let connecting = network.connects();
    network.announce(&options.connection.publish);
    let network = network.connect(kernel, cell)?;
    let write_back = seen.exports.write_back(kernel, cell)?;
    let watch = Watch::start(kernel, cell).map_err(Failure::Thread)?;
    let signals = Signals::pass_on(kernel, cell, &watch)?;
    let unread = Arc::<AtomicBool>::default();
    carry_input(&port, std::io::stdin(), complain(&unread)).map_err(Failure::Thread)?;
    let terminal = options.terminal.then(RawTerminal::enter).transpose().map_err(Failure::Terminal)?;
    pando_confine::limit_calls(Needs { writing_back: write_back.is_some(), connecting })?;
    laps.end("confinement");

    kernel.start(cell).map_err(LaunchError::from)?;
    if let Some(time) = options.limits.timeout {
        watch.limit(time, End::TimedOut);
    }
    let carried = carry_output(kernel, cell, &port, std::io::stdout().lock(), std::io::stderr());
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
    let memory = options.limits.memory.map_or(PageCount(host::memory().0 / 4), |size| size.pages());
    // Memory is taken from the host as it is used, and blocks that no cell maps are given up first.
    let registry = PageCount(host::memory().0 / 4);
    let arena = memory + registry + SLACK;
    let vcpus = std::thread::available_parallelism().map_or(1, usize::from);
    let machine = Kvm::new(KvmConfig { arena, vcpus, omit: Omit::NOTHING })?;
    // Whatever else of the host is needed is open now; threads inherit the limit.
    pando_confine::limit_paths(&seen.reach)?;
    laps.end("machine");
    let kernel = Kernel::new(machine, Config { registry, ..Config::default() });
    kernel.start_vcpus()?;
    let template = Template::boot(&kernel)?;
    kernel.wait_frozen(template.cell()).map_err(LaunchError::from)?;
    laps.end("libOS");
    let root = Root::new(&kernel, template, mem::take(&mut seen.volumes))?;
    let program = Program {
        path: seen.program.as_os_str().as_bytes().to_vec(),
        directory: seen.directory.as_os_str().as_bytes().to_vec(),
        arguments: options.arguments().iter().map(|argument| argument.as_bytes().to_vec()).collect(),
        environment: host::environment(&options.seen.variables),
        exports: seen.exports.in_cell(),
        terminals: terminals(options),
        calls: Calls { trap: options.trap_calls, trace: options.strace },
        user: options.seen.user.user,
        group: options.seen.user.group,
        memory,
        is_template: false,
    };
    let cell = program.prepare(&kernel, &root)?;
    options.limits.cpus.map_or(Ok(()), |share| kernel.set_share(cell, share)).map_err(LaunchError::from)?;
    laps.end("cell");
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
