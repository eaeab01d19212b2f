// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pseudo terminals: what a program with `/dev/ptmx` open shows another that has `/dev/pts/N` for its terminal.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::poll::{POLLERR, POLLHUP, READING, WRITING};
use super::pulse::Pulse;
use crate::errno::Errno;
use crate::terminal::input::Effects;
use crate::terminal::{PtyId, Terminal};

/// Major number of the terminals in `/dev/pts`.
pub const MAJOR: u32 = 136;
/// Bytes that are kept for the master to read.
const SHOWN_MAX: usize = 16 << 10;
/// Bytes that a master may write before its terminal has room for them.
const KEYS_MAX: usize = 64 << 10;
/// Bytes that programs have written and that are the master's, whatever they drop.
const KEPT: usize = 4096;
/// Pseudo terminals that a cell may have.
const PTYS_MAX: u32 = 4096;
/// The byte before what was shown.
const SHOWN: u8 = 0;
/// The group that owns terminals.
pub(super) const TTY_GROUP: u32 = 5;

/// Which end of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// That of the program which shows it.
    Master,
    /// That of the programs which have it for their terminal.
    Slave,
}

/// A pseudo terminal.
#[derive(Debug)]
pub struct Pty {
    /// What its programs see.
    pub terminal: Terminal,
    /// What its programs have written and the master has not read.
    shown: VecDeque<u8>,
    /// What the master has written and the terminal has no room for yet.
    keys: VecDeque<u8>,
    /// It cannot be opened yet.
    pub locked: bool,
    /// A byte before each piece that the master reads says that it is what was shown. That the terminal was stopped or flushed is not told.
    pub packets: bool,
    /// Open files of the terminal; `None`: nobody has opened it yet.
    slaves: Option<u32>,
    /// Nobody shows it any more.
    hung_up: bool,
    pulses: [Pulse; 2],
}

impl Pty {
    /// Bytes that can still be shown.
    #[must_use]
    pub fn room(&self) -> usize {
        SHOWN_MAX.saturating_sub(self.shown.len())
    }

    /// Bytes that the master can read.
    #[must_use]
    pub fn shown(&self) -> usize {
        self.shown.len()
    }

    /// Whether it has been hung up: reading it ends, writing fails.
    #[must_use]
    pub fn is_hung_up(&self) -> bool {
        self.hung_up
    }

    /// Shows bytes as they are. An echo that finds no room is lost.
    pub fn show(&mut self, bytes: &[u8]) {
        self.shown.extend(&bytes[..bytes.len().min(self.room())]);
        self.pulses[0].input();
    }

    /// Gives the master at most so many bytes of what was shown, at least one.
    ///
    /// # Errors
    /// `EAGAIN`: nothing yet. `EIO`: nobody has the terminal open any more.
    pub fn take_shown(&mut self, room: usize) -> Result<Vec<u8>, Errno> {
        if self.shown.is_empty() {
            return Err(if self.slaves == Some(0) { Errno::EIO } else { Errno::EAGAIN });
        }
        self.pulses[1].output();
        let kind = self.packets.then_some(SHOWN);
        let room = room.saturating_sub(usize::from(self.packets));
        Ok(kind.into_iter().chain(self.shown.drain(..room.min(self.shown.len()))).collect())
    }

    /// Forgets what was shown and not read.
    pub fn drop_shown(&mut self) {
        self.shown.clear();
        self.pulses[1].output();
    }

    /// Forgets what was written last and has not reached the master yet.
    pub fn drop_written(&mut self) {
        self.shown.truncate(KEPT);
        self.pulses[1].output();
    }

    /// Bytes that the master can write.
    #[must_use]
    pub fn key_room(&self) -> usize {
        KEYS_MAX.saturating_sub(self.keys.len())
    }

    /// Takes bytes from the master, for which there is room, to be typed.
    pub fn add_keys(&mut self, keys: &[u8]) {
        self.keys.extend(keys);
    }

