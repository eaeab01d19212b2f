// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connection to gdb.

use gdbstub::conn::Connection;
use std::io::{Error, Read, Result, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

/// How gdb is connected.
#[derive(Debug)]
pub enum GdbLink {
    /// By standard input and output. The program's output then goes to standard error, and its input is empty.
    Streams,
    /// By a connection. The program has the standard streams.
    Socket(TcpStream),
}

impl GdbLink {
    /// Reads bytes that are there, or waits for some.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        match self {
            GdbLink::Streams => std::io::stdin().lock().read(bytes),
            GdbLink::Socket(socket) => socket.read(bytes),
        }
    }

    /// The descriptor that is readable when gdb has sent something; `stdin` is standard input.
    pub(super) fn descriptor<'a>(&'a self, stdin: &'a std::io::Stdin) -> BorrowedFd<'a> {
        match self {
            GdbLink::Streams => stdin.as_fd(),
            GdbLink::Socket(socket) => socket.as_fd(),
        }
    }

    /// The writer of replies to gdb.
    ///
    /// # Errors
    /// There are too many open files.
    pub(super) fn replies(&self) -> Result<ReplyWriter> {
        let socket = match self {
            GdbLink::Streams => None,
            GdbLink::Socket(socket) => {
                socket.set_nodelay(true)?;
                Some(socket.try_clone()?)
            }
        };
        Ok(ReplyWriter { socket, bytes: Vec::new() })
    }
}

/// The writer of replies to gdb, which sends one packet at a time.
pub(super) struct ReplyWriter {
    /// `None`: standard output.
    socket: Option<TcpStream>,
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
        match &mut self.socket {
            Some(socket) => Write::write_all(socket, &bytes),
            None => std::io::stdout().write_all(&bytes).and_then(|()| std::io::stdout().flush()),
        }
    }
}
