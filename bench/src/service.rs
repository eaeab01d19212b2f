// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando serve` in a process of its own, with directories of its own, and plain requests to it.

use crate::BenchError;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

/// The types of the bodies of requests.
pub(crate) const JSON: &str = "application/json";
pub(crate) const BYTES: &str = "application/octet-stream";

/// A service. Terminated when dropped.
pub(crate) struct ServiceProcess {
    child: Child,
    socket: PathBuf,
    // Kept open so that the service can still print.
    _errors: BufReader<ChildStderr>,
}

/// `pando` with its store below this directory, which is also the current one.
pub(crate) fn command(pando: &Path, directory: &Path) -> Command {
    let mut command = Command::new(pando);
    command.env("XDG_DATA_HOME", directory.join("data")).env("XDG_CACHE_HOME", directory.join("cache")).current_dir(directory);
    command.env_remove("XDG_RUNTIME_DIR").env_remove("PANDO_SOCKET").stdin(Stdio::null());
    command
}

/// Runs `pando` to its end, with its store below this directory.
pub(crate) fn pando(pando: &Path, directory: &Path, arguments: &[&str]) -> Result<(), BenchError> {
    let output = command(pando, directory).args(arguments).output().map_err(BenchError::host("start pando"))?;
    if output.status.success() { Ok(()) } else { Err(BenchError::Failed(String::from_utf8_lossy(&output.stderr).into())) }
}

impl ServiceProcess {
    /// Starts a service that has the store below this directory, in a process group of its own.
    pub(crate) fn start(pando: &Path, directory: &Path, options: &[&str]) -> Result<ServiceProcess, BenchError> {
        ServiceProcess::spawn(command(pando, directory).arg("serve").args(options), directory.join("data/pando/run/socket"))
    }

    /// The same with a socket at this path, for several services with one store.
    pub(crate) fn start_at(pando: &Path, directory: &Path, socket: &Path, options: &[&str]) -> Result<ServiceProcess, BenchError> {
        ServiceProcess::spawn(command(pando, directory).arg("serve").arg("--socket").arg(socket).args(options), socket.into())
    }

    fn spawn(command: &mut Command, socket: PathBuf) -> Result<ServiceProcess, BenchError> {
        let child = command.process_group(0).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(BenchError::host("start pando"))?;
        let mut errors = BufReader::new(child.stderr.take().expect("it is a pipe"));
        let mut line = String::new();
        let read = errors.read_line(&mut line);
        let service = ServiceProcess { child, socket, _errors: errors };
        read.map_err(BenchError::host("read the service's output"))?;
        if line.contains("serving at") { Ok(service) } else { Err(BenchError::Failed(line)) }
    }

    /// The process group of the service.
    pub(crate) fn group(&self) -> u32 {
        self.child.id()
    }

    /// Sends a request, and returns the answer's body. A refusal is a failure.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, BenchError> {
        self.send(method, path, JSON, &if body.is_null() { String::new() } else { body.to_string() })
    }

    /// Sends a body of this type, and returns the answer's.
    pub(crate) fn send(&self, method: &str, path: &str, kind: &str, body: &str) -> Result<Value, BenchError> {
        let exchange = || {
            let mut answer = String::new();
            self.request(method, path, kind, body)?.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = exchange().map_err(BenchError::host("send a request to the service"))?;
        let parts = answer.split_once("\r\n\r\n");
        match parts.and_then(|(head, body)| Some((head.split_ascii_whitespace().nth(1)?, body))) {
            Some((status, "")) if status.starts_with('2') => Ok(Value::Null),
            Some((status, body)) if status.starts_with('2') => serde_json::from_str(body).map_err(|_| BenchError::Failed(answer)),
            _ => Err(BenchError::Failed(answer)),
        }
    }

    /// Sends a request whose answer is a stream of lines of JSON.
    pub(crate) fn lines(&self, path: &str) -> Result<LineReader, BenchError> {
        let stream = self.request("GET", path, JSON, "").map_err(BenchError::host("send a request to the service"))?;
        Ok(LineReader(BufReader::new(stream)))
    }

    fn request(&self, method: &str, path: &str, kind: &str, body: &str) -> io::Result<UnixStream> {
        let mut stream = UnixStream::connect(&self.socket)?;
        let head = format!("{method} {path} HTTP/1.1\r\nhost: pando\r\nconnection: close\r\ncontent-type: {kind}\r\n");
        stream.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes())?;
        Ok(stream)
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of an answer.
pub(crate) struct LineReader(BufReader<UnixStream>);

impl LineReader {
    /// The next line. The head and the lengths of chunks are skipped.
    pub(crate) fn next(&mut self) -> Result<Value, BenchError> {
        let mut line = String::new();
        loop {
            line.clear();
            let count = self.0.read_line(&mut line).map_err(BenchError::host("read an answer of the service"))?;
            if count == 0 {
                return Err(BenchError::Failed("the service closed a stream of output".into()));
            }
            if line.starts_with('{') {
                return serde_json::from_str(&line).map_err(|_| BenchError::Failed(line));
            }
        }
    }
}
