// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bare machine for tests: one address space with a page of code, a page of data and nothing else.

pub mod assemble;
pub mod neighbour;
pub mod pair;
pub mod size;

use pando_machine::kvm::{Kvm, KvmConfig, Omit, Probe, Virtualization};
use pando_machine::{Context, EntryIndex, Exit, FRAME_SIZE, FrameId, Machine, Nanos, PageCount, Root, SUPERVISOR_SLOT, Vcpu};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Address of the page of code: readable and executable.
pub const CODE: u64 = 0x40_0000;
/// Address of the page of data: readable and writable.
pub const DATA: u64 = 0x50_0000;
/// Present, writable, user, accessed, dirty.
pub const TABLE: u64 = 0x67;
/// Present, user, accessed, dirty: read-only.
pub const READ_ONLY: u64 = 0x65;

/// The kind of virtualisation of this host.
pub fn kind() -> Virtualization {
    static KIND: OnceLock<Virtualization> = OnceLock::new();
    *KIND.get_or_init(|| Probe::host().expect("KVM is there").virtualization)
}

/// Whether cells run on page tables in software, on the host's own segments.
pub fn is_nested() -> bool {
    kind() == Virtualization::Software
}

/// Whether cells run so on an AMD CPU, where that KVM omits checks that Intel CPUs do.
pub fn is_nested_on_amd() -> bool {
    let answer = std::arch::x86_64::__cpuid(0);
    is_nested() && [answer.ebx, answer.edx, answer.ecx] == [b"Auth", b"enti", b"cAMD"].map(|text| u32::from_le_bytes(*text))
}

/// Whether the hardware virtualisation is QEMU's emulation of SVM, whose CPU omits some checks.
pub fn is_qemu() -> bool {
    let answer = std::arch::x86_64::__cpuid(0x4000_0000);
    [answer.ebx, answer.ecx, answer.edx] == [b"TCGT", b"CGTC", b"GTCG"].map(|text| u32::from_le_bytes(*text))
}

/// A machine with one address space.
pub struct Bare {
    pub machine: Arc<Kvm>,
    pub vcpu: Box<dyn Vcpu>,
    pub root: FrameId,
    pub code: FrameId,
    pub data: FrameId,
    next: u32,
}

impl Bare {
    /// A machine that keeps the whole contract.
    pub fn new() -> Bare {
        Bare::without(Omit::NOTHING)
    }

    /// A machine that omits lines of the contract.
    pub fn without(omit: Omit) -> Bare {
        Bare::with_vcpus(1, omit)
    }

    /// The same with more vCPUs: the first is taken.
    pub fn with_vcpus(vcpus: usize, omit: Omit) -> Bare {
        let config = KvmConfig { arena: PageCount(8192), vcpus, omit };
        let machine = Kvm::new(config).expect("KVM is there");
        let vcpu = machine.take_vcpu(0).expect("the vCPU is free");
        let mut bare = Bare { machine, vcpu, root: FrameId(0), code: FrameId(0), data: FrameId(0), next: 512 };
        bare.root = bare.frame();
        bare.code = bare.frame();
        bare.data = bare.frame();
        let entry = bare.machine.supervisor_entry();
        bare.machine.arena().store(bare.root, EntryIndex::new(SUPERVISOR_SLOT), entry);
        bare.map(bare.root, CODE, bare.code, READ_ONLY);
        bare.map(bare.root, DATA, bare.data, TABLE);
        bare
    }

    /// A fresh frame of zeros.
    pub fn frame(&mut self) -> FrameId {
        self.next += 1;
        FrameId(self.next)
    }

    /// The content of a frame.
    pub fn content(&self, frame: FrameId) -> [u8; FRAME_SIZE] {
        let mut bytes = [0; FRAME_SIZE];
        self.machine.arena().read(frame, 0, &mut bytes);
        bytes
    }

    /// Writes into a frame.
    pub fn write(&self, frame: FrameId, offset: usize, bytes: &[u8]) {
        self.machine.arena().write(frame, offset, bytes);
    }

    /// Maps `frame` at `address`, making tables as needed.
    pub fn map(&mut self, root: FrameId, address: u64, frame: FrameId, flags: u64) {
        let mut table = root;
        for level in [4, 3, 2] {
            let index = EntryIndex::of(address, level);
            let entry = self.machine.arena().load(table, index);
            table = if entry & 1 == 0 {
                let fresh = self.frame();
                self.machine.arena().store(table, index, fresh.address() | TABLE);
                fresh
            } else {
                FrameId::at(entry & 0x000f_ffff_ffff_f000).expect("a frame of the arena")
            };
        }
        self.machine.arena().store(table, EntryIndex::of(address, 1), frame.address() | flags);
    }

    /// A context that starts at `code`, with a stack at the end of the data page.
    pub fn start(&self, code: &[u8]) -> Context {
        self.machine.arena().write(self.code, 0, &[0x90; 256]);
        self.machine.arena().write(self.code, 0, code);
        let mut context = Context::at(CODE);
        context.registers.rsp = DATA + 0xf00;
        context
    }

    /// Runs `context` for at most ten seconds.
    pub fn run(&mut self, context: &mut Context) -> Exit {
        let deadline = self.machine.now() + Duration::from_secs(10);
        self.run_until(context, deadline)
    }

    /// Runs `context` until `deadline`.
    pub fn run_until(&mut self, context: &mut Context, deadline: Nanos) -> Exit {
        self.vcpu.run(Root { table: self.root, stamp: 0 }, context, deadline)
    }

    /// With hardware virtualisation, makes the next run fault in KVM at every access, descriptors, stack and stubs included.
    /// An interruption is then likely to fall between an exception and its stub's exit. Nested it is likely anyway.
    pub fn slow_down(&self) {
        if !is_nested() {
            self.machine.flush_tables().expect("KVM takes and gives back a slot");
        }
    }

    /// Runs `code` from a fresh context.
    pub fn run_code(&mut self, code: &[u8]) -> (Exit, Context) {
        let mut context = self.start(code);
        let exit = self.run(&mut context);
        (exit, context)
    }
}
