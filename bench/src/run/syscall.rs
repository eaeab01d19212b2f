// SPDX-License-Identifier: MIT OR Apache-2.0
//! `syscall`: an unmodified program's system call that does almost nothing, in a cell and on the host.

use crate::harness::Harness;
use crate::program::{CompiledProgram, LineServer};
use crate::sample::{Side, alternate};
use crate::{BenchError, BenchOptions, Row};
use pando_machine::PageCount;

/// The program's source.
const SOURCE: &str = include_str!("syscall.c");
/// Calls of one measurement: some milliseconds.
const CALLS: u32 = 50_000;
const ARENA: PageCount = PageCount(32 << 10);

pub(super) fn run(options: BenchOptions<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let program = CompiledProgram::new(SOURCE)?;
    let mut harness = Harness::new(ARENA)?;
    let cell = program.in_cell(&mut harness)?;
    let ours = LineServer::new(&harness, cell)?;
    let mut theirs = program.as_process()?;
    theirs.line()?;
    let line = format!("{CALLS}\n");
    let pairs = alternate(options.rounds(300), |side| {
        let nanos = match side {
            Side::Ours => ours.ask(&mut harness, &line)?,
            Side::Theirs => theirs.ask(&line)?,
        };
        Ok(nanos / f64::from(CALLS))
    })?;
    report(Row::pairs("syscall", "the same program on the host", &pairs).noting("getppid of a static C program"));
    Ok(())
}
