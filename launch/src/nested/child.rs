// SPDX-License-Identifier: MIT OR Apache-2.0
//! A nested cell as its operator knows it: its ports, its state and its outcome.

use pando_abi::HoldingName;
use pando_abi::holding::{ChildState, fact, port};
use pando_abi::layout::ARGUMENTS;
use pando_abi::limits::MAX_CONSOLE_BYTES;
use pando_abi::virtual_registers::MissingCall;
use pando_kernel::memory::Usage;
use pando_kernel::{ConsolePort, Counters, End, Outcome, Report, Stream, WatchCallback};
use pando_machine::{CellsDevice, ConsoleRead, NewChild, PageCount};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Pieces that one child may send before it is another's turn.
const TURN: u32 = 16;

/// A child that is not made yet: all of it is made at one exit.
pub(super) struct Preparation {
    pub(super) source: HoldingName,
    pub(super) memory: PageCount,
    /// Number of descendants that it may have, and the root that it may clone.
    pub(super) nesting: Option<(u32, HoldingName)>,
    /// The argument block.
    pub(super) block: Vec<u8>,
    /// Its limits, each with its kind.
    pub(super) limits: Vec<(u64, u64)>,
    pub(super) host_name: Option<String>,
}

/// A nested cell.
pub(super) struct Child {
    /// Its name, once it is made.
    pub(super) name: HoldingName,
    /// Its description, until it is made.
    pub(super) preparation: Option<Box<Preparation>>,
    /// Its last known state.
    pub(super) state: ChildState,
    /// Its state must be polled: it was started, or ended without a start.
    pub(super) is_polled: bool,
    pub(super) console: RemotePort,
    pub(super) control: Option<RemotePort>,
    /// Why this process has ended it.
    pub(super) reason: Option<End>,
    pub(super) outcome: Option<Outcome>,
    /// A debugger watches it.
    pub(super) callback: Option<WatchCallback>,
}

/// A port of a child, whose bytes are carried to and from the port of this process.
pub(super) struct RemotePort {
    pub(super) port: Arc<ConsolePort>,
    /// Its number ([`pando_abi::holding::port`]).
    number: u64,
    /// Input that the child has no room for yet.
    input: Vec<u8>,
    is_input_closed: bool,
    /// The outputs that were closed for reading.
    closed: [bool; 2],
}

/// The state of a port's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputState {
    /// Nothing now, or no room for it here.
    Waits,
    /// There may be more.
    More,
    /// The child has ended or is frozen, and all was read.
    End,
}

impl RemotePort {
    /// A port with this number; `wake` is called after the process has sent something, or made room.
    pub(super) fn new(number: u64, wake: impl Fn() + Send + Sync + 'static) -> RemotePort {
        let port = ConsolePort::of_remote_cell(wake);
        RemotePort { port, number, input: Vec::new(), is_input_closed: false, closed: [false; 2] }
    }

    /// Sends input to the child. Returns whether there may be more now.
    fn send(&mut self, device: &CellsDevice, child: HoldingName) -> io::Result<bool> {
        for _ in 0..TURN {
            let mut is_last = false;
            if self.input.is_empty() && !self.is_input_closed {
                (self.input, is_last) = self.port.take_input(MAX_CONSOLE_BYTES as usize);
            }
            if !self.input.is_empty() {
                let count = device.write_console(child, self.number, &self.input)?;
                self.input.drain(..count);
                // A full child announces that it has read something.
                if !self.input.is_empty() && count == 0 {
                    return Ok(false);
                }
                continue;
            }
            if is_last && self.number == port::CONSOLE {
                device.close_input(child)?;
                self.is_input_closed = true;
            }
            return Ok(false);
        }
        Ok(true)
    }

    /// Tells the child which of its outputs are not read any more.
    fn close_streams(&mut self, device: &CellsDevice, child: HoldingName) -> io::Result<()> {
        for (closed, stream) in self.closed.iter_mut().zip([Stream::Stdout, Stream::Stderr]) {
            if !*closed && self.port.is_stream_closed(stream) {
                device.close_stream(child, stream.tag())?;
                *closed = true;
            }
        }
        Ok(())
    }

    /// Receives output of the child; `is_ending`: however much is unread here.
    fn receive(&self, device: &CellsDevice, child: HoldingName, buffer: &mut [u8], is_ending: bool) -> io::Result<OutputState> {
        for _ in 0..TURN {
            // The next read of the process wakes the thread. If all was read meanwhile, there is none.
            if !is_ending && self.port.is_full() && self.port.unread_output() > 0 {
                return Ok(OutputState::Waits);
            }
            let (stream, count) = match device.read_console(child, self.number, buffer)? {
                ConsoleRead::Nothing => return Ok(OutputState::Waits),
                ConsoleRead::End => return Ok(OutputState::End),
                ConsoleRead::Output(count) => (Stream::Stdout, count),
                ConsoleRead::Errors(count) => (Stream::Stderr, count),
                ConsoleRead::Notes(count) => (Stream::Notes, count),
            };
            self.port.append_output(stream, buffer[..count].to_vec());
        }
        Ok(OutputState::More)
    }
}

