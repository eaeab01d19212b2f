// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files: descriptors, the open files they stand for, and the tree of names behind them.
//!
//! Several descriptors may stand for one open file (`dup`), which holds the offset; so there are two tables. Where a path leads is decided in [`names`],
//! what lies there in [`tree`], and what can be done with an open file of each [kind](Kind) in [`transfer`], [`status`] and [`readiness`].

pub mod ahead;
pub mod change;
mod descriptors;
pub mod epoll;
pub mod event;
pub mod export;
pub mod inotify;
mod lent;
pub mod locks;
mod made;
pub mod mqueue;
pub mod names;
mod notify;
pub mod numbered;
pub mod open;
mod opened;
mod own;
mod passing;
pub mod pipe;
pub mod poll;
pub mod proc;
pub mod pty;
pub mod pulse;
pub mod readiness;
mod seek;
pub mod socket;
pub mod splice;
pub mod status;
mod terminals;
pub mod timerfd;
pub mod transfer;
pub mod tree;
pub mod watch;
pub mod watched;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cell::RefCell;

use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::process::{FIRST, ProcessNumber};
use crate::signals::Set;
use crate::terminal::{PtyId, TerminalName};
use crate::wait::{Channel, ThreadNumber};
use ahead::Ahead;
use epoll::{EpollId, Epolls};
use event::Event;
use export::Export;
use inotify::{Inotifies, InotifyId};
use locks::{FileKey, Locks};
use mqueue::{MessageQueueId, MessageQueues};
use names::Recent;
use numbered::Numbered;
pub use own::Own;
use pipe::{PipeId, Pipes};
use proc::entry::Entry;
use proc::table::Text;
use pty::Ptys;
use pulse::Pulse;
use socket::{SocketId, Sockets};
use status::{Status, minor, time};
use timerfd::{TimerFiles, TimerId};
use tree::node::NodeId;
use tree::volume::{ImageFile, ImagePlace};
use tree::{Listed, Place, Tree};
use watched::{WatchedId, WatchedProcesses};

pub use descriptors::{Descriptor, Target};

/// Flags of `open` and `fcntl`.
pub mod flag {
    /// Which of reading and writing is wanted.
    pub const ACCESS: u64 = 3;
    /// Only reading.
    pub const READ_ONLY: u64 = 0;
    /// Only writing.
    pub const WRITE_ONLY: u64 = 1;
    /// Both.
    pub const READ_WRITE: u64 = 2;
    /// Make the file if there is none.
    pub const CREATE: u64 = 0o100;
    /// Make the file, which must not be there.
    pub const EXCLUSIVE: u64 = 0o200;
    /// Do not make it the session's terminal.
    pub const NO_TERMINAL: u64 = 0o400;
    /// Empty the file.
    pub const TRUNCATE: u64 = 0o1000;
    /// Write at the end.
    pub const APPEND: u64 = 0o2000;
    /// Send signals when it becomes ready.
    pub const ASYNC: u64 = 0o20_000;
    /// Never wait.
    pub const NON_BLOCKING: u64 = 0o4000;
    /// What is written to a pipe at once is read at once.
    pub const DIRECT: u64 = 0o40_000;
    /// It may be larger than 2 GiB, as every file that a 64-bit program opens.
    pub const LARGE_FILE: u64 = 0o100_000;
    /// Only directories.
    pub const DIRECTORY: u64 = 0o200_000;
    /// No symbolic link at the end.
    pub const NO_FOLLOW: u64 = 0o400_000;
    /// Leave the time of the last access alone.
    pub const NO_ACCESS_TIME: u64 = 0o1_000_000;
    /// Close when another program is executed.
    pub const CLOSE_ON_EXEC: u64 = 0o2_000_000;
    /// Only a name, neither reading nor writing.
    pub const PATH: u64 = 0o10_000_000;
    /// A file without a name; always together with [`DIRECTORY`].
    pub const TEMPORARY: u64 = 0o20_000_000;
}

/// Numbers of `/dev/pando`: of those that are left to each machine's own use.
pub const CLONES: (u32, u32) = (10, 240);

