// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of a child on its way to this process's streams.

use pando_abi::HoldingName;
use pando_abi::holding::port;
use pando_abi::limits::MAX_CONSOLE_BYTES;
use pando_machine::{CellsDevice, ConsoleRead};
use std::io::{ErrorKind, Result, Write};

/// The stream that standard output of a child goes to. Its standard error goes to standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputStream {
    /// Standard output.
    Output,
    /// Standard error.
    Errors,
}

/// Writes all output that a child has written so far. Returns whether the child has ended and no more will come.
///
/// # Errors
/// There is no such child, or a stream cannot be written.
pub(crate) fn pass_on(device: &CellsDevice, child: HoldingName, stream: OutputStream) -> Result<bool> {
    let mut buffer = vec![0; MAX_CONSOLE_BYTES as usize];
    loop {
        let (stream, count) = match device.read_console(child, port::CONSOLE, &mut buffer)? {
            ConsoleRead::Nothing => return Ok(false),
            ConsoleRead::End => return Ok(true),
            ConsoleRead::Notes(_) => continue,
            ConsoleRead::Output(count) => (stream, count),
            ConsoleRead::Errors(count) => (OutputStream::Errors, count),
        };
        let written = match stream {
            OutputStream::Output => std::io::stdout().write_all(&buffer[..count]).and_then(|()| std::io::stdout().flush()),
            OutputStream::Errors => std::io::stderr().write_all(&buffer[..count]),
        };
        match written {
            // The reader is gone: the output is lost.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            other => other?,
        }
    }
}