impl Child {
    /// A child that has not started.
    pub(super) fn new(name: HoldingName, console: RemotePort) -> Child {
        Child {
            name,
            preparation: None,
            state: ChildState::New,
            is_polled: false,
            console,
            control: None,
            reason: None,
            outcome: None,
            callback: None,
        }
    }

    /// A child that is made later.
    pub(super) fn prepared(preparation: Preparation, console: RemotePort) -> Child {
        Child { preparation: Some(Box::new(preparation)), ..Child::new(HoldingName::NEWEST, console) }
    }

    /// Makes it, if it is not made yet. Returns whether it was.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn make(&mut self, device: &CellsDevice, is_started: bool) -> io::Result<bool> {
        let Some(Preparation { source, memory, nesting, block, limits, host_name }) = self.preparation.as_deref() else { return Ok(false) };
        self.name = device.make_child(&NewChild {
            source: *source,
            quota: memory.0,
            cells: nesting.map_or(0, |(descendants, _)| descendants),
            root: nesting.map(|(_, root)| root),
            arguments: (ARGUMENTS, block),
            limits,
            name: host_name.as_ref().map(String::as_bytes),
            is_started,
        })?;
        self.preparation = None;
        Ok(true)
    }

    /// Records the end of a child that was never made.
    pub(super) fn end_unstarted(&mut self, end: End) {
        self.outcome = Some(outcome(end, 0, 0, 0));
        self.close();
    }

    /// Whether its state may change by itself.
    pub(super) fn is_active(&self) -> bool {
        self.is_polled && self.outcome.is_none() && self.state != ChildState::Frozen
    }

    /// Carries bytes between its ports and those of this process, and updates its state. Returns whether there may be more to carry now.
    ///
    /// # Errors
    /// The device refuses.
    pub(super) fn transfer(&mut self, device: &CellsDevice, buffer: &mut [u8]) -> io::Result<bool> {
        let is_ending = self.reason.is_some();
        if let Some(callback) = &self.callback {
            // The device does not say which child has halted.
            callback(None);
        }
        self.console.close_streams(device, self.name)?;
        let mut more = self.console.send(device, self.name)?;
        let output = self.console.receive(device, self.name, buffer, is_ending)?;
        if let Some(control) = &mut self.control {
            // Its last reports come before its end is noticed.
            more |= control.send(device, self.name)?;
            more |= control.receive(device, self.name, buffer, is_ending)? == OutputState::More;
        }
        match output {
            OutputState::More => return Ok(true),
            // The last output of a program in it is not lost with it.
            OutputState::End if more => return Ok(true),
            OutputState::End => self.finish(device)?,
            OutputState::Waits if self.state != (ChildState::Started { wants_input: true }) => {
                self.state = device.state(self.name)?;
                if self.state == (ChildState::Started { wants_input: true }) {
                    self.console.port.request_input();
                }
            }
            OutputState::Waits => {}
        }
        Ok(more)
    }

    /// Records its end, or that it is frozen.
    fn finish(&mut self, device: &CellsDevice) -> io::Result<()> {
        self.state = device.state(self.name)?;
        if self.state.is_ended() {
            let of = |fact| device.fact(self.name, fact);
            let (cpu, peak, exits) = (of(fact::CPU)?, of(fact::PEAK)?, of(fact::EXITS)?);
            let end = match (self.state, &self.reason) {
                (ChildState::Killed, Some(reason)) => reason.clone(),
                (state, _) => end_of(state),
            };
            if let Some(callback) = self.callback.take() {
                callback(Some(&end));
            }
            self.outcome = Some(outcome(end, cpu, peak, exits));
        }
        self.close();
        Ok(())
    }

    /// Records that the device has failed.
    pub(super) fn fail(&mut self, error: &io::Error) {
        let end = End::Host(error.to_string());
        if let Some(callback) = self.callback.take() {
            callback(Some(&end));
        }
        self.outcome = Some(outcome(end, 0, 0, 0));
        self.close();
    }

    /// Closes its ports: it writes no more output.
    pub(super) fn close(&self) {
        std::iter::once(&self.console).chain(&self.control).for_each(|port| port.port.close());
    }
}

fn outcome(end: End, cpu: u64, peak: u64, exits: u64) -> Outcome {
    let none = PageCount(0);
    let mut counters = Counters::default();
    (counters.cpu, counters.exits) = (Duration::from_nanos(cpu), exits);
    Outcome {
        end,
        counters,
        usage: Usage { quota: none, used: none, tables: none, retired: none, peak: PageCount(peak) },
        report: Report { calls: 0, missing_calls: 0, missing: [MissingCall::default(); _] },
        traffic: None,
        start: None,
    }
}

/// The end of a child in this state.
#[must_use]
pub fn end_of(state: ChildState) -> End {
    match state {
        ChildState::Exited(status) => End::Exited { status },
        ChildState::Signalled(signal) => End::Signalled { signal, address: 0, instruction: 0 },
        ChildState::Quota => End::Quota,
        ChildState::MachineFull => End::MachineFull,
        ChildState::Failed => End::Host("its program or its libOS failed".into()),
        ChildState::New | ChildState::Started { .. } | ChildState::Frozen | ChildState::Halted | ChildState::Killed => End::Killed,
    }
}
