// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session: gdb's bytes, and the events of the cell.

use super::Debugger;
use super::halts::StopReason;
use super::link::GdbLink;
use super::mailbox::Mailbox;
use crate::input::ProgramInput;
use crate::output::{self, OutputStream};
use crate::watched_cell::{StateAccess, WatchedCell};
use crate::watched_child::WatchedChild;
use gdbstub::conn::Connection;
use gdbstub::stub::state_machine::GdbStubStateMachine;
use gdbstub::stub::{DisconnectReason, GdbStub};
use pando_abi::HoldingName;
use pando_abi::holding::ChildState;
use pando_abi::watch::mask;
use pando_machine::CellsDevice;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The start of gdb's first packet.
const START: &[u8] = b"$qSupported";
/// Bytes of the largest packet.
const PACKET_SIZE: usize = 16 << 10;
/// The time in which the libOS of a cell must list its threads.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(60);
/// Processes that an error lists.
const SHOWN_PROCESSES: usize = 16;

/// Debugs the program of a child that has not started, until it has ended. `file` is the program's path. Returns the state in which the
/// child ended; `None`: gdb has ended it, or has gone.
///
/// # Errors
/// The device does not allow it, or gdb breaks the protocol.
pub fn serve(device: &CellsDevice, child: HoldingName, file: Vec<u8>, link: GdbLink) -> Result<Option<ChildState>> {
    device.watch(child, mask::EXCEPTIONS | mask::REPORTS)?;
    let (input, output) = match link {
        GdbLink::Streams => (ProgramInput::empty(device, child)?, OutputStream::Errors),
        GdbLink::Socket(_) | GdbLink::Mailbox(_) => (ProgramInput::Unwanted, OutputStream::Output),
    };
    device.run(child)?;
    let cell = WatchedChild { device, name: child };
    let streams = ProgramStreams { device, name: child, input, output };
    let mut session = Session::new(Debugger::new(&cell, file), link, Some(streams));
    // The program stands before its first instruction when gdb gets its first answer.
    loop {
        match session.next_stop(false)? {
            Some(StopReason::SignalWithThread { .. }) => break,
            Some(_) => return session.finish(),
            None => {}
        }
    }
    session.serve()?;
    session.finish()
}

/// Why a debugger cannot be attached to a cell.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The cell has ended.
    #[error("it has ended")]
    Ended,
    /// gdb has gone.
    #[error("the client has disconnected")]
    Disconnected,
    /// The libOS of the cell does not answer.
    #[error("its libOS has not answered within {} seconds", ATTACH_TIMEOUT.as_secs())]
    NoAnswer,
    /// There is no such process.
    #[error("it has no process {wanted}: it has {}", list(.present))]
    NoSuchProcess {
        /// The process that was wanted.
        wanted: u64,
        /// The processes, with the paths of their programs.
        present: Vec<(u64, String)>,
    },
    /// The operator does not allow it.
    #[error(transparent)]
    Operator(#[from] Error),
}

type AttachResult<'a> = std::result::Result<AttachedDebugger<'a>, AttachError>;

fn list(processes: &[(u64, String)]) -> String {
    let names: Vec<String> = processes.iter().map(|(number, path)| format!("{number} ({path})")).collect();
    names.join(", ")
}

/// A debugger of a cell that ran before. The cell is halted.
pub struct AttachedDebugger<'a>(Session<'a>);

impl<'a> AttachedDebugger<'a> {
    /// Halts a cell that is watched for exceptions and reports, for gdb behind a mailbox. gdb debugs this process; `None`: the first one.
    ///
    /// # Errors
    /// The cell does not answer, it has no such process, or gdb has gone.
    pub fn attach(cell: &'a dyn WatchedCell, mailbox: Arc<Mailbox>, process: Option<u64>) -> AttachResult<'a> {
        let debugger = Debugger { wanted_process: process, ..Debugger::new(cell, Vec::new()) };
        let mut session = Session::new(debugger, GdbLink::Mailbox(mailbox), None);
        let began = Instant::now();
        cell.raise_debug_event()?;
        loop {
            session.forget_events()?;
            match session.debugger.stop_reason() {
                Ok(Some(StopReason::Exited(_) | StopReason::Terminated(_))) => return Err(AttachError::Ended),
                Ok(Some(_)) => return Ok(AttachedDebugger(session)),
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::NotFound && process.is_some() => return Err(session.no_such_process(process)),
                Err(error) => return Err(error.into()),
            }
            let Some(left) = ATTACH_TIMEOUT.checked_sub(began.elapsed()) else { return Err(AttachError::NoAnswer) };
            // gdb writes nothing before it gets an answer, except that it repeats its first packet.
            let has_room = session.input.len() < PACKET_SIZE;
            session.wait(Some(left), has_room)?;
            if !session.is_open {
                return Err(AttachError::Disconnected);
            }
        }
    }

    /// Serves gdb until it goes, or the cell has ended. Without gdb the cell continues as if it had never been debugged.
    ///
    /// # Errors
    /// The operator does not allow it, or gdb breaks the protocol. The cell may be halted then, and still watched.
    pub fn serve(mut self) -> Result<()> {
        let served = self.0.serve();
        let released = self.0.release();
        served.and(released)
    }
}

/// The streams of a program that this process has started: they are those of this process.
struct ProgramStreams<'a> {
    device: &'a CellsDevice,
    name: HoldingName,
    input: ProgramInput,
    /// Where the program's standard output goes.
    output: OutputStream,
}

