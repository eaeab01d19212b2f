// SPDX-License-Identifier: MIT OR Apache-2.0
//! The core: connects cells, memory, devices and policies. Only its workers switch cells on a vCPU.
//!
//! # Locks
//! One kernel lock protects everything in [`state::State`]. It is never held while a cell runs, while the machine flushes its
//! tables, or over I/O (blocks of disks are read without it). Lock order: the kernel's lock, then a console port's. Ports call back
//! (to wake a cell) without any lock.
//!
//! # The life of a vCPU
//! Each vCPU has a [`Worker`]. A turn does due housekeeping, then loads the scheduler's next cell, and runs it and handles its
//! exits until it leaves the vCPU. Handlers return the next step and never switch cells themselves.

mod admission;
mod base_users;
mod bases;
mod cell_table;
mod console_ports;
mod descendants;
mod error;
mod exits;
mod export;
mod family;
mod freezing;
mod holdings;
mod housekeeping;
mod idle_queue;
mod images;
mod invoke;
mod ipc;
mod nesting;
mod networking;
mod operator;
mod operator_watching;
mod reading;
mod records;
mod sleepers;
mod sleeping;
mod start_phase;
mod starts;
mod state;
mod statistics;
mod swap_out;
mod taking;
#[cfg(test)]
mod tests;
mod time_slice;
mod training;
mod trim;
mod trim_schedule;
mod waking;
mod watching;
mod worker;

pub use error::{OperatorError, WrongState};
pub use networking::{HostPort, PacketCapture};
pub use sleepers::{SleepCounters, SleepOutcome};
pub use start_phase::AdmissionCallback;
pub use statistics::Statistics;
pub use worker::{TurnOutcome, Worker};

use crate::cell::CellId;
use crate::device::swap::Swap;
use crate::limits::{REGISTRY_FRAMES, WAKE_THREADS};
use crate::memory::OmittedRules;
use crate::sched::{FairShare, Fifo, Gatekeeper, LargestFirst, OomPolicy, Scheduler};
use pando_abi::Event;
use pando_machine::{HostError, Interrupter, Machine, Nanos, PageCount};
use records::RecordBudget;
use state::State;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The policies of a kernel.
pub struct Config {
    /// Admits cells.
    pub gatekeeper: Box<dyn Gatekeeper>,
    /// Chooses the next cell to run.
    pub scheduler: Box<dyn Scheduler>,
    /// Chooses the victim when memory is short.
    pub oom_policy: Box<dyn OomPolicy>,
    /// Frames that blocks of disks may fill. They are taken from the machine, and return to it when cells need them and no cell
    /// maps them.
    pub registry: PageCount,
    /// Rules of the page-table discipline to leave out: for canaries.
    pub rules: OmittedRules,
    /// Whether vector state has owners (line 7 of the context contract): `false` is for a canary.
    pub vector_owners: bool,
    /// Whether a cell may idle until a given time (Denali section 4.2.2): `false` is for a benchmark. A cell that would then spins,
    /// as it had to without timeouts: it stays runnable, and polls at each of its turns.
    pub has_idle_timeouts: bool,
    /// Whether the kernel trims its memory when all cells are idle: for a process that runs one program, and whose memory counts more than
    /// the milliseconds that the program needs to fault its blocks in again.
    pub reclaims_idle_memory: bool,
    /// Where the memory of sleeping cells goes; `None`: cells do not sleep.
    pub swap: Option<Arc<dyn Swap>>,
    /// How long a cell idles before it falls asleep; `None`: it does so on request only.
    pub sleep_after: Option<Duration>,
    /// Whether each idle cell falls asleep at once: for tests.
    pub sleeps_when_idle: bool,
    /// Whether sleeping cells keep their bases: `false` is for a canary.
    pub keeps_bases: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            gatekeeper: Box::<Fifo>::default(),
            scheduler: Box::<FairShare>::default(),
            oom_policy: Box::<LargestFirst>::default(),
            registry: PageCount(REGISTRY_FRAMES),
            rules: OmittedRules::NONE,
            vector_owners: true,
            has_idle_timeouts: true,
            reclaims_idle_memory: false,
            swap: None,
            sleep_after: None,
            sleeps_when_idle: false,
            keeps_bases: true,
        }
    }
}

