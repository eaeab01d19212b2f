// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pseudo terminals: what a program with `/dev/ptmx` open shows another that has `/dev/pts/N` for its terminal.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;

use super::poll::{POLLERR, POLLHUP, READING, WRITING};
use super::pulse::Pulse;
use super::tree::node::{Body, Owner};
use super::tree::{Named, Place};
use super::{Files, Kind, OpenName};
use crate::erofs::{FileType, Time};
use crate::errno::Errno;
use crate::terminal::Terminal;
use crate::wait::Channel;

/// Major number of the terminals in `/dev/pts`.
pub const MAJOR: u32 = 136;
/// Bytes that are kept for the master to read.
const SHOWN_MAX: usize = 16 << 10;
/// Pseudo terminals that a cell may have.
const PTYS_MAX: u32 = 4096;
/// The byte before what was shown.
const SHOWN: u8 = 0;
/// The group that owns terminals.
const TTY_GROUP: u32 = 5;

/// Which pseudo terminal: the number of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PtyId(pub u32);

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

    /// Takes note that something was typed, or that what is typed is read otherwise.
    pub fn note_typed(&mut self) {
        self.pulses[1].input();
    }

    /// Takes note that what was typed was read.
    pub fn note_read(&mut self) {
        self.pulses[0].output();
    }

    /// What an end need not wait for.
    #[must_use]
    pub fn ready(&self, end: End) -> u16 {
        let bit = |holds, bits| if holds { bits } else { 0 };
        match end {
            End::Master => {
                bit(!self.shown.is_empty(), READING)
                    | bit(self.slaves == Some(0), POLLHUP)
                    | bit(self.terminal.input.has_room(&self.terminal.settings), WRITING)
            }
            End::Slave if self.hung_up => READING | WRITING | POLLHUP | POLLERR,
            End::Slave => bit(self.terminal.is_ready(), READING) | bit(self.room() > 0 && !self.terminal.input.stopped, WRITING),
        }
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

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = (PtyId, &Pty)> {
        self.ptys.iter().map(|(id, pty)| (*id, pty))
    }
}

impl Files {
    /// Where the names of pseudo terminals are.
    fn pts(&self) -> Result<Place, Errno> {
        let device = self.tree.lookup(self.tree.root(), b"dev")?;
        self.tree.lookup(device, b"pts")
    }

    /// Makes a pseudo terminal with its name.
    ///
    /// # Errors
    /// `ENOSPC`: there are too many, or there is no memory.
    pub(super) fn create_pty(&mut self, now: Time) -> Result<PtyId, Errno> {
        let ptys = &self.ptys.ptys;
        let id = (self.ptys.first..PTYS_MAX).map(PtyId).find(|id| !ptys.contains_key(id)).ok_or(Errno::ENOSPC)?;
        self.name_terminal(id.0, now)?;
        let pty = Pty {
            terminal: Terminal::pseudo(),
            shown: VecDeque::new(),
            locked: true,
            packets: false,
            slaves: None,
            hung_up: false,
            pulses: Default::default(),
        };
        self.ptys.ptys.insert(id, pty);
        Ok(id)
    }

    /// Gives a terminal its name in `/dev/pts`. Returns what has the name, and the name.
    ///
    /// # Errors
    /// `ENOSPC`, `ENOENT`: the directory is gone.
    pub(super) fn name_terminal(&mut self, number: u32, now: Time) -> Result<(Place, OpenName), Errno> {
        let owner = Owner { uid: self.own.who.user.real, gid: TTY_GROUP, permissions: 0o620 };
        let name = format!("{number}");
        let directory = self.pts()?;
        let at = Named { directory, name: name.as_bytes() };
        let id = self.tree.create(at, Body::Special(FileType::CharacterDevice, (MAJOR, number)), owner, now)?;
        Ok((Place::Node(id), OpenName { directory, name: name.into_bytes().into() }))
    }

    /// Opens a pseudo terminal by its number.
    ///
    /// # Errors
    /// `EIO`: it is locked, or gone.
    pub(super) fn open_pty(&mut self, id: PtyId, place: Place) -> Result<Kind, Errno> {
        let pty = self.ptys.get_mut(id)?;
        if pty.locked || pty.hung_up {
            return Err(Errno::EIO);
        }
        pty.slaves = Some(pty.slaves.unwrap_or_default() + 1);
        pty.other();
        self.changed.push(Channel::Terminal(id.0));
        Ok(Kind::Slave(id, place))
    }

    /// Opens the terminal of a master.
    ///
    /// # Errors
    /// `EIO`: it is locked, or gone.
    pub fn open_peer(&mut self, id: PtyId) -> Result<Kind, Errno> {
        let name = format!("{}", id.0);
        let place = self.tree.lookup(self.pts()?, name.as_bytes()).map_err(|_| Errno::EIO)?;
        self.open_pty(id, place)
    }

    /// Closes an open file of a pseudo terminal. It is gone with its last one.
    pub(super) fn close_pty(&mut self, id: PtyId, end: End, now: Time) {
        let Ok(pty) = self.ptys.get_mut(id) else { return };
        pty.other();
        if end == End::Slave {
            pty.slaves = pty.slaves.map(|slaves| slaves.saturating_sub(1));
        } else {
            (pty.hung_up, pty.terminal.ended) = (true, true);
            let session = core::mem::take(&mut pty.terminal.session);
            if session != 0 {
                self.ptys.hung_up.push(session);
            }
            let name = format!("{}", id.0);
            // Whoever has taken the name away has done it already.
            if let Ok(directory) = self.pts() {
                let _ = self.tree.unlink(Named { directory, name: name.as_bytes() }, now);
            }
        }
        self.changed.push(Channel::Terminal(id.0));
        if self.ptys.get(id).is_ok_and(|pty| pty.hung_up && pty.slaves.unwrap_or_default() == 0) {
            self.ptys.ptys.remove(&id);
        }
    }
}
