// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pager-fits` and `pager-half-exits`: a program under `pando page`, with memory that suffices, and with half of it.
//!
//! The program writes to all pages of its memory in order, again and again.

use super::compare_commands;
use crate::process_runs::{StatsRun, run_with_stats};
use crate::program::CompiledProgram;
use crate::sample::Sample;
use crate::{BenchError, BenchOptions, Row};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// MiB of the program and of its cell while they suffice.
const FITTING: [&str; 2] = ["32", "256M"];
/// MiB of the program, and half of them for its cell.
const HALF: [&str; 2] = ["96", "48M"];
/// How often a program goes through its memory in one measurement.
const WALKS: u32 = 40;
/// How often a program goes through its memory if half of it is missing, in the two runs whose difference counts.
const PAGED_WALKS: [u32; 2] = [1, 5];
/// The right to cells of the monitors: one for the program.
const CELLS: &str = "2";

/// Measures `pager-fits`.
pub(super) fn measure_with_enough_memory(options: BenchOptions<'_>, pando: &Path, program: &CompiledProgram) -> Result<Row, BenchError> {
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let [size, memory] = FITTING;
    let mut paged = Command::new(pando);
    paged.args(["page", "-m", memory, "--swap"]).arg(directory.path().join("swap"));
    let mut plain = Command::new(pando);
    plain.args(["run", "-v"]).arg(program.path());
    for command in [&mut paged, &mut plain] {
        command.arg("--").arg(program.path()).args(["walk", size]);
    }
    let pairs = compare_commands(paged, plain, options.rounds(50), WALKS)?;
    let note = format!("a program that writes to each page of {size} MiB, with a pager that has nothing to do");
    Ok(Row::pairs("pager-fits", "the same without a pager", &pairs).noting(note))
}

/// Measures `pager-half-exits`.
pub(super) fn measure_with_half_the_memory(options: BenchOptions<'_>, pando: &Path, program: &CompiledProgram) -> Result<Row, BenchError> {
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let [size, memory] = HALF;
    let input = directory.path().join("input");
    let run = |walks: u32| {
        std::fs::write(&input, format!("{walks}\n")).map_err(BenchError::host("write a file"))?;
        let mut command = Command::new(pando);
        command.args(["run", "--stats=json", "--nest", CELLS, "-v"]).arg(pando).arg("-v").arg(program.path());
        command.arg("--").arg(pando).args(["page", "--stats", "-m", memory, "--swap", "/tmp/swap", "--"]);
        command.arg(program.path()).args(["walk", size]);
        command.stdin(Stdio::from(File::open(&input).map_err(BenchError::host("open a file"))?));
        exits(command)
    };
    let mut values = Vec::new();
    for _ in 0..options.rounds(5) {
        let [first, last] = [run(PAGED_WALKS[0])?, run(PAGED_WALKS[1])?];
        values.push((last.0 - first.0) / (last.1 - first.1));
    }
    let sample = Sample::of(values);
    let note = format!("exits of the pager and of the program for each page that comes back, {size} MiB in {memory}");
    Ok(Row { spread: Some(sample.spread()), ..Row::of("pager-half-exits", sample.median(), "exits") }.noting(note))
}

/// The exits of the pager and those of the program to it, and the pages that came back.
fn exits(command: Command) -> Result<(f64, f64), BenchError> {
    let StatsRun { errors, stats, .. } = run_with_stats(command)?;
    match (stats["exits"].as_f64(), errors.lines().find_map(paging)) {
        (Some(exits), Some(paging)) => Ok((exits + paging.halts, paging.pages_in)),
        _ => Err(BenchError::Failed(format!("pando page printed no statistics: {errors}"))),
    }
}

/// The statistics of `pando page`.
struct Paging {
    pages_in: f64,
    /// For a page, or for memory.
    halts: f64,
}

/// Parses `12 pages out, 34 in; 5 faults, 6 shortages`.
fn paging(line: &str) -> Option<Paging> {
    let (_, rest) = line.split_once(" pages out, ")?;
    let (pages_in, rest) = rest.split_once(" in; ")?;
    let (faults, rest) = rest.split_once(" faults, ")?;
    let shortages: f64 = rest.split(' ').next()?.parse().ok()?;
    Some(Paging { pages_in: pages_in.parse().ok()?, halts: faults.parse::<f64>().ok()? + shortages })
}
