// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files: descriptors, the open files to which they refer, and the tree of names behind them.
//!
//! Several descriptors may refer to one open file (`dup`), which holds the offset; so there are two tables. [`namei`] resolves paths and
//! [`tree`] holds the files. [`file_operations`] declares the operations of open files, and [`file_object`] lists the types of open files.

pub mod cells_file;
pub mod change;
pub mod char_device;
pub mod console_file;
mod descriptors;
mod devtmpfs;
pub mod directory_file;
pub mod edge;
pub mod epoll;
pub mod epoll_file;
pub mod eventfd;
pub mod export;
pub mod file_object;
pub mod file_operations;
pub mod id_table;
pub mod inotify;
pub mod layer;
pub mod locks;
pub mod mounts;
pub mod mqueue;
pub mod namei;
mod notify;
pub mod open;
mod operator_files;
pub mod pando_file;
pub mod pidfd;
pub mod pipe;
pub mod pipe_file;
pub mod poll;
pub mod proc;
mod process_files;
pub mod pty;
pub mod pty_file;
pub mod readahead;
pub mod readiness;
pub mod regular_file;
mod scm_rights;
mod seek;
pub mod sharing;
pub mod signal_file;
pub mod socket;
pub mod splice;
pub mod status;
mod terminals;
pub mod timerfd;
pub mod transfer;
pub mod tree;
pub mod user_copy;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cell::RefCell;

use crate::credentials::Credentials;
use crate::errno::Errno;
use crate::process::{FIRST, Pid};
use crate::signals::SignalSet;
use crate::terminal::TerminalName;
use crate::uapi::{O_ACCMODE, O_LARGEFILE, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR, O_WRONLY};
use crate::wait::{Channel, Tid};
use cells_file::CellsFiles;
use console_file::{ConsoleFile, StandardStream};
use edge::EventTimes;
use epoll::Epolls;
use export::Export;
use file_object::FileHandle;
use file_operations::{FileOperations, OffsetUse};
use id_table::IdTable;
use inotify::Inotifies;
use locks::{FileKey, Locks};
use mounts::Mounts;
use mqueue::MessageQueues;
use namei::LookupCache;
use pidfd::PidFiles;
use pipe::Pipes;
pub use process_files::ProcessFiles;
use pty::Ptys;
use readahead::Readahead;
use socket::Sockets;
use status::{Status, time};
use timerfd::TimerFiles;
use tree::{DirectoryEntry, InodeRef, Tree};

pub use descriptors::{Descriptor, DescriptorTarget};
pub use file_object::FileObject;

/// The name by which a file was opened.
#[derive(Clone, Debug)]
pub struct OpenName {
    /// The directory of its last component.
    pub directory: InodeRef,
    /// Its last component.
    pub name: Box<[u8]>,
}

/// An open file.
#[derive(Debug)]
pub struct OpenFile {
    /// The object behind it, with its operations.
    pub object: FileObject,
    /// The file offset.
    pub offset: u64,
    /// The flags with which it was opened, without those of the descriptor.
    pub flags: u64,
    /// The name by which it was opened; `None`: it has no name.
    pub name: Option<OpenName>,
    /// The owner (`F_SETOWN`): a process, or a negated process group. No signals are sent to it.
    pub owner: i32,
}

impl OpenFile {
    /// An open file at its start, without a name.
    #[must_use]
    pub fn new(object: impl Into<FileObject>, flags: u64) -> OpenFile {
        OpenFile { object: object.into(), offset: 0, flags, name: None, owner: 0 }
    }

    /// Whether it may be read.
    #[must_use]
    pub fn readable(&self) -> bool {
        matches!(self.flags & O_ACCMODE, O_RDONLY | O_RDWR) && self.flags & O_PATH == 0
    }

    /// Whether it may be written.
    #[must_use]
    pub fn writable(&self) -> bool {
        matches!(self.flags & O_ACCMODE, O_WRONLY | O_RDWR) && self.flags & O_PATH == 0
    }

    /// Whether operations on it block.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.flags & O_NONBLOCK == 0
    }

    /// Whether it was opened with `O_PATH`, so that most calls reject it.
    #[must_use]
    pub fn is_path(&self) -> bool {
        self.flags & O_PATH != 0
    }

    /// The operations.
    #[must_use]
    pub fn operations(&self) -> &dyn FileOperations {
        self.object.operations()
    }

    /// The handle of the object, if it is of this type.
    #[must_use]
    pub fn downcast<T: FileHandle>(&self) -> Option<T> {
        T::of(self.object)
    }

    /// Whether reads and writes use an offset.
    #[must_use]
    pub fn has_offset(&self) -> bool {
        self.operations().offset_use() == OffsetUse::Position
    }
}

