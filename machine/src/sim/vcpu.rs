// SPDX-License-Identifier: MIT OR Apache-2.0
//! One virtual CPU of the software machine: loads a context, runs it, and returns why it stopped.

use super::arithmetic::TRAP;
use super::execute::{Cpu, STATE_PARTS, exception, vector};
use super::tables::ACCESSED;
use super::translate::Mmu;
use super::{EXIT_TIME, Hardware, SUPERVISOR_ENTRY};
use crate::context::QueuedException;
use crate::{
    Context, EntryIndex, Exception, Exit, HostError, Interrupter, Nanos, Pending, Root, SUPERVISOR_SLOT, Vcpu, VectorState, Violation,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The word of a vector state that holds MXCSR, and its defined bits.
const MXCSR: usize = 6;
const MXCSR_BITS: u32 = 0xffff;
/// The words of a vector state that hold the SSE registers.
const SSE: std::ops::Range<usize> = 160 / 4..416 / 4;

/// A virtual CPU.
pub(super) struct SimVcpu {
    hardware: Arc<Hardware>,
    mmu: Mmu,
    /// Words of the XSAVE area, as the last cell left it.
    vector: Box<[u32; 1024]>,
    interrupt: Arc<Interrupt>,
}

/// A flag that other threads set to interrupt the vCPU.
struct Interrupt(AtomicBool);

impl Interrupter for Interrupt {
    fn interrupt(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl SimVcpu {
    pub(super) fn new(hardware: Arc<Hardware>, index: usize) -> SimVcpu {
        let vector = Box::new(*VectorState::initial().words());
        SimVcpu { hardware, mmu: Mmu::new(index), vector, interrupt: Arc::new(Interrupt(AtomicBool::new(false))) }
    }

    /// Whether the vCPU was interrupted, or the deadline has passed.
    fn is_due(&self, deadline: Nanos) -> bool {
        let interrupted = self.interrupt.0.load(Ordering::Relaxed) && self.interrupt.0.swap(false, Ordering::Relaxed);
        interrupted || self.hardware.now() >= deadline
    }

    /// Returns why a root or a context cannot be loaded.
    fn refusal(&self, root: Root, context: &Context) -> Option<Violation> {
        if !context.is_loadable() {
            return Some(Violation::BadContext);
        }
        let arena = &self.hardware.arena;
        if root.table.0 >= arena.frames() {
            return Some(Violation::OutsideMemory);
        }
        // Without it a real CPU finds no stub for the first exception and shuts down.
        let supervisor = arena.load(root.table, EntryIndex::new(SUPERVISOR_SLOT));
        if supervisor & !ACCESSED != SUPERVISOR_ENTRY & !ACCESSED {
            return Some(Violation::Machine { reason: format!("the root in frame {} lacks the supervisor's entry", root.table.0) });
        }
        None
    }

    fn run_loaded(&mut self, context: &mut Context, deadline: Nanos) -> Exit {
        loop {
            if self.is_due(deadline) {
                return Exit::Interrupted;
            }
            let mut cpu =
                Cpu { hardware: &self.hardware, mmu: &mut self.mmu, registers: &mut context.registers, vector: &mut self.vector[..] };
            if let Err(exit) = cpu.step() {
                return exit;
            }
        }
    }
}

impl Vcpu for SimVcpu {
    fn run(&mut self, root: Root, context: &mut Context, deadline: Nanos) -> Exit {
        self.hardware.pass(EXIT_TIME);
        if let Some(violation) = self.refusal(root, context) {
            return Exit::Violation(violation);
        }
        self.mmu.load(root);
        context.registers.rflags = context.loaded_flags();
        if let Some(queued) = std::mem::take(&mut context.pending).exception {
            return exception(queued.vector, u64::from(queued.error.unwrap_or_default()));
        }
        let exit = self.run_loaded(context, deadline);
        match &exit {
            Exit::Exception(Exception { vector: Exception::PAGE_FAULT, address, .. }) => context.fault_address = *address,
            // The single step over the hypercall is still pending.
            Exit::Hypercall if context.registers.rflags & TRAP != 0 => {
                let step = QueuedException { vector: vector::DEBUG, error: None };
                context.pending = Pending { exception: Some(step), ..Pending::default() };
            }
            Exit::Violation(_) => *self.vector = *VectorState::initial().words(),
            _ => {}
        }
        exit
    }

    fn save_vector(&mut self) -> Result<VectorState, HostError> {
        Ok(VectorState::from_words(*self.vector))
    }

    fn load_vector(&mut self, state: Option<&VectorState>) -> Result<(), HostError> {
        let initial = VectorState::initial();
        let words = state.unwrap_or(&initial).words();
        if words[MXCSR] & !MXCSR_BITS != 0 {
            return Err(HostError::Os { action: "load a vector state", source: io::ErrorKind::InvalidInput.into() });
        }
        *self.vector = *words;
        // A component that the state does not include takes its initial value, whatever its words hold.
        if words[STATE_PARTS] & 1 << 1 == 0 {
            self.vector[SSE].fill(0);
        }
        Ok(())
    }

    fn interrupter(&self) -> Arc<dyn Interrupter> {
        Arc::clone(&self.interrupt) as Arc<dyn Interrupter>
    }
}
