// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bare machine for tests: one address space with a page of code, a page of data and nothing else.

use pando_machine::sim::{Sim, SimConfig};
use pando_machine::{Context, EntryIndex, Exit, FrameId, HugeFrame, Machine, Nanos, PageCount, Root, SUPERVISOR_SLOT, Vcpu};
use std::sync::Arc;
use std::time::Duration;

/// Address of the page of code: readable and executable.
pub const CODE: u64 = 0x40_0000;
/// Address of the page of data: readable and writable.
pub const DATA: u64 = 0x50_0000;
/// The initial stack pointer of contexts.
pub const STACK: u64 = DATA + 0xf00;
/// Present, writable, user, accessed, dirty.
pub const TABLE: u64 = 0x67;
/// Present, user, accessed, dirty: read-only.
pub const READ_ONLY: u64 = 0x65;

/// Not executable.
pub const NO_EXECUTE: u64 = 1 << 63;

/// A machine with one address space: the software machine by default.
pub struct Bare<M = Sim> {
    pub machine: Arc<M>,
    pub vcpu: Box<dyn Vcpu>,
    pub root: FrameId,
    pub code: FrameId,
    pub data: FrameId,
    next: u32,
}

impl Bare {
    /// A software machine with two vCPUs.
    pub fn new() -> Bare {
        let config = SimConfig { arena: PageCount(8192), vcpus: 2, oracle: true, ..SimConfig::default() };
        Bare::on(Sim::new(config).expect("a small arena"))
    }
}

impl<M: Machine> Bare<M> {
    /// An address space on `machine`, whose first vCPU is free.
    pub fn on(machine: Arc<M>) -> Bare<M> {
        let vcpu = machine.take_vcpu(0).expect("the vCPU is free");
        let mut bare = Bare { machine, vcpu, root: FrameId(0), code: FrameId(0), data: FrameId(0), next: 512 };
        bare.code = bare.frame();
        bare.data = bare.frame();
        bare.root = bare.fresh_root();
        bare
    }

    /// A fresh frame of zeros.
    pub fn frame(&mut self) -> FrameId {
        self.next += 1;
        FrameId(self.next)
    }

    /// A fresh root that maps the code and the data, by tables of its own.
    pub fn fresh_root(&mut self) -> FrameId {
        let root = self.frame();
        self.machine.arena().store(root, EntryIndex::new(SUPERVISOR_SLOT), self.machine.supervisor_entry());
        self.map(root, CODE, self.code, READ_ONLY);
        self.map(root, DATA, self.data, TABLE | NO_EXECUTE);
        root
    }

    /// The table of `level` for `address` below `root`, made as needed.
    pub fn table(&mut self, root: FrameId, address: u64, level: u8) -> FrameId {
        let mut table = root;
        for above in (level + 1..=4).rev() {
            let index = EntryIndex::of(address, above);
            let entry = self.machine.arena().load(table, index);
            table = if entry & 1 == 0 {
                let fresh = self.frame();
                self.machine.arena().store(table, index, fresh.address() | TABLE);
                fresh
            } else {
                FrameId::at(entry & 0x000f_ffff_ffff_f000).expect("a frame of the arena")
            };
        }
        table
    }

    /// The entry for `address` in its table of `level`.
    pub fn entry(&mut self, address: u64, level: u8) -> u64 {
        let table = self.table(self.root, address, level);
        self.machine.arena().load(table, EntryIndex::of(address, level))
    }

    /// Stores the entry for `address` in its table of `level`.
    pub fn store(&mut self, root: FrameId, address: u64, level: u8, entry: u64) {
        let table = self.table(root, address, level);
        self.machine.arena().store(table, EntryIndex::of(address, level), entry);
    }

    /// Maps `frame` at `address`.
    pub fn map(&mut self, root: FrameId, address: u64, frame: FrameId, flags: u64) {
        self.store(root, address, 1, frame.address() | flags);
    }

    /// Maps a large page at `address`.
    pub fn map_large(&mut self, root: FrameId, address: u64, huge_frame: HugeFrame, flags: u64) {
        self.store(root, address, 2, huge_frame.first().address() | flags | 0x80);
    }

    /// A context that starts at `code`, with a stack in the data page.
    pub fn start(&self, code: &[u8]) -> Context {
        self.machine.arena().write(self.code, 0, &[0x90; 512]);
        self.machine.arena().write(self.code, 0, code);
        let mut context = Context::at(CODE);
        context.registers.rsp = STACK;
        context
    }

    /// Runs `context` for at most a second of the machine's time.
    pub fn run(&mut self, context: &mut Context) -> Exit {
        let deadline = self.machine.now() + Duration::from_secs(1);
        self.run_until(context, deadline)
    }

    /// Runs `context` until `deadline`.
    pub fn run_until(&mut self, context: &mut Context, deadline: Nanos) -> Exit {
        self.vcpu.run(Root { table: self.root, stamp: 0 }, context, deadline)
    }

    /// Runs `code` from a fresh context.
    pub fn run_code(&mut self, code: &[u8]) -> (Exit, Context) {
        let mut context = self.start(code);
        let exit = self.run(&mut context);
        (exit, context)
    }
}
