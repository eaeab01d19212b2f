// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pool of templates: those that are loaded, and the creation of those that do not exist yet. A [`TemplateProvider`] keeps them.

use super::ManagerError;
use super::loaded::{LoadState, LoadedTemplate};
use super::origin::CellOrigin;
use super::provider::{TemplateProvider, TemplateSummary};
use super::spec::{CellSource, ManagedCellSpec};
use super::tasks::{blocking, lock};
use crate::report::{Reporter, Warning};
use crate::template::{TemplateError, TemplateName, TemplateSpec};
use pando_kernel::CellId;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Templates that are created at a time: fewer than the threads for blocking work.
const CREATIONS_MAX: usize = 4;
/// Cells that are frozen at a time; together with the former still fewer than those threads.
const FREEZES_MAX: usize = 4;

/// Held while a template is loaded or created, so that only requests for the same template wait.
type NameMutex = Arc<tokio::sync::Mutex<()>>;

/// A held lock of a template's name.
pub(crate) type NameLock = OwnedMutexGuard<()>;

/// Finds, loads and creates templates.
pub(crate) struct TemplatePool {
    provider: Box<dyn TemplateProvider>,
    reporter: Reporter,
    creators: Semaphore,
    freezers: Arc<Semaphore>,
    names: Mutex<BTreeMap<TemplateName, NameMutex>>,
}

impl TemplatePool {
    pub(super) fn new(provider: Box<dyn TemplateProvider>, reporter: Reporter) -> TemplatePool {
        let (creators, freezers) = (Semaphore::new(CREATIONS_MAX), Arc::new(Semaphore::new(FREEZES_MAX)));
        TemplatePool { provider, reporter, creators, freezers, names: Mutex::default() }
    }

    /// Finds and loads the origin of a cell.
    ///
    /// # Errors
    /// There is no such template or program, or it cannot be loaded or created.
    pub(crate) async fn origin(self: &Arc<TemplatePool>, spec: &ManagedCellSpec) -> Result<CellOrigin, ManagerError> {
        let view = match &spec.source {
            CellSource::Template(name) => return Ok(CellOrigin::template(self.get(name).await?)),
            CellSource::Program(view) => view.clone(),
        };
        let (pool, limits, name) = (Arc::clone(self), spec.limits, spec.source.name(&spec.arguments));
        let command: Vec<OsString> = spec.arguments.iter().map(OsString::from).collect();
        blocking(move || pool.provider.program(&view, &command, name, limits)).await
    }

    /// The template of this name; loads it if necessary. A built-in one is created if it does not exist, and recreated if the host's
    /// software has changed.
    ///
    /// # Errors
    /// There is none, or it cannot be loaded or created.
    async fn get(self: &Arc<TemplatePool>, name: &TemplateName) -> Result<Arc<LoadedTemplate>, ManagerError> {
        let (pool, name) = (Arc::clone(self), name.clone());
        let found = blocking(move || Ok((pool.provider.find_loaded(&name)?, pool, name)));
        let (pool, name) = match found.await? {
            (Some(loaded), ..) => return Ok(loaded),
            (None, pool, name) => (pool, name),
        };
        spawn_uncancelled(async move {
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
        spawn_uncancelled(async move {
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
            Ok(pool.provider.remove(&name)?)
        })
        .await
    }

    /// Checks that a template of this name can be created.
    ///
    /// # Errors
    /// It exists, and `replaces` is not set.
    pub(crate) async fn check_free(self: &Arc<TemplatePool>, name: TemplateName, replaces: bool) -> Result<(), ManagerError> {
        let pool = Arc::clone(self);
        blocking(move || Ok(pool.provider.check_free(&name, replaces)?)).await
    }

    /// Checks that a cell of this origin can be kept as a template. May block.
    ///
    /// # Errors
    /// It cannot.
    pub(crate) fn check_can_be_kept(&self, origin: &CellOrigin) -> Result<(), ManagerError> {
        Ok(self.provider.check_can_be_kept(origin)?)
    }

    /// Keeps a frozen cell as a template. The caller holds the lock of its name. May block.
    ///
    /// # Errors
    /// It cannot be kept.
    pub(crate) fn keep_clone(&self, origin: &CellOrigin, cell: CellId, name: &TemplateName, by_force: bool) -> Result<(), ManagerError> {
        self.provider.keep_clone(origin, cell, name, by_force)
    }

    /// The root that nested cells of a template's clones are cloned from. May block.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(crate) fn nesting_root(&self, template: &LoadedTemplate) -> Result<CellId, ManagerError> {
        self.provider.nesting_root(template)
    }

    /// All templates. May block.
    ///
    /// # Errors
    /// They cannot be listed.
    pub(crate) fn all(&self) -> Result<Vec<TemplateSummary>, TemplateError> {
        self.provider.all()
    }

    /// The template of a name. May block.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub(crate) fn describe(&self, name: &TemplateName) -> Result<TemplateSummary, TemplateError> {
        self.provider.describe(name)
    }

    async fn load(self: &Arc<TemplatePool>, name: &TemplateName) -> Result<LoadState, ManagerError> {
        let (pool, name) = (Arc::clone(self), name.clone());
        blocking(move || pool.provider.load(&name)).await
    }

    async fn create_locked(self: &Arc<TemplatePool>, spec: TemplateSpec) -> Result<(), ManagerError> {
        let _creator = self.creators.acquire().await.map_err(ManagerError::internal)?;
        let pool = Arc::clone(self);
        blocking(move || pool.provider.create(spec)).await
    }

    /// Waits for permission to freeze a cell on a thread. Acquired after the lock of a template's name.
    ///
    /// # Errors
    /// The manager is ending.
    pub(crate) async fn freeze_permit(&self) -> Result<OwnedSemaphorePermit, ManagerError> {
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

/// Runs work to its end, even if the client disconnects: others may wait for the same.
async fn spawn_uncancelled<T: Send + 'static>(
    work: impl Future<Output = Result<T, ManagerError>> + Send + 'static,
) -> Result<T, ManagerError> {
    tokio::spawn(work).await.unwrap_or_else(|error| Err(ManagerError::internal(error)))
}
