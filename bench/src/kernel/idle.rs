// SPDX-License-Identifier: MIT OR Apache-2.0
//! Idle clones: what the host has less for each of thousands.

use crate::guest::Code;
use crate::native::usage;
use crate::program::{Compiled, QUOTA, is_idle};
use crate::sample::Sample;
use crate::stage::{DATA, Stage};
use crate::{BenchError, Options, Row};
use pando_abi::layout::{LIBOS, VIRTUAL_REGISTERS};
use pando_abi::virtual_registers::{Control, VirtualRegisters};
use pando_abi::{Hypercall, MapFlags, Permissions};
use pando_kernel::CellId;
use pando_machine::{Nanos, PageCount};
use std::mem::offset_of;

/// The program's source.
const SOURCE: &str = include_str!("idle.c");
/// Clones that are counted.
const CLONES: usize = 10_000;
/// Clones for the figures beside the main one.
const FEWER_CLONES: usize = CLONES / 4;
/// How often the host is looked at meanwhile.
const STEPS: usize = 40;
const ARENA: PageCount = PageCount(1 << 20);
/// Which events wake a cell, in the virtual registers.
const MASK: u64 = (offset_of!(VirtualRegisters, control) + offset_of!(Control, mask)) as u64;
/// Pages that a bare clone writes: of a libOS's data and of a program's.
const SYSTEM_PAGES: u64 = 3;
const PROGRAM_PAGES: u64 = 2;

/// What to report about one kind of clone.
struct Kind {
    clones: usize,
    note: &'static str,
    /// Names of the rows: the whole, and its parts.
    total: &'static str,
    pages: &'static str,
    tables: &'static str,
    objects: &'static str,
    kvm: &'static str,
}

const BARE: Kind = Kind {
    clones: FEWER_CLONES,
    note: "cells without a libOS that wrote 3 pages of system memory and 2 of their own",
    total: "idle-bare-clone-bytes",
    pages: "idle-bare-clone-pages-bytes",
    tables: "idle-bare-clone-tables-bytes",
    objects: "idle-bare-clone-objects-bytes",
    kvm: "idle-bare-clone-kvm-bytes",
};

const PROGRAM: Kind = Kind {
    clones: CLONES,
    note: "a static C program that waits for input",
    total: "idle-clone-bytes",
    pages: "idle-clone-pages-bytes",
    tables: "idle-clone-tables-bytes",
    objects: "idle-clone-objects-bytes",
    kvm: "idle-clone-kvm-bytes",
};

const ASKED: Kind = Kind {
    clones: FEWER_CLONES,
    note: "the same, each of which has answered a line",
    total: "idle-asked-clone-bytes",
    pages: "idle-asked-clone-pages-bytes",
    tables: "idle-asked-clone-tables-bytes",
    objects: "idle-asked-clone-objects-bytes",
    kvm: "idle-asked-clone-kvm-bytes",
};

pub(super) fn run(options: Options<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let mut stage = Stage::new(ARENA)?;
    let template = template(&mut stage)?;
    count(options, &mut stage, template, &BARE, |_, _| Ok(()), report)?;

    let program = Compiled::new(SOURCE)?;
    let mut stage = Stage::new(ARENA)?;
    let waiting = program.in_cell(&mut stage)?;
    count(options, &mut stage, waiting, &PROGRAM, |_, _| Ok(()), report)?;

    let mut stage = Stage::new(ARENA)?;
    let waiting = program.in_cell(&mut stage)?;
    let ask = |stage: &mut Stage, clone: CellId| {
        stage.kernel.console(clone)?.send(b"hello\n");
        stage.turn_until(clone, is_idle)
    };
    count(options, &mut stage, waiting, &ASKED, ask, report)
}

/// Makes clones, lets each run until it idles, uses it, and reports what they cost.
fn count(
    options: Options<'_>,
    stage: &mut Stage,
    source: CellId,
    kind: &Kind,
    mut with: impl FnMut(&mut Stage, CellId) -> Result<(), BenchError>,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    let in_step = if options.brief { 2 } else { kind.clones / STEPS };
    let mut make = |stage: &mut Stage| {
        let mut last = source;
        for _ in 0..in_step {
            last = stage.kernel.clone_cell(source, QUOTA)?;
            stage.kernel.start(last)?;
            stage.turn_until(last, is_idle)?;
            with(stage, last)?;
        }
        Ok::<CellId, BenchError>(last)
    };
    // What is there once, whatever the number of clones, shall not count.
    let clone = make(stage)?;
    let used = stage.kernel.inspect(clone)?.2;
    let free = stage.kernel.free();
    let mut moments = vec![Moment::now()?];
    for _ in 0..STEPS {
        make(stage)?;
        moments.push(Moment::now()?);
    }
    let clones = (STEPS * in_step) as f64;
    let frames = (free - stage.kernel.free()).bytes() as f64 / clones;
    let pages = (used.used - used.tables - used.retired).bytes() as f64;
    let own = (moments[STEPS].own - moments[0].own) / clones;
    let kvm = kernel_share(&moments, in_step);
    let total = own + kvm.median();
    let row = |name, value| Row::of(name, value, "bytes");
    report(Row { spread: Some(kvm.width() / total), ..row(kind.total, total) }.noting(format!("{clones} clones: {}", kind.note)));
    report(row(kind.pages, pages).noting("frames that hold data"));
    report(row(kind.tables, frames - pages).noting("frames that are tables, retired ones included"));
    report(row(kind.objects, own - frames).noting("what else this process took: the kernel's objects"));
    report(row(kind.kvm, kvm.median()).noting("what the host's kernel took: KVM's own"));
    Ok(())
}

/// What memory looks like at one moment, in bytes.
struct Moment {
    own: f64,
    for_programs: f64,
}

impl Moment {
    fn now() -> Result<Moment, BenchError> {
        let read = BenchError::host("read what memory the host has");
        let both = usage::own().and_then(|own| Ok(Moment { own, for_programs: usage::for_programs()? }));
        both.map_err(read)
    }
}

/// What the host's kernel took for each clone: the fall of what it has for programs, over each half of the run that starts in its first half. (From the
/// first moment to the last alone, one moment at which other programs are busy would spoil it.)
fn kernel_share(moments: &[Moment], in_step: usize) -> Sample {
    let half = moments.len() / 2;
    let falls = moments.iter().zip(&moments[half..]).map(|(before, after)| before.for_programs - after.for_programs);
    Sample::of(falls.map(|fall| fall / (half * in_step) as f64).collect())
}

/// A template without a libOS whose clones write what a small program writes, and then idle.
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

#[cfg(test)]
mod tests {
    use super::{Moment, kernel_share};

    #[test]
    fn what_other_programs_do_for_a_moment_does_not_count() {
        let moment = |left| Moment { own: 0.0, for_programs: left };
        let moments = [90.0, 80.0, 70.0, 600.0, 50.0, 40.0, 30.0, -900.0, 10.0].map(moment);
        assert_eq!(kernel_share(&moments, 10).median(), 1.0);
    }
}