/// Devices that the libOS serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// `/dev/null`
    Null,
    /// `/dev/zero`
    Zero,
    /// `/dev/full`
    Full,
    /// `/dev/random`, `/dev/urandom`
    Random,
}

/// A direction of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    /// The standard input.
    Input,
    /// The standard output.
    Output,
    /// The standard error stream.
    Errors,
}

/// What an open file is.
#[derive(Debug)]
pub enum Kind {
    /// A stream of the console.
    Console {
        /// Which.
        stream: Standard,
        /// Where the operator's terminal was found, if the stream is it.
        terminal: Option<Place>,
    },
    /// A regular file of a volume that was no node when it was looked at last.
    Image(ImagePlace, ImageFile),
    /// A regular file of the overlay.
    Node(NodeId),
    /// A directory; the offset is a position in it.
    Directory(Place),
    /// A name only.
    Name(Place),
    /// What shows a pseudo terminal, and where it was found.
    Master(PtyId, Place),
    /// A pseudo terminal, and where it was found.
    Slave(PtyId, Place),
    /// A device, and where it was found.
    Device(Device, Place),
    /// What tells of clones, `/dev/pando`: where it was found, and the generation that was told last.
    Clones(Place, u64),
    /// An end of a pipe.
    Pipe(PipeId),
    /// A counter of events.
    Event(Event),
    /// A timer.
    Timer(TimerId),
    /// A set of files that somebody waits for.
    Epoll(EpollId),
    /// A socket.
    Socket(SocketId),
    /// What happens to files that somebody watches.
    Inotify(InotifyId),
    /// Signals that wait.
    Signals(Set),
    /// A process.
    Process(WatchedId),
    /// A queue of messages.
    Messages(MessageQueueId),
    /// A text of `/proc`, and what it said when it was opened.
    Text(Entry, Text, Vec<u8>),
}

/// The name by which a file was opened.
#[derive(Clone, Debug)]
pub struct OpenName {
    /// Its directory.
    pub directory: Place,
    /// Its last name.
    pub name: Box<[u8]>,
}

/// An open file.
#[derive(Debug)]
pub struct OpenFile {
    /// What it is.
    pub kind: Kind,
    /// Where reading goes on.
    pub offset: u64,
    /// Flags it was opened with, without those of the descriptor.
    pub flags: u64,
    /// By which name; `None`: by none.
    pub name: Option<OpenName>,
    /// The process, or the group with its number negated, that asked to hear of it by signals, which are not sent.
    pub hears: i32,
}

impl OpenFile {
    /// An open file at its start, without a name.
    #[must_use]
    pub fn new(kind: Kind, flags: u64) -> OpenFile {
        OpenFile { kind, offset: 0, flags, name: None, hears: 0 }
    }

    /// Whether it may be read.
    #[must_use]
    pub fn readable(&self) -> bool {
        matches!(self.flags & flag::ACCESS, flag::READ_ONLY | flag::READ_WRITE) && self.flags & flag::PATH == 0
    }

    /// Whether it may be written.
    #[must_use]
    pub fn writable(&self) -> bool {
        matches!(self.flags & flag::ACCESS, flag::WRITE_ONLY | flag::READ_WRITE) && self.flags & flag::PATH == 0
    }

    /// Whether it waits where there is nothing to be done yet.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.flags & flag::NON_BLOCKING == 0
    }

    /// Whether it is a name only, which most calls take for no file at all.
    #[must_use]
    pub fn is_name(&self) -> bool {
        matches!(self.kind, Kind::Name(_))
    }
}

/// The program that runs.
#[derive(Clone, Debug)]
pub struct Program {
    /// Where its file lies.
    pub place: Place,
    /// The name by which it was found; `None`: by none.
    pub name: Option<OpenName>,
}

