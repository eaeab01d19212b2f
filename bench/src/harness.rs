// SPDX-License-Identifier: MIT OR Apache-2.0
//! The harness: a kernel on KVM whose one vCPU runs on the measuring thread, so that waking threads costs no time.

use crate::BenchError;
use pando_abi::{MapFlags, Permissions, Registers};
use pando_kernel::RunState;
use pando_kernel::{CellConfig, CellId, Config, End, Kernel, OperatorError, Outcome, TurnOutcome, Worker};
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_machine::{Machine, Nanos, PageCount};
use std::sync::Arc;
use std::time::Instant;

/// The address of a cell's code.
pub(crate) const CODE: u64 = 0x40_0000;
/// The address of its one page of stack: under the same table as its code.
const STACK: u64 = 0x50_0000;
/// The start address of its data: at the start of a gigabyte, so that large pages fit.
pub(crate) const DATA: u64 = 1 << 30;
/// Pages of one large page.
pub(crate) const LARGE_PAGE: u64 = 512;

/// A kernel and its vCPU.
pub(crate) struct Harness {
    worker: Worker,
    pub(crate) kernel: Kernel,
}

impl Harness {
    /// Creates a kernel with this much memory.
    pub(crate) fn new(arena: PageCount) -> Result<Harness, BenchError> {
        let machine = Kvm::new(KvmConfig { arena, vcpus: 1, omit: Omit::NOTHING })?;
        let kernel = Kernel::new(machine as Arc<dyn Machine>, Config::default());
        Ok(Harness { worker: kernel.worker(0)?, kernel })
    }

    /// Creates a cell that will run `code` from its start, not yet started. It has a page of stack.
    pub(crate) fn cell(&self, code: &[u8], quota: PageCount) -> Result<CellId, BenchError> {
        self.cell_from(code, 0, quota)
    }

    /// Like [`Harness::cell`], with the first instruction at offset `entry` of the code.
    pub(crate) fn cell_from(&self, code: &[u8], entry: u64, quota: PageCount) -> Result<CellId, BenchError> {
        let id = self.kernel.create(CellConfig { quota, host_name: "bench".into() })?;
        self.kernel.map(id, CODE, PageCount::covering(code.len() as u64), MapFlags::lazy(Permissions::READ_EXECUTE))?;
        self.kernel.write(id, CODE, code)?;
        self.kernel.map(id, STACK, PageCount(1), MapFlags::lazy(Permissions::READ_WRITE))?;
        let rsp = STACK + PageCount(1).bytes();
        self.kernel.set_registers(id, Registers { rip: CODE + entry, rsp, ..Registers::default() })?;
        Ok(id)
    }

    /// Gives a cell memory, in pieces, so that the kernel's lock is held only briefly.
    pub(crate) fn map(&self, id: CellId, address: u64, pages: PageCount, flags: MapFlags) -> Result<(), BenchError> {
        for first in (0..pages.0).step_by(LARGE_PAGE as usize) {
            let piece = PageCount(LARGE_PAGE.min(pages.0 - first));
            self.kernel.map(id, address + PageCount(first).bytes(), piece, flags)?;
        }
        Ok(())
    }

    /// Starts a cell and runs it to its first hypercall.
    pub(crate) fn start(&mut self, id: CellId) -> Result<(), BenchError> {
        self.kernel.start(id)?;
        while self.hypercalls(id)? == 0 {
            self.turn()?;
        }
        Ok(())
    }

    /// Starts the cell and runs it until it freezes as a template.
    pub(crate) fn template(&mut self, id: CellId) -> Result<CellId, BenchError> {
        self.kernel.start(id)?;
        self.turn_until(id, |state| state == RunState::Frozen)?;
        Ok(id)
    }

    /// Takes turns until a cell is in a state that it must reach by itself.
    pub(crate) fn turn_until(&mut self, id: CellId, wanted: impl Fn(RunState) -> bool) -> Result<(), BenchError> {
        loop {
            match self.kernel.inspect(id) {
                Ok((state, ..)) if wanted(state) => return Ok(()),
                Ok(_) => self.go_on()?,
                Err(_) => return Err(self.ended(id)),
            }
        }
    }

    /// Takes turns until a cell has ended by itself, and removes it.
    pub(crate) fn finish(&mut self, id: CellId) -> Result<Outcome, BenchError> {
        loop {
            match self.kernel.collect(id) {
                Some(outcome) => return Ok(outcome),
                None => self.go_on()?,
            }
        }
    }

    /// The number of hypercalls that a cell has made.
    pub(crate) fn hypercalls(&self, id: CellId) -> Result<u64, BenchError> {
        match self.kernel.inspect(id) {
            Ok((_, counters, _)) => Ok(counters.hypercalls),
            Err(_) => Err(self.ended(id)),
        }
    }

    /// One turn of the vCPU, which must run a cell.
    pub(crate) fn turn(&mut self) -> Result<(), BenchError> {
        if self.worker.turn() == TurnOutcome::Ran { Ok(()) } else { Err(BenchError::NoHypercall) }
    }

    /// One turn, or a wait until there is work.
    fn go_on(&mut self) -> Result<(), BenchError> {
        match self.worker.turn() {
            TurnOutcome::Ran => Ok(()),
            TurnOutcome::Nothing { until } if until != Nanos::NEVER => {
                std::thread::sleep(until.since(self.kernel.now()));
                Ok(())
            }
            TurnOutcome::Nothing { .. } | TurnOutcome::Stopped => Err(BenchError::NoHypercall),
        }
    }

    /// Nanoseconds of one turn.
    pub(crate) fn timed_turn(&mut self) -> Result<f64, BenchError> {
        let start = Instant::now();
        self.turn()?;
        Ok(start.elapsed().as_nanos() as f64)
    }

    /// Nanoseconds from the start of cloning until the clone has reached its first hypercall. The clone stays.
    pub(crate) fn timed_clone(&mut self, template: CellId, quota: PageCount) -> Result<(f64, CellId), BenchError> {
        let start = Instant::now();
        let id = self.kernel.clone_cell(template, quota)?;
        self.kernel.start(id)?;
        self.worker.turn();
        let time = start.elapsed().as_nanos() as f64;
        if self.hypercalls(id)? == 1 { Ok((time, id)) } else { Err(BenchError::NoHypercall) }
    }

    /// Ends a cell that is not running, removes it and frees its memory, a few tables' worth at once.
    pub(crate) fn end(&mut self, id: CellId) -> Result<(), BenchError> {
        self.kernel.end(id, End::Killed)?;
        self.kernel.collect(id).ok_or(BenchError::NoHypercall)?;
        self.worker.turn();
        Ok(())
    }

    fn ended(&self, id: CellId) -> BenchError {
        self.kernel.collect(id).map_or(BenchError::Kernel(OperatorError::NoSuchCell(id)), |outcome| BenchError::CellEnded(outcome.end))
    }
}
