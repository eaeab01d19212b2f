// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of the host that were replaced or removed while an image still shows them.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::{
    fs::fstat,
    process::{Resource, getrlimit},
};

use crate::version::Version;

/// Maximal number of kept files: each takes about a kilobyte of the host's kernel.
const OPEN_FILES_MAX: u64 = 4096;

/// A file's identity: device and inode.
type FileKey = (u64, u64);

/// Replaced and removed files of a tree that stay open, so that an image of that tree remains readable.
#[derive(Debug, Default)]
pub struct Replaced {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<FileKey, Arc<File>>,
    /// Files that were created since: no image shows them.
    created: HashSet<FileKey>,
}

impl Replaced {
    /// Keeps a file open that is about to be replaced or removed. Drops it beyond the limit, or beyond a quarter of the process's
    /// descriptors: reading it then is an error.
    pub fn insert(&self, file: File) {
        let Ok(stat) = fstat(&file) else { return };
        let identity = (stat.st_dev, stat.st_ino);
        let max = (getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4).min(OPEN_FILES_MAX);
        let mut state = self.lock();
        if !state.created.remove(&identity) && (state.files.len() as u64) < max {
            state.files.insert(identity, Arc::new(file));
        }
    }

    /// Records a new file, which need not be kept when it is removed.
    pub fn record_created(&self, file: &File) {
        if let Ok(stat) = fstat(file) {
            self.lock().created.insert((stat.st_dev, stat.st_ino));
        }
    }

    /// Reads a file if it is kept. Returns whether it is unchanged; the change of its names, which its times show too, does not count.
    pub(crate) fn read(&self, version: &Version, offset: u64, buffer: &mut [u8]) -> Option<std::io::Result<bool>> {
        let file = Arc::clone(self.lock().files.get(&(version.device, version.inode))?);
        let mut read = || {
            file.read_exact_at(buffer, offset)?;
            let now = Version::of(&fstat(&file)?);
            Ok((now.size, now.modified) == (version.size, version.modified))
        };
        Some(read())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The tables are consistent even if a thread panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
