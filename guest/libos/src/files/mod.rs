// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files: descriptors, the open files they stand for, and the tree of names behind them.
//!
//! Several descriptors may stand for one open file (`dup`), which holds the offset; so there are two tables. Where a path leads is decided in [`names`],
//! what lies there in [`tree`], and what can be done with an open file of each [kind](Kind) in [`transfer`], [`status`] and [`readiness`].

pub mod change;
mod descriptors;
pub mod event;
pub mod export;
mod made;
pub mod names;
pub mod open;
pub mod pipe;
pub mod proc;
pub mod readiness;
mod seek;
pub mod status;
pub mod transfer;
pub mod tree;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::credentials::Credentials;
use crate::errno::Errno;
use event::Event;
use export::Export;
use pipe::{PipeId, Pipes};
use proc::{Entry, Text};
use status::{Status, minor, time};
use tree::node::NodeId;
use tree::volume::{ImageFile, ImagePlace};
use tree::{Listed, Place, Tree};

pub use descriptors::{Descriptor, OPEN_MAX, Target};

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
    /// Empty the file.
    pub const TRUNCATE: u64 = 0o1000;
    /// Write at the end.
    pub const APPEND: u64 = 0o2000;
    /// Never wait.
    pub const NON_BLOCKING: u64 = 0o4000;
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
        /// The operator has a terminal there.
        terminal: bool,
    },
    /// A regular file of a volume that was no node when it was looked at last.
    Image(ImagePlace, ImageFile),
    /// A regular file of the overlay.
    Node(NodeId),
    /// A directory; the offset is a position in it.
    Directory(Place),
    /// A name only.
    Name(Place),
    /// A device, and where it was found.
    Device(Device, Place),
    /// An end of a pipe.
    Pipe(PipeId),
    /// A counter of events.
    Event(Event),
    /// A text of `/proc`, and what it said when it was opened.
    Text(Entry, Text, Vec<u8>),
}

/// The name by which a file was opened.
#[derive(Debug)]
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
}

impl OpenFile {
    /// An open file at its start, without a name.
    #[must_use]
    pub fn new(kind: Kind, flags: u64) -> OpenFile {
        OpenFile { kind, offset: 0, flags, name: None }
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
#[derive(Debug)]
pub struct Program {
    /// Where its file lies.
    pub place: Place,
    /// The path by which it was found.
    pub path: Vec<u8>,
}

/// The process's files.
#[derive(Debug)]
pub struct Files {
    /// All names.
    pub tree: Tree,
    /// All pipes.
    pub pipes: Pipes,
    /// The root directory of paths.
    pub root: Place,
    /// The working directory.
    pub working_directory: Place,
    /// The program.
    pub program: Program,
    /// Who the process is.
    pub who: Credentials,
    /// Permissions that new files would not get.
    pub umask: u64,
    /// When the process started, in nanoseconds since 1970.
    pub started: u64,
    /// What goes back to the host.
    exports: Vec<Export>,
    descriptors: Vec<Option<Descriptor>>,
    /// Open files with how many descriptors stand for each; a hole where none does.
    open: Vec<Option<(OpenFile, usize)>>,
}

impl Files {
    /// The files of a fresh process that stands in the root directory: the three standard streams. Bit n of `terminals`: stream n is a terminal.
    #[must_use]
    pub fn new(tree: Tree, who: Credentials, terminals: u32, started: u64) -> Files {
        let root = tree.root();
        let mut files = Files {
            tree,
            pipes: Pipes::default(),
            root,
            working_directory: root,
            program: Program { place: root, path: Vec::new() },
            who,
            umask: 0o022,
            started,
            exports: Vec::new(),
            descriptors: Vec::new(),
            open: Vec::new(),
        };
        for (number, stream) in [Standard::Input, Standard::Output, Standard::Errors].into_iter().enumerate() {
            let terminal = terminals >> number & 1 != 0;
            let access = match stream {
                _ if terminal => flag::READ_WRITE,
                Standard::Input => flag::READ_ONLY,
                Standard::Output | Standard::Errors => flag::WRITE_ONLY,
            };
            files.start_with(OpenFile::new(Kind::Console { stream, terminal }, access));
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
            Kind::Directory(place) | Kind::Name(place) | Kind::Device(_, place) => Some(self.tree.settle(*place)),
            Kind::Pipe(id) => self.pipes.get(*id).ok()?.place,
            Kind::Text(entry, ..) => Some(Place::Proc(*entry)),
            Kind::Console { .. } | Kind::Event(_) => None,
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
        const TERMINAL: u32 = 0o020_620;
        let now = time(self.started);
        if let Some(place) = self.place_of(file) {
            return self.status(place);
        }
        Ok(match &file.kind {
            Kind::Console { stream, terminal: true } => {
                Status { numbers: (136, 0), ..Status::made_up(minor::TERMINALS, 3 + *stream as u64, TERMINAL, now) }
            }
            Kind::Console { stream, .. } => Status::made_up(minor::PIPES, 1 + *stream as u64, FIFO, now),
            Kind::Pipe(id) => {
                let mut status = Status::made_up(minor::PIPES, 16 + self.pipes.get(*id)?.number, FIFO, now);
                (status.uid, status.gid) = (self.who.user.effective, self.who.group.effective);
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

    /// The path by which a file was opened, if it still leads there.
    fn path_of_open(&self, file: &OpenFile) -> Result<Vec<u8>, Errno> {
        let Some(OpenName { directory, name }) = &file.name else { return Ok(b"/ (deleted)".to_vec()) };
        let mut path = self.path_of(*directory).ok().flatten().unwrap_or_default();
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let leads = self.lookup(*directory, name).ok().map(|place| self.tree.settle(place));
        if leads.is_none() || leads != self.place_of(file) {
            path.extend_from_slice(b" (deleted)");
        }
        Ok(path)
    }

    /// Whether somebody has a place open, or stands there.
    fn is_open(&self, place: Place) -> bool {
        let is = |other| self.tree.settle(other) == place;
        is(self.working_directory)
            || is(self.root)
            || is(self.program.place)
            || self.open.iter().flatten().any(|(file, _)| self.place_of(file) == Some(place))
    }

    /// Forgets what has no name any more, if nobody has it open.
    pub fn release(&mut self, place: Place) {
        if let Place::Node(id) = self.tree.settle(place)
            && self.tree.node(id).is_ok_and(|node| node.links == 0)
            && !self.is_open(Place::Node(id))
        {
            self.tree.forget(id);
        }
    }
}
