// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando run` inside a cell: a nested cell, which this cell's kernel runs. No machine is made, and nothing is needed of the host.
//!
//! The nested cell is a clone of the same root, so it sees the files that this cell saw at its start. Its budgets are within this cell's.

use crate::arguments::Run;
use crate::failure::Failure;
use crate::signals::{GRACE, SignalAction, SignalHistory};
use crate::terminal::{self, RawTerminal};
use crate::{diagnostics, environment};
use pando_abi::holding::{ChildState, limit};
use pando_abi::layout::ARGUMENTS;
use pando_abi::limits::MAX_CONSOLE_BYTES;
use pando_abi::{Event, HoldingName};
use pando_kernel::End;
use pando_launch::Program;
use pando_machine::{CellsDevice, ConsoleRead};
use pando_manager::host;
use pando_manager::limits::Limits;
use pando_manager::outcome::{exit_status, is_chosen};
use pando_manager::view::{ViewSpec, program_in_same_view};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, write};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;
use signal_hook::low_level::pipe;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A device that every cell has, and no host.
const PANDO_DEVICE: &str = "/dev/pando";
/// The device that only hosts have.
const KVM_DEVICE: &str = "/dev/kvm";

/// Bytes that a pipe takes at once if it is ready, as POSIX has it.
const PIPE_BUF: usize = 4096;
/// Pieces of output that are passed on between two looks at signals and the deadline.
const PIECES_PER_TURN: u32 = 64;

/// Opens the device for nested cells. `None`: this process does not run in a cell.
///
/// # Errors
/// It runs in a cell that may have none of its own.
pub(crate) fn device() -> Result<Option<CellsDevice>, Failure> {
    let device = CellsDevice::open().map_err(Failure::Nested)?;
    if device.is_none() && Path::new(PANDO_DEVICE).exists() && !Path::new(KVM_DEVICE).exists() {
        return Err(Failure::NoNesting);
    }
    Ok(device)
}

/// Runs a program in a nested cell, and returns its exit status.
///
/// # Errors
/// An option is not possible here, the cell cannot be made, or a stream failed.
pub(crate) fn run(options: &Run, device: CellsDevice) -> Result<u8, Failure> {
    if let Some(option) = options.unsupported_inside() {
        return Err(Failure::NotInside(option));
    }
    let spec = ViewSpec::from(&options.view);
    let program = program_in_same_view(&spec, options.program(), &environment::caller(), options.arguments())?;
    let program = Program { terminals: terminal::of_program(options.terminal), descendants: options.nest, ..program };
    let limits = Limits::from(&options.limits);
    let child = create(&device, &program, &limits, options.host_name().as_deref())?;
    let terminal = options.terminal.then(RawTerminal::enter).transpose().map_err(Failure::Terminal)?;
    let mut session = Session::new(device, child, &limits)?;
    let end = session.run()?;
    drop(terminal);
    if !is_chosen(&end) {
        diagnostics::problem(&format_args!("{}: {end}", options.program().display()));
    }
    Ok(exit_status(&end))
}

/// Makes the child with its program and its limits. It has not started.
fn create(device: &CellsDevice, program: &Program, limits: &Limits, host_name: Option<&str>) -> Result<HoldingName, Failure> {
    let block = program.argument_block()?;
    let make = || {
        // Without a limit of its own it may use whatever this cell may.
        let memory = limits.memory.unwrap_or_else(host::memory);
        let child = device.clone_cell(HoldingName::ROOT, memory.0, program.descendants)?;
        if program.descendants > 0 {
            device.grant_root(child)?;
        }
        if let Some(share) = limits.share {
            device.set_limit(child, limit::CPU, (share.part() * 1000.0).ceil() as u64)?;
        }
        if let Some(name) = host_name {
            device.set_name(child, name)?;
        }
        device.write(child, ARGUMENTS, &block)?;
        Ok(child)
    };
    make().map_err(Failure::Nested)
}

/// A child that runs, with the streams and signals of this process.
struct Session {
    device: CellsDevice,
    child: HoldingName,
    signals: Signals,
    /// Readable after a signal.
    signalled: UnixStream,
    history: SignalHistory,
    input: Input,
    output: Option<Output>,
    /// When the child is ended, and why.
    deadline: Option<(Instant, End)>,
    /// Bytes that it may still write.
    output_left: Option<u64>,
    /// The reason for which this process has ended it.
    ended: Option<End>,
}

/// Standard input on its way to the child.
#[derive(Debug)]
enum Input {
    /// The child has not asked for any: it is left to others who read it.
    Unwanted,
    /// The next bytes are to be read.
    Open,
    /// These bytes wait for room in the child.
    Waiting(Vec<u8>),
    /// It has ended, or cannot be read.
    Closed,
}

