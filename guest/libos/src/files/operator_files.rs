// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator's resources in the cell: pipes and pseudo terminals whose other ends the libOS holds, as streams of processes, and files
//! that no process has open.

use pando_rt::clock;

use super::pipe::PipeId;
use super::pipe_file::PipeFile;
use super::pty::PtyEnd;
use super::status::time;
use super::{Descriptor, Files, OpenFile, ProcessFiles};
use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::pid::Pid;
use crate::terminal::PtyId;
use crate::terminal::settings::Settings;
use crate::uapi::{O_RDONLY, O_RDWR, O_WRONLY};
use crate::wait::Channel;

/// Number of the standard streams.
const STREAMS: usize = 3;

impl Files {
    /// Gives a process without a parent its files: pipes for its three streams, and the root directory as working directory. Returns the
    /// pipes.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn begin_process(&mut self, process: Pid, credentials: Credentials, started: u64) -> Result<[PipeId; 3], Errno> {
        let mut process_files = ProcessFiles { process, ..ProcessFiles::new(self.tree.root(), credentials, started) };
        let mut pipes = [PipeId(0); 3];
        for fd in 0..pipes.len() {
            pipes[fd] = match self.pipes.open(None, true, true) {
                Ok(pipe) => pipe,
                Err(error) => {
                    pipes[..fd].iter().for_each(|pipe| self.pipes.close(*pipe, true, true));
                    return Err(error);
                }
            };
        }
        for (fd, pipe) in pipes.into_iter().enumerate() {
            let slot = self.open.free_from(0);
            let access = if fd == 0 { O_RDONLY } else { O_WRONLY };
            self.open.put(slot, (OpenFile::new(PipeFile::new(pipe), access), 1));
            process_files.descriptors.put(fd, Descriptor { file: slot, close_on_exec: false });
        }
        self.others.insert(process, process_files);
        Ok(pipes)
    }

    /// Gives a process without a parent its files: a new pseudo terminal for its three streams, and the root directory as working
    /// directory. Returns the terminal, which is that of the process's session.
    ///
    /// # Errors
    /// `ENOSPC`: there are too many terminals. `ENOENT`: `/dev/pts` was removed.
    pub fn begin_process_in_terminal(&mut self, process: Pid, credentials: Credentials, started: u64) -> Result<PtyId, Errno> {
        let mut process_files = ProcessFiles { process, ..ProcessFiles::new(self.tree.root(), credentials, started) };
        let now = time(started);
        let id = self.with_current(&mut process_files, |files| files.create_pty(now))?;
        if let Ok(pty) = self.ptys.get_mut(id) {
            pty.locked = false;
            // Its input is UTF-8 (`IUTF8`), as at the operator's terminal.
            pty.terminal.settings = Settings::default();
            (pty.terminal.session, pty.terminal.foreground) = (process, process);
        }
        let slave = match self.open_peer(id) {
            Ok(slave) => slave,
            Err(error) => {
                self.close_pty(id, PtyEnd::Master, now);
                return Err(error);
            }
        };
        let slot = self.open.free_from(0);
        self.open.put(slot, (OpenFile::new(slave, O_RDWR), STREAMS));
        for fd in 0..STREAMS {
            process_files.descriptors.put(fd, Descriptor { file: slot, close_on_exec: false });
        }
        self.others.insert(process, process_files);
        Ok(id)
    }

    /// Types bytes into a pseudo terminal. Returns how many; 0: its buffer is full, or it does not exist any more.
    pub fn add_keys(&mut self, id: PtyId, bytes: &[u8]) -> usize {
        let Ok(pty) = self.ptys.get_mut(id) else { return 0 };
        let count = bytes.len().min(pty.key_room());
        pty.add_keys(&bytes[..count]);
        self.changed.push(Channel::Terminal(id.0));
        count
    }

    /// Copies output of a pseudo terminal without consuming it. Returns how many bytes.
    #[must_use]
    pub fn peek_terminal(&self, id: PtyId, buffer: &mut [u8]) -> usize {
        self.ptys.get(id).map_or(0, |pty| pty.peek_output(buffer))
    }

    /// Consumes output of a pseudo terminal that was copied before.
    pub fn skip_terminal_output(&mut self, id: PtyId, bytes: usize) {
        if let Ok(pty) = self.ptys.get_mut(id) {
            pty.skip_output(bytes);
            self.changed.push(Channel::Terminal(id.0));
        }
    }

    /// Closes the libOS's end of a pseudo terminal: its session is hung up.
    pub fn hang_up(&mut self, id: PtyId) {
        self.close_pty(id, PtyEnd::Master, time(clock::wall()));
    }

    /// The file state (`files_struct`) of an actor without a process, with these credentials and the root as working directory.
    #[must_use]
    pub fn new_process_files(&self, credentials: Credentials, started: u64) -> ProcessFiles {
        ProcessFiles { process: 0, ..ProcessFiles::new(self.tree.root(), credentials, started) }
    }

    /// Runs an action with another file state in place of the running process's.
    pub fn with_current<T>(&mut self, other: &mut ProcessFiles, action: impl FnOnce(&mut Files) -> T) -> T {
        core::mem::swap(&mut self.current, other);
        let done = action(self);
        core::mem::swap(&mut self.current, other);
        done
    }

    /// Writes bytes into a pipe. Returns how many; 0: it is full.
    ///
    /// # Errors
    /// `EPIPE`: it has no readers. `ENOMEM`.
    pub fn feed(&mut self, pipe: PipeId, bytes: &[u8]) -> Result<usize, Errno> {
        match self.pipes.get_mut(pipe)?.push(bytes) {
            Err(Errno::EAGAIN) => Ok(0),
            Ok(moved) => {
                self.changed.push(Channel::Pipe(pipe.0));
                Ok(moved)
            }
            Err(error) => Err(error),
        }
    }

    /// Copies the content of a pipe without consuming it. Returns how many bytes.
    #[must_use]
    pub fn peek(&self, pipe: PipeId, buffer: &mut [u8]) -> usize {
        self.pipes.get(pipe).map_or(0, |pipe| pipe.peek(0, buffer))
    }

    /// Consumes bytes of a pipe that were copied before.
    pub fn consume(&mut self, pipe: PipeId, bytes: usize) {
        if let Ok(buffer) = self.pipes.get_mut(pipe) {
            buffer.skip(bytes);
            self.changed.push(Channel::Pipe(pipe.0));
        }
    }

    /// Closes the libOS's end of a pipe: the reading or the writing one.
    pub fn close_pipe(&mut self, pipe: PipeId, reads: bool) {
        self.pipes.close(pipe, reads, !reads);
        self.changed.push(Channel::Pipe(pipe.0));
    }
}