/// All files, and what each process has of them.
#[derive(Debug)]
pub struct Files {
    /// All names.
    pub tree: Tree,
    /// All pipes.
    pub pipes: Pipes,
    /// All timers that are files.
    pub timers: TimerFiles,
    /// All sets of files that somebody waits for.
    pub epolls: Epolls,
    /// All processes that are files.
    pub watched: WatchedProcesses,
    /// All queues of messages.
    pub queues: MessageQueues,
    /// Who watches what happens to files.
    pub inotifies: Inotifies,
    /// The signals that wait, as far as anybody has looked, and when the last one came.
    signals: (Set, Pulse),
    /// When the cell last went on as a clone.
    cloned: Pulse,
    /// All pseudo terminals.
    pub ptys: Ptys,
    /// The terminal of the running process's session, while it opens something.
    pub controlling: Option<TerminalName>,
    /// All locks.
    pub locks: Locks,
    /// When the console's input last became readable; `None`: it is not, as far as anybody has looked.
    input: Option<Pulse>,
    /// All sockets.
    pub sockets: Sockets,
    /// What the running process has.
    pub own: Own,
    /// Threads besides the first ones of their processes, as `/proc` lists them.
    pub threads: BTreeSet<(ProcessNumber, ThreadNumber)>,
    /// The thread that runs.
    pub thread: ThreadNumber,
    /// What other processes have.
    others: BTreeMap<ProcessNumber, Own>,
    /// What has changed since those who wait for it were woken.
    pub changed: Vec<Channel>,
    /// What goes back to the host.
    exports: Vec<Export>,
    /// Where the last path led.
    recent: RefCell<Recent>,
    /// What is read of volumes.
    ahead: Ahead,
    /// Open files with how many descriptors stand for each.
    open: Numbered<(OpenFile, usize)>,
}

impl Files {
    /// The files of a fresh process that stands in the root directory: the three standard streams. Bit n of `terminals`: stream n is a terminal.
    #[must_use]
    pub fn new(tree: Tree, who: Credentials, terminals: u32, started: u64) -> Files {
        let root = tree.root();
        let mut files = Files {
            tree,
            pipes: Pipes::default(),
            timers: TimerFiles::default(),
            epolls: Epolls::default(),
            watched: WatchedProcesses::default(),
            queues: MessageQueues::default(),
            inotifies: Inotifies::default(),
            signals: (Set::default(), Pulse::default()),
            cloned: Pulse::default(),
            ptys: Ptys::new(terminals != 0),
            controlling: None,
            locks: Locks::default(),
            input: None,
            sockets: Sockets::default(),
            own: Own::new(root, who, started),
            threads: BTreeSet::new(),
            thread: FIRST,
            others: BTreeMap::new(),
            changed: Vec::new(),
            exports: Vec::new(),
            recent: RefCell::default(),
            ahead: Ahead::default(),
            open: Numbered::default(),
        };
        let name = (terminals != 0).then(|| files.name_terminal(0, time(started)).ok()).flatten();
        for (number, stream) in [Standard::Input, Standard::Output, Standard::Errors].into_iter().enumerate() {
            let named = name.as_ref().filter(|_| terminals >> number & 1 != 0);
            let access = match stream {
                _ if named.is_some() => flag::READ_WRITE | flag::LARGE_FILE,
                Standard::Input => flag::READ_ONLY,
                Standard::Output | Standard::Errors => flag::WRITE_ONLY,
            };
            let mut file = OpenFile::new(Kind::Console { stream, terminal: named.map(|(place, _)| *place) }, access);
            file.name = named.map(|(_, name)| name.clone());
            files.start_with(file);
        }
        files
    }

