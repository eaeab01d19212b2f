// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench nest`: the cost of work in a cell that lies sixteen deep, compared with the same work one deep. It also measures work under
//! six monitors, messages between cells, paging, checkpoints, and the memory of a cell that may have nested cells.
//!
//! The paper on recursive virtual machines (Ford et al., 1996) measures the same for its nested virtual machines. The programs measure the
//! time themselves, so that the cells around only wait.

mod checkpoint;
mod idle;
mod messages;
mod monitors;
mod pager;

use crate::bare::Bare;
use crate::linux::PARTS;
use crate::program::{CompiledProgram, Process};
use crate::sample::{Pairs, Sample, Side, alternate};
use crate::{BenchError, BenchOptions, Row};
use std::path::Path;
use std::process::{Command, Stdio};

/// The number of levels.
const DEPTH: u32 = 16;
/// Descendants of the outermost cell.
const CELLS: u32 = 100;
/// The reference of rows about depth.
const REFERENCE: &str = "the same one deep";
/// The factor by which a brief run does less.
const BRIEF: u32 = 20;

/// A row: its name, the part of the program with its arguments, the repetitions in one measurement, the rounds, and a note.
struct DepthBenchmark {
    name: &'static str,
    part: &'static [&'static str],
    count: u32,
    rounds: usize,
    note: &'static str,
}

const BENCHMARKS: &[DepthBenchmark] = &[
    DepthBenchmark { name: "depth-cpu", part: &["compute"], count: 20, rounds: 50, note: "arithmetic in registers" },
    DepthBenchmark { name: "depth-syscall", part: &["getppid"], count: 20_000, rounds: 50, note: "getppid" },
    DepthBenchmark {
        name: "depth-touch",
        part: &["first-touch"],
        count: 16_384,
        rounds: 50,
        note: "first write to a page of 2 MiB of fresh memory",
    },
    DepthBenchmark { name: "depth-fork", part: &["fork-exit"], count: 60, rounds: 50, note: "fork, exit and wait of a small process" },
    DepthBenchmark { name: "depth-read", part: &["read-4k-host"], count: 5_000, rounds: 50, note: "pread of a file of the host" },
];

/// Runs all benchmarks. `pando` is the program that creates cells.
pub(crate) fn run(options: BenchOptions<'_>, pando: &Path, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let mut bare = Bare::new()?;
    let exit = Sample::take(options.rounds(100), || bare.exit())?;
    report(Row::time("exit", &exit).noting("the machine's bare exit"));
    messages::run(options, &mut bare, report)?;
    let program = CompiledProgram::new(PARTS)?;
    for DepthBenchmark { name, part, count, rounds, note } in BENCHMARKS {
        let count = if options.brief { count.div_ceil(BRIEF) } else { *count };
        let pairs = compare(pando, &program, part, options.rounds(*rounds), count)?;
        report(Row::pairs(name, REFERENCE, &pairs).noting(*note));
    }
    report(monitors::measure(options, pando, &program)?);
    let inner = pando.display().to_string();
    let start = ["execute", &inner, "run", "--", "/bin/true"];
    let pairs = compare(pando, &program, &start, options.rounds(30), 1)?;
    report(Row::pairs("start-depth", REFERENCE, &pairs).noting("a further cell for /bin/true, from fork of the inner pando to wait"));
    idle::run(options, pando, report)?;
    report(pager::measure_with_enough_memory(options, pando, &program)?);
    report(pager::measure_with_half_the_memory(options, pando, &program)?);
    checkpoint::run(options, pando, report)
}

/// Compares a part of the program sixteen deep and one deep.
fn compare(pando: &Path, program: &CompiledProgram, part: &[&str], rounds: usize, count: u32) -> Result<Pairs, BenchError> {
    compare_commands(at_depth(DEPTH, pando, program, part), at_depth(1, pando, program, part), rounds, count)
}

/// Compares two commands that run the same part of the program.
fn compare_commands(ours: Command, theirs: Command, rounds: usize, count: u32) -> Result<Pairs, BenchError> {
    let (mut ours, mut theirs) = (Process::start(ours)?, Process::start(theirs)?);
    let line = format!("{count}\n");
    // The first answer waits for all levels to start.
    for process in [&mut ours, &mut theirs] {
        process.ask("1\n")?;
    }
    alternate(rounds, |side| {
        let asked = if side == Side::Ours { &mut ours } else { &mut theirs };
        Ok(asked.ask(&line)? / f64::from(count))
    })
}

/// The command for a part of the program at this depth.
fn at_depth(depth: u32, pando: &Path, program: &CompiledProgram, part: &[&str]) -> Command {
    let mut command = Command::new(pando);
    command.args(["run", "--nest", &CELLS.to_string()]);
    // The inner ones find both where the host has them.
    for file in [pando, program.path()] {
        command.arg("-v").arg(file);
    }
    for level in 1..depth {
        command.arg("--").arg(pando).args(["run", "--nest", &(CELLS - level).to_string()]);
    }
    command.arg("--").arg(program.path()).args(part).stderr(Stdio::inherit());
    command
}
