// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions of Python with pandas in `pando serve`, by the requests of the Python client: the first answer, a pause on the disk, forks,
//! and the memory of a session that waits.

use super::{Fixture, milliseconds};
use crate::native::usage;
use crate::process_runs::{self, PYTHON};
use crate::sample::Sample;
use crate::service::{BYTES, LineReader, ServiceProcess, pando};
use crate::{BenchError, Row};
use serde_json::{Value, json};
use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TEMPLATE: &str = "pandas";
const PAUSED: &str = "paused-bench";
const PANDAS: &str = "pandas of /usr/bin/python3 (Debian: python3-pandas)";
/// Code that computes with pandas, code that prints what that computed, and the output of both.
const COMPUTE: &str = "import pandas\ntotal = pandas.Series(range(10)).sum()\nprint(total, flush=True)";
const PRINT: &str = "print(total, flush=True)";
const ANSWER: &str = "45\n";
/// Forks at a time.
const FORKS: usize = 10;
/// The time until the service has settled.
const SETTLING: Duration = Duration::from_secs(1);

/// Measures the rows.
pub(super) fn run(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    process_runs::needs(PYTHON, PANDAS)?;
    let found = Command::new(PYTHON).args(["-c", "import pandas"]).stderr(Stdio::null()).status();
    if !found.map_err(BenchError::host("start /usr/bin/python3"))?.success() {
        return Err(BenchError::Absent(PANDAS));
    }
    let training = format!("import _pando_session; _pando_session.rehearse({COMPUTE:?})");
    let create = ["template", "create", "-e", "PANDO_PRELOAD=pandas", "--train-arg", &training, TEMPLATE, "--", PYTHON, "-m", "pando"];
    pando(fixture.pando, fixture.directory, &create)?;
    let service = ServiceProcess::start(fixture.pando, fixture.directory, &[])?;
    let rounds = fixture.size(20, 2);
    let first = Sample::take(rounds, || Ok(Session::first_answer(&service, TEMPLATE, COMPUTE)?.1))?;
    let note =
        "a session of Python in which pandas is loaded, from the request for its clone to the first byte of a sum that pandas computes";
    report(milliseconds("session-first-ms", &first).noting(note));
    let computed = Sample::take(rounds.min(5), || resume(&service, COMPUTE))?.median() / 1e6;
    let resumed = Sample::take(rounds, || resume(&service, PRINT))?;
    let note = format!(
        "a session paused on the disk after a sum by pandas, from the request for its clone to the first byte of the sum that it prints; \
         {computed:.1} ms if pandas computes it again"
    );
    report(milliseconds("resume-ms", &resumed).noting(note));
    let computed = Sample::take(rounds.min(5), || fork(&service, COMPUTE))?.median() / 1e6;
    let forked = Sample::take(fixture.size(10, 2), || fork(&service, PRINT))?;
    let note = format!(
        "{FORKS} forks of such a session, from the request until all have printed the sum; {computed:.1} ms if pandas computes it again in each"
    );
    report(milliseconds("fork-10-ms", &forked).noting(note));
    drop(service);
    idle(fixture, report)
}

/// A session. Its cell is removed when it is dropped.
struct Session<'a> {
    service: &'a ServiceProcess,
    cell: u64,
    output: LineReader,
    runs: u32,
}

