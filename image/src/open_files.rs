// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host files that images keep open: one list for all images of the process, because descriptors are the process's.
//!
//! The least recently used file is closed for another one; dropping an image closes its files.

use std::{
    fs::File,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::io::Errno;

/// The default limit of open files.
const OPEN_MAX: usize = 256;

static FILES: Mutex<OpenList> = Mutex::new(OpenList { max: OPEN_MAX, open: Vec::new() });
static NEXT: AtomicU64 = AtomicU64::new(0);

/// An image's ID in the list.
type Owner = u64;

struct OpenList {
    max: usize,
    /// The most recently used is last.
    open: Vec<(Owner, u32, Arc<File>)>,
}

/// Limits the host files that all images of the process together keep open; at least one.
pub fn limit_open_files(max: usize) {
    let mut list = list();
    list.max = max.max(1);
    let surplus = list.open.len().saturating_sub(list.max);
    list.open.drain(..surplus);
}

/// The number of host files that all images of the process keep open.
#[must_use]
pub fn open_files() -> usize {
    list().open.len()
}

fn list() -> MutexGuard<'static, OpenList> {
    // The list is consistent even if a thread panicked while it held the lock.
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The open files of one image.
#[derive(Debug)]
pub(crate) struct OpenFiles(Owner);

impl OpenFiles {
    /// An empty list.
    pub(crate) fn new() -> Self {
        OpenFiles(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The file with this number, if it is open.
    pub(crate) fn get(&self, number: u32) -> Option<Arc<File>> {
        let open = &mut list().open;
        let index = open.iter().rposition(|(owner, other, _)| (*owner, *other) == (self.0, number))?;
        let entry = open.remove(index);
        let file = Arc::clone(&entry.2);
        open.push(entry);
        Some(file)
    }

    /// Keeps a file open.
    pub(crate) fn insert(&self, number: u32, file: &Arc<File>) {
        let mut list = list();
        if list.open.len() >= list.max {
            list.open.remove(0);
        }
        list.open.push((self.0, number, Arc::clone(file)));
    }

    /// Closes all of them; they are reopened when they are read.
    pub(crate) fn close(&self) {
        list().open.retain(|(owner, ..)| *owner != self.0);
    }
}

impl Drop for OpenFiles {
    fn drop(&mut self) {
        self.close();
    }
}

/// Opens a file. If the process has no descriptor left, closes the files of all images and retries once.
pub(crate) fn with_descriptor<T>(open: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    match open() {
        Err(Errno::MFILE | Errno::NFILE) => {
            list().open.clear();
            open()
        }
        outcome => outcome,
    }
}
