// SPDX-License-Identifier: MIT OR Apache-2.0
//! Idle clones: what the host has less for each of thousands.

use crate::guest::Code;
use crate::native::usage;
use crate::stage::{DATA, Stage};
use crate::{BenchError, Options, Row};
use pando_abi::layout::{LIBOS, VIRTUAL_REGISTERS};
use pando_abi::virtual_registers::{Control, VirtualRegisters};
use pando_abi::{Hypercall, MapFlags, Permissions};
use pando_kernel::CellId;
use pando_kernel::cell::State;
use pando_machine::{Nanos, PageCount};
use std::mem::offset_of;

/// Clones.
const CLONES: usize = 10_000;
const ARENA: PageCount = PageCount(1 << 20);
const QUOTA: PageCount = PageCount(1024);
/// Pages that a bare clone writes: as many of its own data as a libOS and a program would.
const SYSTEM_PAGES: u64 = 3;
const PROGRAM_PAGES: u64 = 2;

/// Which events wake a cell, in the virtual registers.
const MASK: u64 = (offset_of!(VirtualRegisters, control) + offset_of!(Control, mask)) as u64;

/// What memory looks like at one moment, in bytes.
struct Moment {
    available: f64,
    heap: Option<f64>,
    frames: f64,
}

impl Moment {
    fn now(stage: &Stage) -> Result<Moment, BenchError> {
        let available = usage::available().map_err(BenchError::host("read /proc/meminfo"))?;
        // What the arena has handed out: what is free there counts for nobody.
        Ok(Moment { available, heap: usage::heap(), frames: -(stage.kernel.free().bytes() as f64) })
    }
}

pub(super) fn run(options: Options, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let clones = if options.brief { CLONES / 50 } else { CLONES };
    let mut stage = Stage::new(ARENA)?;
    let template = template(&mut stage)?;
    // What is there once, whatever the number of clones, shall not count.
    let mut last = None;
    for _ in 0..clones / 100 {
        last = Some(idle_clone(&mut stage, template)?);
    }
    let before = Moment::now(&stage)?;
    for _ in 0..clones {
        last = Some(idle_clone(&mut stage, template)?);
    }
    let after = Moment::now(&stage)?;
    let each = |difference: f64| difference / clones as f64;
    let total = each(before.available - after.available);
    let frames = each(after.frames - before.frames);
    let usage = stage.kernel.inspect(last.ok_or(BenchError::Astray)?)?.2;
    let pages = (usage.used - usage.tables - usage.retired).bytes() as f64;
    let heap = before.heap.zip(after.heap).map(|(before, after)| each(after - before));
    let note = format!("{clones} clones that wrote {SYSTEM_PAGES} pages of their libOS's and {PROGRAM_PAGES} of their own");
    report(Row::of("idle-bare-clone-bytes", total, "bytes").noting(note));
    report(Row::of("idle-bare-clone-pages-bytes", pages, "bytes").noting("frames that hold data"));
    report(Row::of("idle-bare-clone-tables-bytes", frames - pages, "bytes").noting("frames that are tables"));
    if let Some(heap) = heap {
        report(Row::of("idle-bare-clone-objects-bytes", heap, "bytes").noting("the kernel's objects"));
    }
    report(Row::of("idle-bare-clone-kvm-bytes", total - frames - heap.unwrap_or(0.0), "bytes").noting("the rest: KVM's own"));
    Ok(())
}

/// A template whose clones write what a small program writes, and then idle.
fn template(stage: &mut Stage) -> Result<CellId, BenchError> {
    let mut code = Code::new();
    // A clone is told of its new generation; this one shall idle all the same.
    code.store(VIRTUAL_REGISTERS + MASK, u64::MAX);
    let write = |code: &mut Code| {
        code.point(LIBOS).write_pages(SYSTEM_PAGES, 1).point(DATA).write_pages(PROGRAM_PAGES, 1);
    };
    write(&mut code);
    code.hypercall(Hypercall::Freeze {});
    write(&mut code);
    let again = code.here();
    code.hypercall(Hypercall::Idle { deadline: Nanos::NEVER.0 }).jump(again);
    let id = stage.cell(code.bytes(), QUOTA)?;
    let flags = MapFlags::eager(Permissions::READ_WRITE);
    stage.map(id, LIBOS, PageCount(SYSTEM_PAGES), flags)?;
    stage.map(id, DATA, PageCount(PROGRAM_PAGES), flags)?;
    stage.template(id)
}

/// A clone that has run and idles.
fn idle_clone(stage: &mut Stage, template: CellId) -> Result<CellId, BenchError> {
    let (_, clone) = stage.timed_clone(template, QUOTA)?;
    match stage.kernel.inspect(clone)? {
        (State::Idle { .. }, ..) => Ok(clone),
        _ => Err(BenchError::Astray),
    }
}
