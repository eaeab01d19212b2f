// SPDX-License-Identifier: MIT OR Apache-2.0
//! Idle clones: what the host has less for each of thousands.

use crate::density::{self, Kind};
use crate::guest::Code;
use crate::program::{Compiled, QUOTA, is_idle};
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
const ARENA: PageCount = PageCount(1 << 20);
/// Which events wake a cell, in the virtual registers.
const MASK: u64 = (offset_of!(VirtualRegisters, control) + offset_of!(Control, mask)) as u64;
/// Pages that a bare clone writes: of a libOS's data and of a program's.
const SYSTEM_PAGES: u64 = 3;
const PROGRAM_PAGES: u64 = 2;

const BARE: Kind = Kind {
    cells: FEWER_CLONES,
    note: "cells without a libOS that wrote 3 pages of system memory and 2 of their own",
    total: "idle-bare-clone-bytes",
    pages: "idle-bare-clone-pages-bytes",
    tables: "idle-bare-clone-tables-bytes",
    objects: "idle-bare-clone-objects-bytes",
    kvm: "idle-bare-clone-kvm-bytes",
};

const PROGRAM: Kind = Kind {
    cells: CLONES,
    note: "a static C program that waits for input",
    total: "idle-clone-bytes",
    pages: "idle-clone-pages-bytes",
    tables: "idle-clone-tables-bytes",
    objects: "idle-clone-objects-bytes",
    kvm: "idle-clone-kvm-bytes",
};

const ASKED: Kind = Kind {
    cells: FEWER_CLONES,
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
    with: impl Fn(&mut Stage, CellId) -> Result<(), BenchError>,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    let make = |stage: &mut Stage| {
        let clone = stage.kernel.clone_cell(source, QUOTA)?;
        stage.kernel.start(clone)?;
        stage.turn_until(clone, is_idle)?;
        with(stage, clone).map(|()| clone)
    };
    density::count(options, stage, kind, make, report)
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