impl Session<'_> {
    /// Starts a clone of a template, and runs code in it. Also returns the nanoseconds from the request to the first byte.
    fn first_answer<'a>(service: &'a ServiceProcess, template: &str, code: &str) -> Result<(Session<'a>, f64), BenchError> {
        let start = Instant::now();
        let cell = service.ask("POST", "/v1/cells", &json!({ "template": template }))?;
        let mut session = Session::of(service, &cell)?;
        session.send(code)?;
        let end = session.answer()?;
        Ok((session, end.duration_since(start).as_nanos() as f64))
    }

    /// The session of a cell that runs.
    fn of<'a>(service: &'a ServiceProcess, cell: &Value) -> Result<Session<'a>, BenchError> {
        let cell = cell["id"].as_u64().ok_or_else(|| BenchError::Failed(cell.to_string()))?;
        let output = service.lines(&format!("/v1/cells/{cell}/output?from=0&follow=true&whole=true"))?;
        Ok(Session { service, cell, output, runs: 0 })
    }

    /// Sends code to run.
    fn send(&mut self, code: &str) -> Result<(), BenchError> {
        self.runs += 1;
        let mut request = json!({ "code": code, "client": "bench", "interrupts": 0, "nonce": self.nonce() }).to_string();
        request.push('\n');
        self.service.send("POST", &format!("/v1/cells/{}/input?end=false", self.cell), BYTES, &request).map(drop)
    }

    /// Waits until the code has ended, and returns the time of its first output, which must be the answer.
    fn answer(&mut self) -> Result<Instant, BenchError> {
        let mut first = None;
        loop {
            let piece = self.output.next()?;
            let text = piece["data"].as_str().unwrap_or_default();
            match piece["stream"].as_str() {
                Some("stdout") if first.is_none() && ANSWER.starts_with(text) => first = Some(Instant::now()),
                Some("stdout") => {}
                Some("notes") if text.contains(&self.nonce()) => return first.ok_or_else(|| BenchError::Failed(piece.to_string())),
                _ => return Err(BenchError::Failed(piece.to_string())),
            }
        }
    }

    /// The word that the note about the end of the code repeats.
    fn nonce(&self) -> String {
        format!("{}-{}", self.cell, self.runs)
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // The cell of a paused session has ended.
        let _ = self.service.ask("DELETE", &format!("/v1/cells/{}", self.cell), &Value::Null);
    }
}

/// Nanoseconds until a session that was just paused has answered.
fn resume(service: &ServiceProcess, code: &str) -> Result<f64, BenchError> {
    let (session, _) = Session::first_answer(service, TEMPLATE, COMPUTE)?;
    let freeze = format!("/v1/cells/{}/freeze", session.cell);
    service.ask("POST", &freeze, &json!({ "name": PAUSED, "replace": true }))?;
    drop(session);
    let (resumed, nanos) = Session::first_answer(service, PAUSED, code)?;
    drop(resumed);
    service.ask("DELETE", &format!("/v1/templates/{PAUSED}"), &Value::Null)?;
    Ok(nanos)
}

/// Nanoseconds until all forks of a session have answered.
fn fork(service: &ServiceProcess, code: &str) -> Result<f64, BenchError> {
    let (session, _) = Session::first_answer(service, TEMPLATE, COMPUTE)?;
    let start = Instant::now();
    let forked = service.ask("POST", &format!("/v1/cells/{}/fork", session.cell), &json!({ "count": FORKS }))?;
    let mut forks = Vec::new();
    for cell in forked.as_array().into_iter().flatten() {
        let mut fork = Session::of(service, cell)?;
        fork.send(code)?;
        forks.push(fork);
    }
    if forks.len() != FORKS {
        return Err(BenchError::Failed(forked.to_string()));
    }
    let ends = forks.iter_mut().map(Session::answer).collect::<Result<Vec<Instant>, _>>()?;
    let end = ends.into_iter().max().unwrap_or(start);
    Ok(end.duration_since(start).as_nanos() as f64)
}

/// `idle-session-bytes`: the growth of a service's memory by sessions that have answered and wait.
fn idle(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    // A new service: an earlier one keeps memory of ended cells, and uses it again.
    let service = ServiceProcess::start(fixture.pando, fixture.directory, &[])?;
    let memory = || {
        std::thread::sleep(SETTLING);
        let of_process = usage::of_group(service.group()).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => BenchError::Absent("root, which may read the memory of a confined process"),
            _ => BenchError::Host { action: "read the memory of the service", source: error },
        })?;
        let state = service.ask("GET", "/v1", &Value::Null)?;
        Ok::<_, BenchError>((of_process.private, state["free_bytes"].as_f64().unwrap_or_default()))
    };
    let start =
        |count| (0..count).map(|_| Ok(Session::first_answer(&service, TEMPLATE, COMPUTE)?.0)).collect::<Result<Vec<_>, BenchError>>();
    let _first = start(fixture.size(20, 2))?;
    let before = memory()?;
    let sessions = start(fixture.size(60, 4))?;
    let after = memory()?;
    let each = |growth: f64| growth / sessions.len() as f64;
    let note = format!(
        "private memory of `pando serve` for each of {} sessions that wait after a sum by pandas; {:.0} bytes of frames are in use for each",
        sessions.len(),
        each(before.1 - after.1)
    );
    report(Row::of("idle-session-bytes", each(after.0 - before.0), "bytes").noting(note));
    Ok(())
}
