// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of the kernel's mechanisms, each compared with the machine's bare exit, which shows Pando's overhead.

use super::BARE_EXIT;
use crate::bare::Bare;
use crate::guest::Code;
use crate::harness::{DATA, Harness};
use crate::sample::{Sample, Side, alternate};
use crate::{BenchError, BenchOptions, Row};
use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::virtual_registers::{Control, VirtualRegisters, offset};
use pando_abi::{Event, Hypercall, MapFlags, Permissions};
use pando_kernel::limits::FAULT_AROUND;
use pando_kernel::{CellId, Kernel};
use pando_machine::PageCount;
use std::mem::offset_of;
use std::time::Instant;

const ARENA: PageCount = PageCount(256 << 10);
const QUOTA: PageCount = PageCount(128 << 10);
/// Hypercalls in one measurement: few, so that the host preempts only a small part of the measurements.
const CALLS: u64 = 16;
/// Faults in one measurement, for the same reason.
const FAULTS: u64 = 16;
/// The event entry point, in the virtual registers.
const EVENT_ENTRY: u64 = (offset_of!(VirtualRegisters, control) + offset_of!(Control, event_entry)) as u64;

/// Measures costs, each alternating with a bare exit.
struct Costs<'a> {
    options: BenchOptions<'a>,
    bare: &'a mut Bare,
    report: &'a mut dyn FnMut(Row),
}

pub(super) fn run(options: BenchOptions<'_>, bare: &mut Bare, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let exit = Sample::take(options.rounds(100), || bare.exit())?;
    report(Row::time("exit", &exit).noting("a cell's exit to this process and back, without the kernel"));
    let mut costs = Costs { options, bare, report };
    costs.hypercall()?;
    costs.switch()?;
    costs.event()?;
    costs.fault()?;
    costs.copy_on_write()?;
    costs.flush()?;
    report(Row::of("clone-metadata-bytes", Kernel::metadata_bytes() as f64, "bytes").noting("the kernel's own objects for a cell"));
    Ok(())
}

