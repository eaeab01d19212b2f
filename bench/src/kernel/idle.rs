// SPDX-License-Identifier: MIT OR Apache-2.0
//! Idle clones: the host memory that each of thousands takes.

use crate::density::{self, DensityRows};
use crate::guest::Code;
use crate::harness::{DATA, Harness};
use crate::program::{CompiledProgram, QUOTA, is_idle};
use crate::{BenchError, BenchOptions, Row};
use pando_abi::layout::{LIBOS, VIRTUAL_REGISTERS};
use pando_abi::virtual_registers::{Control, VirtualRegisters};
use pando_abi::{Hypercall, MapFlags, Permissions};
use pando_kernel::CellId;
use pando_kernel::RunState;
use pando_machine::{Nanos, PageCount};
use std::mem::offset_of;

/// The program's source.
const SOURCE: &str = include_str!("idle.c");
/// The number of clones counted.
const CLONES: usize = 10_000;
/// The number of clones for the secondary figures.
const FEWER_CLONES: usize = CLONES / 4;
const ARENA: PageCount = PageCount(1 << 20);
/// The mask of events that wake a cell, in the virtual registers.
const MASK: u64 = (offset_of!(VirtualRegisters, control) + offset_of!(Control, mask)) as u64;
/// Pages that a bare clone writes: data of a libOS and of a program.
const SYSTEM_PAGES: u64 = 3;
const PROGRAM_PAGES: u64 = 2;

const BARE: DensityRows = DensityRows {
    cells: FEWER_CLONES,
    note: "cells without a libOS that wrote 3 pages of system memory and 2 of their own",
    total: "idle-bare-clone-bytes",
    pages: "idle-bare-clone-pages-bytes",
    tables: "idle-bare-clone-tables-bytes",
    objects: "idle-bare-clone-objects-bytes",
    kvm: "idle-bare-clone-kvm-bytes",
};

const PROGRAM: DensityRows = DensityRows {
    cells: CLONES,
    note: "a static C program that waits for input",
    total: "idle-clone-bytes",
    pages: "idle-clone-pages-bytes",
    tables: "idle-clone-tables-bytes",
    objects: "idle-clone-objects-bytes",
    kvm: "idle-clone-kvm-bytes",
};

const ASKED: DensityRows = DensityRows {
    cells: FEWER_CLONES,
    note: "the same, each of which has answered a line",
    total: "idle-asked-clone-bytes",
    pages: "idle-asked-clone-pages-bytes",
    tables: "idle-asked-clone-tables-bytes",
    objects: "idle-asked-clone-objects-bytes",
    kvm: "idle-asked-clone-kvm-bytes",
};

pub(super) fn run(options: BenchOptions<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let mut harness = Harness::new(ARENA)?;
    let template = template(&mut harness)?;
    count(options, &mut harness, template, &BARE, |_, _| Ok(()), report)?;

    let program = CompiledProgram::new(SOURCE)?;
    let mut harness = Harness::new(ARENA)?;
    let waiting = program.in_cell(&mut harness)?;
    count(options, &mut harness, waiting, &PROGRAM, |_, _| Ok(()), report)?;

    let mut harness = Harness::new(ARENA)?;
    let waiting = program.in_cell(&mut harness)?;
    let ask = |harness: &mut Harness, clone: CellId| {
        harness.kernel.console(clone)?.send(b"hello\n");
        harness.turn_until(clone, is_idle)
    };
    count(options, &mut harness, waiting, &ASKED, ask, report)
}

/// Creates clones, runs each until it idles, uses it, and reports their cost.
fn count(
    options: BenchOptions<'_>,
    harness: &mut Harness,
    source: CellId,
    rows: &DensityRows,
    with: impl Fn(&mut Harness, CellId) -> Result<(), BenchError>,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    let make = |harness: &mut Harness| {
        // A timer of its libOS may have woken the source since.
        harness.turn_until(source, |state| is_idle(state) || state == RunState::Frozen)?;
        let clone = harness.kernel.clone_cell(source, QUOTA)?;
        harness.kernel.start(clone)?;
        harness.turn_until(clone, is_idle)?;
        with(harness, clone).map(|()| clone)
    };
    density::count(options, harness, rows, make, report)
}

/// Creates a template without a libOS. Its clones write as many pages as a small program, and then idle.
fn template(harness: &mut Harness) -> Result<CellId, BenchError> {
    let mut code = Code::new();
    // The event about a clone's new generation must not wake this one.
    code.store(VIRTUAL_REGISTERS + MASK, u64::MAX);
    let write = |code: &mut Code| {
        code.point(LIBOS).write_pages(SYSTEM_PAGES, 1).point(DATA).write_pages(PROGRAM_PAGES, 1);
    };
    write(&mut code);
    code.hypercall(Hypercall::Freeze {});
    write(&mut code);
    let again = code.here();
    code.hypercall(Hypercall::Idle { deadline: Nanos::NEVER.0 }).jump(again);
    let id = harness.cell(code.bytes(), QUOTA)?;
    let flags = MapFlags::eager(Permissions::READ_WRITE);
    harness.map(id, LIBOS, PageCount(SYSTEM_PAGES), flags)?;
    harness.map(id, DATA, PageCount(PROGRAM_PAGES), flags)?;
    harness.template(id)
}
