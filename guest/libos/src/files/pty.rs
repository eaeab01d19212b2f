// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pseudo terminals: the master end is opened by `/dev/ptmx`, the slave end is `/dev/pts/N`.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::edge::EventTimes;
use super::poll::{READING, WRITING};
use crate::errno::Errno;
use crate::terminal::input::Effects;
use crate::terminal::{PtyId, Terminal};
use crate::uapi::{POLLERR, POLLHUP};

/// Major number of the terminals in `/dev/pts`.
pub const MAJOR: u32 = 136;
/// Capacity of the output buffer that the master reads, in bytes.
const OUTPUT_MAX: usize = 16 << 10;
/// Capacity of the input buffer between master and terminal, in bytes.
const KEYS_MAX: usize = 64 << 10;
/// Bytes of written output that a flush does not discard.
const KEPT: usize = 4096;
/// Upper limit on the pseudo terminals of a cell.
const PTYS_MAX: u32 = 4096;
/// The packet mode byte before data (`TIOCPKT_DATA`).
const DATA: u8 = 0;
/// The group that owns terminals.
pub(super) const TTY_GROUP: u32 = 5;

/// An end of a pseudo terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PtyEnd {
    /// The end of the terminal emulator.
    Master,
    /// The end of the programs in the terminal.
    Slave,
}

/// A pseudo terminal.
#[derive(Debug)]
pub struct Pty {
    /// The terminal as its programs see it.
    pub terminal: Terminal,
    /// Output that the master has not read.
    output: VecDeque<u8>,
    /// Input from the master that the terminal has not accepted yet.
    keys: VecDeque<u8>,
    /// It is locked and cannot be opened yet (`TIOCSPTLCK`).
    pub locked: bool,
    /// Packet mode (`TIOCPKT`): a data byte precedes each read of the master. Stops and flushes are not reported.
    pub packets: bool,
    /// The number of open files of the slave end; `None`: it has never been opened.
    slaves: Option<u32>,
    /// The master end is closed.
    hung_up: bool,
    event_times: [EventTimes; 2],
}

impl Pty {
    /// Free space of the output buffer in bytes.
    #[must_use]
    pub fn room(&self) -> usize {
        OUTPUT_MAX.saturating_sub(self.output.len())
    }

    /// Bytes that the master can read.
    #[must_use]
    pub fn output_length(&self) -> usize {
        self.output.len()
    }

    /// Whether it has been hung up: reads return end of file, writes fail.
    #[must_use]
    pub fn is_hung_up(&self) -> bool {
        self.hung_up
    }

    /// Adds bytes to the output unprocessed. An echo that does not fit is lost.
    pub fn push_output(&mut self, bytes: &[u8]) {
        self.output.extend(&bytes[..bytes.len().min(self.room())]);
        self.event_times[0].input();
    }

    /// Returns at most so many bytes of output to the master, at least one.
    ///
    /// # Errors
    /// `EAGAIN`: there is none yet. `EIO`: the slave end is closed.
    pub fn take_output(&mut self, room: usize) -> Result<Vec<u8>, Errno> {
        if self.output.is_empty() {
            return Err(if self.slaves == Some(0) { Errno::EIO } else { Errno::EAGAIN });
        }
        self.event_times[1].output();
        let kind = self.packets.then_some(DATA);
        let room = room.saturating_sub(usize::from(self.packets));
        Ok(kind.into_iter().chain(self.output.drain(..room.min(self.output.len()))).collect())
    }

    /// Copies output for the libOS's own master, which is not in packet mode, without consuming it. Returns how many bytes.
    pub fn peek_output(&self, buffer: &mut [u8]) -> usize {
        let length = buffer.len().min(self.output.len());
        buffer.iter_mut().zip(&self.output).for_each(|(buffer, byte)| *buffer = *byte);
        length
    }

    /// Consumes output that was copied before.
    pub fn skip_output(&mut self, bytes: usize) {
        self.output.drain(..bytes.min(self.output.len()));
        self.event_times[1].output();
    }

    /// Discards unread output.
    pub fn drop_output(&mut self) {
        self.output.clear();
        self.event_times[1].output();
    }

    /// Discards recently written output that has not reached the master yet.
    pub fn drop_written(&mut self) {
        self.output.truncate(KEPT);
        self.event_times[1].output();
    }

    /// Free space of the input buffer in bytes.
    #[must_use]
    pub fn key_room(&self) -> usize {
        KEYS_MAX.saturating_sub(self.keys.len())
    }

    /// Adds input from the master; it must fit.
    pub fn add_keys(&mut self, keys: &[u8]) {
        self.keys.extend(keys);
    }