    /// Types bytes of the master's, as many as the terminal takes at once. `None`: there are none, or there is no room.
    pub fn type_waiting(&mut self) -> Option<Effects> {
        let room = self.terminal.input.room(&self.terminal.settings).min(self.keys.len());
        let keys: Vec<u8> = self.keys.drain(..room).collect();
        if keys.is_empty() {
            return None;
        }
        let [master, slave] = &mut self.pulses;
        master.output();
        slave.input();
        Some(self.terminal.typed(&keys))
    }

    /// Forgets what was typed and not read.
    pub fn drop_typed(&mut self) {
        self.keys.clear();
        self.terminal.input.flush();
        self.pulses[0].output();
    }

    /// What an end need not wait for.
    #[must_use]
    pub fn ready(&self, end: End) -> u16 {
        let bit = |holds, bits| if holds { bits } else { 0 };
        match end {
            End::Master => bit(!self.shown.is_empty(), READING) | bit(self.slaves == Some(0), POLLHUP) | bit(self.key_room() > 0, WRITING),
            End::Slave if self.hung_up => READING | WRITING | POLLHUP | POLLERR,
            End::Slave => bit(self.terminal.is_ready(), READING) | bit(self.room() > 0 && !self.terminal.input.stopped, WRITING),
        }
    }

    /// Takes note that its slave is opened.
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
    pub fn pulse(&self, end: End) -> Pulse {
        self.pulses[end as usize]
    }

    fn other(&mut self) {
        self.pulses.iter_mut().for_each(Pulse::other);
    }
}

/// All pseudo terminals.
#[derive(Debug, Default)]
pub struct Ptys {
    ptys: BTreeMap<PtyId, Pty>,
    /// The first number that may be given: the operator's terminal has the one before.
    first: u32,
    /// Sessions whose terminal was hung up since somebody looked.
    pub hung_up: Vec<u32>,
}

impl Ptys {
    /// None yet; `is_taken`: the first number is the operator's terminal.
    #[must_use]
    pub fn new(is_taken: bool) -> Ptys {
        Ptys { first: is_taken.into(), ..Ptys::default() }
    }

    /// One of them.
    ///
    /// # Errors
    /// `EIO`: it is gone.
    pub fn get(&self, id: PtyId) -> Result<&Pty, Errno> {
        self.ptys.get(&id).ok_or(Errno::EIO)
    }

    /// One of them, to be changed.
    ///
    /// # Errors
    /// `EIO`: it is gone.
    pub fn get_mut(&mut self, id: PtyId) -> Result<&mut Pty, Errno> {
        self.ptys.get_mut(&id).ok_or(Errno::EIO)
    }

    /// The lowest number that is free.
    ///
    /// # Errors
    /// `ENOSPC`: there are too many.
    pub fn free(&self) -> Result<PtyId, Errno> {
        (self.first..PTYS_MAX).map(PtyId).find(|id| !self.ptys.contains_key(id)).ok_or(Errno::ENOSPC)
    }

    /// Adds one with a number that is free.
    pub fn add(&mut self, id: PtyId) {
        let pty = Pty {
            terminal: Terminal::pseudo(),
            shown: VecDeque::new(),
            keys: VecDeque::new(),
            locked: true,
            packets: false,
            slaves: None,
            hung_up: false,
            pulses: Default::default(),
        };
        self.ptys.insert(id, pty);
    }

    /// Takes note that an open file of one is closed, which is gone with its last one.
    ///
    /// # Errors
    /// `EIO`: it is gone.
    pub fn close(&mut self, id: PtyId, end: End) -> Result<(), Errno> {
        let pty = self.get_mut(id)?;
        pty.other();
        let mut session = 0;
        match end {
            End::Slave => pty.slaves = pty.slaves.map(|slaves| slaves.saturating_sub(1)),
            End::Master => {
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

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (PtyId, &Pty)> {
        self.ptys.iter().map(|(id, pty)| (*id, pty))
    }
}
