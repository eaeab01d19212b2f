// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pool of templates: those that are loaded, and the creation of those that do not exist yet. A [`TemplateShelf`] keeps them.

use super::ManagerError;
use super::budget::Charge;
use super::files::FileVersion;
use super::shelf::{TemplateShelf, TemplateSummary};
use super::tasks::{blocking, lock};
use crate::report::{Reporter, Warning};
use crate::root::RootGuard;
use crate::template::{Manifest, OpenTemplate, TemplateError, TemplateName, TemplateSpec};
use pando_kernel::{CellId, ConsolePort, Stream};
use pando_machine::PageCount;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Templates that are created at a time: fewer than the threads for blocking work.
const CREATORS: usize = 4;
/// Cells that are frozen at a time; together with the former still fewer than those threads.
const FREEZERS: usize = 4;
/// Bytes of a starting program's output that are reported if it does not become ready.
const OUTPUT_KEPT: usize = 4096;

/// A loaded template, as long as it is referenced.
pub(crate) struct LoadedTemplate {
    pub(crate) root: RootGuard,
    manifest: Manifest,
    is_forced: bool,
    /// Differs if the file differs; `None`: it has none.
    pub(super) version: Option<FileVersion>,
    /// When it was last used, as a count of uses.
    pub(super) used: AtomicU64,
    /// The descriptors that it keeps: its file's, and one for each volume.
    _charge: Option<Charge>,
    /// Files on the host that it sees have changed: its next clones may not be able to read them.
    changed: Arc<AtomicBool>,
}

impl LoadedTemplate {
    /// A template of this version of its file. `changed` is set if files that it sees have changed.
    pub(super) fn of_file(
        root: RootGuard,
        template: &OpenTemplate,
        (version, changed): (FileVersion, Arc<AtomicBool>),
        used: u64,
        charge: Charge,
    ) -> LoadedTemplate {
        let (manifest, is_forced) = (template.manifest().clone(), template.is_forced());
        LoadedTemplate { root, manifest, is_forced, version: Some(version), used: AtomicU64::new(used), _charge: Some(charge), changed }
    }

    /// A template without a file.
    pub(super) fn held(root: RootGuard, manifest: Manifest, is_forced: bool) -> LoadedTemplate {
        let (used, changed) = (AtomicU64::new(0), Arc::default());
        LoadedTemplate { root, manifest, is_forced, version: None, used, _charge: None, changed }
    }

    /// How it was created.
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its memory limit.
    pub(crate) fn memory(&self) -> PageCount {
        self.manifest.memory()
    }

    /// Whether it, or an ancestor, was frozen by force.
    pub(super) fn is_forced(&self) -> bool {
        self.is_forced
    }

    /// Whether neither its file, of this version, nor what it sees has changed.
    pub(super) fn is_current(&self, version: Option<FileVersion>) -> bool {
        self.version == version && version.is_some() && !self.changed.load(Ordering::Relaxed)
    }
}

/// Held while a template is loaded or created, so that only requests for the same template wait.
type NameMutex = Arc<tokio::sync::Mutex<()>>;

/// A held lock of a template's name.
pub(crate) type NameLock = OwnedMutexGuard<()>;

/// Finds, loads and creates templates.
pub(crate) struct TemplatePool {
    shelf: Box<dyn TemplateShelf>,
    reporter: Reporter,
    creators: Semaphore,
    freezers: Arc<Semaphore>,
    names: Mutex<BTreeMap<TemplateName, NameMutex>>,
}

impl TemplatePool {
    pub(super) fn new(shelf: Box<dyn TemplateShelf>, reporter: Reporter) -> TemplatePool {
        let (creators, freezers) = (Semaphore::new(CREATORS), Arc::new(Semaphore::new(FREEZERS)));
        TemplatePool { shelf, reporter, creators, freezers, names: Mutex::default() }
    }

    /// The template of this name; loads it if necessary. A built-in one is created if it does not exist, and recreated if the host's
    /// software has changed.
    ///
    /// # Errors
    /// There is none, or it cannot be loaded or created.
    pub(crate) async fn get(self: &Arc<TemplatePool>, name: &TemplateName) -> Result<Arc<LoadedTemplate>, ManagerError> {
        let (pool, name) = (Arc::clone(self), name.clone());
        let found = blocking(move || Ok((pool.shelf.ready(&name)?, pool, name)));
        let (pool, name) = match found.await? {
            (Some(loaded), ..) => return Ok(loaded),
            (None, pool, name) => (pool, name),
        };
        apart(async move {
            let _lock = pool.lock_name(&name).await;
            let standard = match pool.load(&name).await? {
                LoadState::Ready(loaded) => return Ok(loaded),
                LoadState::Missing => TemplateSpec::standard(&name),
                LoadState::Outdated => {
                    pool.reporter.warn(Warning::SoftwareChanged(name.to_string()));
                    TemplateSpec::standard(&name).map(|standard| TemplateSpec { replace: true, ..standard })
                }
            };
            let missing = || TemplateError::Missing(name.to_string());
            pool.create_locked(standard.ok_or_else(missing)?).await?;
            match pool.load(&name).await? {
                LoadState::Ready(loaded) => Ok(loaded),
                LoadState::Missing | LoadState::Outdated => Err(missing().into()),
            }
        })
        .await
    }

