// SPDX-License-Identifier: MIT OR Apache-2.0
//! A test kernel on any machine. The test itself drives it turn by turn, so that nothing runs in the background.

use crate::asm::Asm;
use crate::swap::TestSwap;
use pando_abi::{MapFlags, Permissions, Registers};
use pando_kernel::{CellConfig, CellId, Config, Kernel, Outcome, TurnOutcome, Worker};
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_machine::sim::{Sim, SimConfig};
use pando_machine::{Machine, Nanos, PageCount};
use std::sync::Arc;
use std::time::Duration;

/// Where a test cell's code lies: readable and executable.
pub const CODE: u64 = 0x40_0000;
/// The start of its data: readable and writable, allocated when touched.
pub const DATA: u64 = 0x1000_0000;
/// The top of its stack, which lies in the data.
pub const STACK_TOP: u64 = DATA + DATA_PAGES * 4096;
/// Pages of data.
pub const DATA_PAGES: u64 = 64;
/// The quota of a test cell unless the test sets another.
pub const QUOTA: PageCount = PageCount(4096);

/// A kernel whose vCPUs the test drives.
pub struct Lab {
    /// The kernel.
    pub kernel: Kernel,
    /// Its vCPUs.
    pub workers: Vec<Worker>,
    /// The software machine, if the kernel runs on it.
    pub sim: Option<Arc<Sim>>,
}

/// Whether tests can use KVM here. If not, prints that the test is left out.
#[must_use]
pub fn is_kvm_available() -> bool {
    let there = std::env::var_os("PANDO_TESTS_WITHOUT_KVM").is_none();
    if !there {
        println!("left out: this test needs KVM");
    }
    there
}

/// The number of repetitions of a test: `few` on an emulated CPU, `normally` elsewhere, `many` in long runs.
#[must_use]
pub fn repetitions(few: u32, normally: u32, many: u32) -> u32 {
    match std::env::var("PANDO_TESTS").as_deref() {
        Ok("hardware") => few,
        Ok("all") => many,
        _ => normally,
    }
}

/// The seeds of a test with random cases: `0..repetitions(few, normally, many)`. `PANDO_SEEDS=FIRST..END` chooses others, for runs of any
/// length in several parts.
///
/// # Panics
/// If `PANDO_SEEDS` is set, and is no such range.
#[must_use]
pub fn seeds(few: u32, normally: u32, many: u32) -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("PANDO_SEEDS") else { return 0..repetitions(few, normally, many).into() };
    let ends = range.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    ends.unwrap_or_else(|| panic!("PANDO_SEEDS={range} is no range of seeds: write FIRST..END, for example 0..10000000"))
}

impl Lab {
    /// Creates a lab on the software machine.
    ///
    /// # Panics
    /// If the host has no memory for it.
    #[must_use]
    pub fn sim(seed: u64, arena: PageCount, vcpus: usize, config: Config) -> Lab {
        let sim = Sim::new(SimConfig { arena, vcpus, seed, ..SimConfig::default() }).expect("memory for the software machine");
        let mut lab = Lab::on(Arc::clone(&sim) as Arc<dyn Machine>, config);
        lab.sim = Some(sim);
        lab
    }

    /// Creates a lab on KVM.
    ///
    /// # Panics
    /// If KVM is missing: call [`is_kvm_available`] first.
    #[must_use]
    pub fn kvm(arena: PageCount, vcpus: usize, config: Config, omit: Omit) -> Lab {
        let machine = Kvm::new(KvmConfig { arena, vcpus, omit }).expect("KVM is there");
        Lab::on(machine, config)
    }

    /// Labs of both kinds, with the default policies and one vCPU.
    #[must_use]
    pub fn both() -> Vec<Lab> {
        Lab::each(PageCount(1 << 16), Config::default)
    }

    /// The same in drowsy mode: each cell falls asleep whenever it idles.
    #[must_use]
    pub fn sleep_when_idle() -> Vec<Lab> {
        let config = || Config { swap: Some(Arc::new(TestSwap::default())), sleeps_when_idle: true, ..Config::default() };
        Lab::each(PageCount(1 << 16), config)
    }

