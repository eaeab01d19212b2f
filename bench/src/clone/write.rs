// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of copy-on-write for a program that writes over all its memory (HyperFork, figure 4): in a clone, compared with
//! a cell that is none.

use super::fixture::{FrozenTemplate, UnstartedCell};
use crate::harness::Harness;
use crate::plot::{Line, Plot};
use crate::program::{CompiledProgram, number, program};
use crate::sample::{Pairs, Side, alternate};
use crate::{BenchError, BenchOptions, Row};
use pando_launch::{Program, Root};
use pando_machine::PageCount;

const SOURCE: &str = include_str!("write.c");
/// The written memory: 16 MiB.
const PAGES: PageCount = PageCount(4096);
const BRIEF: PageCount = PageCount(64);
/// The quota of a program besides these pages.
const OVERHEAD: PageCount = PageCount(4096);
const ARENA: PageCount = PageCount(1 << 17);
const REFERENCE: &str = "a cell that is no clone";

/// The percentages of pages written, for the plot.
const SHARES: [u64; 5] = [1, 5, 20, 50, 100];
/// The number of measurements of each.
const SHARE_ROUNDS: usize = 5;

pub(super) fn run(
    options: BenchOptions<'_>,
    plot: &mut dyn FnMut(Plot) -> Result<(), BenchError>,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    let pages = if options.brief { BRIEF } else { PAGES };
    let compiled = CompiledProgram::new(SOURCE)?;
    let mut harness = Harness::new(ARENA)?;
    let root = compiled.booted(&mut harness)?;
    let of_hundred = |share: u64| Program { memory: pages + OVERHEAD, ..program(&[&pages.0.to_string(), &share.to_string()]) };
    let [plain, foreseen] = both(options.rounds(20), &mut harness, &root, &of_hundred(100))?;
    let note = format!("{} pages written over", pages.0);
    let [faults, few] = [plain.faults, foreseen.faults];
    report(Row::pairs("cow-unforeseen", REFERENCE, &plain.pairs).noting(format!("{note}, copied when they are written: {faults} faults")));
    report(Row::pairs("cow-penalty", REFERENCE, &foreseen.pairs).noting(format!("{note}, foreseen: {few} faults")));
    if options.plots.is_none() {
        return Ok(());
    }
    let mut lines = ["copied when they are written", "foreseen"].map(|name| Line { name, points: Vec::new() });
    for share in SHARES {
        let compared = both(options.rounds(SHARE_ROUNDS), &mut harness, &root, &of_hundred(share))?;
        for (line, WriteComparison { pairs, .. }) in lines.iter_mut().zip(compared) {
            line.points.push((share as f64, pairs.ratio.median()));
        }
    }
    let title = "Time to write pages in a clone, to the same in a cell that is none (HyperFork, figure 4)";
    plot(Plot { name: "clone-write", title, x: "% of 16 MiB written", y: "times", lines: lines.into() })
}

/// The results of a comparison, and the number of faults of the last clone.
struct WriteComparison {
    pairs: Pairs,
    faults: u64,
}

/// Measures clones of a template without training, and of the same template after training.
fn both(rounds: usize, harness: &mut Harness, root: &Root, program: &Program) -> Result<[WriteComparison; 2], BenchError> {
    let template = FrozenTemplate::new(harness, root, program.clone())?;
    let plain = compare(rounds, harness, &template, root, program)?;
    template.train(harness, FrozenTemplate::wait)?;
    let foreseen = compare(rounds, harness, &template, root, program)?;
    harness.end(template.root.cell())?;
    Ok([plain, foreseen])
}

/// Compares a clone with a cell in which the program has just started, by the times that they print.
fn compare(
    rounds: usize,
    harness: &mut Harness,
    template: &FrozenTemplate,
    root: &Root,
    program: &Program,
) -> Result<WriteComparison, BenchError> {
    let mut faults = 0;
    let pairs = alternate(rounds, |side| {
        let cell = if side == Side::Ours { template.clone(harness)? } else { UnstartedCell::new(harness, root, program)? };
        let said = cell.say(harness)?;
        if side == Side::Ours {
            faults = harness.kernel.inspect(cell.cell)?.1.faults;
        }
        harness.end(cell.cell)?;
        number(&said)
    })?;
    Ok(WriteComparison { pairs, faults })
}
