// SPDX-License-Identifier: MIT OR Apache-2.0
//! The core: where cells, memory, devices and policies meet, and the one place where vCPUs switch.
//!
//! # Locks
//! One kernel lock protects everything in [`state::State`]. It is never held while a cell runs, while the machine flushes its tables, or over I/O (blocks of disks are read without it). Lock order: the kernel's lock,
//! then a console port's. Ports call back (to wake a cell) without any lock.
//!
//! # The life of a vCPU
//! Each vCPU has a [`Worker`]. A turn is: due duties, then the scheduler's next cell, loaded, run and handled until it leaves the vCPU. Handlers return what
//! should happen next and never switch cells themselves.

mod duties;
mod exits;
mod foresight;
mod freezing;
mod networking;
mod operator;
mod reading;
mod saving;
mod state;
#[cfg(test)]
mod tests;
mod worker;

pub use networking::{Listener, Station};
pub use operator::OperatorError;
pub use worker::{Turn, Worker};

use crate::cell::{Cell, CellId, State as CellState};
use crate::limits::REGISTRY_FRAMES;
use crate::memory::Rules;
use crate::sched::{Fifo, Gatekeeper, LargestFirst, MemoryPolicy, RoundRobin, Scheduler};
use pando_abi::Event;
use pando_machine::{HostError, Interrupter, Machine, Nanos, PageCount};
use state::State;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;

/// The policies of a kernel.
pub struct Config {
    /// Who is let in.
    pub gatekeeper: Box<dyn Gatekeeper>,
    /// Who runs next.
    pub scheduler: Box<dyn Scheduler>,
    /// Who goes when memory is short.
    pub memory_policy: Box<dyn MemoryPolicy>,
    /// Frames that blocks of disks may fill. They come from the machine's, and go back to it when cells need them and no cell maps them.
    pub registry: PageCount,
    /// Rules of the page-table discipline to leave out: for canaries.
    pub rules: Rules,
    /// Whether vector state has owners (line 7 of the context contract): `false` is for a canary.
    pub vector_owners: bool,
    /// Whether a cell may idle until a moment (Denali section 4.2.2): `false` is for a benchmark. One that would then spins, as it had to without: it stays runnable, and looks again at each of its turns.
    pub idle_timeouts: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            gatekeeper: Box::<Fifo>::default(),
            scheduler: Box::<RoundRobin>::default(),
            memory_policy: Box::<LargestFirst>::default(),
            registry: PageCount(REGISTRY_FRAMES),
            rules: Rules::ALL_KEPT,
            vector_owners: true,
            idle_timeouts: true,
        }
    }
}

/// What the threads of a kernel share.
struct Shared {
    machine: Arc<dyn Machine>,
    state: Mutex<State>,
    /// Something became runnable, or the kernel stops.
    work: Condvar,
    /// A cell ended or froze.
    changed: Condvar,
    interrupters: Vec<OnceLock<Arc<dyn Interrupter>>>,
    vector_owners: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a kernel whose lock was poisoned by a panic must not go on")
    }

    /// Makes a runnable cell run soon: wakes an idle vCPU, or interrupts one whose cell had the machine to itself, or any for one that cannot wait.
    fn announce(&self, state: &State) {
        let urgent = state.scheduler.is_urgent();
        if state.idle_workers > 0 {
            self.work.notify_one();
        } else if let Some(vcpu) = state.vcpus.iter().position(|vcpu| vcpu.is_some_and(|running| running.alone || urgent)) {
            self.interrupt(vcpu);
        }
    }

    fn interrupt(&self, vcpu: usize) {
        if let Some(interrupter) = self.interrupters[vcpu].get() {
            interrupter.interrupt();
        }
    }

    /// An event happened to a cell.
    fn raise(&self, id: CellId, event: Event) {
        let mut state = self.lock();
        if state.raise(id, event) {
            self.announce(&state);
        }
    }

    /// Makes an event happen to a cell after `change`, and the cell look, even one that computes.
    fn call(&self, id: CellId, event: Event, change: impl FnOnce(&mut Cell)) -> Result<(), OperatorError> {
        let mut state = self.lock();
        let (occupant, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        change(&mut occupant.cell);
        let running = match occupant.cell.state {
            CellState::Running { vcpu } => Some(vcpu),
            _ => None,
        };
        if state.raise(id, event) {
            self.announce(&state);
        }
        // Whatever it interrupts, the vCPU looks at events before it enters the cell again.
        running.into_iter().for_each(|vcpu| self.interrupt(vcpu));
        Ok(())
    }
}

/// An isolation kernel on a machine. Dropping it stops its vCPU threads and ends every cell.
pub struct Kernel {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Kernel {
    /// A kernel without cells, whose vCPUs do not run yet: start them with [`Kernel::start_vcpus`], or drive them with [`Kernel::worker`].
    #[must_use]
    pub fn new(machine: Arc<dyn Machine>, config: Config) -> Kernel {
        let vcpus = machine.vcpus();
        let vector_owners = config.vector_owners;
        let state = State::new(Arc::clone(&machine), config, vcpus);
        let interrupters = (0..vcpus).map(|_| OnceLock::new()).collect();
        let shared =
            Shared { machine, state: Mutex::new(state), work: Condvar::new(), changed: Condvar::new(), interrupters, vector_owners };
        Kernel { shared: Arc::new(shared), threads: Mutex::default() }
    }

    /// The machine below.
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

    /// Starts a thread for each vCPU.
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
        Ok(())
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
            state.stopping = true;
            state.end_all();
        }
        self.shared.work.notify_all();
        self.shared.changed.notify_all();
        for vcpu in 0..self.shared.interrupters.len() {
            self.shared.interrupt(vcpu);
        }
        for thread in self.threads.lock().map(|mut threads| std::mem::take(&mut *threads)).unwrap_or_default() {
            // A vCPU thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}