/// Output of the child that is not written yet.
#[derive(Debug)]
struct Output {
    /// To standard error, not standard output.
    is_errors: bool,
    bytes: Vec<u8>,
    written: usize,
}

/// Why the child's output was not passed on further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputPause {
    /// There is none yet.
    Nothing,
    /// The stream takes no more for now.
    Blocked,
    /// Signals and the deadline are due to be looked at.
    Turn,
    /// The child has ended, and all is written.
    End,
}

impl Session {
    /// Starts the child.
    fn new(device: CellsDevice, child: HoldingName, limits: &Limits) -> Result<Session, Failure> {
        const NUMBERS: [i32; 6] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT];
        let signals = Signals::new(NUMBERS).map_err(Failure::Signals)?;
        let (signalled, wake) = UnixStream::pair().map_err(Failure::Signals)?;
        signalled.set_nonblocking(true).map_err(Failure::Signals)?;
        for number in NUMBERS {
            pipe::register(number, wake.try_clone().map_err(Failure::Signals)?).map_err(Failure::Signals)?;
        }
        device.run(child).map_err(Failure::Nested)?;
        let deadline = limits.time.and_then(|time| Some((Instant::now().checked_add(time)?, End::TimedOut)));
        let history = SignalHistory::default();
        let output_left = limits.output;
        Ok(Session { device, child, signals, signalled, history, input: Input::Unwanted, output: None, deadline, output_left, ended: None })
    }

    /// Passes bytes and signals on until the child has ended and its output is written.
    fn run(&mut self) -> Result<End, Failure> {
        let mut buffer = vec![0; MAX_CONSOLE_BYTES as usize];
        loop {
            // Forgotten first: an event that comes from now on is not lost.
            self.device.forget_events().map_err(Failure::Nested)?;
            self.pass_signals()?;
            self.pass_input()?;
            let pause = self.pass_output(&mut buffer)?;
            if pause == OutputPause::End {
                let state = self.device.state(self.child).map_err(Failure::Nested)?;
                return Ok(self.ended.take().unwrap_or_else(|| end_of(state)));
            }
            self.wait(pause)?;
        }
    }

    /// Waits until something can be passed on, or the time is over. `pause`: why there is no more output now.
    fn wait(&mut self, pause: OutputPause) -> Result<(), Failure> {
        let left = match pause {
            OutputPause::Turn => Some(Duration::ZERO),
            _ => self.deadline.as_ref().map(|(deadline, _)| deadline.saturating_duration_since(Instant::now())),
        };
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        let mut polled = vec![PollFd::new(&self.signalled, PollFlags::IN)];
        match (pause, &self.output) {
            // More output of the child could not be written.
            (OutputPause::Blocked, Some(Output { is_errors: true, .. })) => polled.push(PollFd::new(&stderr, PollFlags::OUT)),
            (OutputPause::Blocked, _) => polled.push(PollFd::new(&stdout, PollFlags::OUT)),
            _ => polled.push(PollFd::new(&self.device, PollFlags::IN)),
        }
        if matches!(self.input, Input::Open) {
            polled.push(PollFd::new(&stdin, PollFlags::IN));
        }
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Failure::Nested(error.into())),
        }
        let has_input = polled.get(2).is_some_and(|source| !source.revents().is_empty());
        drop(polled);
        if has_input {
            self.read_input(&stdin);
        }
        if let Some((_, end)) = self.deadline.take_if(|(deadline, _)| *deadline <= Instant::now()) {
            self.end(end)?;
        }
        Ok(())
    }

    fn read_input(&mut self, mut stdin: &std::io::Stdin) {
        let mut bytes = vec![0; MAX_CONSOLE_BYTES as usize];
        match stdin.read(&mut bytes) {
            Ok(count) => {
                bytes.truncate(count);
                self.input = Input::Waiting(bytes);
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => {
                diagnostics::problem(&format_args!("cannot read standard input: {error}"));
                self.input = Input::Waiting(Vec::new());
            }
        }
    }

    /// Sends the child as much input as it has room for.
    fn pass_input(&mut self) -> Result<(), Failure> {
        if matches!(self.input, Input::Unwanted)
            && self.device.state(self.child).map_err(Failure::Nested)? == (ChildState::Started { wants_input: true })
        {
            self.input = Input::Open;
        }
        let Input::Waiting(bytes) = &mut self.input else { return Ok(()) };
        if bytes.is_empty() {
            self.device.close_input(self.child).map_err(Failure::Nested)?;
            self.input = Input::Closed;
            return Ok(());
        }
        let count = self.device.write_console(self.child, bytes).map_err(Failure::Nested)?;
        bytes.drain(..count);
        if bytes.is_empty() {
            self.input = Input::Open;
        }
        Ok(())
    }

    /// Writes the child's output, as much as the streams take without waiting.
    fn pass_output(&mut self, buffer: &mut [u8]) -> Result<OutputPause, Failure> {
        for _ in 0..PIECES_PER_TURN {
            if self.output.is_some() {
                if !self.write_piece()? {
                    // A child that was ended is not waited for: its rest is lost, as if the reader were gone.
                    return Ok(if self.ended.is_some() { OutputPause::End } else { OutputPause::Blocked });
                }
                continue;
            }
            let (is_errors, count) = match self.device.read_console(self.child, buffer).map_err(Failure::Nested)? {
                ConsoleRead::Nothing => return Ok(OutputPause::Nothing),
                ConsoleRead::End => return Ok(OutputPause::End),
                ConsoleRead::Notes(_) => continue,
                ConsoleRead::Output(count) => (false, count),
                ConsoleRead::Errors(count) => (true, count),
            };
            let count = self.count_output(count)?;
            self.output = Some(Output { is_errors, bytes: buffer[..count].to_vec(), written: 0 });
        }
        Ok(OutputPause::Turn)
    }

    /// Counts output towards its limit. Returns how much of it is within the limit.
    fn count_output(&mut self, count: usize) -> Result<usize, Failure> {
        let Some(left) = &mut self.output_left else { return Ok(count) };
        let count = count.min(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= count as u64;
        if *left == 0 {
            self.end(End::OutputLimit)?;
        }
        Ok(count)
    }

    /// Writes the next piece of the output that is not written yet. `false`: the stream does not take it now.
    fn write_piece(&mut self) -> Result<bool, Failure> {
        let Some(output) = &mut self.output else { return Ok(true) };
        let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
        let stream = if output.is_errors { stderr.as_fd() } else { stdout.as_fd() };
        let rest = &output.bytes[output.written..];
        // A pipe that is ready takes this much at once.
        let piece = &rest[..rest.len().min(PIPE_BUF)];
        if poll(&mut [PollFd::from_borrowed_fd(stream, PollFlags::OUT)], Some(&Timespec::default())) == Ok(0) {
            return Ok(false);
        }
        match write(stream, piece) {
            Ok(count) => output.written += count,
            Err(Errno::INTR | Errno::AGAIN) => return Ok(false),
            Err(error) => return Err(Failure::Output(error.into())),
        }
        if output.written == output.bytes.len() {
            self.output = None;
        }
        Ok(true)
    }

    fn pass_signals(&mut self) -> Result<(), Failure> {
        // The bytes only wake this process.
        while self.signalled.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        let received: Vec<i32> = self.signals.pending().collect();
        for signal in received {
            if matches!(signal, SIGWINCH | SIGCONT) {
                let _ = terminal::resume();
                let [rows, columns] = terminal::window();
                let size = u64::from(rows) << 16 | u64::from(columns);
                self.device.raise(self.child, Event::WindowSize, size).map_err(Failure::Nested)?;
                continue;
            }
            let end = End::Signalled { signal: signal as u8, address: 0, instruction: 0 };
            match self.history.receive(signal) {
                SignalAction::Interrupt => self.device.raise(self.child, Event::Interrupt, 0).map_err(Failure::Nested)?,
                SignalAction::RequestEnd => {
                    self.device.raise(self.child, Event::Terminate, 0).map_err(Failure::Nested)?;
                    self.deadline = Some((Instant::now() + GRACE, end));
                }
                SignalAction::End => self.end(end)?,
            }
        }
        Ok(())
    }

    /// Ends the child. The first reason counts.
    fn end(&mut self, end: End) -> Result<(), Failure> {
        self.ended.get_or_insert(end);
        self.device.end(self.child).map_err(Failure::Nested)
    }
}

/// The end of a child in this state.
fn end_of(state: ChildState) -> End {
    match state {
        ChildState::Exited(status) => End::Exited { status },
        ChildState::Signalled(signal) => End::Signalled { signal, address: 0, instruction: 0 },
        ChildState::Quota => End::Quota,
        ChildState::MachineFull => End::MachineFull,
        ChildState::Failed => End::Host("its program or its libOS failed".into()),
        // A frozen child writes no more output.
        ChildState::New | ChildState::Started { .. } | ChildState::Frozen | ChildState::Halted | ChildState::Killed => End::Killed,
    }
}
