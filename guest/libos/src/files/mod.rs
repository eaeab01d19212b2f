// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files: descriptors, the open files they stand for, and the root image behind them.
//!
//! Several descriptors may stand for one open file (`dup`), which holds the offset; so there are two tables.

pub mod image;
pub mod names;
pub mod open;
pub mod readiness;
pub mod status;

use alloc::vec::Vec;

use crate::erofs::{FileType, Inode, Nid};
use crate::errno::Errno;
use image::{ImageFile, Root};

/// Files that a process may have open.
pub const OPEN_MAX: u64 = 1024;

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
    /// Close when another program is executed.
    pub const CLOSE_ON_EXEC: u64 = 0o2_000_000;
    /// Only a name, neither reading nor writing.
    pub const PATH: u64 = 0o10_000_000;
    /// A file without a name.
    pub const TEMPORARY: u64 = 0o20_000_000;
}

/// Devices that the libOS makes up.
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
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A stream of the console.
    Console {
        /// Which.
        stream: Standard,
        /// The operator has a terminal there.
        terminal: bool,
    },
    /// A regular file of the root image.
    Regular(Inode, ImageFile),
    /// A directory of the root image; the offset is a position in it.
    Directory(Inode),
    /// Something of the root image that was opened as a name only.
    Name(Inode),
    /// A device.
    Device(Device),
}

/// An open file.
#[derive(Clone, Copy, Debug)]
pub struct OpenFile {
    /// What it is.
    pub kind: Kind,
    /// Where reading goes on.
    pub offset: u64,
    /// Flags it was opened with, without those of the descriptor.
    pub flags: u64,
}

impl OpenFile {
    /// Whether it may be read.
    #[must_use]
    pub fn readable(&self) -> bool {
        self.flags & (flag::ACCESS | flag::PATH) != flag::WRITE_ONLY && self.flags & flag::PATH == 0
    }

    /// Whether it may be written.
    #[must_use]
    pub fn writable(&self) -> bool {
        self.flags & flag::ACCESS != flag::READ_ONLY && self.flags & flag::PATH == 0
    }
}

/// What a number of the process stands for.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    file: usize,
    /// Close when another program is executed.
    pub close_on_exec: bool,
}

/// Where a duplicate goes.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// The lowest free descriptor from here on.
    From(u64),
    /// Here.
    At(u64),
}

/// The process's files.
#[derive(Debug)]
pub struct Files {
    /// The root image.
    pub root: Root,
    /// The working directory.
    pub working_directory: Nid,
    /// The path of the program that runs.
    pub program: Vec<u8>,
    /// Permissions that new files would not get.
    pub umask: u64,
    descriptors: Vec<Option<Descriptor>>,
    /// Open files with how many descriptors stand for each; a hole where none does.
    open: Vec<Option<(OpenFile, usize)>>,
}

impl Files {
    /// The files of a fresh process: the three standard streams. Bit n of `terminals`: stream n is a terminal.
    #[must_use]
    pub fn new(root: Root, program: Vec<u8>, terminals: u32) -> Files {
        let mut files =
            Files { root, working_directory: root.image.root(), program, umask: 0o022, descriptors: Vec::new(), open: Vec::new() };
        for (number, stream) in [Standard::Input, Standard::Output, Standard::Errors].into_iter().enumerate() {
            let terminal = terminals >> number & 1 != 0;
            let access = match stream {
                _ if terminal => flag::READ_WRITE,
                Standard::Input => flag::READ_ONLY,
                Standard::Output | Standard::Errors => flag::WRITE_ONLY,
            };
            let file = OpenFile { kind: Kind::Console { stream, terminal }, offset: 0, flags: access };
            files.descriptors.push(Some(Descriptor { file: number, close_on_exec: false }));
            files.open.push(Some((file, 1)));
        }
        files
    }

