// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clones of programs of all sizes up to their first instruction. The references are `fork` of a process of that size, and
//! HyperFork's method to clone a VM of that size (figure 2 of its paper).

use super::fixture::FrozenTemplate;
use crate::harness::Harness;
use crate::native::memory::Pages;
use crate::native::process::{Forker, Kind};
use crate::plot::{Line, Plot};
use crate::program::{CompiledProgram, program};
use crate::sample::{Pairs, Side, alternate};
use crate::{BenchError, BenchOptions, Row};
use pando_abi::Hypercall;
use pando_abi::hypercall::PORT;
use pando_launch::Program;
use pando_machine::PageCount;

const SOURCE: &str = include_str!("size.c");

/// A size to clone at.
struct Size {
    mebibytes: u64,
    rounds: usize,
    /// Names of the rows: compared with `fork`, and with `fork` and a VM.
    names: [&'static str; 2],
}

const SIZES: [Size; 7] = [
    Size { mebibytes: 1, rounds: 100, names: ["fork-1m", "hyperfork-1m"] },
    Size { mebibytes: 4, rounds: 100, names: ["fork-4m", "hyperfork-4m"] },
    Size { mebibytes: 16, rounds: 100, names: ["fork-16m", "hyperfork-16m"] },
    Size { mebibytes: 64, rounds: 100, names: ["fork-64m", "hyperfork-64m"] },
    Size { mebibytes: 256, rounds: 40, names: ["fork-256m", "hyperfork-256m"] },
    Size { mebibytes: 1 << 10, rounds: 20, names: ["fork-1g", "hyperfork-1g"] },
    Size { mebibytes: 4 << 10, rounds: 10, names: ["fork-4g", "hyperfork-4g"] },
];
/// The number of sizes in a brief run.
const BRIEF: usize = 4;
/// The references.
const REFERENCES: [(Kind, &str); 2] =
    [(Kind::Process, "fork, 4 KiB pages"), (Kind::Vm, "fork, 4 KiB pages, and a new VM with the old one's registers")];
/// Memory for tables, the libOS and clones, besides the pages of the templates.
pub(super) const ROOM: PageCount = PageCount(64 << 10);
/// The quota of a program besides its pages.
pub(super) const OVERHEAD: PageCount = PageCount(16 << 10);

impl Size {
    fn pages(&self) -> PageCount {
        PageCount::covering(self.mebibytes << 20)
    }
}

/// Compiles the program, whose argument is the number of MiB to fill.
pub(super) fn compile() -> Result<CompiledProgram, BenchError> {
    let relinquish = Hypercall::Relinquish {}.encode().0;
    CompiledProgram::new(&format!("#define RELINQUISH {relinquish}\n#define PORT {PORT}\n{SOURCE}"))
}

pub(super) fn run(
    options: BenchOptions<'_>,
    plot: &mut dyn FnMut(Plot) -> Result<(), BenchError>,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    let sizes = if options.brief { &SIZES[..BRIEF] } else { &SIZES[..] };
    let compiled = compile()?;
    let mut harness = Harness::new(sizes.iter().fold(ROOM, |sum, size| sum + size.pages()))?;
    let root = compiled.booted(&mut harness)?;
    let templates = sizes
        .iter()
        .map(|size| {
            let program = Program { memory: size.pages() + OVERHEAD, ..program(&[&size.mebibytes.to_string()]) };
            FrozenTemplate::trained(&mut harness, &root, program)
        })
        .collect::<Result<Vec<_>, _>>()?;

    let mut lines = ["a clone", "fork", "fork and a new VM"].map(|name| Line { name, points: Vec::new() });
    for (size, template) in sizes.iter().zip(&templates) {
        for (index, (kind, reference)) in REFERENCES.into_iter().enumerate() {
            let pairs = beside(options.rounds(size.rounds), &mut harness, template, kind, size)?;
            report(Row::pairs(size.names[index], reference, &pairs).noting("a clone's first instruction, the libOS's included"));
            let point = |sample: &crate::sample::Sample| (size.mebibytes as f64, sample.median() / 1000.0);
            if kind == Kind::Process {
                lines[0].points.push(point(&pairs.ours));
            }
            lines[1 + index].points.push(point(&pairs.theirs));
        }
    }
    let title = "From the request for a clone to its first instruction (HyperFork, figure 2)";
    plot(Plot { name: "clone-size", title, x: "MiB", y: "µs", lines: lines.into() })?;
    flat(options, &mut harness, &templates, report)
}

/// Measures a template's clones, each after a `fork` of a process with as many pages.
fn beside(rounds: usize, harness: &mut Harness, template: &FrozenTemplate, kind: Kind, size: &Size) -> Result<Pairs, BenchError> {
    let forker = Forker::start(size.pages().bytes() as usize, Pages::Small, kind).map_err(BenchError::host("start a process to fork"))?;
    alternate(rounds, |side| match side {
        Side::Ours => template.first_instruction(harness),
        Side::Theirs => forker.measure().map_err(BenchError::host("fork")),
    })
}

/// Compares the largest with the smallest.
fn flat(
    options: BenchOptions<'_>,
    harness: &mut Harness,
    templates: &[FrozenTemplate],
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    let [smallest, largest] = [&templates[0], &templates[templates.len() - 1]];
    let of = |side| if side == Side::Ours { largest } else { smallest };
    let pairs = alternate(options.rounds(400), |side| of(side).first_instruction(harness))?;
    report(Row::pairs("flat-1m-4g", "a clone at 1 MiB", &pairs).noting("its first instruction, at the largest size"));
    let pairs = alternate(options.rounds(400), |side| of(side).first_line(harness))?;
    report(Row::pairs("flat-line", "a clone at 1 MiB", &pairs).noting("until it has printed a line, at the largest size"));
    Ok(())
}
