// SPDX-License-Identifier: MIT OR Apache-2.0
//! `syscall`: an unmodified program's system call that does nearly nothing, in a cell and on the host.

use crate::program::{Asked, Compiled};
use crate::sample::{Side, alternate};
use crate::stage::Stage;
use crate::{BenchError, Options, Row};
use pando_machine::PageCount;

/// The program's source.
const SOURCE: &str = include_str!("syscall.c");
/// Calls of one measurement: some milliseconds' worth.
const CALLS: u32 = 50_000;
const ARENA: PageCount = PageCount(32 << 10);

pub(super) fn run(options: Options<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let program = Compiled::new(SOURCE)?;
    let mut stage = Stage::new(ARENA)?;
    let cell = program.in_cell(&mut stage)?;
    let ours = Asked::new(&stage, cell)?;
    let mut theirs = program.as_process()?;
    theirs.line()?;
    let line = format!("{CALLS}\n");
    let pairs = alternate(options.rounds(300), |side| {
        let nanos = match side {
            Side::Ours => ours.ask(&mut stage, &line)?,
            Side::Theirs => theirs.ask(&line)?,
        };
        Ok(nanos / f64::from(CALLS))
    })?;
    report(Row::pairs("syscall", "the same program on the host", &pairs).noting("getppid of a static C program"));
    Ok(())
}
