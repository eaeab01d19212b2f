// SPDX-License-Identifier: MIT OR Apache-2.0
//! What copy-on-write costs a program that writes over all its memory (HyperFork, figure 4): in a clone, beside a cell that is none.

use super::grove::{Fresh, Template};
use crate::program::{Compiled, number, program};
use crate::sample::{Pairs, Side, alternate};
use crate::stage::Stage;
use crate::{BenchError, Options, Row};
use pando_launch::{Program, Root};
use pando_machine::PageCount;

const SOURCE: &str = include_str!("write.c");
/// What is written: 16 MiB.
const PAGES: PageCount = PageCount(4096);
const BRIEF: PageCount = PageCount(64);
/// What a program may have besides.
const OVERHEAD: PageCount = PageCount(4096);
const ARENA: PageCount = PageCount(1 << 17);
const REFERENCE: &str = "a cell that is no clone";

pub(super) fn run(options: Options<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let pages = if options.brief { BRIEF } else { PAGES };
    let compiled = Compiled::new(SOURCE)?;
    let mut stage = Stage::new(ARENA)?;
    let root = compiled.booted(&mut stage)?;
    let program = Program { memory: pages + OVERHEAD, ..program(&[&pages.0.to_string()]) };
    let template = Template::new(&mut stage, &root, program.clone())?;
    let (pairs, faults) = compare(options, &mut stage, &template, &root, &program)?;
    let note = format!("{} pages written over", pages.0);
    report(Row::pairs("cow-unforeseen", REFERENCE, &pairs).noting(format!("{note}, copied when they are written: {faults} faults")));
    template.train(&mut stage, Template::wait)?;
    let (pairs, faults) = compare(options, &mut stage, &template, &root, &program)?;
    report(Row::pairs("cow-penalty", REFERENCE, &pairs).noting(format!("{note}, foreseen: {faults} faults")));
    Ok(())
}

/// What a clone takes, and a cell in which the program has just started, as they say; and how often the last clone faulted.
fn compare(
    options: Options<'_>,
    stage: &mut Stage,
    template: &Template,
    root: &Root,
    program: &Program,
) -> Result<(Pairs, u64), BenchError> {
    let mut faults = 0;
    let pairs = alternate(options.rounds(20), |side| {
        let cell = if side == Side::Ours { template.clone(stage)? } else { Fresh::new(stage, root, program)? };
        let said = cell.say(stage)?;
        if side == Side::Ours {
            faults = stage.kernel.inspect(cell.cell)?.1.faults;
        }
        stage.end(cell.cell)?;
        number(&said)
    })?;
    Ok((pairs, faults))
}
