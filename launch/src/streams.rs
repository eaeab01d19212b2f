// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams: carries a console's bytes to and from the host's files, with back-pressure both ways.

use pando_kernel::{CellId, ConsolePort, End, Kernel, Stream};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read, write};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Bytes that are read from the host at a time.
const PIECE: usize = 256 << 10;

/// Gives the cell what a host's file has, once it asks for input, on a thread of its own. That may outlive the cell, if the file has nothing more to give.
///
/// A file that cannot be read has ended as far as the program can tell; `failed` is told why.
///
/// # Errors
/// The host has no thread for it.
pub fn carry_input(
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

/// Gives the host's files what the cell says on its two outputs, until it has ended and said all it had to say. One that says more than so many bytes is ended.
///
/// The cell is told of a host's file that nobody reads any more when it writes there again, as a native program is: by `SIGPIPE` and `EPIPE`.
///
/// # Errors
/// A host's file could not be written; the cell has been ended.
pub fn carry_output(
    kernel: &Kernel,
    cell: CellId,
    port: &ConsolePort,
    (output, errors): (impl AsFd, impl AsFd),
    most: Option<u64>,
) -> io::Result<()> {
    let mut left = most.unwrap_or(u64::MAX);
    while let Some((stream, mut bytes)) = port.receive() {
        if bytes.len() as u64 > left {
            // What it may say is said; it may have ended by itself meanwhile.
            bytes.truncate(left as usize);
            let _ = kernel.end(cell, End::OutputLimit);
        }
        left -= bytes.len() as u64;
        let written = match stream {
            Stream::Output => write_all(&output, &bytes),
            Stream::Errors => write_all(&errors, &bytes),
            // They are for operators that offer something by them.
            Stream::Notes => Ok(()),
        };
        match written {
            Ok(()) => {}
            Err(Errno::PIPE) => port.hang_up(stream),
            Err(errno) => {
                // It may have ended by itself meanwhile.
                let _ = kernel.end(cell, End::Killed);
                return Err(errno.into());
            }
        }
    }
    Ok(())
}

/// Carries input until there is no more, or nobody to read it.
fn feed(input: impl AsFd, port: &ConsolePort) -> Result<(), Errno> {
    if !port.wait_until_wanted() {
        return Ok(());
    }
    let mut piece = vec![0; PIECE];
    loop {
        match patiently(&input, PollFlags::IN, || read(&input, &mut piece[..]))? {
            0 => return Ok(()),
            count if !port.send(&piece[..count]) => return Ok(()),
            _ => {}
        }
    }
}

fn write_all(output: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let count = patiently(&output, PollFlags::OUT, || write(&output, bytes))?;
        bytes = &bytes[count..];
    }
    Ok(())
}

/// Does something with a file as often as it takes: somebody else may have made it one that does not wait.
fn patiently(file: impl AsFd, until: PollFlags, mut action: impl FnMut() -> Result<usize, Errno>) -> Result<usize, Errno> {
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