/// State that the threads of a kernel share.
struct Shared {
    machine: Arc<dyn Machine>,
    state: Mutex<State>,
    /// A cell became runnable, or the kernel stops.
    work: Condvar,
    /// A cell ended or froze.
    changed: Condvar,
    interrupters: Vec<OnceLock<Arc<dyn Interrupter>>>,
    vector_owners: bool,
    /// The swap space.
    swap: Option<Arc<dyn Swap>>,
    /// The memory for records of cells that fall asleep and wake up.
    records: RecordBudget,
    /// A cell should fall asleep, or the kernel stops.
    sleeper: Condvar,
    /// A cell should wake up, or the kernel stops.
    wakers: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a kernel whose lock was poisoned by a panic must not go on")
    }

    /// Makes a runnable cell run soon: wakes an idle vCPU, interrupts one whose cell was alone, or interrupts any vCPU for an
    /// urgent cell.
    fn kick_vcpu(&self, state: &State) {
        let urgent = state.scheduler.is_urgent();
        if state.idle_workers > 0 {
            self.work.notify_one();
        } else if let Some(vcpu) = state.vcpus.iter().position(|vcpu| vcpu.is_some_and(|running| running.is_alone || urgent)) {
            self.interrupt(vcpu);
        }
    }

    fn interrupt(&self, vcpu: usize) {
        if let Some(interrupter) = self.interrupters[vcpu].get() {
            interrupter.interrupt();
        }
    }

    /// Raises an event for a cell.
    fn raise(&self, id: CellId, event: Event) {
        let mut state = self.lock();
        state.notifications.has_runnable_cell |= state.raise(id, event);
        self.notify(&mut state);
    }
}

/// An isolation kernel on a machine. Dropping it stops its vCPU threads and ends every cell.
pub struct Kernel {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Kernel {
    /// A kernel without cells, whose vCPUs do not run yet: start them with [`Kernel::start_vcpus`], or drive them with
    /// [`Kernel::worker`].
    #[must_use]
    pub fn new(machine: Arc<dyn Machine>, config: Config) -> Kernel {
        let vcpus = machine.vcpus();
        let vector_owners = config.vector_owners;
        let swap = config.swap.clone();
        let shared = Arc::new_cyclic(|shared| Shared {
            machine: Arc::clone(&machine),
            state: Mutex::new(State::new(Weak::clone(shared), machine, config, vcpus)),
            work: Condvar::new(),
            changed: Condvar::new(),
            interrupters: (0..vcpus).map(|_| OnceLock::new()).collect(),
            vector_owners,
            swap,
            records: RecordBudget::default(),
            sleeper: Condvar::new(),
            wakers: Condvar::new(),
        });
        Kernel { shared, threads: Mutex::default() }
    }

    /// The machine that the kernel runs on.
    #[must_use]
    pub fn machine(&self) -> &Arc<dyn Machine> {
        &self.shared.machine
    }

    /// Takes vCPU `index` for the calling thread, which then drives it turn by turn.
    ///
    /// # Errors
    /// The host could not make it ready.
    ///
    /// # Panics
    /// The vCPU is taken already.
    pub fn worker(&self, index: usize) -> Result<Worker, HostError> {
        Worker::new(index, Arc::clone(&self.shared))
    }

    /// Starts a thread for each vCPU, and if there is swap space, those that put cells to sleep and wake them up.
    ///
    /// # Errors
    /// A thread or its vCPU could not be made.
    pub fn start_vcpus(&self) -> Result<(), HostError> {
        for index in 0..self.shared.machine.vcpus() {
            let (report, ready) = std::sync::mpsc::channel();
            let shared = Arc::clone(&self.shared);
            let body = move || match Worker::new(index, shared) {
                Ok(mut worker) => {
                    let _ = report.send(Ok(()));
                    worker.run();
                }
                Err(error) => {
                    let _ = report.send(Err(error));
                }
            };
            let thread = std::thread::Builder::new()
                .name(format!("vcpu {index}"))
                .spawn(body)
                .map_err(|source| HostError::Os { action: "start a vCPU's thread", source })?;
            self.threads.lock().expect("no holder panics").push(thread);
            ready
                .recv()
                .unwrap_or_else(|_| Err(HostError::Os { action: "start a vCPU", source: std::io::Error::other("its thread ended") }))?;
        }
        if self.shared.swap.is_some() {
            self.start_sleepers()?;
        }
        Ok(())
    }

    /// Starts the threads that put cells to sleep and wake them up.
    fn start_sleepers(&self) -> Result<(), HostError> {
        self.shared.lock().sleepers.has_threads = true;
        let start = |name: String, body: fn(&Shared)| {
            let shared = Arc::clone(&self.shared);
            let started = std::thread::Builder::new().name(name).spawn(move || body(&shared));
            let thread = started.map_err(|source| HostError::Os { action: "start a thread for sleeping cells", source })?;
            self.threads.lock().expect("no holder panics").push(thread);
            Ok(())
        };
        start("sleeper".into(), Shared::run_sleeper)?;
        (0..WAKE_THREADS).try_for_each(|index| start(format!("waker {index}"), Shared::run_waker))
    }

    /// The kernel's clock.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.shared.machine.now()
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.is_stopping = true;
            state.end_all();
        }
        self.shared.work.notify_all();
        self.shared.changed.notify_all();
        self.shared.sleeper.notify_all();
        self.shared.wakers.notify_all();
        for vcpu in 0..self.shared.interrupters.len() {
            self.shared.interrupt(vcpu);
        }
        for thread in self.threads.lock().map(|mut threads| std::mem::take(&mut *threads)).unwrap_or_default() {
            // A panic in a vCPU thread was already reported.
            let _ = thread.join();
        }
    }
}
