// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program of a directory of checkpoints: what `pando run` needs to show its cell the same files again.

use crate::options::unchanging_volume;
use pando_manager::host;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Error, Read, Result, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The directory of the checkpoints in the cell around the program.
pub(crate) const CHECKPOINTS: &str = "/run/pando-checkpoints";
/// The name of its file in the directory.
const FILE: &str = "program.json";
/// Copies of the program's cell and its nested cells that a checkpointer has: the program, and the snapshots of the last checkpoint and of
/// the next one.
const FAMILY_COPIES: u32 = 3;
/// Bytes of the longest file.
const BYTES_MAX: u64 = 1 << 20;
/// The growth of the directory that is allowed: the disk is the limit.
const NO_LIMIT: &str = "256T";

/// A program that is checkpointed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CheckpointedProgram {
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    /// The memory of its cell and of the cell around it, in bytes.
    pub(crate) memory: Option<u64>,
    /// Its `-v` options, with absolute paths.
    pub(crate) volumes: Vec<String>,
    /// The number of nested cells that the program may have.
    #[serde(default)]
    pub(crate) nest: u32,
}

impl CheckpointedProgram {
    /// The name of the program.
    pub(crate) fn name(&self) -> &OsStr {
        self.words.first().map_or(OsStr::new("the program"), OsStr::new)
    }

    /// Reads the file of a directory of checkpoints.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub(crate) fn read(directory: &Path) -> Result<CheckpointedProgram> {
        let failed = |reason: String| Error::other(format!("cannot restore from {}: {FILE} {reason}", directory.display()));
        let mut text = Vec::new();
        File::open(directory.join(FILE))
            .and_then(|file| file.take(BYTES_MAX).read_to_end(&mut text))
            .map_err(|error| failed(format!("cannot be read: {}", host::plain(&error))))?;
        serde_json::from_slice(&text).map_err(|error| failed(format!("is damaged: {error}")))
    }

    /// Checks the volumes on the host: the file may be forged.
    ///
    /// # Errors
    /// Changes of a volume would go to the host, or it cannot be shown.
    pub(crate) fn check_volumes(&self, directory: &Path) -> Result<()> {
        let failed = |volume, reason| {
            let directory = directory.display();
            Error::other(format!("cannot restore from {directory}: {FILE} has the volume {volume}: {reason}"))
        };
        self.volumes.iter().try_for_each(|volume| unchanging_volume(volume.into()).map(drop).map_err(|reason| failed(volume, reason)))
    }

    /// Writes the file to a directory of checkpoints.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let unfinished = directory.join(".program.new");
        let mut file = File::create(&unfinished)?;
        file.write_all(&serde_json::to_vec_pretty(self).map_err(Error::other)?)?;
        file.sync_all()?;
        fs::rename(&unfinished, directory.join(FILE))?;
        File::open(directory)?.sync_all()
    }

    /// Replaces this process by `pando run` of a command, in a cell that shows the program's files and the directory of its checkpoints.
    /// The current directory is not shown: it changes while the program runs. Returns the error if that fails.
    pub(crate) fn start_in_cell(&self, command: &str, around: &CellAround<'_>, inside: &[OsString]) -> Error {
        let itself = match std::env::current_exe() {
            Ok(itself) => itself,
            Err(error) => return error,
        };
        let mut run = Command::new(&itself);
        let cells = self.nest.saturating_add(1).saturating_mul(FAMILY_COPIES).to_string();
        run.current_dir("/").args(["run", "--nest", &cells, "--name-view", "--write-limit", NO_LIMIT]).args(&around.options);
        run.envs(around.variables.iter().map(|(name, value)| (name, value)));
        if let Some(memory) = self.memory {
            run.args(["-m", &memory.to_string()]);
        }
        for volume in &self.volumes {
            run.args(["-v", volume]);
        }
        if let Some(directory) = around.directory {
            let mut live = directory.as_os_str().to_owned();
            live.push(format!(":{CHECKPOINTS}:live"));
            run.arg("-v").arg(live);
        }
        run.arg("--").arg(&itself).arg(command).args(inside);
        run.exec()
    }
}

/// The cell around a program.
#[derive(Debug, Default)]
pub(crate) struct CellAround<'a> {
    /// The directory of its checkpoints.
    pub(crate) directory: Option<&'a Path>,
    /// Further options of `pando run`.
    pub(crate) options: Vec<OsString>,
    /// Variables of the process `pando run`.
    pub(crate) variables: Vec<(&'static str, String)>,
}