struct Session<'a> {
    debugger: Debugger<'a>,
    link: GdbLink,
    /// Bytes of gdb that were read, in reverse order.
    input: Vec<u8>,
    /// gdb may still write.
    is_open: bool,
    /// `None`: the program ran before.
    streams: Option<ProgramStreams<'a>>,
}

impl<'a> Session<'a> {
    fn new(debugger: Debugger<'a>, link: GdbLink, streams: Option<ProgramStreams<'a>>) -> Session<'a> {
        Session { debugger, link, input: Vec::new(), is_open: true, streams }
    }
}

impl Session<'_> {
    /// Serves gdb until it goes, or the program has ended.
    fn serve(&mut self) -> Result<()> {
        let stub = GdbStub::builder(self.link.replies()?).packet_buffer_size(PACKET_SIZE).build().map_err(Error::other)?;
        let mut machine = stub.run_state_machine(&mut self.debugger).map_err(protocol_error)?;
        if self.input.is_empty() {
            self.read_input()?;
        }
        self.drop_repeated_start();
        loop {
            machine = match machine {
                GdbStubStateMachine::Idle(stub) => match self.next_byte()? {
                    Some(byte) => stub.incoming_data(&mut self.debugger, byte).map_err(protocol_error)?,
                    None => return Ok(()),
                },
                GdbStubStateMachine::Running(stub) => match self.next_stop(true)? {
                    Some(reason) => stub.report_stop(&mut self.debugger, reason).map_err(protocol_error)?,
                    None => match self.input.pop() {
                        Some(byte) => stub.incoming_data(&mut self.debugger, byte).map_err(protocol_error)?,
                        None if self.is_open => stub.into(),
                        None => return Ok(()),
                    },
                },
                GdbStubStateMachine::CtrlCInterrupt(stub) => {
                    // The halt is reported when it has come about.
                    self.debugger.is_interrupted = true;
                    self.debugger.cell.halt()?;
                    stub.interrupt_handled(&mut self.debugger, None::<StopReason>).map_err(protocol_error)?
                }
                GdbStubStateMachine::Disconnected(mut stub) => {
                    if stub.get_reason() == DisconnectReason::Kill {
                        // gdb waits for the answer to `vKill`, which the library does not send.
                        stub.borrow_conn().write_all(b"$OK#9a")?;
                        stub.borrow_conn().flush()?;
                    }
                    return match stub.get_reason() {
                        DisconnectReason::Disconnect => self.detach(),
                        DisconnectReason::Kill => self.kill(),
                        DisconnectReason::TargetExited(_) | DisconnectReason::TargetTerminated(_) => Ok(()),
                    };
                }
            };
        }
    }

    /// Drops gdb's first packet if it was sent again before the cell had started: each one would be answered.
    fn drop_repeated_start(&mut self) {
        // The bytes are in reverse order.
        let start: Vec<u8> = START.iter().rev().copied().collect();
        if let Some(at) = self.input.windows(start.len()).position(|window| window == start) {
            self.input.truncate(at + start.len());
        }
    }

    /// Ends the program, and waits until gdb has closed the connection.
    fn kill(&mut self) -> Result<()> {
        self.debugger.cell.end()?;
        while self.is_open {
            self.input.clear();
            self.read_input()?;
        }
        Ok(())
    }

    /// Lets the program go on by itself. Waits for its end if this process has started it.
    fn detach(&mut self) -> Result<()> {
        self.release()?;
        if self.streams.is_none() {
            return Ok(());
        }
        loop {
            self.forget_events()?;
            if self.pass_streams()? {
                return Ok(());
            }
            self.wait(None, false)?;
        }
    }

    /// Removes all breakpoints, and lets the cell go on unwatched. A running cell is halted for that. Without effect the second time.
    fn release(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.debugger.is_released, true) {
            return Ok(());
        }
        let cell = self.debugger.cell;
        // Otherwise gdb has the last stop, which has ended all steps.
        let mut is_stopped = !self.debugger.is_running;
        while !is_stopped {
            self.forget_events()?;
            match self.debugger.stop_reason()? {
                Some(StopReason::Exited(_) | StopReason::Terminated(_)) if self.debugger.is_running => return Ok(()),
                Some(_) => is_stopped = true,
                None => {
                    cell.halt()?;
                    self.wait(None, false)?;
                }
            }
        }
        let released = self.debugger.release();
        cell.unless_ended(released).map(drop)
    }

    /// Ends the child if it still runs. Returns the state in which it had ended by itself.
    fn finish(&mut self) -> Result<Option<ChildState>> {
        let state = self.debugger.cell.state()?;
        self.pass_streams()?;
        if state.is_ended() {
            return Ok(Some(state));
        }
        self.debugger.cell.end()?;
        Ok(None)
    }

    /// The error for a process that does not exist.
    fn no_such_process(&self, wanted: Option<u64>) -> AttachError {
        let name = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let present = self.debugger.processes.iter().map(|process| (process.number, name(&process.path))).take(SHOWN_PROCESSES).collect();
        AttachError::NoSuchProcess { wanted: wanted.unwrap_or(0), present }
    }

    /// Passes on the program's input and output. Returns whether it has ended and all its output is passed on.
    fn pass_streams(&mut self) -> Result<bool> {
        let Some(ProgramStreams { device, name, input, output }) = &mut self.streams else { return Ok(false) };
        input.pass_on(device, *name)?;
        output::pass_on(device, *name, *output)
    }

    /// Waits for a stop of the running program, or, if `with_link`, for bytes of gdb.
    fn next_stop(&mut self, with_link: bool) -> Result<Option<StopReason>> {
        // Forgotten first: an event that comes from now on is not lost.
        self.forget_events()?;
        let reason = self.debugger.stop_reason()?;
        // After the cell was resumed: whether a halted one wants input is not known, and it may make no further event.
        self.pass_streams()?;
        if reason.is_some() {
            return Ok(reason);
        }
        if !with_link || (self.input.is_empty() && self.is_open) {
            self.wait(None, with_link)?;
        }
        Ok(None)
    }

    /// Forgets events of the cell, before its state is looked at.
    fn forget_events(&self) -> Result<()> {
        match (&self.link, &self.streams) {
            (GdbLink::Mailbox(mailbox), _) => mailbox.forget_event(),
            (_, Some(streams)) => streams.device.forget_events()?,
            _ => {}
        }
        Ok(())
    }

    /// Waits, at most this long, for an event of the cell, for the program's input, and, if `with_link`, for bytes of gdb, which it reads.
    fn wait(&mut self, most: Option<Duration>, with_link: bool) -> Result<()> {
        if let GdbLink::Mailbox(mailbox) = &self.link {
            let bytes = mailbox.wait(most, true, with_link);
            self.is_open &= bytes.is_some();
            self.add_input(bytes.unwrap_or_default());
            return Ok(());
        }
        let Some(streams) = &mut self.streams else { return Ok(()) };
        let stdin = std::io::stdin();
        let (has_bytes, has_input) = {
            let mut polled = vec![PollFd::new(streams.device, PollFlags::IN)];
            let link = self.link.descriptor(&stdin).filter(|_| with_link);
            polled.extend(link.map(|link| PollFd::from_borrowed_fd(link, PollFlags::IN)));
            let input_at = polled.len();
            if streams.input.is_open() {
                polled.push(PollFd::new(&stdin, PollFlags::IN));
            }
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let is_ready = |at: usize| polled.get(at).is_some_and(|source| !source.revents().is_empty());
            (with_link && is_ready(1), is_ready(input_at))
        };
        if has_input {
            streams.input.read(&stdin)?;
        }
        if has_bytes { self.read_input() } else { Ok(()) }
    }

    /// The next byte of gdb. `None`: there will be no more.
    fn next_byte(&mut self) -> Result<Option<u8>> {
        if self.input.is_empty() && self.is_open {
            self.read_input()?;
        }
        Ok(self.input.pop())
    }

    /// Reads bytes of gdb that are there, or waits for some.
    fn read_input(&mut self) -> Result<()> {
        let bytes = self.link.read(PACKET_SIZE)?;
        self.is_open = !bytes.is_empty();
        self.add_input(bytes);
        Ok(())
    }

    /// Adds bytes of gdb.
    fn add_input(&mut self, mut bytes: Vec<u8>) {
        bytes.reverse();
        bytes.append(&mut self.input);
        self.input = bytes;
    }
}

fn protocol_error(error: impl std::fmt::Display) -> Error {
    Error::other(format!("cannot serve gdb: {error}"))
}
