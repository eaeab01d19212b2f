// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pool of loaded templates: each file that was cloned, as it was when it was opened.
//!
//! The directory of templates is authoritative, so `pando template` needs no server. A replaced file is another template; the
//! loaded old one is released when its last clone has ended.

use super::ManagerError;
use super::budget::{Budget, Charge};
use super::tasks::{blocking, lock};
use crate::environment::HostEnvironment;
use crate::report::Warning;
use crate::root::RootGuard;
use crate::template::{OpenTemplate, Plan, TemplateError, TemplateName, TemplateSpec, TemplateStore, Workshop};
use crate::time_limits::TimeLimits;
use pando_kernel::{Kernel, Stream};
use pando_launch::Template;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
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
    pub(crate) template: OpenTemplate,
    /// Differs if the file differs.
    version: FileVersion,
    /// When it was last used, as a count of uses.
    used: AtomicU64,
    /// The descriptors that it keeps: its file's, and one for each volume.
    _charge: Charge,
    /// Files on the host that it sees have changed: its next clones may not be able to read them.
    changed: Arc<AtomicBool>,
}

/// A file's identity: device, inode, length, and time of change.
type FileVersion = (u64, u64, u64, i64, i64);

/// Held while a template is loaded or created, so that only requests for the same template wait.
type NameMutex = Arc<tokio::sync::Mutex<()>>;

/// A held lock of a template's name.
pub(crate) type NameLock = OwnedMutexGuard<()>;

/// The loaded templates. Its locks are held for short sections, one at a time.
pub(crate) struct TemplatePool {
    kernel: Arc<Kernel>,
    libos: Template,
    time_limits: TimeLimits,
    environment: HostEnvironment,
    store: TemplateStore,
    creators: Semaphore,
    freezers: Arc<Semaphore>,
    names: Mutex<BTreeMap<TemplateName, NameMutex>>,
    loaded: Mutex<BTreeMap<PathBuf, Arc<LoadedTemplate>>>,
    /// The budget of descriptors of all loaded templates.
    descriptors: Arc<Budget>,
    /// Incremented at each use of a loaded template.
    uses: AtomicU64,
}

impl TemplatePool {
    pub(crate) fn new(
        kernel: Arc<Kernel>,
        libos: Template,
        time_limits: TimeLimits,
        (environment, store): (HostEnvironment, TemplateStore),
        descriptors: usize,
    ) -> TemplatePool {
        TemplatePool {
            kernel,
            libos,
            time_limits,
            environment,
            store,
            creators: Semaphore::new(CREATORS),
            freezers: Arc::new(Semaphore::new(FREEZERS)),
            names: Mutex::default(),
            loaded: Mutex::default(),
            descriptors: Budget::new(descriptors as u64),
            uses: AtomicU64::new(0),
        }
    }

