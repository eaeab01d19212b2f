// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies a console's bytes from and to host files, with back-pressure in both directions.

use crate::Operator;
use pando_kernel::{CellId, ConsolePort, End, Stream};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read, write};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Bytes per read from the host.
const PIECE: usize = 256 << 10;

/// Copies a host file to the cell's standard input, as the cell reads it, on a thread of its own. The thread may outlive the cell if the
/// file blocks.
///
/// A read error ends the program's input; `failed` receives the error.
///
/// # Errors
/// The thread cannot be started.
pub fn copy_input(
    port: &Arc<ConsolePort>,
    input: impl AsFd + Send + 'static,
    failed: impl FnOnce(io::Error) + Send + 'static,
) -> io::Result<()> {
    let port = Arc::clone(port);
    let body = move || {
        if let Err(errno) = feed(&input, &port) {
            failed(errno.into());
        }
        port.close_input();
    };
    std::thread::Builder::new().name("console input".into()).spawn(body).map(|_| ())
}

/// Copies the cell's two outputs to host files, until the cell has ended and all output is written. Terminates the cell if it writes more
/// than the limit. Returns whether all of its output was within the limit: the cell may have ended by itself before the rest was read.
///
/// If the reader of a host file has gone, the cell gets `SIGPIPE` and `EPIPE` at its next write, as a native program does.
///
/// # Errors
/// A host file could not be written; the cell has been terminated.
pub fn copy_output(
    operator: &dyn Operator,
    cell: CellId,
    port: &ConsolePort,
    (output, errors): (impl AsFd, impl AsFd),
    max: Option<u64>,
) -> io::Result<bool> {
    let mut left = max.unwrap_or(u64::MAX);
    let mut is_within_limit = true;
    while let Some((stream, mut bytes)) = port.receive() {
        if bytes.len() as u64 > left {
            // The output up to the limit is written; the cell may have ended meanwhile.
            is_within_limit = false;
            bytes.truncate(left as usize);
            let _ = operator.end(cell, End::OutputLimit);
        }
        left -= bytes.len() as u64;
        let written = match stream {
            Stream::Stdout => write_all(&output, &bytes),
            Stream::Stderr => write_all(&errors, &bytes),
            // Notes are for operators that offer a service with them.
            Stream::Notes => Ok(()),
        };
        match written {
            Ok(()) => {}
            Err(Errno::PIPE) => port.close_stream(stream),
            Err(errno) => {
                // It may have ended meanwhile.
                let _ = operator.end(cell, End::Killed);
                return Err(errno.into());
            }
        }
    }
    Ok(is_within_limit)
}

/// Copies input to its end, or until the program closes it.
fn feed(input: impl AsFd, port: &ConsolePort) -> Result<(), Errno> {
    if !port.wait_for_input_request() {
        return Ok(());
    }
    let mut piece = vec![0; PIECE];
    loop {
        match retry_until_ready(&input, PollFlags::IN, || read(&input, &mut piece[..]))? {
            0 => return Ok(()),
            count if !port.send(&piece[..count]) => return Ok(()),
            _ => {}
        }
    }
}

fn write_all(output: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let count = retry_until_ready(&output, PollFlags::OUT, || write(&output, bytes))?;
        bytes = &bytes[count..];
    }
    Ok(())
}

/// Retries an operation on a file: another process may have made it non-blocking.
fn retry_until_ready(file: impl AsFd, until: PollFlags, mut action: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
    loop {
        match action() {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => match poll(&mut [PollFd::new(&file, until)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            },
            outcome => return outcome,
        }
    }
}
