// SPDX-License-Identifier: MIT OR Apache-2.0
//! `numpy-clone-first-ms`: the time until a clone of Python with numpy prints, compared with a process that forks.

use super::fixture::FrozenTemplate;
use super::python::{ARENA, NUMPY, needs, python, software};
use crate::harness::Harness;
use crate::process_runs::PYTHON;
use crate::program::{Process, boot};
use crate::sample::{Side, alternate};
use crate::{BenchError, BenchOptions, Row, exit_causes};
use std::process::Command;
use std::time::Instant;

/// A program that loads numpy and prints a sum, which Python writes when the program ends.
const PRINT: &str = "import numpy, pando; pando.ready(); print(numpy.arange(10).sum())";
/// Its counterpart on the host.
const FORK: &str = include_str!("../programs/sources/fork_for_requests.py");
/// Clones before the first measured one.
const WARMING: usize = 5;

/// Measures the row.
pub(crate) fn run(options: BenchOptions<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs(NUMPY)?;
    let mut harness = Harness::new(ARENA)?;
    let root = boot(&mut harness, vec![software()?])?;
    let template = FrozenTemplate::new(&mut harness, &root, python(PRINT))?;
    template.train(&mut harness, FrozenTemplate::end)?;
    let mut command = Command::new(PYTHON);
    command.args(["-c", FORK]);
    let mut forking = Process::start(command)?;
    for _ in 0..WARMING {
        template.first_output(&mut harness)?;
    }
    let counters = template.first_output(&mut harness)?.1;
    let pairs = alternate(options.rounds(40), |side| match side {
        Side::Ours => Ok(template.first_output(&mut harness)?.0),
        Side::Theirs => {
            let start = Instant::now();
            let sum = forking.ask("\n")?;
            let time = start.elapsed().as_nanos() as f64;
            // The child has ended then.
            let line = forking.line()?;
            if sum == 45.0 && line == "ready\n" { Ok(time) } else { Err(BenchError::Failed(format!("Python printed {sum}, {line}"))) }
        }
    })?;
    let causes = exit_causes::describe(counters.exits, counters.exit_causes());
    let note = format!("a clone of a trained template, from its request to the first byte of `print(numpy.arange(10).sum())`; {causes}");
    let milliseconds = |nanos: f64| nanos / 1e6;
    report(Row {
        value: milliseconds(pairs.ours.median()),
        unit: "ms",
        reference_value: Some(milliseconds(pairs.theirs.median())),
        ..Row::pairs("numpy-clone-first-ms", "python3 with numpy that forks", &pairs).noting(note)
    });
    Ok(())
}
