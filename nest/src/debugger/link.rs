// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connection to gdb.

use super::mailbox::Mailbox;
use gdbstub::conn::Connection;
use std::fs::File;
use std::io::{Error, Read, Result, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// How gdb is connected.
#[derive(Debug)]
pub enum GdbLink {
    /// By standard input and output. The program's output then goes to standard error, and its input is empty.
    Streams,
    /// By a socket. The program has the standard streams.
    Socket(File),
    /// By other threads, which also note the events of the cell.
    Mailbox(Arc<Mailbox>),
}

impl GdbLink {
    /// Reads bytes that are there, or waits for some. None: there will be no more.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn read(&mut self, max: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; max];
        let count = match self {
            GdbLink::Streams => std::io::stdin().lock().read(&mut bytes)?,
            GdbLink::Socket(socket) => socket.read(&mut bytes)?,
            GdbLink::Mailbox(mailbox) => return Ok(mailbox.wait(None, false, true).unwrap_or_default()),
        };
        bytes.truncate(count);
        Ok(bytes)
    }

    /// The descriptor that is readable when gdb has sent something; `stdin` is standard input.
    pub(super) fn descriptor<'a>(&'a self, stdin: &'a std::io::Stdin) -> Option<BorrowedFd<'a>> {
        match self {
            GdbLink::Streams => Some(stdin.as_fd()),
            GdbLink::Socket(socket) => Some(socket.as_fd()),
            GdbLink::Mailbox(_) => None,
        }
    }

    /// The writer of replies to gdb.
    ///
    /// # Errors
    /// There are too many open files.
    pub(super) fn replies(&self) -> Result<ReplyWriter> {
        let target = match self {
            GdbLink::Streams => ReplyTarget::Output,
            GdbLink::Socket(socket) => ReplyTarget::Socket(socket.try_clone()?),
            GdbLink::Mailbox(mailbox) => ReplyTarget::Mailbox(Arc::clone(mailbox)),
        };
        Ok(ReplyWriter { target, bytes: Vec::new() })
    }
}

/// Where replies to gdb go.
enum ReplyTarget {
    /// Standard output.
    Output,
    Socket(File),
    Mailbox(Arc<Mailbox>),
}

/// The writer of replies to gdb, which sends one packet at a time.
pub(super) struct ReplyWriter {
    target: ReplyTarget,
    bytes: Vec<u8>,
}

impl Connection for ReplyWriter {
    type Error = Error;

    fn write(&mut self, byte: u8) -> Result<()> {
        self.bytes.push(byte);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        match &mut self.target {
            ReplyTarget::Socket(socket) => Write::write_all(socket, &bytes),
            ReplyTarget::Output => std::io::stdout().write_all(&bytes).and_then(|()| std::io::stdout().flush()),
            ReplyTarget::Mailbox(mailbox) => mailbox.reply(&bytes),
        }
    }
}
