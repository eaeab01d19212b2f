// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cold`: the shortest run of a program, compared with a light sandbox of the host. The cached image is warm after the first run.

use crate::bare::Bare;
use crate::process_runs::{BUSYBOX, WorkDirectory, compare, run_with_stats};
use crate::sample::Sample;
use crate::{BenchError, BenchOptions, Row};
use serde_json::Value;

pub(super) const SANDBOX: &str = "bwrap";
/// The rows of a run's parts, as `--stats` names them. The rest of the total is the process itself: its start and its exit.
const PARTS: [(&str, &str, &str); 6] = [
    ("cold-view", "view", "finding the program and opening the images"),
    ("cold-machine", "machine", "making the VM"),
    ("cold-libos", "libos", "booting the template"),
    ("cold-cell", "cell", "making the cell"),
    ("cold-confinement", "confinement", "starting threads and dropping their privileges"),
    ("cold-program", "program", "from the start of the cell to its end"),
];

pub(super) fn run(options: BenchOptions<'_>, place: &WorkDirectory<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let mut bare = Bare::new()?;
    let exit = Sample::take(options.rounds(100), || bare.exit())?;
    let ours = place.cell(&[], BUSYBOX, &["true"]);
    let theirs = place.native(SANDBOX, &["--unshare-all", "--ro-bind", "/", "/", BUSYBOX, "true"]);
    let pairs = compare(options.rounds(60), &[0], ours, theirs)?;
    report(Row::pairs("cold", "bwrap --unshare-all --ro-bind / /", &pairs).noting("pando run of busybox true, the whole process"));
    parts(options.rounds(30), place, report)?;
    report(Row::time("cold-exit", &exit).noting("the machine's bare exit"));
    Ok(())
}

/// The time of each part, and the number of exits in it.
fn parts(rounds: usize, place: &WorkDirectory<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let runs = (0..rounds).map(|_| stats(place)).collect::<Result<Vec<Value>, _>>()?;
    let sample = |figure: &dyn Fn(&Value) -> Option<f64>| {
        runs.iter()
            .map(figure)
            .collect::<Option<_>>()
            .map(Sample::of)
            .ok_or_else(|| BenchError::Failed("the statistics of a run lack a duration".into()))
    };
    for (name, part, note) in PARTS {
        report(Row::time(name, &sample(&|run| run["time_ns"][part].as_f64())?).noting(note));
    }
    report(Row::of("cold-exits", sample(&|run| run["exits"].as_f64())?.median(), "exits"));
    Ok(())
}

/// The statistics that such a run prints.
fn stats(place: &WorkDirectory<'_>) -> Result<Value, BenchError> {
    Ok(run_with_stats(place.cell(&["--stats=json"], BUSYBOX, &["true"]))?.stats)
}