impl Costs<'_> {
    fn measure(&mut self, name: &'static str, note: String, mut ours: impl FnMut() -> Result<f64, BenchError>) -> Result<(), BenchError> {
        let pairs = alternate(self.options.rounds(100), |side| match side {
            Side::Ours => ours(),
            Side::Theirs => self.bare.exit(),
        })?;
        (self.report)(Row::pairs(name, BARE_EXIT, &pairs).noting(note));
        Ok(())
    }

    /// A hypercall that does nothing.
    fn hypercall(&mut self) -> Result<(), BenchError> {
        let mut code = Code::new();
        let again = code.here();
        code.count(CALLS - 1);
        let next = code.here();
        code.hypercall(Hypercall::Doorbell {}).repeat(next).hypercall(Hypercall::Relinquish {}).jump(again);
        let (mut harness, _) = stage_with(code.bytes())?;
        self.measure("hypercall", "doorbell, nothing to do".into(), || Ok(harness.timed_turn()? / CALLS as f64))
    }

    /// A switch between two cells that both give up the CPU.
    fn switch(&mut self) -> Result<(), BenchError> {
        let mut code = Code::new();
        code.relinquish_for_ever();
        let (mut harness, _) = stage_with(code.bytes())?;
        self.measure("relinquish", "back to the same cell".into(), || harness.timed_turn())?;
        let second = harness.cell(code.bytes(), QUOTA)?;
        harness.start(second)?;
        self.measure("switch", "from one cell that relinquishes to another".into(), || harness.timed_turn())
    }

    /// From the operator's call to the hypercall that the upcall makes.
    fn event(&mut self) -> Result<(), BenchError> {
        let mut code = Code::new();
        for word in [offset::PENDING, offset::CRITICAL, offset::LEVEL] {
            code.store(VIRTUAL_REGISTERS + word as u64, 0);
        }
        code.relinquish_for_ever();
        let mut harness = Harness::new(ARENA)?;
        let cell = harness.cell(code.bytes(), QUOTA)?;
        // The upcall starts the same code again.
        harness.kernel.write(cell, VIRTUAL_REGISTERS + EVENT_ENTRY, &crate::harness::CODE.to_le_bytes())?;
        harness.start(cell)?;
        let before = harness.kernel.inspect(cell)?.1.events;
        let mut raised = 0;
        self.measure("event", "raised, upcall made, its first hypercall".into(), || {
            raised += 1;
            let start = Instant::now();
            harness.kernel.raise(cell, Event::Console);
            harness.turn()?;
            Ok(start.elapsed().as_nanos() as f64)
        })?;
        let delivered = harness.kernel.inspect(cell)?.1.events - before;
        if delivered == raised { Ok(()) } else { Err(BenchError::NoHypercall) }
    }

    /// A fault on lazy memory.
    fn fault(&mut self) -> Result<(), BenchError> {
        let mut code = Code::new();
        code.point(DATA);
        let again = code.here();
        code.write_pages(FAULTS, FAULT_AROUND as u32).hypercall(Hypercall::Relinquish {}).jump(again);
        let mut harness = Harness::new(ARENA)?;
        let cell = harness.cell(code.bytes(), QUOTA)?;
        harness.map(cell, DATA, QUOTA, MapFlags::lazy(Permissions::READ_WRITE))?;
        harness.start(cell)?;
        let note = format!("lazy memory, {FAULT_AROUND} pages of 4 KiB allocated at once");
        self.faults("fault", note, || harness.timed_turn())
    }

    /// A write to a page that is shared with a template.
    fn copy_on_write(&mut self) -> Result<(), BenchError> {
        let mut code = Code::new();
        code.point(DATA).write_pages(FAULTS, 1).hypercall(Hypercall::Freeze {}).hypercall(Hypercall::Relinquish {});
        code.point(DATA).write_pages(FAULTS, 1).relinquish_for_ever();
        let mut harness = Harness::new(ARENA)?;
        let cell = harness.cell(code.bytes(), QUOTA)?;
        harness.map(cell, DATA, PageCount(FAULTS), MapFlags::eager(Permissions::READ_WRITE))?;
        let template = harness.template(cell)?;
        self.faults("cow", format!("a page of 4 KiB copied; one path of tables for {FAULTS}"), || {
            let (_, clone) = harness.timed_clone(template, QUOTA)?;
            let time = harness.timed_turn()?;
            harness.end(clone)?;
            Ok(time)
        })
    }

    /// Like [`Costs::measure`], for an operation that faults [`FAULTS`] times.
    fn faults(&mut self, name: &'static str, note: String, mut ours: impl FnMut() -> Result<f64, BenchError>) -> Result<(), BenchError> {
        self.measure(name, note, || Ok(ours()? / FAULTS as f64))
    }

    /// Dropping the machine's cached tables, and the cost for the next cell.
    fn flush(&mut self) -> Result<(), BenchError> {
        let mut code = Code::new();
        code.relinquish_for_ever();
        let (mut harness, _) = stage_with(code.bytes())?;
        let mut refills = Vec::new();
        let pairs = alternate(self.options.rounds(40), |side| match side {
            Side::Ours => {
                let start = Instant::now();
                harness.kernel.machine().flush_tables()?;
                let time = start.elapsed().as_nanos() as f64;
                refills.push(harness.timed_turn()?);
                Ok(time)
            }
            Side::Theirs => self.bare.exit(),
        })?;
        (self.report)(Row::pairs("shadow-flush", BARE_EXIT, &pairs));
        (self.report)(Row::time("shadow-refill", &Sample::of(refills)).noting("a cell's turn after a flush"));
        Ok(())
    }
}

/// Creates a kernel with one cell that has reached its first hypercall.
fn stage_with(code: &[u8]) -> Result<(Harness, CellId), BenchError> {
    let mut harness = Harness::new(ARENA)?;
    let cell = harness.cell(code, QUOTA)?;
    harness.start(cell)?;
    Ok((harness, cell))
}
