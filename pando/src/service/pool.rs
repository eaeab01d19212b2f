// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pool of loaded templates: each file that was cloned, as it was when it was opened.
//!
//! The directory of templates is authoritative, so `pando template` needs no server. A replaced file is another template; the
//! loaded old one is released when its last clone has ended.

use super::budget::{Budget, Charge};
use super::problem::Problem;
use super::{blocking, lock};
use crate::diagnostics;
use crate::failure::Failure;
use pando_kernel::{Kernel, Stream};
use pando_launch::Template;
use pando_manager::environment::HostEnvironment;
use pando_manager::root::RootGuard;
use pando_manager::template::{OpenTemplate, Plan, TemplateError, TemplateName, TemplateSpec, TemplateStore, Workshop};
use pando_manager::time_limits::TimeLimits;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Templates that are created at a time: fewer than the threads for blocking work.
const MAKERS: usize = 4;
/// Cells that are frozen at a time; together with the former still fewer than those threads.
const FREEZERS: usize = 4;
/// Bytes of a starting program's output that are reported if it does not become ready.
const TOLD_MAX: usize = 4096;

/// A loaded template, as long as it is referenced.
pub(super) struct LoadedTemplate {
    pub(super) root: RootGuard,
    pub(super) found: OpenTemplate,
    /// Differs if the file differs.
    sign: FileVersion,
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
pub(super) type NameLock = OwnedMutexGuard<()>;

/// The loaded templates. Its locks are held for short sections, one at a time.
pub(super) struct Pool {
    kernel: Arc<Kernel>,
    libos: Template,
    watch: TimeLimits,
    environment: HostEnvironment,
    store: TemplateStore,
    makers: Semaphore,
    freezers: Arc<Semaphore>,
    turns: Mutex<BTreeMap<TemplateName, NameMutex>>,
    loaded: Mutex<BTreeMap<PathBuf, Arc<LoadedTemplate>>>,
    /// The budget of descriptors of all loaded templates.
    descriptors: Arc<Budget>,
    /// Incremented at each use of a loaded template.
    uses: AtomicU64,
}

impl Pool {
    pub(super) fn new(
        kernel: Arc<Kernel>,
        libos: Template,
        watch: TimeLimits,
        (environment, store): (HostEnvironment, TemplateStore),
        descriptors: usize,
    ) -> Pool {
        Pool {
            kernel,
            libos,
            watch,
            environment,
            store,
            makers: Semaphore::new(MAKERS),
            freezers: Arc::new(Semaphore::new(FREEZERS)),
            turns: Mutex::default(),
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
    pub(super) async fn get(self: &Arc<Pool>, name: &TemplateName) -> Result<Arc<LoadedTemplate>, Problem> {
        let (pool, name) = (Arc::clone(self), name.clone());
        let found = blocking(move || Ok((pool.ready(&pool.store.pick_variant(&name))?, pool, name)));
        let (pool, name) = match found.await? {
            (Some(warm), ..) => return Ok(warm),
            (None, pool, name) => (pool, name),
        };
        apart(async move {
            let _turn = pool.turn(&name).await;
            let standard = match pool.load(&name).await? {
                LoadState::Ready(warm) => return Ok(warm),
                LoadState::Missing => TemplateSpec::standard(&name),
                LoadState::Outdated => {
                    diagnostics::note(&format_args!("the host's software has changed: creating template `{name}` again"));
                    TemplateSpec::standard(&name).map(|standard| TemplateSpec { replace: true, ..standard })
                }
            };
            let missing = || TemplateError::Missing(name.to_string());
            pool.grow(standard.ok_or_else(missing)?).await?;
            match pool.load(&name).await? {
                LoadState::Ready(warm) => Ok(warm),
                LoadState::Missing | LoadState::Outdated => Err(missing().into()),
            }
        })
        .await
    }

    /// Creates and stores a template; waits until that is done.
    ///
    /// # Errors
    /// It cannot be created.
    pub(super) async fn make(self: &Arc<Pool>, spec: TemplateSpec) -> Result<(), Problem> {
        let pool = Arc::clone(self);
        apart(async move {
            let _turn = pool.turn(&spec.name).await;
            pool.grow(spec).await
        })
        .await
    }

    /// The loaded template of a file, if neither the file nor what it sees has changed.
    fn ready(&self, path: &Path) -> Result<Option<Arc<LoadedTemplate>>, Failure> {
        let sign = sign(path)?;
        let ready = lock(&self.loaded).get(path).filter(|warm| Some(warm.sign) == sign && !warm.changed.load(Ordering::Relaxed)).cloned();
        if let Some(warm) = &ready {
            warm.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(ready)
    }

    /// Unloads templates without clones, the least recently used first, while all together exceed their budget of descriptors. Returns
    /// whether that suffices.
    fn make_way(&self) -> bool {
        while self.descriptors.is_short() {
            let mut loaded = lock(&self.loaded);
            let idle = loaded.iter().filter(|(_, warm)| Arc::strong_count(warm) == 1);
            let oldest = idle.min_by_key(|(_, warm)| warm.used.load(Ordering::Relaxed)).map(|(path, _)| path.clone());
            let Some(given_up) = oldest.and_then(|path| loaded.remove(&path)) else { return false };
            // The drop is slow.
            drop(loaded);
            drop(given_up);
        }
        true
    }

    /// Loads a random variant of the template of this name.
    async fn load(self: &Arc<Pool>, name: &TemplateName) -> Result<LoadState, Problem> {
        let (pool, name) = (Arc::clone(self), name.clone());
        blocking(move || {
            pool.tidy();
            let path = pool.store.pick_variant(&name);
            if let Some(warm) = pool.ready(&path)? {
                return Ok(LoadState::Ready(warm));
            }
            let Some(sign) = sign(&path)? else { return Ok(LoadState::Missing) };
            let found = OpenTemplate::open(&path)?;
            let mut asked = match found.find(&pool.environment) {
                Err(TemplateError::Changed(_)) if found.manifest().standard => return Ok(LoadState::Outdated),
                found => found?,
            };
            let mut charge = pool.descriptors.charge();
            charge.grow(1 + asked.volumes.len() as u64);
            if !pool.make_way() {
                return Err(Problem::no_descriptors());
            }
            let used = AtomicU64::new(pool.uses.fetch_add(1, Ordering::Relaxed));
            let root = found.load(&pool.kernel, &mut asked)?;
            let warm = Arc::new(LoadedTemplate { root, found, sign, used, _charge: charge, changed: asked.changed });
            let old = lock(&pool.loaded).insert(path, Arc::clone(&warm));
            // This may be the last reference, and then the drop is slow.
            drop(old);
            Ok(LoadState::Ready(warm))
        })
        .await
    }

    /// Unloads templates whose files were removed or replaced; their clones continue.
    pub(super) fn tidy(&self) {
        let mut known: BTreeMap<PathBuf, FileVersion> = lock(&self.loaded).iter().map(|(path, warm)| (path.clone(), warm.sign)).collect();
        known.retain(|path, known| sign(path).is_ok_and(|sign| sign != Some(*known)));
        // It may have been reloaded meanwhile.
        let is_gone = |path: &PathBuf, warm: &mut Arc<LoadedTemplate>| known.get(path) == Some(&warm.sign);
        let gone: Vec<_> = lock(&self.loaded).extract_if(.., is_gone).collect();
        drop(gone);
    }

    async fn grow(self: &Arc<Pool>, spec: TemplateSpec) -> Result<(), Problem> {
        let _maker = self.makers.acquire().await.map_err(Problem::server)?;
        let pool = Arc::clone(self);
        blocking(move || {
            let plan = Plan::new(spec, &pool.store, &pool.environment)?;
            let mut said = Vec::new();
            let workshop = Workshop { kernel: &pool.kernel, libos: &pool.libos, time_limits: &pool.watch };
            let grown = plan.create(workshop, &mut |_, port| listen(port, &mut said), &|_| ());
            grown.map_err(|failure| Problem::from(failure).with_words(&String::from_utf8_lossy(&said)))
        })
        .await
    }

    /// Waits for permission to freeze a cell on a thread. Acquired after the lock of a template's name.
    ///
    /// # Errors
    /// The service is ending.
    pub(super) async fn freezer(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.freezers).acquire_owned().await.map_err(Problem::server)
    }

    /// Locks a template's name.
    pub(super) async fn turn(&self, name: &TemplateName) -> NameLock {
        let turn = {
            let mut turns = lock(&self.turns);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(name.clone()).or_default())
        };
        turn.lock_owned().await
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
async fn apart<T: Send + 'static>(work: impl Future<Output = Result<T, Problem>> + Send + 'static) -> Result<T, Problem> {
    tokio::spawn(work).await.unwrap_or_else(|error| Err(Problem::server(error)))
}

/// Keeps the last output of a program until it is ready or has ended.
fn listen(port: &pando_kernel::ConsolePort, said: &mut Vec<u8>) -> io::Result<()> {
    while let Some((stream, bytes)) = port.receive() {
        if stream != Stream::Notes {
            said.extend(bytes);
            said.drain(..said.len().saturating_sub(TOLD_MAX));
        }
    }
    Ok(())
}

/// The identity of a template's file; `None`: there is none.
fn sign(path: &Path) -> Result<Option<FileVersion>, Failure> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some((found.dev(), found.ino(), found.len(), found.ctime(), found.ctime_nsec()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Failure::File { path: path.into(), source }),
    }
}
