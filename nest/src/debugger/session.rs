// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session: gdb's bytes on standard input and output, and the child's events.

use super::Debugger;
use super::halts::StopReason;
use super::link::GdbLink;
use crate::input::ProgramInput;
use crate::output::{self, OutputStream};
use gdbstub::conn::Connection;
use gdbstub::stub::state_machine::GdbStubStateMachine;
use gdbstub::stub::{DisconnectReason, GdbStub};
use pando_abi::HoldingName;
use pando_abi::holding::ChildState;
use pando_abi::watch::{mask, resume};
use pando_machine::CellsDevice;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{Error, Result};

/// The start of gdb's first packet.
const START: &[u8] = b"$qSupported";
/// Bytes of the largest packet.
const PACKET_SIZE: usize = 16 << 10;

/// Debugs the program of a child that has not started, until it has ended. `file` is the program's path. Returns the state in which the
/// child ended; `None`: gdb has ended it, or has gone.
///
/// # Errors
/// The device does not allow it, or gdb breaks the protocol.
pub fn serve(device: &CellsDevice, child: HoldingName, file: Vec<u8>, link: GdbLink) -> Result<Option<ChildState>> {
    device.watch(child, mask::EXCEPTIONS | mask::REPORTS)?;
    let (program_input, output) = match link {
        GdbLink::Streams => (ProgramInput::empty(device, child)?, OutputStream::Errors),
        GdbLink::Socket(_) => (ProgramInput::Unwanted, OutputStream::Output),
    };
    device.run(child)?;
    let debugger = Debugger::new(device, child, file);
    let mut session = Session { debugger, link, input: Vec::new(), is_open: true, program_input, output };
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

struct Session<'a> {
    debugger: Debugger<'a>,
    link: GdbLink,
    /// Bytes of gdb that were read, in reverse order.
    input: Vec<u8>,
    /// gdb may still write.
    is_open: bool,
    program_input: ProgramInput,
    /// Where the program's standard output goes.
    output: OutputStream,
}

impl Session<'_> {
    /// Serves gdb until it goes, or the program has ended.
    fn serve(&mut self) -> Result<()> {
        let stub = GdbStub::builder(self.link.replies()?).packet_buffer_size(PACKET_SIZE).build().map_err(Error::other)?;
        let mut machine = stub.run_state_machine(&mut self.debugger).map_err(broken)?;
        self.read_input()?;
        self.drop_repeated_start();
        loop {
            machine = match machine {
                GdbStubStateMachine::Idle(stub) => match self.next_byte()? {
                    Some(byte) => stub.incoming_data(&mut self.debugger, byte).map_err(broken)?,
                    None => return Ok(()),
                },
                GdbStubStateMachine::Running(stub) => match self.next_stop(true)? {
                    Some(reason) => stub.report_stop(&mut self.debugger, reason).map_err(broken)?,
                    None => match self.input.pop() {
                        Some(byte) => stub.incoming_data(&mut self.debugger, byte).map_err(broken)?,
                        None if self.is_open => stub.into(),
                        None => return Ok(()),
                    },
                },
                GdbStubStateMachine::CtrlCInterrupt(stub) => {
                    // The halt is reported when it has come about.
                    self.debugger.child.device.halt(self.debugger.child.name)?;
                    stub.interrupt_handled(&mut self.debugger, None::<StopReason>).map_err(broken)?
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
        self.debugger.child.device.end(self.debugger.child.name)?;
        while self.is_open {
            self.input.clear();
            self.read_input()?;
        }
        Ok(())
    }

    /// Lets the program go on by itself, and waits for its end.
    fn detach(&mut self) -> Result<()> {
        let debugger = &mut self.debugger;
        let space = debugger.space(debugger.process);
        debugger.breakpoints.clear(&debugger.child, space);
        let (device, name) = (debugger.child.device, debugger.child.name);
        device.watch(name, 0)?;
        if device.state(name)? == ChildState::Halted {
            debugger.child.unless_ended(device.resume(name, resume::CONTINUE))?;
        }
        loop {
            self.debugger.child.device.forget_events()?;
            if self.pass_streams()? {
                return Ok(());
            }
            self.wait(false)?;
        }
    }

    /// Ends the child if it still runs. Returns the state in which it had ended by itself.
    fn finish(&mut self) -> Result<Option<ChildState>> {
        let state = self.state()?;
        self.pass_streams()?;
        if state.is_ended() {
            return Ok(Some(state));
        }
        self.debugger.child.device.end(self.debugger.child.name)?;
        Ok(None)
    }

    fn state(&self) -> Result<ChildState> {
        self.debugger.child.device.state(self.debugger.child.name)
    }

    /// Passes on the program's input and output. Returns whether it has ended and all its output is passed on.
    fn pass_streams(&mut self) -> Result<bool> {
        let (device, name) = (self.debugger.child.device, self.debugger.child.name);
        self.program_input.pass_on(device, name)?;
        output::pass_on(device, name, self.output)
    }

    /// Waits for a stop of the running program, or, if `with_link`, for bytes of gdb.
    fn next_stop(&mut self, with_link: bool) -> Result<Option<StopReason>> {
        // Forgotten first: an event that comes from now on is not lost.
        self.debugger.child.device.forget_events()?;
        let reason = self.debugger.stop_reason()?;
        // After the child was resumed: whether a halted one wants input is not known, and it may make no further event.
        self.pass_streams()?;
        if reason.is_some() {
            return Ok(reason);
        }
        if !with_link || (self.input.is_empty() && self.is_open) {
            self.wait(with_link)?;
        }
        Ok(None)
    }

    /// Waits for an event of the child, for the program's input, and, if `with_link`, for bytes of gdb, which it reads.
    fn wait(&mut self, with_link: bool) -> Result<()> {
        let stdin = std::io::stdin();
        let (has_bytes, has_input) = {
            let mut polled = vec![PollFd::new(self.debugger.child.device, PollFlags::IN)];
            if with_link {
                polled.push(PollFd::from_borrowed_fd(self.link.descriptor(&stdin), PollFlags::IN));
            }
            let input_at = polled.len();
            if self.program_input.is_open() {
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
            self.program_input.read(&stdin)?;
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
        let mut bytes = vec![0; PACKET_SIZE];
        let count = self.link.read(&mut bytes)?;
        self.is_open = count > 0;
        bytes.truncate(count);
        bytes.reverse();
        bytes.append(&mut self.input);
        self.input = bytes;
        Ok(())
    }
}

fn broken(error: impl std::fmt::Display) -> Error {
    Error::other(format!("cannot serve gdb: {error}"))
}
