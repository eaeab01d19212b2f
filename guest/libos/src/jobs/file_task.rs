// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks of jobs without a process: the transfer of a file, or of the changes of the root volume, and the watch of a directory.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use super::file::File;
use super::watch_task::WatchTask;
use crate::errno::Errno;
use crate::files::Files;
use crate::files::layer::LayerArchive;

/// A task that the libOS executes itself.
#[derive(Debug)]
pub enum FileTask {
    /// Reads or replaces a file.
    File(Box<File>),
    /// Reads the changes of the root volume. No program of the cell runs meanwhile.
    Layer(LayerArchive),
    /// Reports what happens to files.
    Watch(Box<WatchTask>),
}

impl FileTask {
    /// Whether it writes its input to a file, rather than reading one.
    #[must_use]
    pub fn writes(&self) -> bool {
        matches!(self, FileTask::File(file) if file.writes())
    }

    /// Whether there may be more bytes when there are none.
    #[must_use]
    pub fn is_endless(&self) -> bool {
        matches!(self, FileTask::Watch(_))
    }

    /// Whether the cell's programs must not run meanwhile, and no other task may write files.
    #[must_use]
    pub fn suspends_programs(&self) -> bool {
        matches!(self, FileTask::Layer(_))
    }

    /// Copies the next bytes without advancing. Returns how many; 0: there are no more.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn peek(&mut self, files: &mut Files, buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            FileTask::File(file) => file.peek(files, buffer),
            FileTask::Layer(archive) => archive.peek(files, buffer),
            FileTask::Watch(watch) => watch.peek(files, buffer),
        }
    }

    /// Advances by so many bytes.
    pub fn skip(&mut self, bytes: usize) {
        match self {
            FileTask::File(file) => file.skip(bytes),
            FileTask::Layer(archive) => archive.skip(bytes),
            FileTask::Watch(watch) => watch.skip(bytes),
        }
    }

    /// Appends bytes to the file. Returns how many were written.
    ///
    /// # Errors
    /// `ENOSPC`, `EFBIG`, `EIO`; `EBADF`: it writes no file.
    pub fn write(&mut self, files: &mut Files, bytes: &[u8]) -> Result<usize, Errno> {
        match self {
            FileTask::File(file) => file.write(files, bytes),
            FileTask::Layer(_) | FileTask::Watch(_) => Err(Errno::EBADF),
        }
    }

    /// Completes it.
    ///
    /// # Errors
    /// Those of [`File::finish`].
    pub fn finish(&mut self, files: &mut Files) -> Result<(), Errno> {
        match self {
            FileTask::File(file) => file.finish(files),
            FileTask::Layer(_) | FileTask::Watch(_) => Ok(()),
        }
    }

    /// Closes its file.
    pub fn close(self, files: &mut Files) {
        match self {
            FileTask::File(file) => file.close(files),
            FileTask::Watch(watch) => watch.close(files),
            FileTask::Layer(_) => {}
        }
    }

    /// The message for an error.
    #[must_use]
    pub fn error_message(&self, error: Errno) -> Vec<u8> {
        match self {
            FileTask::File(file) => file.error_message(error),
            FileTask::Layer(_) => layer_error_message(error),
            FileTask::Watch(_) => format!("pando: cannot watch: {}\n", error.text()).into_bytes(),
        }
    }
}

/// The message for an error of reading the changes.
#[must_use]
pub fn layer_error_message(error: Errno) -> Vec<u8> {
    format!("pando: cannot read the changes of the root file system: {}\n", error.text()).into_bytes()
}
