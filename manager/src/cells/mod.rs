// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel with loaded templates and many cells, for a front end that serves clients. In a cell, the kernel is the one that runs this
//! cell.
//!
//! On a host, the directory of templates is authoritative and shared with every other process. All threads of this module are started
//! before the process confines itself; blocking work runs on the threads of the caller's tokio runtime.

mod budget;
mod cell;
mod cell_number;
mod changes;
mod debugging;
mod error;
mod files;
mod freezing;
mod frozen_templates;
mod gateways;
mod idle;
mod index;
mod jobs;
mod listing;
mod loaded;
mod log;
mod names;
mod networks;
mod origin;
mod pool;
mod provider;
mod read_positions;
mod reader;
mod restart;
mod restart_policy;
mod spec;
mod tasks;
mod virtual_hosts;

use crate::descriptors::Descriptors;
use crate::environment::HostEnvironment;
use crate::machine::{self, SleepConfig};
use crate::memory_control::{MemoryControl, MemorySensors};
use crate::template::{PROGRAMS, TemplateName, TemplateRef, TemplateSpec, TemplateStore, create_private_directory};
use crate::time_limits::TimeLimits;
use crate::timings::Timings;
use crate::view::{self, PreparedView};
use budget::Budget;
use files::FileTemplates;
use frozen_templates::FrozenTemplates;
use index::CellIndex;
use names::NameReservation;
use networks::CellNetworks;
use origin::CellOrigin;
use pando_confine::Paths;
use pando_kernel::{Kernel, OperatorError, SleepOutcome, Statistics, SwapUsage};
use pando_launch::{CellPhase, NestedCells, Operator};
use pando_machine::{CellsDevice, PageCount};
use pando_store::swap::{SwapSpace, create_swap_file};
use pool::TemplatePool;
use provider::TemplateProvider;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tasks::{blocking, lock};
use tempfile::NamedTempFile;

pub use cell::ManagedCell;
pub use debugging::DebuggedCell;
pub use error::ManagerError;
pub use gateways::PreparedGateways;
pub use jobs::StartedJob;
pub use listing::{CellPage, CellTotals, PageQuery};
pub use provider::TemplateSummary;
pub use reader::Reader;
pub use restart_policy::RestartPolicy;
pub use spec::{
    CellOutcome, CellSignal, CellSource, CellSummary, EndReason, ManagedCellSpec, ManagerSummary, OutputPiece, ProgramConfiguration,
};
pub use virtual_hosts::CellPort;

/// Swap space in memory is the memory of all cells divided by this.
const SWAP_DIVISOR: u64 = 8;
/// Frames that are made available for a new cell when there are none: its first paths of tables and its first writes.
const ROOM: u64 = 1024;
/// Ended cells that are kept.
const ENDED_KEPT: usize = 1024;

/// The configuration of a manager.
#[derive(Clone, Debug)]
pub struct ManagerConfig {
    /// The caller's environment.
    pub environment: HostEnvironment,
    /// The directory of templates.
    pub store: TemplateStore,
    /// The memory limit of all cells together.
    pub memory: PageCount,
    /// Directories of the host that templates and cells may see, in addition to the host's software and what existing templates see.
    pub shown: Vec<PathBuf>,
    /// Directories that the process may change, in addition to that of the templates.
    pub writable: Vec<PathBuf>,
    /// The division of the process's descriptors.
    pub descriptors: Descriptors,
    /// How cells sleep.
    pub swap: SwapConfig,
}

/// How the cells of a manager sleep.
#[derive(Clone, Debug, Default)]
pub struct SwapConfig {
    /// Directories for swap files, each with the size of its file in bytes. None: sleeping cells stay in memory, compressed.
    pub directories: Vec<(PathBuf, u64)>,
    /// How long a cell idles before it falls asleep; `None`: only on request, or when memory is short.
    pub sleep_after: Option<Duration>,
    /// Whether each cell falls asleep whenever it idles: for tests.
    pub sleeps_when_idle: bool,
}

impl SwapConfig {
    /// Opens the swap space. In memory it may take an eighth of that of the cells.
    fn open(self, memory: PageCount) -> Result<SleepConfig, ManagerError> {
        let create = |(directory, size): (PathBuf, u64)| match create_swap_file(&directory) {
            Ok(file) => Ok((file, size)),
            Err(error) => Err(ManagerError::Swap { directory, error }),
        };
        let swap = if self.directories.is_empty() {
            SwapSpace::in_memory(memory.bytes() / SWAP_DIVISOR)
        } else {
            SwapSpace::in_files(self.directories.into_iter().map(create).collect::<Result<_, _>>()?)
        };
        Ok(SleepConfig { swap: Some(Arc::new(swap)), sleep_after: self.sleep_after, sleeps_when_idle: self.sleeps_when_idle })
    }
}

