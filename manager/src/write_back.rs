// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writable volumes: the cell's changes are written back to the host.

use crate::host;
use crate::mounts::LiveMounts;
use pando_image::Replaced;
use pando_kernel::{CellId, Kernel};
use pando_launch::{FailureReason, LaunchError, WritableVolume, WriteBack, WriteBackReport, WriteFailure};
use rustix::fs::{Access, Mode, OFlags, access, open};
use rustix::io::retry_on_intr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The volumes of a cell that are written back.
#[derive(Debug, Default)]
pub struct WritableVolumes {
    /// Each with its name on the host and its path in the cell.
    list: Vec<(PathBuf, Vec<u8>, WritableVolume)>,
    /// Files that were replaced so far, for the images that show them.
    pub replaced: Arc<Replaced>,
}

/// Why a write-back cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum WriteBackError {
    /// The cell has ended.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// A file of a volume that could not be written back unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFailure {
    /// The volume's path on the host, as it was named.
    pub volume: PathBuf,
    /// The file's path in it, escaped for terminals.
    pub path: String,
    /// The reason.
    pub reason: FailureReason,
}

/// The result of a write-back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeReport {
    /// The first failures.
    pub failures: Vec<VolumeFailure>,
    /// The number of all failures.
    pub failed: u64,
    /// Why nothing more was written back, if it was stopped.
    pub stopped: Option<&'static str>,
}

/// A write-back in progress.
pub struct RunningWriteBack {
    names: Vec<PathBuf>,
    thread: WriteBack,
}

impl WritableVolumes {
    /// Opens a directory or file of the host for changes, and removes temporary files that a killed process left there. Also
    /// returns the path that must be writable for that.
    ///
    /// # Errors
    /// It does not exist, or its directory is not writable.
    pub fn open(host: &Path) -> std::io::Result<(WritableVolume, PathBuf)> {
        let real = host.canonicalize()?;
        let directory = |path: &Path| {
            access(path, Access::WRITE_OK | Access::EXEC_OK).map_err(|errno| {
                let reason = host::plain(&errno.into());
                std::io::Error::other(format!("cannot write to {}: {reason}: add `:ro` to make the volume read-only", path.display()))
            })?;
            Ok::<_, std::io::Error>(retry_on_intr(|| open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()))?)
        };
        let (export, written) = match (real.is_dir(), real.parent(), real.file_name()) {
            (false, Some(parent), Some(name)) => (WritableVolume::File { directory: directory(parent)?, name: name.into() }, parent),
            _ => (WritableVolume::Directory(directory(&real)?), &*real),
        };
        export.remove_leftovers();
        Ok((export, written.into()))
    }

    /// Adds an opened export, with its name on the host and its path in the cell.
    pub fn add(&mut self, host: PathBuf, cell: Vec<u8>, export: WritableVolume) {
        self.list.push((host, cell, export));
    }

    /// Whether there is no writable volume.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The path of each in the cell.
    pub fn in_cell(&self) -> Vec<Vec<u8>> {
        self.list.iter().map(|(_, cell, _)| cell.clone()).collect()
    }

    /// Starts the write-back of the cell's changes, and forwards the messages of its live mounts, on threads of their own. The volumes may
    /// grow by `max` bytes. `None` if there is neither.
    ///
    /// # Errors
    /// The cell has ended, or the host has no thread.
    pub fn write_back(
        self,
        kernel: &Kernel,
        cell: CellId,
        max: u64,
        mounts: LiveMounts,
    ) -> Result<Option<RunningWriteBack>, WriteBackError> {
        if self.is_empty() && mounts.is_empty() {
            return Ok(None);
        }
        let channel = kernel.channel(cell).map_err(LaunchError::from)?;
        let (names, exports) = self.list.into_iter().map(|(name, _, export)| (name, export)).unzip();
        Ok(Some(RunningWriteBack {
            names,
            thread: WriteBack::start(channel, exports, self.replaced, max, mounts).map_err(WriteBackError::Thread)?,
        }))
    }
}

impl RunningWriteBack {
    /// Waits for the end of the write-back.
    pub fn finish(self) -> VolumeReport {
        let RunningWriteBack { names, thread } = self;
        let WriteBackReport { failures, failed, stopped } = thread.finish();
        let failure = |WriteFailure { export, path, why }| {
            let volume = names.get(export as usize).cloned().unwrap_or_default();
            VolumeFailure { volume, path, reason: why }
        };
        VolumeReport { failures: failures.into_iter().map(failure).collect(), failed, stopped }
    }
}

impl VolumeReport {
    /// Whether all changes were written back.
    pub fn is_complete(&self) -> bool {
        self.failed == 0 && self.stopped.is_none()
    }
}
