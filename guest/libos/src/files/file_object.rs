// SPDX-License-Identifier: MIT OR Apache-2.0
//! The types of open files. A new type is a handle that implements [`FileOperations`], and a line here.

use super::cells_file::CellsFile;
use super::char_device::MemoryDevice;
use super::console_file::ConsoleFile;
use super::directory_file::{DirectoryFile, PathFile};
use super::epoll::EpollId;
use super::eventfd::EventCounter;
use super::file_operations::FileOperations;
use super::inotify::InotifyId;
use super::mqueue::MessageQueueId;
use super::pando_file::PandoFile;
use super::pidfd::PidFileId;
use super::pipe_file::PipeFile;
use super::proc::file::ProcFile;
use super::pty_file::{PtyMaster, PtySlave};
use super::regular_file::RegularFile;
use super::signal_file::SignalFile;
use super::socket::SocketId;
use super::timerfd::TimerId;

/// A handle in an open file.
pub trait FileHandle: Copy + Into<FileObject> {
    /// The handle, if it is of this type.
    fn of(object: FileObject) -> Option<Self>;
}

/// Declares the handles that open files may have.
macro_rules! file_types {
    ($($(#[$doc:meta])* $name:ident($handle:ty),)+) => {
        /// The object behind an open file. All operations go through [`operations`](FileObject::operations).
        #[derive(Clone, Copy, Debug)]
        pub enum FileObject {
            $($(#[$doc])* $name($handle),)+
        }

        impl FileObject {
            /// The operations.
            #[must_use]
            pub fn operations(&self) -> &dyn FileOperations {
                match self {
                    $(FileObject::$name(handle) => handle,)+
                }
            }
        }

        $(
            impl From<$handle> for FileObject {
                fn from(handle: $handle) -> FileObject {
                    FileObject::$name(handle)
                }
            }

            impl FileHandle for $handle {
                fn of(object: FileObject) -> Option<$handle> {
                    if let FileObject::$name(handle) = object { Some(handle) } else { None }
                }
            }
        )+
    };
}

file_types! {
    /// A stream of the console.
    Console(ConsoleFile),
    /// A regular file of a volume or of the overlay.
    Regular(RegularFile),
    /// A directory.
    Directory(DirectoryFile),
    /// A location only (`O_PATH`).
    Path(PathFile),
    /// The master of a pseudo terminal.
    PtyMaster(PtyMaster),
    /// The slave of a pseudo terminal.
    PtySlave(PtySlave),
    /// `/dev/null` and its relatives.
    MemoryDevice(MemoryDevice),
    /// `/dev/pando`.
    Pando(PandoFile),
    /// `/dev/cells`.
    Cells(CellsFile),
    /// An end of a pipe or FIFO.
    Pipe(PipeFile),
    /// An event counter (`eventfd`).
    EventCounter(EventCounter),
    /// A timer (`timerfd`).
    Timer(TimerId),
    /// An epoll instance.
    Epoll(EpollId),
    /// A socket.
    Socket(SocketId),
    /// An inotify instance.
    Inotify(InotifyId),
    /// Pending signals (`signalfd`).
    Signals(SignalFile),
    /// A process (`pidfd`).
    Process(PidFileId),
    /// A POSIX message queue.
    MessageQueue(MessageQueueId),
    /// A text of `/proc` or `/sys`.
    Proc(ProcFile),
}
