// SPDX-License-Identifier: MIT OR Apache-2.0
//! A laboratory: one kernel on any machine, driven turn by turn by the test itself, so that nothing runs unseen.

use crate::asm::Asm;
use pando_abi::{MapFlags, Permissions, Registers};
use pando_kernel::{CellConfig, CellId, Config, Kernel, Outcome, Turn, Worker};
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_machine::sim::{Sim, SimConfig};
use pando_machine::{Machine, Nanos, PageCount};
use std::sync::Arc;
use std::time::Duration;

/// Where a test cell's code lies: readable and executable.
pub const CODE: u64 = 0x40_0000;
/// Where its data starts: readable and writable, made when touched.
pub const DATA: u64 = 0x1000_0000;
/// The end of its stack, which lies in the data.
pub const STACK_TOP: u64 = DATA + DATA_PAGES * 4096;
/// Pages of data.
pub const DATA_PAGES: u64 = 64;
/// What a test cell may have unless the test says otherwise.
pub const QUOTA: PageCount = PageCount(4096);

/// A kernel whose vCPUs the test drives.
pub struct Lab {
    /// The kernel.
    pub kernel: Kernel,
    /// Its vCPUs.
    pub workers: Vec<Worker>,
    /// The software machine, where that is what it runs on.
    pub sim: Option<Arc<Sim>>,
}

/// Whether tests can use KVM here. Prints what is left out where they cannot.
#[must_use]
pub fn kvm_is_there() -> bool {
    let there = std::env::var_os("PANDO_TESTS_WITHOUT_KVM").is_none();
    if !there {
        println!("left out: this test needs KVM");
    }
    there
}

/// How many repetitions a test makes: `few` on an emulated CPU, `normally` elsewhere, `many` in long runs.
#[must_use]
pub fn repetitions(few: u32, normally: u32, many: u32) -> u32 {
    match std::env::var("PANDO_TESTS").as_deref() {
        Ok("hardware") => few,
        Ok("all") => many,
        _ => normally,
    }
}

impl Lab {
    /// A lab on the software machine.
    ///
    /// # Panics
    /// The host has no memory for it.
    #[must_use]
    pub fn sim(seed: u64, arena: PageCount, vcpus: usize, config: Config) -> Lab {
        let sim = Sim::new(SimConfig { arena, vcpus, seed, ..SimConfig::default() }).expect("memory for the software machine");
        let mut lab = Lab::on(Arc::clone(&sim) as Arc<dyn Machine>, config);
        lab.sim = Some(sim);
        lab
    }

    /// A lab on KVM.
    ///
    /// # Panics
    /// KVM is not there: ask [`kvm_is_there`] first.
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

    /// Labs of both kinds with so much memory, one vCPU and these policies; only the software one where KVM is missing, and only the other on an emulated CPU:
    /// the software machine is the same everywhere.
    #[must_use]
    pub fn each(arena: PageCount, config: impl Fn() -> Config) -> Vec<Lab> {
        let mut labs = Vec::new();
        if repetitions(0, 1, 1) > 0 {
            labs.push(Lab::sim(1, arena, 1, config()));
        }
        if kvm_is_there() {
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

    /// A cell with this code, data and a stack, not yet started.
    ///
    /// # Panics
    /// There is no room for it.
    #[must_use]
    pub fn cell(&self, code: &[u8]) -> CellId {
        self.cell_with(code, QUOTA)
    }

    /// The same with a quota.
    ///
    /// # Panics
    /// There is no room for it.
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

    /// The same, assembled and started.
    ///
    /// # Panics
    /// There is no room for it.
    pub fn launch(&self, assemble: impl FnOnce(&mut Asm)) -> CellId {
        let mut asm = Asm::new();
        assemble(&mut asm);
        let id = self.cell(&asm.finish());
        self.kernel.start(id).expect("it was not started before");
        id
    }

    /// One turn of a vCPU; on the software machine time passes if there is nothing to do. `false`: nothing will ever happen by itself.
    pub fn turn(&mut self, vcpu: usize) -> bool {
        match self.workers[vcpu].turn() {
            Turn::Ran => true,
            Turn::Stopped => false,
            Turn::Nothing { until: Nanos::NEVER } => false,
            Turn::Nothing { until } => {
                match &self.sim {
                    Some(sim) => sim.advance_to(until),
                    None => std::thread::sleep(until.since(self.kernel.now()).min(Duration::from_millis(5))),
                }
                true
            }
        }
    }

    /// Drives vCPU 0 until a cell has ended, and says how.
    ///
    /// # Panics
    /// It waits for something that will not come, or does not end in a minute.
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

    /// Drives vCPU 0 as long as anything happens by itself.
    pub fn run_all(&mut self) {
        while self.turn(0) {}
    }
}
