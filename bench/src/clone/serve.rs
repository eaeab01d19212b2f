// SPDX-License-Identifier: MIT OR Apache-2.0
//! `serve-1`, `serve-8`, `serve-64`: a clone's whole life, requested from `pando serve` by HTTP. One, 8 or 64 clients have
//! one request in flight each. Nothing is pinned.

use super::python::{EXECUTE, LEAVING, NUMPY, needs};
use crate::process_runs::PYTHON;
use crate::sample::Sample;
use crate::{BenchError, BenchOptions, Row};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// The number of clients at once, and the names of their rows.
const CLIENTS: [(usize, &str, &str); 3] =
    [(1, "serve-1-p50", "serve-1-p99"), (8, "serve-8-p50", "serve-8-p99"), (64, "serve-64-p50", "serve-64-p99")];
/// Requests of all clients together, at least.
const REQUESTS: usize = 200;
const TEMPLATE: &str = "python";

/// A service with its template. Terminated when dropped.
struct Service {
    child: Child,
    socket: PathBuf,
    // Kept open so that the service can still print.
    _errors: BufReader<std::process::ChildStderr>,
}

pub(super) fn run(options: BenchOptions<'_>, pando: &Path, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs(NUMPY)?;
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let service = Service::start(pando, directory.path())?;
    for (clients, median, tail) in CLIENTS {
        let rounds = options.rounds(REQUESTS.div_ceil(clients).max(20));
        let times = service.load(clients, rounds)?;
        let note = format!("a clone of Python with numpy requested from `pando serve`, {clients} at a time: `{LEAVING}`");
        let milliseconds = |part| times.quantile(part) / 1e6;
        report(Row { spread: Some(times.spread()), ..Row::of(median, milliseconds(0.5), "ms") }.noting(note.clone()));
        report(Row::of(tail, milliseconds(0.99), "ms").noting(note));
    }
    Ok(())
}

impl Service {
    /// Creates a trained template, and starts a service that has it.
    fn start(pando: &Path, directory: &Path) -> Result<Service, BenchError> {
        let command = || {
            let mut command = Command::new(pando);
            command.env("XDG_DATA_HOME", directory.join("data")).env_remove("XDG_RUNTIME_DIR").current_dir(directory).stdin(Stdio::null());
            command
        };
        let arguments = ["template", "create", "--train-arg", LEAVING, TEMPLATE, "--", PYTHON, "-c", EXECUTE];
        let output = command().args(arguments).output().map_err(BenchError::host("start pando"))?;
        if !output.status.success() {
            return Err(BenchError::Failed(String::from_utf8_lossy(&output.stderr).into()));
        }
        let child = command().arg("serve").stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(BenchError::host("start pando"))?;
        let mut errors = BufReader::new(child.stderr.take().ok_or(BenchError::Astray)?);
        let mut line = String::new();
        errors.read_line(&mut line).map_err(BenchError::host("read the service's output"))?;
        let service = Service { child, socket: directory.join("data/pando/run/socket"), _errors: errors };
        if line.contains("serving at") { Ok(service) } else { Err(BenchError::Failed(line)) }
    }

    /// Nanoseconds of each request.
    fn load(&self, clients: usize, rounds: usize) -> Result<Sample, BenchError> {
        let client = || (0..rounds).map(|_| self.ask()).collect::<Result<Vec<f64>, _>>();
        let all: Result<Vec<Vec<f64>>, BenchError> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
            threads.into_iter().map(|thread| thread.join().map_err(|_| BenchError::Astray)?).collect()
        });
        Ok(Sample::of(all?.concat()))
    }

    /// Nanoseconds from the connection to the answer's last byte.
    fn ask(&self) -> Result<f64, BenchError> {
        let body = json!({ "template": TEMPLATE, "arguments": [LEAVING] }).to_string();
        let start = Instant::now();
        let answer = self.exchange(&body).map_err(BenchError::host("send a request to the service"))?;
        let time = start.elapsed().as_nanos() as f64;
        let said = answer.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str::<Value>(body).ok());
        if said.is_some_and(|said| said["stdout"] == "1\n") { Ok(time) } else { Err(BenchError::Failed(answer)) }
    }

    fn exchange(&self, body: &str) -> std::io::Result<String> {
        let mut stream = UnixStream::connect(&self.socket)?;
        let length = body.len();
        let head = "POST /v1/run HTTP/1.1\r\nhost: pando\r\nconnection: close\r\ncontent-type: application/json";
        write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n{body}")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
