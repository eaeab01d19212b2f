// SPDX-License-Identifier: MIT OR Apache-2.0
//! A population: many sleeping clones of a small server, in a kernel with threads of its own.

use crate::BenchError;
use crate::program::{CompiledProgram, QUOTA, program};
use pando_kernel::{CellId, Config, ConsolePort, End, Kernel, OperatorError, RunState, SleepOutcome, Stream, Swap};
use pando_launch::Template;
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_machine::{Machine, Nanos, PageCount};
use pando_store::swap::{SwapSpace, create_swap_file};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of swap space for each cell, and for few.
const SWAP_PER_CELL: u64 = 16 << 10;
const SWAP_MIN: u64 = 64 << 20;
/// Memory of the machine: enough for the resident cells, whatever the number of sleeping ones.
const ARENA: PageCount = PageCount(1 << 18);
/// Servers that are resident at a time before they fall asleep.
const BATCH: usize = 500;
/// Interval between looks at a server that does not wait yet.
const INTERVAL: Duration = Duration::from_millis(1);
/// How long housekeeping may take.
const SETTLING: Duration = Duration::from_millis(800);

/// A server in a cell.
pub(super) struct IdleServer {
    cell: CellId,
    port: Arc<ConsolePort>,
}

/// Sleeping clones of a small server.
pub(super) struct Population {
    kernel: Kernel,
    swap: Arc<SwapSpace>,
    /// A copy of a server that waits for its first line: clones of it start there.
    source: CellId,
    servers: Vec<IdleServer>,
    /// Servers that were asked while they slept.
    awake: Vec<IdleServer>,
    count: usize,
    random: u64,
}

impl Population {
    /// A kernel with the source of `count` clones.
    pub(super) fn new(compiled: &CompiledProgram, count: usize) -> Result<Population, BenchError> {
        let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
        let file = create_swap_file(directory.path()).map_err(BenchError::host("create a swap file in the temporary directory"))?;
        let swap = Arc::new(SwapSpace::in_files(vec![(file, (count as u64 * SWAP_PER_CELL).max(SWAP_MIN))]));
        let machine = Kvm::new(KvmConfig { arena: ARENA, vcpus: 1, omit: Omit::NOTHING })?;
        let config = Config { swap: Some(Arc::<SwapSpace>::clone(&swap)), ..Config::default() };
        let kernel = Kernel::new(machine as Arc<dyn Machine>, config);
        kernel.start_vcpus()?;
        let template = Template::boot(&kernel)?;
        kernel.wait_frozen(template.cell())?;
        let root = compiled.root(&kernel, template)?;
        let first = program(&[]).prepare(&kernel, &root)?;
        let port = kernel.console(first)?;
        kernel.start(first)?;
        answer(&port)?;
        await_idle(&kernel, first)?;
        let source = kernel.clone_cell(first, QUOTA)?;
        Ok(Population { kernel, swap, source, servers: Vec::with_capacity(count), awake: Vec::new(), count, random: 1 })
    }

    /// Starts all servers, has each answer a line, and puts it to sleep when it waits for the next.
    pub(super) fn fill(&mut self) -> Result<(), BenchError> {
        self.fill_to(self.count)
    }

    /// The same until `count` sleep.
    pub(super) fn fill_to(&mut self, total: usize) -> Result<(), BenchError> {
        while self.servers.len() < total {
            let count = BATCH.min(total - self.servers.len());
            let batch = (0..count).map(|_| self.resident()).collect::<Result<Vec<_>, _>>()?;
            for server in batch {
                self.sleep(&server)?;
                self.servers.push(server);
            }
        }
        Ok(())
    }

    /// Number of sleeping servers.
    pub(super) fn len(&self) -> usize {
        self.servers.len()
    }

    /// Starts a server that stays resident, and waits for its first line.
    pub(super) fn idle(&self) -> Result<IdleServer, BenchError> {
        let cell = self.kernel.clone_cell(self.source, QUOTA)?;
        let server = IdleServer { cell, port: self.kernel.console(cell)? };
        self.kernel.start(cell)?;
        Ok(server)
    }

