// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates in memory: each file that somebody cloned, as it was when it was opened.
//!
//! The directory of templates is the truth, so that `pando template` needs no server. A file that was replaced is another template; what was loaded of the old one goes when its last
//! clone has ended.

use super::problem::Problem;
use crate::failure::Failure;
use crate::template::{Create, Found, Name, Plan, Which, draw};
use crate::watch::Watch;
use pando_kernel::{DiskId, Kernel, Stream};
use pando_launch::{Root, Template};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of what a program says while it is started that are told if it does not become ready.
const TOLD_MAX: usize = 4096;

/// A template that is loaded.
pub(super) struct Warm {
    pub(super) root: Root,
    pub(super) found: Found,
    /// Another where the file is another.
    sign: Sign,
}

/// By which files are told apart: device, number, length, and when it was changed.
type Sign = (u64, u64, u64, i64, i64);

/// What is loaded. Lock order: `makers`, `loaded`, `retired`, and the kernel's last.
pub(super) struct Pool {
    kernel: Arc<Kernel>,
    libos: Template,
    watch: Watch,
    /// Held while a template is made, so that two who ask for the same make it once.
    makers: Mutex<()>,
    loaded: Mutex<BTreeMap<PathBuf, Arc<Warm>>>,
    /// Disks of what is not loaded any more, which clones may have still.
    retired: Mutex<Vec<DiskId>>,
}

impl Pool {
    pub(super) fn new(kernel: Arc<Kernel>, libos: Template, watch: Watch) -> Pool {
        Pool { kernel, libos, watch, makers: Mutex::default(), loaded: Mutex::default(), retired: Mutex::default() }
    }

    /// The template of this name, loaded if it is not. One of the standard ones is made if it is not there. Blocks.
    ///
    /// # Errors
    /// There is none, or it cannot be loaded or made.
    pub(super) fn get(&self, name: &Name) -> Result<Arc<Warm>, Problem> {
        let missing = || Failure::NoTemplate(name.to_string());
        if let Some(warm) = self.load(name)? {
            return Ok(warm);
        }
        let standard = Create::standard(name).ok_or_else(missing)?;
        let makers = lock(&self.makers);
        // Somebody else may have made it meanwhile.
        if self.load(name)?.is_none() {
            self.grow(standard)?;
        }
        drop(makers);
        Ok(self.load(name)?.ok_or_else(missing)?)
    }

    /// Makes a template and keeps it. Blocks until it is there.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn make(&self, options: Create) -> Result<(), Problem> {
        let _makers = lock(&self.makers);
        self.grow(options)
    }

    /// The template of this name in one of its variants, loaded; `None`: there is none.
    fn load(&self, name: &Name) -> Result<Option<Arc<Warm>>, Problem> {
        let path = draw(name)?;
        let mut loaded = lock(&self.loaded);
        let sign = sign(&path)?;
        match loaded.get(&path) {
            Some(warm) if Some(warm.sign) == sign => return Ok(Some(Arc::clone(warm))),
            _ => {}
        }
        if let Some(old) = loaded.remove(&path) {
            self.retire(&old);
        }
        let Some(sign) = sign else { return Ok(None) };
        let found = Found::open(&Which::File(path.clone()))?;
        let mut asked = found.find()?;
        let root = found.load(&self.kernel, &mut asked)?;
        let warm = Arc::new(Warm { root, found, sign });
        loaded.insert(path, Arc::clone(&warm));
        Ok(Some(warm))
    }

    /// Gives up what is loaded of templates whose files are gone or others.
    pub(super) fn tidy(&self) {
        let mut loaded = lock(&self.loaded);
        let gone = loaded.extract_if(.., |path, warm| sign(path).is_ok_and(|sign| sign != Some(warm.sign)));
        gone.for_each(|(_, warm)| self.retire(&warm));
    }

    /// Gives up what is loaded of a template; its clones go on.
    fn retire(&self, warm: &Warm) {
        let mut retired = lock(&self.retired);
        retired.extend(warm.root.clone().clear(&self.kernel));
        retired.retain(|disk| self.kernel.remove_disk(*disk).is_err());
    }

    fn grow(&self, options: Create) -> Result<(), Problem> {
        let plan = Plan::new(options)?;
        let mut said = Vec::new();
        let grown = plan.grow(&self.kernel, &self.libos, &self.watch, &mut |_, port| listen(port, &mut said), &|_| ());
        grown.map_err(|failure| Problem::from(failure).with_words(&String::from_utf8_lossy(&said)))
    }
}

/// Remembers the last that a program says until it is ready or has ended.
fn listen(port: &pando_kernel::ConsolePort, said: &mut Vec<u8>) -> io::Result<()> {
    while let Some((stream, bytes)) = port.receive() {
        if stream != Stream::Notes {
            said.extend(bytes);
            said.drain(..said.len().saturating_sub(TOLD_MAX));
        }
    }
    Ok(())
}

/// By which a template's file is known; `None`: there is none.
fn sign(path: &Path) -> Result<Option<Sign>, Failure> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some((found.dev(), found.ino(), found.len(), found.ctime(), found.ctime_nsec()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Failure::Templates { path: path.into(), source }),
    }
}

/// What is under these locks is whole at every step, whoever panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
