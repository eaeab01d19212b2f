// SPDX-License-Identifier: MIT OR Apache-2.0
//! `serve-1`, `serve-8`, `serve-64`: a clone's whole life, requested from `pando serve` by HTTP. One, 8 or 64 clients have
//! one request in flight each. Nothing is pinned.

use super::python::{EXECUTE, LEAVING, NUMPY, needs};
use crate::process_runs::PYTHON;
use crate::sample::Sample;
use crate::service::{ServiceProcess, pando as run_pando};
use crate::{BenchError, BenchOptions, Row};
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// The number of clients at once, and the names of their rows.
const CLIENTS: [(usize, &str, &str); 3] =
    [(1, "serve-1-p50", "serve-1-p99"), (8, "serve-8-p50", "serve-8-p99"), (64, "serve-64-p50", "serve-64-p99")];
/// Requests of all clients together, at least.
const REQUESTS: usize = 200;
const TEMPLATE: &str = "python";

pub(super) fn run(options: BenchOptions<'_>, pando: &Path, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs(NUMPY)?;
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let template = ["template", "create", "--train-arg", LEAVING, TEMPLATE, "--", PYTHON, "-c", EXECUTE];
    run_pando(pando, directory.path(), &template)?;
    let service = ServiceProcess::start(pando, directory.path(), &[])?;
    for (clients, median, tail) in CLIENTS {
        let rounds = options.rounds(REQUESTS.div_ceil(clients).max(20));
        let times = load(&service, clients, rounds)?;
        let note = format!("a clone of Python with numpy requested from `pando serve`, {clients} at a time: `{LEAVING}`");
        let milliseconds = |part| times.quantile(part) / 1e6;
        report(Row { spread: Some(times.spread()), ..Row::of(median, milliseconds(0.5), "ms") }.noting(note.clone()));
        report(Row::of(tail, milliseconds(0.99), "ms").noting(note));
    }
    Ok(())
}

/// Nanoseconds of each request.
fn load(service: &ServiceProcess, clients: usize, rounds: usize) -> Result<Sample, BenchError> {
    let client = || (0..rounds).map(|_| ask(service)).collect::<Result<Vec<f64>, _>>();
    let all: Result<Vec<Vec<f64>>, BenchError> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| BenchError::Failed("a thread with requests panicked".into()))?).collect()
    });
    Ok(Sample::of(all?.concat()))
}

/// Nanoseconds from the connection to the answer's last byte.
fn ask(service: &ServiceProcess) -> Result<f64, BenchError> {
    let start = Instant::now();
    let said = service.ask("POST", "/v1/run", &json!({ "template": TEMPLATE, "arguments": [LEAVING] }))?;
    let time = start.elapsed().as_nanos() as f64;
    if said["stdout"] == "1\n" { Ok(time) } else { Err(BenchError::Failed(said.to_string())) }
}
