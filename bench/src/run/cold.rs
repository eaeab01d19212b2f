// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cold`: the shortest life of a program, beside the same in a light sandbox of the host. The cached image is warm after the first time.

use crate::bare::Bare;
use crate::sample::Sample;
use crate::whole::{BUSYBOX, Place, compare};
use crate::{BenchError, Options, Row};
use serde_json::Value;
use std::process::Stdio;

pub(super) const SANDBOX: &str = "bwrap";
/// The rows of a run's parts, as `--stats` names them; what is missing from the whole is the process itself: its start, its end.
const PARTS: [(&str, &str, &str); 6] = [
    ("cold-view", "view", "finding the program and opening the images"),
    ("cold-machine", "machine", "making the VM"),
    ("cold-libos", "libOS", "booting the template"),
    ("cold-cell", "cell", "making the cell"),
    ("cold-confinement", "confinement", "starting threads and giving up what they do not need"),
    ("cold-program", "program", "from the start of the cell to its end"),
];

pub(super) fn run(options: Options<'_>, place: &Place<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
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

/// Where the time goes, and how many exits are in it.
fn parts(rounds: usize, place: &Place<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let runs = (0..rounds).map(|_| stats(place)).collect::<Result<Vec<Value>, _>>()?;
    let sample =
        |figure: &dyn Fn(&Value) -> Option<f64>| runs.iter().map(figure).collect::<Option<_>>().map(Sample::of).ok_or(BenchError::Astray);
    for (name, part, note) in PARTS {
        report(Row::time(name, &sample(&|run| run["time_ns"][part].as_f64())?).noting(note));
    }
    report(Row::of("cold-exits", sample(&|run| run["exits"].as_f64())?.median(), "exits"));
    Ok(())
}

/// What such a run says of itself.
fn stats(place: &Place<'_>) -> Result<Value, BenchError> {
    let mut command = place.cell(&["--stats=json"], BUSYBOX, &["true"]);
    let output = command.stderr(Stdio::piped()).output().map_err(BenchError::host("start a cell"))?;
    serde_json::from_slice(&output.stderr).map_err(|_| BenchError::Failed(String::from_utf8_lossy(&output.stderr).into()))
}
