// SPDX-License-Identifier: MIT OR Apache-2.0
//! The service: how long whoever asks at its socket for a clone that says a line waits for the answer.

use crate::sample::Sample;
use crate::{BenchError, Options, Row};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;
use tempfile::TempDir;

/// What is cloned: a shell that is ready, and what each clone says.
const SCRIPT: &str = "pando-ready; echo line";
const LINE: &str = "line\\n";
/// How many ask at once, with the rows of the median and of what one in a hundred exceeds.
const AT_ONCE: [(usize, &str, &str); 3] = [(1, "serve-1", "serve-1-p99"), (8, "serve-8", "serve-8-p99"), (64, "serve-64", "serve-64-p99")];
/// How many questions there are for each.
const QUESTIONS: usize = 1000;

/// A service of this program's own, with a directory that goes with it.
struct Service {
    child: Child,
    directory: TempDir,
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Service {
    fn start(pando: &Path) -> Result<Service, BenchError> {
        let failed = || BenchError::host("start a service");
        let directory = tempfile::tempdir().map_err(failed())?;
        let mut command = Command::new(pando);
        command.arg("serve").arg("--socket").arg(directory.path().join("socket")).env("XDG_DATA_HOME", directory.path());
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(failed())?;
        let errors = child.stderr.take();
        let service = Service { child, directory };
        let mut line = String::new();
        // It says a line once it listens.
        errors.map_or(Ok(0), |errors| BufReader::new(errors).read_line(&mut line)).map_err(failed())?;
        if line.contains("serving at") { Ok(service) } else { Err(BenchError::Failed(line)) }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }
}

/// A connection that asks one question after the other.
struct Asker(BufReader<UnixStream>);

impl Asker {
    fn new(socket: &Path) -> Result<Asker, BenchError> {
        let stream = UnixStream::connect(socket).map_err(BenchError::host("connect with a service"))?;
        Ok(Asker(BufReader::new(stream)))
    }

    /// Asks, and reads the answer.
    fn ask(&mut self, path: &str, body: &str) -> Result<String, BenchError> {
        let failed = || BenchError::host("ask a service");
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        self.0.get_mut().write_all([head.as_bytes(), body.as_bytes()].concat().as_slice()).map_err(failed())?;
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            if self.0.read_line(&mut line).map_err(failed())? == 0 {
                return Err(BenchError::Astray);
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().map_err(|_| BenchError::Astray)?;
            }
        }
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer).map_err(failed())?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// The service's figures; none where there is no such program to serve.
pub(super) fn run(options: Options<'_>, pando: &Path, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    if !pando.exists() {
        return Ok(());
    }
    let service = Service::start(pando)?;
    let socket = service.socket();
    let made = serde_json::json!({ "name": "line", "arguments": ["busybox", "sh", "-c", SCRIPT], "train": true });
    Asker::new(&socket)?.ask("/v1/templates", &made.to_string())?;
    for (at_once, median, exceeded) in AT_ONCE {
        let times = Mutex::new(Vec::new());
        let each = options.rounds(QUESTIONS).div_ceil(at_once);
        let asked: Result<(), BenchError> = std::thread::scope(|scope| {
            let ask = || {
                let mut asker = Asker::new(&socket)?;
                for _ in 0..each {
                    let start = Instant::now();
                    let answer = asker.ask("/v1/run", r#"{"template":"line"}"#)?;
                    let time = start.elapsed().as_nanos() as f64;
                    if !answer.contains(LINE) {
                        return Err(BenchError::Failed(answer));
                    }
                    times.lock().expect("no holder of this lock panics").push(time);
                }
                Ok(())
            };
            let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err(BenchError::Astray)))
        });
        asked?;
        let mut times = times.into_inner().expect("no holder of this lock panics");
        times.sort_by(f64::total_cmp);
        let late = times[times.len() - 1 - times.len() / 100];
        let note = format!("a clone that says a line, {at_once} at once, by a connection that stays");
        report(Row::time(median, &Sample::of(times)).noting(&note));
        report(Row::of(exceeded, late / 1000.0, "µs").noting("what one answer in a hundred exceeds"));
    }
    Ok(())
}
