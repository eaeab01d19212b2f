// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates in memory: each file that somebody cloned, as it was when it was opened.
//!
//! The directory of templates is the truth, so that `pando template` needs no server. A file that was replaced is another template; what was loaded of the old one goes when its last
//! clone has ended.

use super::budget::{Budget, Charge};
use super::problem::Problem;
use super::{blocking, lock};
use crate::failure::Failure;
use crate::guard::RootGuard;
use crate::say;
use crate::template::{Create, Found, Name, Plan, Which, draw};
use crate::watch::Watch;
use pando_kernel::{Kernel, Stream};
use pando_launch::Template;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Templates that are made at a time: fewer than there are threads for all that blocks.
const MAKERS: usize = 4;
/// Cells of which templates are made at a time: the same, and both together.
const FREEZERS: usize = 4;
/// Bytes of what a program says while it is started that are told if it does not become ready.
const TOLD_MAX: usize = 4096;

/// A template that is loaded, as long as somebody has it.
pub(super) struct Warm {
    pub(super) root: RootGuard,
    pub(super) found: Found,
    /// Another where the file is another.
    sign: Sign,
    /// Another place in the order of use.
    used: AtomicU64,
    /// The descriptors that it keeps: its file's, and one for each volume.
    _charge: Charge,
    /// What it sees of the host is not what it was: who is cloned of it next may miss something.
    changed: Arc<AtomicBool>,
}

/// By which files are told apart: device, number, length, and when it was changed.
type Sign = (u64, u64, u64, i64, i64);

/// Held while a template is loaded or made, so that who wants the same waits for it, and nobody else.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// Somebody's turn with a name.
pub(super) type Held = OwnedMutexGuard<()>;

/// What is loaded. Its locks are held for moments, and one at a time.
pub(super) struct Pool {
    kernel: Arc<Kernel>,
    libos: Template,
    watch: Watch,
    makers: Semaphore,
    freezers: Arc<Semaphore>,
    turns: Mutex<BTreeMap<Name, Turn>>,
    loaded: Mutex<BTreeMap<PathBuf, Arc<Warm>>>,
    /// The descriptors that all that is loaded may keep.
    descriptors: Arc<Budget>,
    /// Grows whenever something loaded is used.
    uses: AtomicU64,
}

impl Pool {
    pub(super) fn new(kernel: Arc<Kernel>, libos: Template, watch: Watch, descriptors: usize) -> Pool {
        Pool {
            kernel,
            libos,
            watch,
            makers: Semaphore::new(MAKERS),
            freezers: Arc::new(Semaphore::new(FREEZERS)),
            turns: Mutex::default(),
            loaded: Mutex::default(),
            descriptors: Budget::new(descriptors as u64),
            uses: AtomicU64::new(0),
        }
    }

    /// The template of this name, loaded if it is not. One of the standard ones is made if it is not there, and made anew if the host is not what it was.
    ///
    /// # Errors
    /// There is none, or it cannot be loaded or made.
    pub(super) async fn get(self: &Arc<Pool>, name: &Name) -> Result<Arc<Warm>, Problem> {
        let (pool, name) = (Arc::clone(self), name.clone());
        let found = blocking(move || Ok((pool.ready(&draw(&name)?)?, pool, name)));
        let (pool, name) = match found.await? {
            (Some(warm), ..) => return Ok(warm),
            (None, pool, name) => (pool, name),
        };
        apart(async move {
            let _turn = pool.turn(&name).await;
            let standard = match pool.load(&name).await? {
                Loaded::Ready(warm) => return Ok(warm),
                Loaded::Missing => Create::standard(&name),
                Loaded::Outdated => {
                    say::note(&format_args!("the host's software has changed: template `{name}` is made anew"));
                    Create::standard(&name).map(|standard| Create { replace: true, ..standard })
                }
            };
            let missing = || Failure::NoTemplate(name.to_string());
            pool.grow(standard.ok_or_else(missing)?).await?;
            match pool.load(&name).await? {
                Loaded::Ready(warm) => Ok(warm),
                Loaded::Missing | Loaded::Outdated => Err(missing().into()),
            }
        })
        .await
    }