    /// The template of this name; loads it if necessary. A built-in one is created if it does not exist, and recreated if the host's
    /// software has changed.
    ///
    /// # Errors
    /// There is none, or it cannot be loaded or created.
    pub(crate) async fn get(self: &Arc<TemplatePool>, name: &TemplateName) -> Result<Arc<LoadedTemplate>, ManagerError> {
        let (pool, name) = (Arc::clone(self), name.clone());
        let found = blocking(move || Ok((pool.ready(&pool.store.pick_variant(&name))?, pool, name)));
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
                    pool.environment.reporter.warn(Warning::SoftwareChanged(name.to_string()));
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

    /// The loaded template of a file, if neither the file nor what it sees has changed.
    fn ready(&self, path: &Path) -> Result<Option<Arc<LoadedTemplate>>, TemplateError> {
        let version = file_version(path)?;
        let ready = lock(&self.loaded)
            .get(path)
            .filter(|loaded| Some(loaded.version) == version && !loaded.changed.load(Ordering::Relaxed))
            .cloned();
        if let Some(loaded) = &ready {
            loaded.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(ready)
    }

    /// Unloads templates without clones, the least recently used first, while all together exceed their budget of descriptors. Returns
    /// whether that suffices.
    fn free_descriptors(&self) -> bool {
        while self.descriptors.is_short() {
            let mut all = lock(&self.loaded);
            let idle = all.iter().filter(|(_, loaded)| Arc::strong_count(loaded) == 1);
            let oldest = idle.min_by_key(|(_, loaded)| loaded.used.load(Ordering::Relaxed)).map(|(path, _)| path.clone());
            let Some(unloaded) = oldest.and_then(|path| all.remove(&path)) else { return false };
            // The drop is slow.
            drop(all);
            drop(unloaded);
        }
        true
    }

    /// Loads a random variant of the template of this name.
    async fn load(self: &Arc<TemplatePool>, name: &TemplateName) -> Result<LoadState, ManagerError> {
        let (pool, name) = (Arc::clone(self), name.clone());
        blocking(move || {
            pool.tidy();
            let path = pool.store.pick_variant(&name);
            if let Some(loaded) = pool.ready(&path)? {
                return Ok(LoadState::Ready(loaded));
            }
            let Some(version) = file_version(&path)? else { return Ok(LoadState::Missing) };
            let template = OpenTemplate::open(&path)?;
            let mut view = match template.find(&pool.environment) {
                Err(TemplateError::Changed(_)) if template.manifest().standard => return Ok(LoadState::Outdated),
                found => found?,
            };
            let mut charge = pool.descriptors.charge();
            charge.grow(1 + view.volumes.len() as u64);
            if !pool.free_descriptors() {
                return Err(ManagerError::TooManyFiles);
            }
            let used = AtomicU64::new(pool.uses.fetch_add(1, Ordering::Relaxed));
            let root = template.load(&pool.kernel, &mut view)?;
            let loaded = Arc::new(LoadedTemplate { root, template, version, used, _charge: charge, changed: view.changed });
            let old = lock(&pool.loaded).insert(path, Arc::clone(&loaded));
            // This may be the last reference, and then the drop is slow.
            drop(old);
            Ok(LoadState::Ready(loaded))
        })
        .await
    }

    /// Unloads templates whose files were removed or replaced; their clones continue.
    pub(crate) fn tidy(&self) {
        let mut known: BTreeMap<PathBuf, FileVersion> =
            lock(&self.loaded).iter().map(|(path, loaded)| (path.clone(), loaded.version)).collect();
        known.retain(|path, known| file_version(path).is_ok_and(|version| version != Some(*known)));
        // It may have been reloaded meanwhile.
        let is_gone = |path: &PathBuf, loaded: &mut Arc<LoadedTemplate>| known.get(path) == Some(&loaded.version);
        let gone: Vec<_> = lock(&self.loaded).extract_if(.., is_gone).collect();
        drop(gone);
    }

    async fn create_locked(self: &Arc<TemplatePool>, spec: TemplateSpec) -> Result<(), ManagerError> {
        let _creator = self.creators.acquire().await.map_err(ManagerError::internal)?;
        let pool = Arc::clone(self);
        blocking(move || {
            let plan = Plan::new(spec, &pool.store, &pool.environment)?;
            let mut output = Vec::new();
            let workshop = Workshop { kernel: &pool.kernel, libos: &pool.libos, time_limits: &pool.time_limits };
            let created = plan.create(workshop, &mut |_, port| keep_last(port, &mut output), &|_| ());
            created.map_err(|error| match String::from_utf8_lossy(&output).trim_end() {
                "" => error.into(),
                output => ManagerError::Creation { error, output: output.into() },
            })
        })
        .await
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
enum LoadState {
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

/// Keeps the last output of a program until it is ready or has ended.
fn keep_last(port: &pando_kernel::ConsolePort, output: &mut Vec<u8>) -> io::Result<()> {
    while let Some((stream, bytes)) = port.receive() {
        if stream != Stream::Notes {
            output.extend(bytes);
            output.drain(..output.len().saturating_sub(OUTPUT_KEPT));
        }
    }
    Ok(())
}

/// The identity of a template's file; `None`: there is none.
fn file_version(path: &Path) -> Result<Option<FileVersion>, TemplateError> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some((found.dev(), found.ino(), found.len(), found.ctime(), found.ctime_nsec()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TemplateError::File { path: path.into(), source }),
    }
}
