// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando bench scale`: cells that sleep, and how they wake up (Denali: thousands of services on one machine, most of them idle).
//!
//! The kernel runs as in `pando serve`: vCPUs and the work on sleeping cells have threads of their own, and the records of sleeping cells
//! are in an unlinked file. The cells are clones of one small static server that answers lines on its console.

mod population;
mod swap;
mod zipf;

use crate::native::{cpu, usage};
use crate::program::CompiledProgram;
use crate::sample::{Sample, Side, alternate};
use crate::{BenchError, BenchOptions, Row};
use population::Population;
use std::path::Path;
use std::time::Duration;

/// The server's source.
const SOURCE: &str = include_str!("../kernel/idle.c");
/// Sleeping cells, without another number in the options.
const CELLS: usize = 20_000;
/// The small population has this part of the cells.
const PART: usize = 1000;
/// The smallest population: pairs are chosen among as many.
const MIN_CELLS: usize = 20;
/// How long the process is watched while all cells sleep.
const WATCHED: Duration = Duration::from_secs(5);
/// From this number of sleeping cells on, `million-bytes` is reported.
const MILLION: usize = 1_000_000;

/// Measures the rows.
pub(crate) fn run(
    options: BenchOptions<'_>,
    pando: &Path,
    pinned: cpu::PinnedThread,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    // Threads that wake cells run beside the measuring thread, as in the service.
    drop(pinned);
    if zipf::is_all(options) {
        return zipf::run(options, pando, report);
    }
    let cells = options.cells.unwrap_or(if options.brief { 200 } else { CELLS });
    let program = CompiledProgram::new(SOURCE)?;
    let mut few = Population::new(&program, (cells / PART).max(MIN_CELLS))?;
    few.fill()?;
    let mut many = Population::new(&program, cells)?;
    measure_memory(&mut many, cells, report)?;
    measure_idle(cells, report)?;
    measure_wakes(options, &mut few, &mut many, report)?;
    drop((few, many));
    swap::run(options, report)?;
    zipf::run(options, pando, report)
}

/// The memory of sleeping cells, and of resident ones.
fn measure_memory(many: &mut Population, cells: usize, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let read = || usage::own().map_err(BenchError::host("read the memory of this process"));
    let resident = resident_bytes(many, cells.div_ceil(10).min(2000), read)?;
    let note = format!("{} clones of a static server that wait for their first line", cells.div_ceil(10).min(2000));
    report(Row::of("resident-bytes", resident, "bytes").noting(note));
    many.wait_for_free_memory();
    // The first ones are not counted: the arena keeps some free memory of the host from then on.
    let first = cells / 4;
    many.fill_to(first)?;
    many.wait_for_free_memory();
    let (before, free) = (read()?, many.free());
    many.fill()?;
    many.wait_for_free_memory();
    let frames = free.saturating_sub(many.free()) * 4096;
    let memory = (read()? - before) / (cells - first) as f64;
    let file = many.swap_used() as f64 / cells as f64;
    let note = format!(
        "{cells} sleeping clones of it that have answered a line; {} bytes of that are frames of the arena",
        frames / (cells - first) as u64
    );
    report(Row::of("sleeping-bytes", memory, "bytes").noting(note));
    report(Row::of("sleeping-file-bytes", file, "bytes").noting(format!("{cells} records in a swap file, compressed")));
    if cells >= MILLION {
        report(Row::of("million-bytes", read()?, "bytes").noting(format!("all memory of the process with {cells} sleeping cells")));
    }
    Ok(())
}

/// The memory of a resident cell. The cells are ended again.
fn resident_bytes(many: &mut Population, count: usize, read: impl Fn() -> Result<f64, BenchError>) -> Result<f64, BenchError> {
    many.wait_for_free_memory();
    let before = read()?;
    let cells = (0..count).map(|_| many.idle()).collect::<Result<Vec<_>, _>>()?;
    many.wait_for_free_memory();
    let bytes = (read()? - before) / count as f64;
    cells.into_iter().try_for_each(|server| many.end(&server))?;
    Ok(bytes)
}

/// The CPU time of the process while all cells sleep.
fn measure_idle(cells: usize, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let time = || usage::cpu_time().map_err(BenchError::host("read the CPU time of this process"));
    let before = time()?;
    std::thread::sleep(WATCHED);
    let used = (time()? - before).as_secs_f64() / WATCHED.as_secs_f64() * 100.0;
    let note = format!("CPU of the process over {} s with {cells} cells asleep", WATCHED.as_secs());
    report(Row::of("idle-million-percent", used, "%").noting(note));
    Ok(())
}

/// Wakes among many and among few, and against a resident cell and a fresh clone.
fn measure_wakes(
    options: BenchOptions<'_>,
    few: &mut Population,
    many: &mut Population,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    let rounds = options.rounds(300);
    let (small, large) = (few.len(), many.len());
    let pairs = alternate(rounds, |side| match side {
        Side::Ours => many.timed_wake(),
        Side::Theirs => few.timed_wake(),
    })?;
    report(
        Row::pairs("wake-flat", "among a thousandth of the cells", &pairs)
            .noting(format!("a random one of {large} wakes up, against {small}")),
    );
    let resident = many.resident()?;
    let pairs = alternate(rounds, |side| match side {
        Side::Ours => many.timed_answer_of_sleeper(),
        Side::Theirs => many.timed_answer(&resident),
    })?;
    report(Row::pairs("wake-to-resident", "the answer of a resident one", &pairs).noting("a sleeping server gets a line, and answers"));
    let pairs = alternate(rounds, |side| match side {
        Side::Ours => many.timed_answer_of_sleeper(),
        Side::Theirs => many.timed_answer_of_clone(),
    })?;
    report(Row::pairs("wake-to-clone", "a fresh clone and its answer", &pairs).noting("a sleeping server gets a line, and answers"));
    many.end(&resident)?;
    let sleeps = Sample::take(rounds, || many.timed_sleep())?;
    report(Row::time("sleep", &sleeps).noting("an idle one falls asleep"));
    Ok(())
}