    /// Makes a template and keeps it; waits until it is there.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) async fn make(self: &Arc<Pool>, options: Create) -> Result<(), Problem> {
        let pool = Arc::clone(self);
        apart(async move {
            let _turn = pool.turn(&options.name).await;
            pool.grow(options).await
        })
        .await
    }

    /// What is loaded of a file, if that is still the same and so is what it sees.
    fn ready(&self, path: &Path) -> Result<Option<Arc<Warm>>, Failure> {
        let sign = sign(path)?;
        let ready = lock(&self.loaded).get(path).filter(|warm| Some(warm.sign) == sign && !warm.changed.load(Ordering::Relaxed)).cloned();
        if let Some(warm) = &ready {
            warm.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(ready)
    }

    /// Gives up what is loaded and nobody's clone, the longest unused first, while all together keeps more descriptors than it may. Whether that is enough.
    fn make_way(&self) -> bool {
        while self.descriptors.is_short() {
            let mut loaded = lock(&self.loaded);
            let idle = loaded.iter().filter(|(_, warm)| Arc::strong_count(warm) == 1);
            let oldest = idle.min_by_key(|(_, warm)| warm.used.load(Ordering::Relaxed)).map(|(path, _)| path.clone());
            let Some(given_up) = oldest.and_then(|path| loaded.remove(&path)) else { return false };
            // It takes its time.
            drop(loaded);
            drop(given_up);
        }
        true
    }

    /// Loads the template of this name in one of its variants.
    async fn load(self: &Arc<Pool>, name: &Name) -> Result<Loaded, Problem> {
        let (pool, name) = (Arc::clone(self), name.clone());
        blocking(move || {
            pool.tidy();
            let path = draw(&name)?;
            if let Some(warm) = pool.ready(&path)? {
                return Ok(Loaded::Ready(warm));
            }
            let Some(sign) = sign(&path)? else { return Ok(Loaded::Missing) };
            let found = Found::open(&Which::File(path.clone()))?;
            let mut asked = match found.find() {
                Err(Failure::Changed(_)) if found.recipe().standard => return Ok(Loaded::Outdated),
                found => found?,
            };
            let mut charge = pool.descriptors.charge();
            charge.grow(1 + asked.volumes.len() as u64);
            if !pool.make_way() {
                return Err(Problem::no_descriptors());
            }
            let used = AtomicU64::new(pool.uses.fetch_add(1, Ordering::Relaxed));
            let root = found.load(&pool.kernel, &mut asked)?;
            let warm = Arc::new(Warm { root, found, sign, used, _charge: charge, changed: asked.changed });
            let old = lock(&pool.loaded).insert(path, Arc::clone(&warm));
            // It may be the last of it, which takes its time.
            drop(old);
            Ok(Loaded::Ready(warm))
        })
        .await
    }

    /// Gives up what is loaded of templates whose files are gone or others; their clones go on.
    pub(super) fn tidy(&self) {
        let mut known: BTreeMap<PathBuf, Sign> = lock(&self.loaded).iter().map(|(path, warm)| (path.clone(), warm.sign)).collect();
        known.retain(|path, known| sign(path).is_ok_and(|sign| sign != Some(*known)));
        // What was loaded meanwhile is another.
        let is_gone = |path: &PathBuf, warm: &mut Arc<Warm>| known.get(path) == Some(&warm.sign);
        let gone: Vec<_> = lock(&self.loaded).extract_if(.., is_gone).collect();
        drop(gone);
    }

    async fn grow(self: &Arc<Pool>, options: Create) -> Result<(), Problem> {
        let _maker = self.makers.acquire().await.map_err(Problem::server)?;
        let pool = Arc::clone(self);
        blocking(move || {
            let plan = Plan::new(options)?;
            let mut said = Vec::new();
            let grown = plan.grow(&pool.kernel, &pool.libos, &pool.watch, &mut |_, port| listen(port, &mut said), &|_| ());
            grown.map_err(|failure| Problem::from(failure).with_words(&String::from_utf8_lossy(&said)))
        })
        .await
    }

    /// Waits until one may occupy a thread with making a template of a cell. Who waits for a turn with a name, too, has that first.
    ///
    /// # Errors
    /// The service ends.
    pub(super) async fn freezer(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.freezers).acquire_owned().await.map_err(Problem::server)
    }

    /// Waits for one's turn with a name.
    pub(super) async fn turn(&self, name: &Name) -> Held {
        let turn = {
            let mut turns = lock(&self.turns);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(name.clone()).or_default())
        };
        turn.lock_owned().await
    }
}

/// What has become of loading a template.
enum Loaded {
    Ready(Arc<Warm>),
    /// There is none.
    Missing,
    /// It is a standard one, and the host is not what it was.
    Outdated,
}

/// Does something to its end, whoever waits for it: others may wait for the same.
async fn apart<T: Send + 'static>(work: impl Future<Output = Result<T, Problem>> + Send + 'static) -> Result<T, Problem> {
    tokio::spawn(work).await.unwrap_or_else(|error| Err(Problem::server(error)))
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