    /// The place of what a descriptor stands for.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn place(&self, fd: u64) -> Result<Place, Errno> {
        let file = self.look(fd)?;
        Ok(self.place_of(file).unwrap_or(Place::Descriptor(fd as u32)))
    }

    /// The place of an open file. `None`: it has none.
    fn place_of(&self, file: &OpenFile) -> Option<Place> {
        match &file.kind {
            Kind::Image(place, _) => Some(self.tree.settle(Place::Image(*place))),
            Kind::Node(id) => Some(Place::Node(*id)),
            Kind::Directory(place)
            | Kind::Name(place)
            | Kind::Device(_, place)
            | Kind::Clones(place, _)
            | Kind::Master(_, place)
            | Kind::Slave(_, place) => Some(self.tree.settle(*place)),
            Kind::Pipe(id) => self.pipes.get(*id).ok()?.place,
            Kind::Text(entry, ..) => Some(Place::Proc(*entry)),
            Kind::Console { terminal, .. } => terminal.map(|place| self.tree.settle(place)),
            Kind::Event(_) | Kind::Timer(_) | Kind::Epoll(_) => None,
            Kind::Socket(_) | Kind::Inotify(_) | Kind::Signals(_) => None,
            Kind::Process(_) | Kind::Messages(_) => None,
        }
    }

    /// What is known of a place.
    ///
    /// # Errors
    /// `ENOENT`, `EIO`, `EBADF`.
    pub fn status(&self, place: Place) -> Result<Status, Errno> {
        match place {
            Place::Proc(entry) => Ok(self.proc_status(entry)),
            Place::Descriptor(fd) => self.status_of(self.look(fd.into())?),
            _ => self.tree.status(place),
        }
    }

    /// What is known of an open file.
    ///
    /// # Errors
    /// `ENOENT`, `EIO`, `EBADF`.
    pub fn status_of(&self, file: &OpenFile) -> Result<Status, Errno> {
        const FIFO: u32 = 0o010_600;
        const SOCKET: u32 = 0o140_777;
        let now = time(self.own.started);
        if let Some(place) = self.place_of(file) {
            return self.status(place);
        }
        Ok(match &file.kind {
            Kind::Console { stream, .. } => Status::made_up(minor::PIPES, 1 + *stream as u64, FIFO, now),
            Kind::Pipe(id) => {
                let mut status = Status::made_up(minor::PIPES, 16 + self.pipes.get(*id)?.number, FIFO, now);
                (status.uid, status.gid) = (self.own.who.user.effective, self.own.who.group.effective);
                status
            }
            Kind::Socket(id) => {
                let mut status = Status::made_up(minor::SOCKETS, self.sockets.get(*id)?.number, SOCKET, now);
                (status.uid, status.gid) = (self.own.who.user.effective, self.own.who.group.effective);
                status
            }
            _ => Status::made_up(minor::ANONYMOUS, 1, 0o600, now),
        })
    }

    /// Hands the names of a directory to `take`, from a position on, until it wants no more.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENOENT`, `EIO`.
    pub fn list(&self, directory: Place, position: u64, take: impl FnMut(Listed<'_>) -> bool) -> Result<(), Errno> {
        match directory {
            Place::Proc(entry) => self.list_proc(entry, position, take),
            _ => self.tree.list(directory, position, take),
        }
    }

    /// What the locks of an open file are found by.
    ///
    /// # Errors
    /// `EBADF`, `ENOENT`, `EIO`.
    pub fn lock_key(&self, fd: u64) -> Result<FileKey, Errno> {
        let status = self.status_of(self.look(fd)?)?;
        Ok((status.device, status.number))
    }

    /// The path by which a file was opened.
    fn path_of_open(&self, file: &OpenFile) -> Vec<u8> {
        self.path_by(file.name.as_ref(), self.place_of(file))
    }

    /// The path by which a place was found, with a note if it does not lead there any more.
    #[must_use]
    pub fn path_by(&self, name: Option<&OpenName>, place: Option<Place>) -> Vec<u8> {
        let Some(OpenName { directory, name }) = name else { return b"/ (deleted)".to_vec() };
        let mut path = self.path_of(*directory).ok().flatten().unwrap_or_default();
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let leads = self.lookup(*directory, name).ok().map(|place| self.tree.settle(place));
        if leads.is_none() || leads != place.map(|place| self.tree.settle(place)) {
            path.extend_from_slice(b" (deleted)");
        }
        path
    }

    /// Whether somebody has a place open, or stands there.
    fn is_open(&self, place: Place) -> bool {
        let is = |other| self.tree.settle(other) == place;
        let stands = |own: &Own| is(own.working_directory) || is(own.root) || is(own.program.place);
        stands(&self.own) || self.others.values().any(stands) || self.open.iter().any(|(_, (file, _))| self.place_of(file) == Some(place))
    }

    /// Forgets what has no name any more, if nobody has it open.
    pub fn release(&mut self, place: Place) {
        if let Place::Node(id) = self.tree.settle(place)
            && self.tree.node(id).is_ok_and(|node| node.links == 0)
            && !self.is_open(Place::Node(id))
        {
            self.tell_gone(Place::Node(id));
            self.tree.forget(id);
        }
    }
}
