// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine without a kernel: one address space with a page of code. Its cost is the lower bound for everything above it.

use crate::BenchError;
use crate::guest::Code;
use crate::sample::Sample;
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_machine::{Context, EntryIndex, Exit, FrameId, HugeFrame, Machine, Nanos, PageCount, Root, SUPERVISOR_SLOT, Vcpu};
use std::sync::Arc;
use std::time::Instant;

/// Present, writable, user, accessed, dirty.
const USABLE: u64 = 0x67;
const CODE: u64 = 0x40_0000;
/// Exits in one measurement.
const EXITS: usize = 8;

/// A machine whose one program only exits.
pub(crate) struct Bare {
    vcpu: Box<dyn Vcpu>,
    root: Root,
    context: Context,
    _machine: Arc<Kvm>,
}

impl Bare {
    /// Creates the machine.
    pub(crate) fn new() -> Result<Bare, BenchError> {
        let config = KvmConfig { arena: PageCount(2048), vcpus: 1, omit: Omit::NOTHING };
        let machine = Kvm::new(config)?;
        let arena = machine.arena();
        // Huge frame 0 belongs to the machine; every frame behind it is free and reads zero.
        let mut free = HugeFrame(1).frames();
        let mut frame = || free.next().expect("a huge frame has more frames than a path of tables");
        let root = frame();
        arena.store(root, EntryIndex::new(SUPERVISOR_SLOT), machine.supervisor_entry());
        let mut table: FrameId = root;
        for level in [4, 3, 2, 1] {
            let below = frame();
            arena.store(table, EntryIndex::of(CODE, level), below.address() | USABLE);
            table = below;
        }
        let mut code = Code::new();
        let again = code.here();
        code.out().jump(again);
        arena.write(table, 0, code.bytes());
        let vcpu = machine.take_vcpu(0)?;
        Ok(Bare { vcpu, root: Root { table: root, stamp: 0 }, context: Context::at(CODE), _machine: machine })
    }

    /// Nanoseconds of one exit and re-entry: the median of a few in a row.
    pub(crate) fn exit(&mut self) -> Result<f64, BenchError> {
        let exits = (0..EXITS).map(|_| self.timed_exit()).collect::<Result<_, _>>()?;
        Ok(Sample::of(exits).median())
    }

    fn timed_exit(&mut self) -> Result<f64, BenchError> {
        loop {
            let start = Instant::now();
            match self.vcpu.run(self.root, &mut self.context, Nanos::NEVER) {
                Exit::Hypercall => return Ok(start.elapsed().as_nanos() as f64),
                // The timer of another vCPU that this thread drives.
                Exit::Interrupted => {}
                _ => return Err(BenchError::NoHypercall),
            }
        }
    }
}
