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

use crate::tables::Version;

/// Files that are kept at most: each takes about a kilobyte of the host's kernel.
const KEPT_MAX: u64 = 4096;

/// A file, whatever its name.
type Identity = (u64, u64);

/// What whoever replaces or removes files of a tree keeps open of them, so that an image of that tree goes on as it was: what was replaced is still
/// there to be read, as long as it is open.
#[derive(Debug, Default)]
pub struct Replaced {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<Identity, Arc<File>>,
    /// Files that came to be since: no image shows them.
    own: HashSet<Identity>,
}

impl Replaced {
    /// Keeps a file that is about to lose its name. Where as many are kept as may be, or a quarter of what the process may open, it is not: who reads it then gets an error.
    pub fn keep(&self, file: File) {
        let Ok(stat) = fstat(&file) else { return };
        let identity = (stat.st_dev, stat.st_ino);
        let most = (getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4).min(KEPT_MAX);
        let mut state = self.lock();
        if !state.own.remove(&identity) && (state.files.len() as u64) < most {
            state.files.insert(identity, Arc::new(file));
        }
    }

    /// Takes note of a file that is new, which need not be kept when it goes.
    pub fn is_new(&self, file: &File) {
        if let Ok(stat) = fstat(file) {
            self.lock().own.insert((stat.st_dev, stat.st_ino));
        }
    }

    /// Reads a file if it is kept, and says whether it is what it was: its name's coming and going, which its times show too, does not count.
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
        // Whatever a thread was doing when it panicked, the tables are whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