/// A kernel with its templates and cells. Lock order: first `starting`, then one of `cells`, a cell's jobs and the networks' names; then a
/// cell's state or the kernel's locks. The pool's locks are taken while no other is held.
pub struct Manager {
    operator: Arc<dyn Operator>,
    /// The kernel of this process; `None`: the manager runs in a cell.
    kernel: Option<Arc<Kernel>>,
    pool: Arc<TemplatePool>,
    environment: HostEnvironment,
    store: TemplateStore,
    /// `None`: it runs in a cell.
    networks: Option<CellNetworks>,
    time_limits: TimeLimits,
    /// The configured memory limit of all cells together.
    memory: PageCount,
    /// Follows the host's memory. `None`: the manager runs in a cell.
    control: Option<MemoryControl>,
    /// The free memory before the first cell.
    free_at_start: PageCount,
    /// The budget of all output logs.
    budget: Arc<Budget>,
    next: AtomicU64,
    cells: Mutex<CellIndex>,
    /// The requested names of cells that are being started.
    starting: Mutex<BTreeSet<String>>,
}

impl Manager {
    /// Starts a kernel and all threads of the manager, and confines the process to the paths that it needs.
    ///
    /// # Errors
    /// There is no KVM, or the host refuses threads.
    pub fn start(config: ManagerConfig, gateways: PreparedGateways) -> Result<Manager, ManagerError> {
        let ManagerConfig { environment, store, memory, shown, writable, descriptors, swap } = config;
        let sensors = MemorySensors::open();
        let mut visible = visible(&shown, &environment, &store);
        visible.change.push(store.directory().into());
        visible.change.extend(writable);
        let mut timings = Timings::start();
        let kernel = Arc::new(machine::start_for_many_cells(memory, swap.open(memory)?, &visible, &mut timings)?);
        let libos = machine::libos(&kernel, &mut timings)?;
        let operator: Arc<dyn Operator> = kernel.clone();
        let time_limits = TimeLimits::start(Arc::clone(&operator)).map_err(ManagerError::Thread)?;
        let networks = CellNetworks::new(Arc::clone(&kernel), gateways.threads(&environment.reporter)?)?;
        let shared = (environment.clone(), store.clone());
        let provider = FileTemplates::new(Arc::clone(&kernel), libos, time_limits.clone(), shared, descriptors.templates);
        let manager = Manager::new(operator, Box::new(provider), Some(networks), (environment, store), (memory, time_limits));
        let control = MemoryControl::start(&kernel, sensors, memory).map_err(ManagerError::Thread)?;
        Ok(Manager { kernel: Some(kernel), control: Some(control), ..manager })
    }

    /// Starts all threads of a manager that runs in a cell.
    ///
    /// # Errors
    /// There is not enough memory for the threads.
    pub fn start_nested(device: CellsDevice, config: ManagerConfig) -> Result<Manager, ManagerError> {
        let ManagerConfig { environment, store, memory, .. } = config;
        let operator: Arc<dyn Operator> = Arc::new(NestedCells::start(device)?);
        let time_limits = TimeLimits::start(Arc::clone(&operator)).map_err(ManagerError::Thread)?;
        let provider = FrozenTemplates::new(Arc::clone(&operator), time_limits.clone(), environment.clone());
        Ok(Manager::new(operator, Box::new(provider), None, (environment, store), (memory, time_limits)))
    }

    fn new(
        operator: Arc<dyn Operator>,
        provider: Box<dyn TemplateProvider>,
        networks: Option<CellNetworks>,
        (environment, store): (HostEnvironment, TemplateStore),
        (memory, time_limits): (PageCount, TimeLimits),
    ) -> Manager {
        Manager {
            free_at_start: operator.available(),
            operator,
            kernel: None,
            control: None,
            pool: Arc::new(TemplatePool::new(provider, environment.reporter.clone())),
            environment,
            store,
            networks,
            time_limits,
            memory,
            budget: Budget::for_memory(memory),
            next: AtomicU64::new(1),
            cells: Mutex::default(),
            starting: Mutex::default(),
        }
    }

    /// Whether it runs in a cell: its templates have no files then.
    pub fn is_nested(&self) -> bool {
        self.networks.is_none()
    }

    /// All templates. May block.
    ///
    /// # Errors
    /// They cannot be listed.
    pub fn templates(&self) -> Result<Vec<TemplateSummary>, ManagerError> {
        Ok(self.pool.all()?)
    }

