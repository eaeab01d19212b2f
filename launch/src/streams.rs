// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams: carries a console's bytes to and from the host's files, with back-pressure both ways.

use pando_kernel::{CellId, ConsolePort, End, Kernel, Stream};
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;

/// Bytes that are read from the host at a time.
const PIECE: usize = 256 << 10;

/// Where a cell's streams lead.
pub struct Streams<I, O, E> {
    /// What it reads.
    pub input: I,
    /// What it writes.
    pub output: O,
    /// Where it complains.
    pub errors: E,
}

/// Carries bytes until the cell has ended and said all it had to say. Reads the input on a thread of its own, which may outlive the call if the host's file has nothing more to give.
///
/// The cell is told of a host's file that nobody reads any more when it writes there again, as a native program is: by `SIGPIPE` and `EPIPE`.
///
/// # Errors
/// A host's file could not be written; the cell has been ended.
pub fn forward<I, O, E>(kernel: &Kernel, cell: CellId, port: &Arc<ConsolePort>, streams: Streams<I, O, E>) -> std::io::Result<()>
where
    I: Read + Send + 'static,
    O: Write,
    E: Write,
{
    let Streams { input, mut output, mut errors } = streams;
    let sender = Arc::clone(port);
    std::thread::Builder::new().name("console input".into()).spawn(move || feed(input, &sender))?;
    while let Some((stream, bytes)) = port.receive() {
        let written = match stream {
            Stream::Output => output.write_all(&bytes).and_then(|()| output.flush()),
            Stream::Errors => errors.write_all(&bytes).and_then(|()| errors.flush()),
        };
        match written {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => port.hang_up(stream),
            Err(error) => {
                // It may have ended by itself meanwhile.
                let _ = kernel.end(cell, End::Killed);
                return Err(error);
            }
        }
    }
    Ok(())
}

fn feed(mut input: impl Read, port: &ConsolePort) {
    if !port.wait_until_wanted() {
        return;
    }
    let mut piece = vec![0; PIECE];
    loop {
        match input.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => {
                if !port.send(&piece[..count]) {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // What cannot be read has ended, as far as the program can tell.
            Err(_) => break,
        }
    }
    port.close_input();
}