/// The program of a process.
#[derive(Clone, Debug)]
pub struct ExecutableFile {
    /// The inode of its file.
    pub inode: InodeRef,
    /// The name by which it was found; `None`: it has no name.
    pub name: Option<OpenName>,
}

/// All files, and the file state of each process.
#[derive(Debug)]
pub struct Files {
    /// All names.
    pub tree: Tree,
    /// All pipes.
    pub pipes: Pipes,
    /// All `timerfd` timers.
    pub timers: TimerFiles,
    /// All epoll instances.
    pub epolls: Epolls,
    /// All pidfds.
    pub pidfds: PidFiles,
    /// Open files of `/dev/cells`.
    pub cells_files: CellsFiles,
    /// All POSIX message queues.
    pub queues: MessageQueues,
    /// All inotify instances.
    pub inotifies: Inotifies,
    /// The pending signals when last checked, and when the last one arrived.
    signals: (SignalSet, EventTimes),
    /// When the cell last continued as a clone.
    cloned: EventTimes,
    /// All pseudo terminals.
    pub ptys: Ptys,
    /// The terminal of the running process's session, during an open.
    pub controlling: Option<TerminalName>,
    /// All locks.
    pub locks: Locks,
    /// When the console's input last became readable; `None`: it was not readable when last checked.
    input: Option<EventTimes>,
    /// All sockets.
    pub sockets: Sockets,
    /// The contents of open texts of `/proc` and `/sys`.
    proc_contents: IdTable<Vec<u8>>,
    /// The running process's file state.
    pub current: ProcessFiles,
    /// Threads other than the first ones of their processes, for `/proc`.
    pub threads: BTreeSet<(Pid, Tid)>,
    /// The running thread.
    pub thread: Tid,
    /// The file state of other processes.
    others: BTreeMap<Pid, ProcessFiles>,
    /// Channels whose files have changed and whose waiters have not been woken yet.
    pub changed: Vec<Channel>,
    /// The live mounts.
    pub mounts: Mounts,
    /// The exports to the host.
    exports: Vec<Export>,
    /// The directory of the last path lookup.
    lookup_cache: RefCell<LookupCache>,
    /// Readahead of volumes.
    readahead: Readahead,
    /// Open files with their reference counts.
    open: IdTable<(OpenFile, usize)>,
}

impl Files {
    /// The files of a new process with the root as working directory: the three standard streams. Bit n of `terminals`: stream n is a
    /// terminal.
    #[must_use]
    pub fn new(tree: Tree, credentials: Credentials, terminals: u32, started: u64) -> Files {
        let root = tree.root();
        let mut files = Files {
            tree,
            pipes: Pipes::default(),
            timers: TimerFiles::default(),
            epolls: Epolls::default(),
            pidfds: PidFiles::default(),
            cells_files: CellsFiles::default(),
            queues: MessageQueues::default(),
            inotifies: Inotifies::default(),
            signals: (SignalSet::default(), EventTimes::default()),
            cloned: EventTimes::default(),
            ptys: Ptys::new(terminals != 0),
            controlling: None,
            locks: Locks::default(),
            input: None,
            sockets: Sockets::default(),
            proc_contents: IdTable::default(),
            current: ProcessFiles::new(root, credentials, started),
            threads: BTreeSet::new(),
            thread: FIRST,
            others: BTreeMap::new(),
            changed: Vec::new(),
            mounts: Mounts::default(),
            exports: Vec::new(),
            lookup_cache: RefCell::default(),
            readahead: Readahead::default(),
            open: IdTable::default(),
        };
        let name = (terminals != 0).then(|| files.name_terminal(0, time(started)).ok()).flatten();
        for (number, stream) in [StandardStream::Input, StandardStream::Output, StandardStream::Errors].into_iter().enumerate() {
            let named = name.as_ref().filter(|_| terminals >> number & 1 != 0);
            let access = match stream {
                _ if named.is_some() => O_RDWR | O_LARGEFILE,
                StandardStream::Input => O_RDONLY,
                StandardStream::Output | StandardStream::Errors => O_WRONLY,
            };
            let mut file = OpenFile::new(ConsoleFile { stream, terminal: named.map(|(inode, _)| *inode) }, access);
            file.name = named.map(|(_, name)| name.clone());
            files.start_with(file);
        }
        files
    }