    /// The template of a name. May block.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub fn template(&self, name: &TemplateName) -> Result<TemplateSummary, ManagerError> {
        Ok(self.pool.describe(name)?)
    }

    /// The directory of templates.
    pub fn store(&self) -> &TemplateStore {
        &self.store
    }

    /// The caller's environment.
    pub fn environment(&self) -> &HostEnvironment {
        &self.environment
    }

    /// The present memory limit of all cells together: the configured one, or what the host's memory permits of it.
    pub fn memory(&self) -> PageCount {
        PageCount(self.memory.0.min(self.free_at_start.0.saturating_sub(self.withheld().0)))
    }

    /// Pages that cells may not use because the host has no memory for them.
    fn withheld(&self) -> PageCount {
        self.control.as_ref().map_or(PageCount(0), MemoryControl::withheld)
    }

    /// Its state.
    pub fn summary(&self) -> ManagerSummary {
        ManagerSummary {
            running: self.lock().living(),
            memory: self.memory(),
            free: PageCount(self.memory().0.saturating_sub(self.used().0)),
            gateways: self.networks.as_ref().map_or(0, CellNetworks::gateways),
            listening: self.networks.as_ref().and_then(CellNetworks::listening),
        }
    }

    /// Numbers about the kernel of this process and its swap space. May block.
    ///
    /// # Errors
    /// The manager runs in a cell.
    pub fn statistics(&self) -> Result<(Statistics, SwapUsage), ManagerError> {
        let kernel = self.kernel.as_ref().ok_or(ManagerError::UnsupportedInCell("metrics"))?;
        Ok((kernel.statistics(), kernel.swap_usage().unwrap_or_default()))
    }

    /// Starts a cell, whose output is read from the start. It ends when the returned guard is dropped, unless that is released.
    ///
    /// # Errors
    /// There is no such template or program, not enough memory, or no gateway; or a living cell has the name.
    pub async fn start_cell(self: &Arc<Self>, spec: ManagedCellSpec) -> Result<AttachedCell, ManagerError> {
        self.make_room().await?;
        match &self.networks {
            None if spec.network.is_some() => return Err(ManagerError::NotInside("network (--network)")),
            None if !spec.publish.is_empty() => return Err(ManagerError::NotInside("publish (-p)")),
            None if !spec.allow.is_empty() => return Err(ManagerError::NotInside("allow (--allow)")),
            _ => {}
        }
        let _name = spec.name.as_deref().map(|name| NameReservation::new(self, name, None)).transpose()?;
        let origin = self.pool.origin(&spec).await?;
        if spec.restart == RestartPolicy::No {
            return self.start_prepared(spec, origin, None).await;
        }
        let attached = self.start_prepared(spec.clone(), origin.clone(), None).await?;
        tokio::spawn(restart::supervise(Arc::clone(self), Arc::clone(&attached.cell), spec, origin));
        Ok(attached)
    }

    /// Starts a cell that has ended again, from the same origin. The new cell has its number, and continues its output.
    ///
    /// # Errors
    /// There is not enough memory, or no gateway; or a living cell has the name.
    async fn start_again(
        self: &Arc<Self>,
        ended: &Arc<ManagedCell>,
        spec: ManagedCellSpec,
        origin: &CellOrigin,
    ) -> Result<AttachedCell, ManagerError> {
        self.make_room().await?;
        let _name = spec.name.as_deref().map(|name| NameReservation::new(self, name, Some(ended.id()))).transpose()?;
        self.start_prepared(spec, origin.clone(), Some(Arc::clone(ended))).await
    }

    /// Starts copies of a running cell, which continue where it waits. It goes on itself. They end when the returned guards are dropped,
    /// unless these are released.
    ///
    /// # Errors
    /// It has ended, its programs do not pause, there is not enough memory, or there is no gateway for a copy.
    pub async fn fork(self: &Arc<Self>, source: Arc<ManagedCell>, count: u32) -> Result<Vec<AttachedCell>, ManagerError> {
        let permit = self.pool.freeze_permit().await?;
        source.refuse_if_debugged("fork")?;
        let copied = blocking(move || {
            let _permit = permit;
            source.copy()
        });
        let (spec, copy) = copied.await?;
        let mut forks = Vec::new();
        for _ in 0..count {
            self.make_room().await?;
            forks.push(self.start_prepared(spec.clone(), copy.clone(), None).await?);
        }
        Ok(forks)
    }

    async fn start_prepared(
        self: &Arc<Self>,
        spec: ManagedCellSpec,
        origin: CellOrigin,
        predecessor: Option<Arc<ManagedCell>>,
    ) -> Result<AttachedCell, ManagerError> {
        let slot = match &self.networks {
            Some(networks) => networks.slot(&spec).await?,
            None => None,
        };
        let manager = Arc::clone(self);
        blocking(move || {
            let id = predecessor.as_ref().map_or_else(|| manager.next.fetch_add(1, Ordering::Relaxed), |ended| ended.id);
            let is_read_completely = spec.is_read_completely;
            let cell = ManagedCell::start(&manager, (id, predecessor.as_deref()), spec, origin, slot)?;
            manager.lock().insert(&cell);
            if let Some(ended) = predecessor {
                ended.set_successor(&cell);
            }
            let reader = is_read_completely.then(|| Reader::new(&cell, 0));
            tokio::spawn(Arc::clone(&cell).supervise(Arc::clone(&manager)));
            if let Some(timeout) = cell.idle_timeout() {
                tokio::spawn(idle::watch(Arc::clone(&cell), timeout));
            }
            if cell.has_input() {
                let cell = Arc::clone(&cell);
                tokio::spawn(async move { cell.write_first_input().await });
            }
            Ok(AttachedCell { manager, cell, reader, is_released: false })
        })
        .await
    }

    /// The cell of this number, running or ended.
    ///
    /// # Errors
    /// There is none.
    pub fn cell(&self, id: u64) -> Result<Arc<ManagedCell>, ManagerError> {
        self.lock().get(id).cloned().ok_or_else(|| ManagerError::NoSuchCell(id.to_string()))
    }

    /// Terminates a cell, and removes it with its output. It is not started again.
    pub fn remove_cell(&self, id: u64) {
        let removed = self.lock().remove(id);
        if let Some(cell) = removed {
            cell.note_removal();
            // It may be another one than the caller knows: one that was started again meanwhile.
            cell.signal(CellSignal::Kill);
        }
    }

    /// Creates and stores a template; waits until that is done.
    ///
    /// # Errors
    /// It cannot be created.
    pub async fn create_template(&self, spec: TemplateSpec) -> Result<(), ManagerError> {
        self.pool.create(spec).await
    }

    /// Removes a template; its clones continue.
    ///
    /// # Errors
    /// There is none, or the host refuses.
    pub async fn remove_template(&self, name: TemplateName) -> Result<(), ManagerError> {
        self.pool.remove(name).await
    }

    /// Stores an uploaded template after checking that it is undamaged.
    ///
    /// # Errors
    /// It is no template, is damaged, or the name exists and `replaces` is not set.
    pub async fn adopt_template(self: &Arc<Self>, file: NamedTempFile, name: TemplateName, replaces: bool) -> Result<(), ManagerError> {
        // So that a concurrent recreation of the old one does not replace it.
        let (manager, lock) = (Arc::clone(self), self.pool.lock_name(&name).await);
        blocking(move || {
            let _lock = lock;
            Ok(manager.store.adopt(file, &name, replaces, &manager.environment.reporter)?)
        })
        .await
    }

    /// Puts a cell to sleep that waits; does nothing to one that sleeps. May block.
    ///
    /// # Errors
    /// It has ended, does not wait, cannot sleep, or an event keeps it awake or has woken it at once.
    pub fn sleep(&self, cell: &ManagedCell) -> Result<(), ManagerError> {
        let kernel = self.kernel.as_ref().ok_or(ManagerError::UnsupportedInCell("sleep"))?;
        cell.refuse_if_debugged("put to sleep")?;
        let awake = |reason: String| ManagerError::CannotSleep { cell: cell.id(), reason };
        match kernel.sleep(cell.kernel_id()) {
            Ok(SleepOutcome::Asleep) if kernel.usage(cell.kernel_id()).is_some_and(|usage| usage.phase == CellPhase::Asleep) => Ok(()),
            Ok(SleepOutcome::Asleep) => Err(awake("an event woke it at once".into())),
            Ok(SleepOutcome::Interrupted) => Err(awake("it received an event meanwhile: try again when it is idle".into())),
            Err(OperatorError::CannotSleep { reason, .. }) => Err(awake(reason.into())),
            Err(OperatorError::Swap { error, .. }) => Err(awake(error.to_string())),
            Err(_) => Err(awake("it has ended".into())),
        }
    }

    /// Wakes a cell up, or admits one that is queued for its start; does nothing to one that is awake. May block.
    ///
    /// # Errors
    /// It has ended.
    pub fn wake(&self, cell: &ManagedCell) -> Result<(), ManagerError> {
        let kernel = self.kernel.as_ref().ok_or(ManagerError::UnsupportedInCell("wake"))?;
        kernel.wake(cell.kernel_id()).map_err(|_| ManagerError::Ended { cell: cell.id(), action: "wake" })
    }

    /// Creates a template from a cell, and terminates the cell.
    ///
    /// # Errors
    /// The name exists and `replaces` is not set; the cell has ended, or cannot be frozen or stored.
    pub async fn freeze(&self, cell: Arc<ManagedCell>, name: TemplateName, replaces: bool, by_force: bool) -> Result<(), ManagerError> {
        let lock = self.pool.lock_name(&name).await;
        // Checked first: a name that exists must not cost the cell its life.
        self.pool.check_free(name.clone(), replaces).await?;
        let permit = self.pool.freeze_permit().await?;
        // A debugger may have come meanwhile: its breakpoints would be in the template.
        cell.refuse_if_debugged("freeze")?;
        cell.freeze(name, (lock, permit), by_force).await
    }

    /// Records that a cell has ended, and removes those of too many ended ones that ended first.
    fn note_end(&self, cell: &Arc<ManagedCell>) {
        self.lock().end(cell, ENDED_KEPT);
    }

    /// Removes ended cells, in the order in which they ended, until the logs of the others fit their budget. Those that a client reads
    /// stay.
    fn remove_ended(&self) {
        let mut cells = self.lock();
        let ended: Vec<u64> = cells.ended().filter(|cell| Arc::strong_count(cell) == 1).map(|cell| cell.id()).collect();
        for id in ended {
            if !self.budget.is_exceeded() {
                return;
            }
            cells.remove(id);
        }
    }

    /// Checks that there is memory for another cell. If there is none, idle cells fall asleep for it.
    async fn make_room(&self) -> Result<(), ManagerError> {
        if self.used() < self.memory() {
            return Ok(());
        }
        if let Some(kernel) = self.kernel.clone() {
            let (all, memory) = (self.free_at_start.0.saturating_sub(self.withheld().0), self.memory().0);
            let wanted = all.saturating_sub(memory).saturating_add(ROOM.min(memory));
            blocking(move || Ok::<_, ManagerError>(kernel.make_available(PageCount(wanted)))).await?;
        }
        if self.used() < self.memory() { Ok(()) } else { Err(ManagerError::MemoryFull(self.memory())) }
    }

    /// The memory of cells and templates, without cached file blocks, which are evicted for them.
    fn used(&self) -> PageCount {
        let all = self.free_at_start.0.saturating_sub(self.withheld().0);
        PageCount(all.saturating_sub(self.operator.available().0))
    }

    fn lock(&self) -> MutexGuard<'_, CellIndex> {
        lock(&self.cells)
    }
}

