// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes whose changes go back to the host.

use crate::failure::Failure;
use crate::{host, say};
use pando_image::{Replaced, escaped};
use pando_kernel::{CellId, Kernel};
use pando_launch::{Export, LaunchError, Why, WriteBack};
use rustix::fs::{Access, Mode, OFlags, access, open};
use rustix::io::{Errno, retry_on_intr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the cell may change on the host.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    /// As each was named, and where it stands in the cell.
    list: Vec<(PathBuf, Vec<u8>, Export)>,
    /// What has been replaced so far, for the images that show it.
    pub(crate) replaced: Arc<Replaced>,
}

/// Exports that are being written back.
pub(crate) struct Running {
    names: Vec<PathBuf>,
    thread: WriteBack,
}

impl Exports {
    /// Opens a directory or a file of the host that is to be changed, without what a killed process left there. Comes with what of the host must be changeable for that.
    ///
    /// # Errors
    /// There is none, or nothing can be made in its directory.
    pub(crate) fn open(host: &Path) -> std::io::Result<(Export, PathBuf)> {
        let real = host.canonicalize()?;
        let directory = |path: &Path| {
            access(path, Access::WRITE_OK | Access::EXEC_OK).map_err(|errno| {
                let why = host::plain(&errno.into());
                std::io::Error::other(format!("nothing can be changed in {}: {why}: add `:ro` if nothing needs to be", path.display()))
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

    /// Adds what was opened, under the name that it was given and the path that it has in the cell.
    pub(crate) fn add(&mut self, host: PathBuf, cell: Vec<u8>, export: Export) {
        self.list.push((host, cell, export));
    }

    /// Whether the cell may change nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Where each stands in the cell.
    pub(crate) fn in_cell(&self) -> Vec<Vec<u8>> {
        self.list.iter().map(|(_, cell, _)| cell.clone()).collect()
    }

    /// Starts writing back what the cell says, `most` bytes more than there are, on a thread of its own. Nothing, if there is nothing that it may change.
    pub(crate) fn write_back(self, kernel: &Kernel, cell: CellId, most: u64) -> Result<Option<Running>, Failure> {
        if self.is_empty() {
            return Ok(None);
        }
        let channel = kernel.channel(cell).map_err(LaunchError::from)?;
        let (names, exports) = self.list.into_iter().map(|(name, _, export)| (name, export)).unzip();
        Ok(Some(Running { names, thread: WriteBack::start(channel, exports, self.replaced, most).map_err(Failure::Thread)? }))
    }
}

impl Running {
    /// Waits until all that the cell said is done, and says what could not be. Whether all could.
    pub(crate) fn finish(self) -> bool {
        let Running { names, thread } = self;
        let report = thread.finish();
        for failed in &report.failures {
            let name = names.get(failed.export as usize).map_or(Path::new(""), PathBuf::as_path);
            let what = match failed.why {
                Why::Refused(Errno::DQUOT) => {
                    "not written back: all together would grow by more than --write-limit allows (sizes as `ls` shows them, and 4 KiB for each name)".into()
                }
                Why::Refused(errno) => format!("not written back: {}", host::plain(&errno.into())),
                Why::WithoutSetId => "written back without its set-user-ID and set-group-ID: no cell may lend a program to others".into(),
            };
            say::problem(&format_args!("-v {}: `{}` was {what}", escaped(name), failed.path));
        }
        let more = report.failed - report.failures.len() as u64;
        if more > 0 {
            say::problem(&format_args!("and {more} more were not written back as they are"));
        }
        if let Some(why) = report.stopped {
            say::problem(&why);
        }
        report.failed == 0 && report.stopped.is_none()
    }
}
