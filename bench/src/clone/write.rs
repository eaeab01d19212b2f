// SPDX-License-Identifier: MIT OR Apache-2.0
//! What copy-on-write costs a program that writes over all its memory (HyperFork, figure 4): in a clone, beside a cell that is none.

use super::grove::{Fresh, Template};
use crate::plot::{Line, Plot};
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

/// How many of every hundred pages are written, for the plot.
const SHARES: [u64; 5] = [1, 5, 20, 50, 100];
/// How often each is measured.
const SHARE_ROUNDS: usize = 5;

pub(super) fn run(
    options: Options<'_>,
    plot: &mut dyn FnMut(Plot) -> Result<(), BenchError>,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    let pages = if options.brief { BRIEF } else { PAGES };
    let compiled = Compiled::new(SOURCE)?;
    let mut stage = Stage::new(ARENA)?;
    let root = compiled.booted(&mut stage)?;
    let of_hundred = |share: u64| Program { memory: pages + OVERHEAD, ..program(&[&pages.0.to_string(), &share.to_string()]) };
    let [plain, foreseen] = both(options.rounds(20), &mut stage, &root, &of_hundred(100))?;
    let note = format!("{} pages written over", pages.0);
    let [faults, few] = [plain.faults, foreseen.faults];
    report(Row::pairs("cow-unforeseen", REFERENCE, &plain.pairs).noting(format!("{note}, copied when they are written: {faults} faults")));
    report(Row::pairs("cow-penalty", REFERENCE, &foreseen.pairs).noting(format!("{note}, foreseen: {few} faults")));
    if options.plots.is_none() {
        return Ok(());
    }
    let mut lines = ["copied when they are written", "foreseen"].map(|name| Line { name, points: Vec::new() });
    for share in SHARES {
        let compared = both(options.rounds(SHARE_ROUNDS), &mut stage, &root, &of_hundred(share))?;
        for (line, Compared { pairs, .. }) in lines.iter_mut().zip(compared) {
            line.points.push((share as f64, pairs.ratio.median()));
        }
    }
    let title = "Time to write pages in a clone, to the same in a cell that is none (HyperFork, figure 4)";
    plot(Plot { name: "clone-write", title, x: "% of 16 MiB written", y: "times", lines: lines.into() })
}

/// What was compared, and how often the last clone faulted.
struct Compared {
    pairs: Pairs,
    faults: u64,
}

/// Clones of a template that has not learned, and of the same when it has.
fn both(rounds: usize, stage: &mut Stage, root: &Root, program: &Program) -> Result<[Compared; 2], BenchError> {
    let template = Template::new(stage, root, program.clone())?;
    let plain = compare(rounds, stage, &template, root, program)?;
    template.train(stage, Template::wait)?;
    let foreseen = compare(rounds, stage, &template, root, program)?;
    stage.end(template.root.cell())?;
    Ok([plain, foreseen])
}

/// What a clone takes, and a cell in which the program has just started, as they say.
fn compare(rounds: usize, stage: &mut Stage, template: &Template, root: &Root, program: &Program) -> Result<Compared, BenchError> {
    let mut faults = 0;
    let pairs = alternate(rounds, |side| {
        let cell = if side == Side::Ours { template.clone(stage)? } else { Fresh::new(stage, root, program)? };
        let said = cell.say(stage)?;
        if side == Side::Ours {
            faults = stage.kernel.inspect(cell.cell)?.1.faults;
        }
        stage.end(cell.cell)?;
        number(&said)
    })?;
    Ok(Compared { pairs, faults })
}