/// The host paths that cells may see.
fn visible(shown: &[PathBuf], environment: &HostEnvironment, store: &TemplateStore) -> Paths {
    let mut visible = view::software(environment);
    let mut add = |view: PreparedView| {
        visible.read.extend(view.visible.read);
        visible.change.extend(view.visible.change);
        visible.authority = visible.authority.and(view.visible.authority);
    };
    // The files of the built-in templates. A template that cannot be found now reports its error when it is used.
    PROGRAMS.iter().filter_map(|program| PreparedView::for_program(program, environment).ok()).for_each(&mut add);
    for (name, _) in store.all().into_iter().flatten() {
        if let Ok(view) = store.open(&TemplateRef::Stored(name)).and_then(|template| template.find(environment)) {
            add(view);
        }
    }
    visible.read.extend_from_slice(shown);
    if let Ok(images) = view::image_store(environment) {
        // Made now, so that images which are loaded later are seen. Without it, templates of images are reported as missing.
        let _ = create_private_directory(images.directory());
        visible.read.push(images.directory().into());
    }
    // The content of these is read when a template is created.
    visible.authority.read |= !shown.is_empty();
    visible
}

/// A cell that a client waits for: dropping this, as when the client disconnects, terminates and removes it.
pub struct AttachedCell {
    manager: Arc<Manager>,
    /// The cell.
    pub cell: Arc<ManagedCell>,
    /// The reader of all its output, if requested.
    pub reader: Option<Reader>,
    /// It continues without the client.
    is_released: bool,
}

impl AttachedCell {
    /// Lets it continue without the client.
    pub fn release(mut self) -> Arc<ManagedCell> {
        self.is_released = true;
        Arc::clone(&self.cell)
    }
}

impl Drop for AttachedCell {
    fn drop(&mut self) {
        if !self.is_released {
            self.cell.signal(CellSignal::Kill);
            self.manager.remove_cell(self.cell.id);
        }
    }
}
