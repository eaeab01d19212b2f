// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writable volumes: the cell's changes are written back to the host.

use crate::failure::Failure;
use crate::{diagnostics, host};
use pando_image::{Replaced, escaped};
use pando_kernel::{CellId, Kernel};
use pando_launch::{Export, FailureReason, LaunchError, WriteBack};
use rustix::fs::{Access, Mode, OFlags, access, open};
use rustix::io::{Errno, retry_on_intr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The volumes of a cell that are written back.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    /// Each with the name from the command line and its path in the cell.
    list: Vec<(PathBuf, Vec<u8>, Export)>,
    /// Files that were replaced so far, for the images that show them.
    pub(crate) replaced: Arc<Replaced>,
}

/// A write-back in progress.
pub(crate) struct RunningExports {
    names: Vec<PathBuf>,
    thread: WriteBack,
}

impl Exports {
    /// Opens a directory or file of the host for changes, and removes temporary files that a killed process left there. Also
    /// returns the path that must be writable for that.
    ///
    /// # Errors
    /// It does not exist, or its directory is not writable.
    pub(crate) fn open(host: &Path) -> std::io::Result<(Export, PathBuf)> {
        let real = host.canonicalize()?;
        let directory = |path: &Path| {
            access(path, Access::WRITE_OK | Access::EXEC_OK).map_err(|errno| {
                let why = host::plain(&errno.into());
                std::io::Error::other(format!("cannot write to {}: {why}: add `:ro` to make the volume read-only", path.display()))
            })?;
            Ok::<_, std::io::Error>(retry_on_intr(|| open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()))?)
        };
        let (export, reach) = match (real.is_dir(), real.parent(), real.file_name()) {
            (false, Some(parent), Some(name)) => (Export::File { directory: directory(parent)?, name: name.into() }, parent),
            _ => (Export::Directory(directory(&real)?), &*real),
        };
        export.remove_leftovers();
        Ok((export, reach.into()))
    }

    /// Adds an opened export, with its name on the command line and its path in the cell.
    pub(crate) fn add(&mut self, host: PathBuf, cell: Vec<u8>, export: Export) {
        self.list.push((host, cell, export));
    }

    /// Whether there is no writable volume.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The path of each in the cell.
    pub(crate) fn in_cell(&self) -> Vec<Vec<u8>> {
        self.list.iter().map(|(_, cell, _)| cell.clone()).collect()
    }

    /// Starts the write-back of the cell's changes on a thread of its own. The volumes may grow by `most` bytes. `None` if there is
    /// no writable volume.
    pub(crate) fn write_back(self, kernel: &Kernel, cell: CellId, most: u64) -> Result<Option<RunningExports>, Failure> {
        if self.is_empty() {
            return Ok(None);
        }
        let channel = kernel.channel(cell).map_err(LaunchError::from)?;
        let (names, exports) = self.list.into_iter().map(|(name, _, export)| (name, export)).unzip();
        Ok(Some(RunningExports { names, thread: WriteBack::start(channel, exports, self.replaced, most).map_err(Failure::Thread)? }))
    }
}

impl RunningExports {
    /// Waits for the end of the write-back and reports files that could not be written back. Returns whether all could.
    pub(crate) fn finish(self) -> bool {
        let RunningExports { names, thread } = self;
        let report = thread.finish();
        for failed in &report.failures {
            let name = names.get(failed.export as usize).map_or(Path::new(""), PathBuf::as_path);
            let what = match failed.why {
                FailureReason::Refused(Errno::DQUOT) => {
                    "not written back: the volumes would grow by more than --write-limit (sizes as `ls` shows them, and 4 KiB for each name)".into()
                }
                FailureReason::Refused(errno) => format!("not written back: {}", host::plain(&errno.into())),
                FailureReason::WithoutSetId => "written back without its set-user-ID and set-group-ID: a cell may not set them".into(),
            };
            diagnostics::problem(&format_args!("-v {}: `{}` was {what}", escaped(name), failed.path));
        }
        let more = report.failed - report.failures.len() as u64;
        if more > 0 {
            diagnostics::problem(&format_args!("{more} more files were not written back unchanged"));
        }
        if let Some(why) = report.stopped {
            diagnostics::problem(&why);
        }
        report.failed == 0 && report.stopped.is_none()
    }
}