    /// The inode of a descriptor's file.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn inode(&self, fd: u64) -> Result<InodeRef, Errno> {
        let file = self.raw_file(fd)?;
        Ok(self.inode_of(file).unwrap_or(InodeRef::Descriptor(fd as u32)))
    }

    /// The inode of an open file. `None`: it has none.
    fn inode_of(&self, file: &OpenFile) -> Option<InodeRef> {
        file.operations().inode(self)
    }

    /// The metadata of an inode.
    ///
    /// # Errors
    /// `ENOENT`, `EIO`, `EBADF`.
    pub fn status(&self, inode: InodeRef) -> Result<Status, Errno> {
        match inode {
            InodeRef::Proc(entry) => Ok(self.proc_status(entry)),
            InodeRef::Descriptor(fd) => self.status_of(self.raw_file(fd.into())?),
            _ => self.tree.status(inode),
        }
    }

    /// The metadata of an open file.
    ///
    /// # Errors
    /// `ENOENT`, `EIO`, `EBADF`.
    pub fn status_of(&self, file: &OpenFile) -> Result<Status, Errno> {
        match self.inode_of(file) {
            Some(inode) => self.status(inode),
            None => file.operations().status(self),
        }
    }

    /// Passes the names of a directory to `take`, from a position on, until it returns `false`.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENOENT`, `EIO`.
    pub fn list(&self, directory: InodeRef, position: u64, take: impl FnMut(DirectoryEntry<'_>) -> bool) -> Result<(), Errno> {
        match directory {
            InodeRef::Proc(entry) => self.list_proc(entry, position, take),
            _ => self.tree.list(directory, position, take),
        }
    }

    /// The key for the locks of an open file.
    ///
    /// # Errors
    /// `EBADF`, `ENOENT`, `EIO`.
    pub fn lock_key(&self, fd: u64) -> Result<FileKey, Errno> {
        let status = self.status_of(self.raw_file(fd)?)?;
        Ok((status.device, status.number))
    }

    /// The path by which a file was opened.
    fn path_of_open(&self, file: &OpenFile) -> Vec<u8> {
        self.path_by(file.name.as_ref(), self.inode_of(file))
    }

    /// The path by which an inode was found, marked as deleted if it does not lead there any more.
    #[must_use]
    pub fn path_by(&self, name: Option<&OpenName>, inode: Option<InodeRef>) -> Vec<u8> {
        let Some(OpenName { directory, name }) = name else { return b"/ (deleted)".to_vec() };
        let mut path = self.path_of(*directory).ok().flatten().unwrap_or_default();
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let leads = self.lookup(*directory, name).ok().map(|inode| self.tree.real_inode(inode));
        if leads.is_none() || leads != inode.map(|inode| self.tree.real_inode(inode)) {
            path.extend_from_slice(b" (deleted)");
        }
        path
    }

    /// Whether a process has an inode open, or uses it as a directory.
    fn is_open(&self, inode: InodeRef) -> bool {
        let is = |other| self.tree.real_inode(other) == inode;
        let stands =
            |process_files: &ProcessFiles| is(process_files.working_directory) || is(process_files.root) || is(process_files.program.inode);
        stands(&self.current)
            || self.others.values().any(stands)
            || self.open.iter().any(|(_, (file, _))| self.inode_of(file) == Some(inode))
    }

    /// Frees a file without names, if no process has it open.
    pub fn release(&mut self, inode: InodeRef) {
        let InodeRef::Node(id) = self.tree.real_inode(inode) else { return };
        let Ok(node) = self.tree.node(id) else { return };
        let (is_live, has_names) = (node.live.is_some(), node.links > 0);
        if has_names && !is_live || self.is_open(InodeRef::Node(id)) {
            return;
        }
        if is_live {
            self.release_live(id);
        }
        if !has_names {
            self.notify_gone(InodeRef::Node(id));
            let live = self.tree.node_mut(id).ok().and_then(|node| node.live.take());
            self.tree.forget(id);
            if let Some(live) = live {
                self.forget_live(&live, id);
            }
        }
    }
}
