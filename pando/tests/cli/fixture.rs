// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory for templates, the commands that use it, and an optional service.

use crate::case::{CaseOutcome, Input, PANDO, finish, text};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a condition may take to hold; the slowest one takes a small part of it on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// A directory for templates.
pub(crate) struct Fixture(TempDir);

/// The exit status and the output of a command.
pub(crate) struct ProgramOutput {
    pub(crate) status: i32,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        Fixture(tempfile::tempdir().expect("there is room"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn file(&self, template: &str) -> PathBuf {
        self.path(&format!("data/pando/templates/{template}.template"))
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PANDO);
        command
            .args(words)
            .env("XDG_DATA_HOME", self.path("data"))
            .env_remove("XDG_RUNTIME_DIR")
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn pando(&self, words: &[&str]) -> ProgramOutput {
        let outcome = self.command(words).output().expect("pando starts");
        let status = outcome.status.code().expect("no signal ends it");
        ProgramOutput { status, output: text(&outcome.stdout).into(), errors: text(&outcome.stderr).into() }
    }

    /// Creates a template from a shell script, without a training clone.
    pub(crate) fn plant(&self, name: &str, script: &str) {
        let ProgramOutput { status, errors, .. } =
            self.pando(&["template", "create", "--no-train", name, "--", "busybox", "sh", "-c", script]);
        assert_eq!((status, &errors[..]), (0, ""));
    }
}

#[track_caller]
pub(crate) fn assert_output(said: &ProgramOutput, output: &str) {
    assert_eq!((said.status, &said.output[..], &said.errors[..]), (0, output, ""));
}

/// A service, which ends when this is dropped.
pub(crate) struct Service {
    pub(crate) child: Child,
    errors: BufReader<ChildStderr>,
    socket: PathBuf,
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let ended = self.child.wait();
        if std::thread::panicking() {
            let mut said = String::new();
            let _ = self.errors.read_to_string(&mut said);
            eprintln!("the service ended ({ended:?}); its output: {said}");
        }
    }
}

impl Fixture {
    /// Starts a service and waits until it answers.
    pub(crate) fn serve(&self, options: &[&str]) -> Service {
        self.service(self.command(&[&["serve"], options].concat()))
    }

    /// Starts a service with this command.
    pub(crate) fn service(&self, mut command: Command) -> Service {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("pando starts");
        let mut errors = BufReader::new(child.stderr.take().expect("it was asked for"));
        let mut line = String::new();
        errors.read_line(&mut line).expect("it can be read");
        assert!(line.starts_with("pando: serving at "), "{line}");
        Service { child, errors, socket: self.path("data/pando/run/socket") }
    }
}

impl Service {
    /// Sends a request, and returns the status and the body.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let (status, answer) = self.answer(method, path, body.as_bytes());
        (status, String::from_utf8(answer).expect("an answer is text"))
    }

    /// Sends a request with a binary body, and returns the binary response.
    #[track_caller]
    pub(crate) fn bytes(&self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        let (status, answer) = self.answer(method, path, body);
        assert!((200..300).contains(&status), "{status} {}", text(&answer));
        answer
    }

    fn answer(&self, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        Service::receive(BufReader::new(self.send(method, path, body)))
    }

    /// Receives the response to a request that was sent: its status and body.
    pub(crate) fn receive(mut stream: impl BufRead) -> (u16, Vec<u8>) {
        let (mut line, mut chunked) = (String::new(), false);
        stream.read_line(&mut line).expect("an answer has a head");
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("an answer has a status");
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).expect("a head has an end");
            chunked |= line.to_lowercase().starts_with("transfer-encoding: chunked");
        }
        let mut answer = Vec::new();
        while chunked {
            line.clear();
            stream.read_line(&mut line).expect("a piece has a length");
            let length = usize::from_str_radix(line.trim(), 16).expect("it is a number");
            let start = answer.len();
            answer.resize(start + length, 0);
            stream.read_exact(&mut answer[start..]).expect("the piece is there");
            stream.read_exact(&mut [0; 2]).expect("a piece has an end");
            chunked = length > 0;
        }
        stream.read_to_end(&mut answer).expect("an answer can be read");
        (status, answer)
    }

    /// Waits for a line on its standard error, and returns whether it contains `what`.
    pub(crate) fn next_line_contains(&mut self, what: &str) -> bool {
        let mut line = String::new();
        self.errors.read_line(&mut line).expect("it can be read");
        line.contains(what)
    }

    /// Starts a request whose body of this length follows.
    pub(crate) fn begin(&self, method: &str, path: &str, length: usize) -> UnixStream {
        let mut stream = UnixStream::connect(&self.socket).expect("it listens");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        // The response may come before all of it was read.
        let _ = stream.write_all(head.as_bytes());
        stream
    }

    /// Sends a request, and does not wait for the response.
    pub(crate) fn send(&self, method: &str, path: &str, body: &[u8]) -> UnixStream {
        let mut stream = self.begin(method, path, body.len());
        let _ = stream.write_all(body);
        stream
    }

    /// Waits until a cell prints this.
    #[track_caller]
    pub(crate) fn wait_for_output(&self, place: &str, what: &str) {
        let said = BufReader::new(self.send("GET", &format!("{place}/output?follow=true"), b""));
        assert!(said.lines().map_while(Result::ok).any(|line| line.contains(what)), "{place} has ended without printing {what}");
    }

    /// Sends a request with a JSON response.
    #[track_caller]
    pub(crate) fn json(&self, method: &str, path: &str, body: serde_json::Value) -> serde_json::Value {
        // The service reads no body where none is expected.
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) = self.ask(method, path, &body);
        assert!((200..300).contains(&status), "{status} {answer}");
        serde_json::from_str(&answer).expect("it is JSON")
    }
}

/// Asks repeatedly until a condition holds. Fails after a timeout.
#[track_caller]
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < WAIT_MAX, "the condition does not hold after {WAIT_MAX:?}");
        std::thread::yield_now();
    }
}

/// Runs `pando` with these arguments.
pub(crate) fn pando(words: &[&str]) -> CaseOutcome {
    let mut command = Command::new(PANDO);
    command.args(words);
    finish(command, Input::Nothing)
}