    /// Starts a server that stays resident, and has it answer a line.
    pub(super) fn resident(&self) -> Result<IdleServer, BenchError> {
        let server = self.idle()?;
        ask(&server)?;
        Ok(server)
    }

    /// Ends a server.
    pub(super) fn end(&self, server: &IdleServer) -> Result<(), BenchError> {
        self.kernel.end(server.cell, End::Killed)?;
        Ok(self.kernel.wait(server.cell).map(drop)?)
    }

    /// Waits until the kernel has given free memory back to the host.
    pub(super) fn wait_for_free_memory(&self) {
        std::thread::sleep(SETTLING);
    }

    /// Free frames.
    pub(super) fn free(&self) -> u64 {
        self.kernel.free().0
    }

    /// Bytes of swap space in use.
    pub(super) fn swap_used(&self) -> u64 {
        self.swap.usage().used
    }

    /// Nanoseconds until a random server is awake. It sleeps again afterwards.
    pub(super) fn timed_wake(&mut self) -> Result<f64, BenchError> {
        let index = self.choose();
        let server = &self.servers[index];
        let start = Instant::now();
        self.kernel.wake(server.cell)?;
        let time = start.elapsed().as_nanos() as f64;
        self.sleep(server)?;
        Ok(time)
    }

    /// Nanoseconds until a random server that is awake and idle sleeps.
    pub(super) fn timed_sleep(&mut self) -> Result<f64, BenchError> {
        let index = self.choose();
        let server = &self.servers[index];
        self.kernel.wake(server.cell)?;
        let start = Instant::now();
        self.sleep(server)?;
        Ok(start.elapsed().as_nanos() as f64)
    }

    /// Nanoseconds until a random sleeping server has answered a line. It stays awake.
    pub(super) fn timed_answer_of_sleeper(&mut self) -> Result<f64, BenchError> {
        let index = self.choose();
        let server = self.servers.swap_remove(index);
        let start = Instant::now();
        ask(&server)?;
        let time = start.elapsed().as_nanos() as f64;
        self.awake.push(server);
        Ok(time)
    }

    /// Nanoseconds until a server has answered a line.
    pub(super) fn timed_answer(&self, server: &IdleServer) -> Result<f64, BenchError> {
        await_idle(&self.kernel, server.cell)?;
        let start = Instant::now();
        ask(server)?;
        Ok(start.elapsed().as_nanos() as f64)
    }

    /// Nanoseconds until a fresh clone has answered a line. It ends afterwards.
    pub(super) fn timed_answer_of_clone(&self) -> Result<f64, BenchError> {
        let start = Instant::now();
        let server = self.resident()?;
        let time = start.elapsed().as_nanos() as f64;
        self.end(&server)?;
        Ok(time)
    }

    /// Puts a server to sleep, as soon as it waits without a time limit. Its libOS has short timers after an answer.
    fn sleep(&self, server: &IdleServer) -> Result<(), BenchError> {
        while self.kernel.inspect(server.cell)?.0 != (RunState::Idle { until: Nanos::NEVER }) {
            std::thread::sleep(INTERVAL);
        }
        loop {
            match self.kernel.sleep(server.cell) {
                Ok(SleepOutcome::Asleep) => return Ok(()),
                // It has just answered, and does not wait yet.
                Ok(SleepOutcome::Interrupted) | Err(OperatorError::CannotSleep { .. }) => std::thread::yield_now(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The index of a random server.
    fn choose(&mut self) -> usize {
        // Knuth's generator (MMIX): enough for a choice.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % self.servers.len()
    }
}

/// Sends a server a line, and waits for its answer.
fn ask(server: &IdleServer) -> Result<(), BenchError> {
    server.port.send(b"hello\n");
    answer(&server.port)
}

/// Waits for the next output.
fn answer(port: &ConsolePort) -> Result<(), BenchError> {
    match port.receive() {
        Some((Stream::Stdout, _)) => Ok(()),
        _ => Err(BenchError::Failed("a server in a cell did not answer".into())),
    }
}

/// Waits until a cell idles.
fn await_idle(kernel: &Kernel, cell: CellId) -> Result<(), BenchError> {
    while !matches!(kernel.inspect(cell)?.0, RunState::Idle { .. }) {
        std::thread::yield_now();
    }
    Ok(())
}