    /// Creates and stores a template; waits until that is done.
    ///
    /// # Errors
    /// It cannot be created.
    pub(crate) async fn create(self: &Arc<TemplatePool>, spec: TemplateSpec) -> Result<(), ManagerError> {
        let pool = Arc::clone(self);
        apart(async move {
            let _lock = pool.lock_name(&spec.name).await;
            pool.create_locked(spec).await
        })
        .await
    }

    /// Removes a template; its clones continue.
    ///
    /// # Errors
    /// There is none, or the host refuses.
    pub(crate) async fn remove(self: &Arc<TemplatePool>, name: TemplateName) -> Result<(), ManagerError> {
        let (pool, lock) = (Arc::clone(self), self.lock_name(&name).await);
        blocking(move || {
            let _lock = lock;
            Ok(pool.shelf.remove(&name)?)
        })
        .await
    }

    /// Checks that a template of this name can be created.
    ///
    /// # Errors
    /// It exists, and `replaces` is not set.
    pub(crate) async fn check_free(self: &Arc<TemplatePool>, name: TemplateName, replaces: bool) -> Result<(), ManagerError> {
        let pool = Arc::clone(self);
        blocking(move || Ok(pool.shelf.check_free(&name, replaces)?)).await
    }

    /// Keeps a frozen clone of a template as a template of its own. The caller holds the lock of its name. May block.
    ///
    /// # Errors
    /// It cannot be kept.
    pub(crate) fn keep_clone(
        &self,
        source: &LoadedTemplate,
        cell: CellId,
        name: &TemplateName,
        by_force: bool,
    ) -> Result<(), ManagerError> {
        self.shelf.keep_clone(source, cell, name, by_force)
    }

    /// All templates. May block.
    ///
    /// # Errors
    /// They cannot be listed.
    pub(crate) fn all(&self) -> Result<Vec<TemplateSummary>, TemplateError> {
        self.shelf.all()
    }

    /// The template of a name. May block.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub(crate) fn describe(&self, name: &TemplateName) -> Result<TemplateSummary, TemplateError> {
        self.shelf.describe(name)
    }

    async fn load(self: &Arc<TemplatePool>, name: &TemplateName) -> Result<LoadState, ManagerError> {
        let (pool, name) = (Arc::clone(self), name.clone());
        blocking(move || pool.shelf.load(&name)).await
    }

    async fn create_locked(self: &Arc<TemplatePool>, spec: TemplateSpec) -> Result<(), ManagerError> {
        let _creator = self.creators.acquire().await.map_err(ManagerError::internal)?;
        let pool = Arc::clone(self);
        blocking(move || pool.shelf.create(spec)).await
    }

    /// Waits for permission to freeze a cell on a thread. Acquired after the lock of a template's name.
    ///
    /// # Errors
    /// The manager is ending.
    pub(crate) async fn freezer(&self) -> Result<OwnedSemaphorePermit, ManagerError> {
        Arc::clone(&self.freezers).acquire_owned().await.map_err(ManagerError::internal)
    }

    /// Locks a template's name.
    pub(crate) async fn lock_name(&self, name: &TemplateName) -> NameLock {
        let mutex = {
            let mut names = lock(&self.names);
            names.retain(|_, mutex| Arc::strong_count(mutex) > 1);
            Arc::clone(names.entry(name.clone()).or_default())
        };
        mutex.lock_owned().await
    }
}

/// The result of loading a template.
pub(super) enum LoadState {
    Ready(Arc<LoadedTemplate>),
    /// It does not exist.
    Missing,
    /// It is a built-in one, and the host's software has changed.
    Outdated,
}

/// Runs work to its end, even if the client disconnects: others may wait for the same.
async fn apart<T: Send + 'static>(work: impl Future<Output = Result<T, ManagerError>> + Send + 'static) -> Result<T, ManagerError> {
    tokio::spawn(work).await.unwrap_or_else(|error| Err(ManagerError::internal(error)))
}

/// Collects the last output of a program until it is ready or has ended.
pub(super) fn collect_output(port: &ConsolePort, output: &mut Vec<u8>) {
    while let Some((stream, bytes)) = port.receive() {
        if stream != Stream::Notes {
            output.extend(bytes);
            output.drain(..output.len().saturating_sub(OUTPUT_KEPT));
        }
    }
}

/// The error of a template that was not created, with the last output of its program.
pub(super) fn with_output(error: TemplateError, output: &[u8]) -> ManagerError {
    match String::from_utf8_lossy(output).trim_end() {
        "" => error.into(),
        output => ManagerError::Creation { error, output: output.into() },
    }
}
