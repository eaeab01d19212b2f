// SPDX-License-Identifier: MIT OR Apache-2.0
//! Live mounts: a file server's process for each directory of the host that a cell shares.
//!
//! The processes are forked before this one is confined, and confine themselves to their directories. The cell's messages come through its
//! channel (`pando_launch::WriteBack`). [`forward`] passes them to the servers, and the answers back. It never waits for a server.

mod forward;
mod process;

pub use forward::LiveMounts;

use crate::host;
use pando_confine::{Authority, Paths};
use process::start_server;
use rustix::process::geteuid;
use std::io;
use std::path::{Path, PathBuf};

/// A directory of the host that a cell shares, before its server is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveVolume {
    /// Its path on the host.
    pub host: PathBuf,
    /// Its mount point in the cell.
    pub cell: Vec<u8>,
    /// The cell may not change it.
    pub read_only: bool,
}

impl LiveVolume {
    /// Checks that a directory can be shared.
    ///
    /// # Errors
    /// It does not exist, or is no directory.
    pub fn check(host: &Path) -> io::Result<()> {
        match std::fs::metadata(host)?.is_dir() {
            true => Ok(()),
            false => Err(io::Error::other("it is no directory: a single file can be mounted with `:copy` or `:ro`")),
        }
    }
}

/// Starts the file servers of a cell. The calling process must still have a single thread. The files of each may grow by `growth_max`
/// bytes.
///
/// # Errors
/// A directory cannot be served, with its path.
pub fn start(volumes: &[LiveVolume], growth_max: u64) -> Result<LiveMounts, (PathBuf, String)> {
    let mut sockets = Vec::with_capacity(volumes.len());
    for LiveVolume { host, read_only, .. } in volumes {
        let started = host.canonicalize().and_then(|real| start_server(&real, *read_only, growth_max, &sockets));
        sockets.push(started.map_err(|error| (host.clone(), host::plain(&error)))?);
    }
    Ok(LiveMounts::new(sockets))
}

/// The paths to which the process of a server confines itself.
fn paths(root: &Path, read_only: bool) -> Paths {
    match read_only {
        // As root, files that only other users may read are served too.
        true => Paths { read: vec![root.into()], authority: Authority { read: geteuid().is_root(), change: false }, ..Paths::default() },
        false => Paths { serve: vec![root.into()], ..Paths::default() },
    }
}