    /// Labs of both kinds with this much memory, one vCPU and these policies. Without KVM only the software machine; on an
    /// emulated CPU only KVM, because the software machine is the same everywhere.
    #[must_use]
    pub fn each(arena: PageCount, config: impl Fn() -> Config) -> Vec<Lab> {
        let mut labs = Vec::new();
        if repetitions(0, 1, 1) > 0 {
            labs.push(Lab::sim(1, arena, 1, config()));
        }
        if is_kvm_available() {
            labs.push(Lab::kvm(arena, 1, config(), Omit::NOTHING));
        }
        labs
    }

    fn on(machine: Arc<dyn Machine>, config: Config) -> Lab {
        let vcpus = machine.vcpus();
        let kernel = Kernel::new(machine, config);
        let workers = (0..vcpus).map(|index| kernel.worker(index).expect("a free vCPU")).collect();
        Lab { kernel, workers, sim: None }
    }

    /// Creates a cell with this code, data and a stack, not yet started.
    ///
    /// # Panics
    /// If the kernel has no room for it.
    #[must_use]
    pub fn cell(&self, code: &[u8]) -> CellId {
        self.cell_with(code, QUOTA)
    }

    /// Like [`Lab::cell`], with a quota.
    ///
    /// # Panics
    /// If the kernel has no room for it.
    #[must_use]
    pub fn cell_with(&self, code: &[u8], quota: PageCount) -> CellId {
        let config = CellConfig { quota, host_name: "test".into() };
        let id = self.kernel.create(config).expect("room for a cell");
        let pages = PageCount::covering(code.len() as u64);
        self.kernel.map(id, CODE, pages, MapFlags::lazy(Permissions::READ_EXECUTE)).expect("room for its code");
        self.kernel.write(id, CODE, code).expect("its code is mapped");
        self.kernel.map(id, DATA, PageCount(DATA_PAGES), MapFlags::lazy(Permissions::READ_WRITE)).expect("room for its data");
        let registers = Registers { rip: CODE, rsp: STACK_TOP, ..Registers::default() };
        self.kernel.set_registers(id, registers).expect("it is not running");
        id
    }

    /// Assembles a program, creates a cell with it, and starts the cell.
    ///
    /// # Panics
    /// If the kernel has no room for it.
    pub fn launch(&self, assemble: impl FnOnce(&mut Asm)) -> CellId {
        let mut asm = Asm::new();
        assemble(&mut asm);
        let id = self.cell(&asm.finish());
        self.kernel.start(id).expect("it was not started before");
        id
    }

    /// Runs one turn of a vCPU; if it is idle, time passes on the software machine. `false`: no event is pending.
    pub fn turn(&mut self, vcpu: usize) -> bool {
        match self.workers[vcpu].turn() {
            TurnOutcome::Ran => true,
            TurnOutcome::Stopped => false,
            TurnOutcome::Nothing { until: Nanos::NEVER } => false,
            TurnOutcome::Nothing { until } => {
                match &self.sim {
                    Some(sim) => sim.advance_to(until),
                    None => std::thread::sleep(until.since(self.kernel.now()).min(Duration::from_millis(5))),
                }
                true
            }
        }
    }

    /// Drives vCPU 0 until a cell has ended, and returns its outcome.
    ///
    /// # Panics
    /// If the cell waits for an event that never comes, or does not end within a minute.
    pub fn finish(&mut self, id: CellId) -> Outcome {
        let limit = self.kernel.now() + Duration::from_secs(60);
        loop {
            if let Some(outcome) = self.kernel.collect(id) {
                return outcome;
            }
            assert!(self.turn(0), "the cell waits for ever");
            assert!(self.sim.is_some() || self.kernel.now() < limit, "the cell does not end");
        }
    }

    /// Drives vCPU 0 until it is idle and no event is pending.
    pub fn run_all(&mut self) {
        while self.turn(0) {}
    }
}