    /// Moves input from the master to the terminal, as many bytes as it accepts at once. `None`: there is none, or the terminal is full.
    pub fn type_waiting(&mut self) -> Option<Effects> {
        let room = self.terminal.input.room(&self.terminal.settings).min(self.keys.len());
        let keys: Vec<u8> = self.keys.drain(..room).collect();
        if keys.is_empty() {
            return None;
        }
        let [master, slave] = &mut self.event_times;
        master.output();
        slave.input();
        Some(self.terminal.process_input(&keys))
    }

    /// Discards unread input.
    pub fn drop_typed(&mut self) {
        self.keys.clear();
        self.terminal.input.flush();
        self.event_times[0].output();
    }

    /// The `poll` events of an end.
    #[must_use]
    pub fn ready(&self, end: PtyEnd) -> u16 {
        let bit = |holds, bits| if holds { bits } else { 0 };
        match end {
            PtyEnd::Master => {
                bit(!self.output.is_empty(), READING) | bit(self.slaves == Some(0), POLLHUP) | bit(self.key_room() > 0, WRITING)
            }
            PtyEnd::Slave if self.hung_up => READING | WRITING | POLLHUP | POLLERR,
            PtyEnd::Slave => bit(self.terminal.is_ready(), READING) | bit(self.room() > 0 && !self.terminal.input.stopped, WRITING),
        }
    }

    /// Records an open of the slave end.
    ///
    /// # Errors
    /// `EIO`: it is locked, or hung up.
    pub fn open(&mut self) -> Result<(), Errno> {
        if self.locked || self.hung_up {
            return Err(Errno::EIO);
        }
        self.slaves = Some(self.slaves.unwrap_or_default() + 1);
        self.other();
        Ok(())
    }

    /// When an end last became ready.
    #[must_use]
    pub fn event_times(&self, end: PtyEnd) -> EventTimes {
        self.event_times[end as usize]
    }

    fn other(&mut self) {
        self.event_times.iter_mut().for_each(EventTimes::other);
    }
}

/// All pseudo terminals.
#[derive(Debug, Default)]
pub struct Ptys {
    ptys: BTreeMap<PtyId, Pty>,
    /// The first number to assign; the operator's terminal has the number before it.
    first: u32,
    /// Sessions whose terminal was hung up since the last check.
    pub hung_up: Vec<u32>,
}

impl Ptys {
    /// An empty table; `is_taken`: the first number is the operator's terminal.
    #[must_use]
    pub fn new(is_taken: bool) -> Ptys {
        Ptys { first: is_taken.into(), ..Ptys::default() }
    }

    /// A pseudo terminal.
    ///
    /// # Errors
    /// `EIO`: it does not exist any more.
    pub fn get(&self, id: PtyId) -> Result<&Pty, Errno> {
        self.ptys.get(&id).ok_or(Errno::EIO)
    }

    /// A pseudo terminal, mutably.
    ///
    /// # Errors
    /// `EIO`: it does not exist any more.
    pub fn get_mut(&mut self, id: PtyId) -> Result<&mut Pty, Errno> {
        self.ptys.get_mut(&id).ok_or(Errno::EIO)
    }

    /// The lowest free number.
    ///
    /// # Errors
    /// `ENOSPC`: there are too many.
    pub fn free(&self) -> Result<PtyId, Errno> {
        (self.first..PTYS_MAX).map(PtyId).find(|id| !self.ptys.contains_key(id)).ok_or(Errno::ENOSPC)
    }

    /// Adds a pseudo terminal with a free number.
    pub fn add(&mut self, id: PtyId) {
        let pty = Pty {
            terminal: Terminal::pseudo(),
            output: VecDeque::new(),
            keys: VecDeque::new(),
            locked: true,
            packets: false,
            slaves: None,
            hung_up: false,
            event_times: Default::default(),
        };
        self.ptys.insert(id, pty);
    }

    /// Records the close of an open file of one end. The pseudo terminal is freed with the last one.
    ///
    /// # Errors
    /// `EIO`: it does not exist any more.
    pub fn close(&mut self, id: PtyId, end: PtyEnd) -> Result<(), Errno> {
        let pty = self.get_mut(id)?;
        pty.other();
        let mut session = 0;
        match end {
            PtyEnd::Slave => pty.slaves = pty.slaves.map(|slaves| slaves.saturating_sub(1)),
            PtyEnd::Master => {
                (pty.hung_up, pty.terminal.ended) = (true, true);
                session = core::mem::take(&mut pty.terminal.session);
            }
        }
        if pty.hung_up && pty.slaves.unwrap_or_default() == 0 {
            self.ptys.remove(&id);
        }
        if session != 0 {
            self.hung_up.push(session);
        }
        Ok(())
    }

    /// All pseudo terminals.
    pub fn all(&self) -> impl Iterator<Item = (PtyId, &Pty)> {
        self.ptys.iter().map(|(id, pty)| (*id, pty))
    }
}
