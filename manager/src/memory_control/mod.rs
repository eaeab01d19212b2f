// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory control: the cells of a service use no more memory than the host and its cgroups have for them.
//!
//! A thread reads every second what the host reports, and the policy computes a limit from it. If cells use more, idle ones fall asleep,
//! and their memory goes back to the host. Until the next reading, cells cannot use more than the limit, or than they have already: a cell
//! that needs a page beyond it waits for another one to fall asleep, as on a full machine.

mod policy;
mod sensors;

use pando_kernel::Kernel;
use pando_machine::{FRAME_SIZE, PageCount};
use policy::{LimitBounds, next_limit, record_budget};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

pub(crate) use sensors::MemorySensors;

/// The time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);
/// The minimum limit: 64 MiB, or a quarter of the configured memory if that is less.
const LIMIT_MIN: PageCount = PageCount(1 << 14);
/// Idle cells fall asleep until the limit divided by this is free.
const FREE_DIVISOR: u64 = 64;

/// The control of a kernel's memory. Dropping it ends its thread.
pub(crate) struct MemoryControl {
    /// Pages that cells may not use at present.
    withheld: Arc<AtomicU64>,
    _stop: Sender<()>,
}

/// The thread's state.
struct Controller {
    kernel: Arc<Kernel>,
    sensors: MemorySensors,
    bounds: LimitBounds,
    limit: PageCount,
    /// Idle cells sleep while cells use more.
    resident_limit: PageCount,
    withheld: Arc<AtomicU64>,
}

impl MemoryControl {
    /// Starts the thread, after a first reading. `memory`: the pages beyond which idle cells sleep, besides those that are used now.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(kernel: &Arc<Kernel>, sensors: MemorySensors, memory: PageCount) -> std::io::Result<MemoryControl> {
        // The pages that cells may use at most, with cached blocks.
        let all = kernel.used() + kernel.free();
        let resident_limit = kernel.used_by_cells() + memory;
        let (stop, stopped) = mpsc::channel();
        let withheld = Arc::new(AtomicU64::new(0));
        let bounds = LimitBounds { min: PageCount(LIMIT_MIN.0.min(all.0 / 4)), max: all };
        let kernel = Arc::clone(kernel);
        let mut controller = Controller { kernel, sensors, bounds, limit: all, resident_limit, withheld: Arc::clone(&withheld) };
        controller.adjust();
        std::thread::Builder::new().name("memory".into()).spawn(move || controller.run(&stopped))?;
        Ok(MemoryControl { withheld, _stop: stop })
    }

    /// Pages that cells may not use at present, because the host has no memory for them.
    pub(crate) fn withheld(&self) -> PageCount {
        PageCount(self.withheld.load(Ordering::Relaxed))
    }
}

impl Controller {
    fn run(mut self, stopped: &Receiver<()>) {
        while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            self.adjust();
        }
    }

    /// Adjusts the limit to a new reading.
    fn adjust(&mut self) {
        let used = self.kernel.used();
        let reading = self.sensors.read();
        self.kernel.limit_records(record_budget(&reading).0.saturating_mul(FRAME_SIZE as u64));
        self.limit = next_limit(self.bounds, used, self.limit, &reading);
        let kept = self.withhold();
        self.kernel.limit_resident(self.resident_limit);
        let margin = self.limit.0 / FREE_DIVISOR;
        if self.limit >= self.bounds.max || used.0.saturating_add(margin) < self.limit.0 {
            return;
        }
        // If no cell can sleep, those that run keep what they have, and get no more.
        self.kernel.make_available(PageCount(kept.0.saturating_sub(self.limit.0) + margin));
        self.withhold();
        self.kernel.give_back_unused();
    }

    /// Withholds what is beyond the limit, but not what cells have. Returns the pages that they have.
    fn withhold(&self) -> PageCount {
        let kept = self.kernel.used_by_cells();
        let withheld = PageCount(self.bounds.max.0.saturating_sub(self.limit.0.max(kept.0)));
        self.withheld.store(withheld.0, Ordering::Relaxed);
        self.kernel.withhold(withheld);
        kept
    }
}