    /// What a number stands for.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn descriptor(&mut self, fd: u64) -> Result<&mut Descriptor, Errno> {
        // File descriptors are ints: the upper half of the register says nothing.
        self.descriptors.get_mut(fd as u32 as usize).and_then(Option::as_mut).ok_or(Errno::EBADF)
    }

    /// The open file that a descriptor stands for.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn get(&mut self, fd: u64) -> Result<&mut OpenFile, Errno> {
        let Descriptor { file, .. } = *self.descriptor(fd)?;
        self.open.get_mut(file).and_then(Option::as_mut).map(|(file, _)| file).ok_or(Errno::EBADF)
    }

    /// Opens a file at the lowest free descriptor.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn insert(&mut self, file: OpenFile, close_on_exec: bool) -> Result<u64, Errno> {
        let fd = self.free_from(0)?;
        let place = self.open.iter().position(Option::is_none).unwrap_or(self.open.len());
        if place == self.open.len() {
            self.open.push(None);
        }
        self.open[place] = Some((file, 1));
        self.set(fd, Descriptor { file: place, close_on_exec });
        Ok(fd)
    }

    /// The lowest free descriptor that is not below `minimum`.
    fn free_from(&self, minimum: u64) -> Result<u64, Errno> {
        (minimum..OPEN_MAX).find(|fd| self.descriptors.get(*fd as usize).is_none_or(Option::is_none)).ok_or(Errno::EMFILE)
    }

    fn set(&mut self, fd: u64, descriptor: Descriptor) {
        let index = fd as usize;
        if self.descriptors.len() <= index {
            self.descriptors.resize(index + 1, None);
        }
        self.descriptors[index] = Some(descriptor);
    }

    /// Closes a descriptor, and its file with its last one.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&mut self, fd: u64) -> Result<(), Errno> {
        let Descriptor { file, .. } = *self.descriptor(fd)?;
        self.descriptors[fd as u32 as usize] = None;
        if let Some((_, references)) = &mut self.open[file] {
            *references -= 1;
            if *references == 0 {
                self.open[file] = None;
            }
        }
        Ok(())
    }

    /// Makes another descriptor for the file of `fd`; what stood where it goes is closed first.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL`, `EMFILE`.
    pub fn duplicate(&mut self, fd: u64, place: Place, close_on_exec: bool) -> Result<u64, Errno> {
        let Descriptor { file, .. } = *self.descriptor(fd)?;
        let to = match place {
            Place::From(minimum) if minimum >= OPEN_MAX => return Err(Errno::EINVAL),
            Place::From(minimum) => self.free_from(minimum)?,
            Place::At(to) if to >= OPEN_MAX => return Err(Errno::EBADF),
            Place::At(to) => {
                // That nothing was open there is no error.
                let _ = self.close(to);
                to
            }
        };
        if let Some((_, references)) = &mut self.open[file] {
            *references += 1;
        }
        self.set(to, Descriptor { file, close_on_exec });
        Ok(to)
    }

    /// The file of a descriptor, for mapping it. Nothing of the image can be mapped shared and writable.
    ///
    /// # Errors
    /// `EBADF`, `EACCES`, `ENODEV`.
    pub fn mappable(&mut self, fd: u64, shared_writable: bool) -> Result<ImageFile, Errno> {
        let file = self.get(fd)?;
        if !file.readable() || shared_writable {
            return Err(Errno::EACCES);
        }
        match file.kind {
            Kind::Regular(_, file) => Ok(file),
            _ => Err(Errno::ENODEV),
        }
    }

    /// Opens something of the image.
    ///
    /// # Errors
    /// `ENXIO` for devices and sockets of the image, which nobody serves.
    pub fn kind_of(&self, inode: Inode, path_only: bool) -> Result<Kind, Errno> {
        match inode.kind {
            _ if path_only => Ok(Kind::Name(inode)),
            FileType::Regular => Ok(Kind::Regular(inode, ImageFile::new(&self.root, &inode)?)),
            FileType::Directory => Ok(Kind::Directory(inode)),
            FileType::Symlink => Err(Errno::ELOOP),
            _ => Err(Errno::ENXIO),
        }
    }
}
