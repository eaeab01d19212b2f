// SPDX-License-Identifier: MIT OR Apache-2.0
//! `checkpoint-flat` and `restore-1g-ms`: for how long a program is halted for a checkpoint, at 1 GiB against 1 MiB, and how soon a
//! restored program runs.
//!
//! The program writes to 64 pages each 10 ms. `pando checkpoint --stats` measures the halt itself. The first checkpoint, which stores
//! everything, is left out.

use crate::program::CompiledProgram;
use crate::sample::{Pairs, Sample};
use crate::{BenchError, BenchOptions, Row};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const RESIDENT: &str = include_str!("sources/resident.c");
/// MiB of the large and of the small program, and in a brief run.
const SIZES: [[&str; 2]; 2] = [["1024", "1"], ["32", "1"]];
/// Checkpoints of a program.
const CHECKPOINTS: usize = 30;

/// A process that is killed when this is dropped.
struct ProcessGuard(Child);

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures the rows.
pub(super) fn run(options: BenchOptions<'_>, pando: &Path, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let program = CompiledProgram::new(RESIDENT)?;
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let count = options.rounds(CHECKPOINTS);
    let sizes = SIZES[usize::from(options.brief)];
    let [large, small] = sizes.map(|size| pauses(pando, &program, &directory.path().join(size), size, count));
    let (large, small) = (large?, small?);
    let pairs = Pairs::of(large.clone(), small);
    report(
        Row::pairs("checkpoint-flat", "a program of 1 MiB", &pairs)
            .noting(format!("for how long a checkpoint halts a program of {} MiB that writes to 6400 pages a second", sizes[0])),
    );
    let times = (0..options.rounds(10)).map(|_| restore(pando, &directory.path().join(sizes[0]))).collect::<Result<Vec<_>, _>>()?;
    let (whole, built): (Vec<f64>, Vec<f64>) = times.into_iter().unzip();
    let sample = Sample::of(built);
    let note = format!(
        "{} MiB, until the program's cell is built, its pages unread; with the start of pando and the program's next line {:.1} ms",
        sizes[0],
        Sample::of(whole).median() / 1e6
    );
    report(Row { spread: Some(sample.spread()), ..Row::of("restore-1g-ms", sample.median() / 1e6, "ms") }.noting(note));
    Ok(())
}

/// The times in nanoseconds for which checkpoints halt a program.
fn pauses(pando: &Path, program: &CompiledProgram, directory: &Path, size: &str, count: usize) -> Result<Vec<f64>, BenchError> {
    let mut command = Command::new(pando);
    command.args(["checkpoint", "--stats", "--every", "200ms", "-m", "4G", "-o"]).arg(directory);
    command.arg("--").arg(program.path()).arg(size).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = ProcessGuard(command.spawn().map_err(BenchError::host("start pando checkpoint"))?);
    let errors = child.0.stderr.take().expect("it is a pipe");
    let mut pauses = Vec::with_capacity(count);
    for line in BufReader::new(errors).lines() {
        let line = line.map_err(BenchError::host("read the output of pando checkpoint"))?;
        let (_, rest) = line.split_once("halted for ").ok_or_else(|| BenchError::Failed(line.clone()))?;
        let milliseconds: f64 =
            rest.split(' ').next().and_then(|number| number.parse().ok()).ok_or_else(|| BenchError::Failed(line.clone()))?;
        pauses.push(milliseconds * 1e6);
        if pauses.len() > count {
            pauses.remove(0);
            return Ok(pauses);
        }
    }
    Err(BenchError::Failed(format!("pando checkpoint ended after {} checkpoints", pauses.len())))
}

/// The times in nanoseconds from the start of `pando restore` to the program's next line, and until the program's cell is built.
fn restore(pando: &Path, directory: &Path) -> Result<(f64, f64), BenchError> {
    let mut command = Command::new(pando);
    command.arg("restore").arg("--stats").arg(directory).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let began = Instant::now();
    let mut child = ProcessGuard(command.spawn().map_err(BenchError::host("start pando restore"))?);
    let output = child.0.stdout.take().expect("it is a pipe");
    let errors = child.0.stderr.take().expect("it is a pipe");
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).map_err(BenchError::host("read the output of a restored program"))?;
    let whole = began.elapsed().as_nanos() as f64;
    let mut text = String::new();
    BufReader::new(errors).read_line(&mut text).map_err(BenchError::host("read the output of pando restore"))?;
    let built = text.split_once("restored in ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
    Ok((whole, built.ok_or(BenchError::Failed(text))? * 1e6))
}
