// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard input on its way to a child.

use pando_abi::HoldingName;
use pando_abi::holding::{ChildState, port};
use pando_abi::limits::MAX_CONSOLE_BYTES;
use pando_machine::CellsDevice;
use std::io::{ErrorKind, Read, Result, Stdin};

/// Standard input of a child: this process's, or an empty one.
#[derive(Debug)]
pub(crate) enum ProgramInput {
    /// The child has not asked for any: it is left to others who read it.
    Unwanted,
    /// The next bytes are to be read.
    Open,
    /// These bytes wait for room in the child.
    Waiting(Vec<u8>),
    /// It has ended.
    Closed,
}

impl ProgramInput {
    /// An input that has ended.
    ///
    /// # Errors
    /// There is no such child.
    pub(crate) fn empty(device: &CellsDevice, child: HoldingName) -> Result<ProgramInput> {
        device.close_input(child).map(|()| ProgramInput::Closed)
    }

    /// Whether the next bytes are to be read.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, ProgramInput::Open)
    }

    /// Reads bytes that are there.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) fn read(&mut self, stdin: &Stdin) -> Result<()> {
        let mut bytes = vec![0; MAX_CONSOLE_BYTES as usize];
        match stdin.lock().read(&mut bytes) {
            Ok(count) => {
                bytes.truncate(count);
                *self = ProgramInput::Waiting(bytes);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends the child as much as it has room for.
    ///
    /// # Errors
    /// There is no such child.
    pub(crate) fn pass_on(&mut self, device: &CellsDevice, child: HoldingName) -> Result<()> {
        if matches!(self, ProgramInput::Unwanted) && device.state(child)? == (ChildState::Started { wants_input: true }) {
            *self = ProgramInput::Open;
        }
        let ProgramInput::Waiting(bytes) = self else { return Ok(()) };
        if bytes.is_empty() {
            *self = ProgramInput::empty(device, child)?;
            return Ok(());
        }
        let count = device.write_console(child, port::CONSOLE, bytes)?;
        bytes.drain(..count);
        if bytes.is_empty() {
            *self = ProgramInput::Open;
        }
        Ok(())
    }
}
