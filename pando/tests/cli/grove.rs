// SPDX-License-Identifier: MIT OR Apache-2.0
//! A place for templates, with the commands that use it, and a service if a test wants one.

use crate::case::{PANDO, text};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use tempfile::TempDir;

/// A place for templates.
pub(crate) struct Grove(TempDir);

/// How a command ended and what it said.
pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl Grove {
    pub(crate) fn new() -> Grove {
        Grove(tempfile::tempdir().expect("there is room"))
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

    pub(crate) fn pando(&self, words: &[&str]) -> Said {
        let outcome = self.command(words).output().expect("pando starts");
        let status = outcome.status.code().expect("no signal ends it");
        Said { status, output: text(&outcome.stdout).into(), errors: text(&outcome.stderr).into() }
    }

    /// Makes a template of a shell's script, whose first clone is the first.
    pub(crate) fn plant(&self, name: &str, script: &str) {
        let Said { status, errors, .. } = self.pando(&["template", "create", "--no-train", name, "--", "busybox", "sh", "-c", script]);
        assert_eq!((status, &errors[..]), (0, ""));
    }
}

#[track_caller]
pub(crate) fn says(said: &Said, output: &str) {
    assert_eq!((said.status, &said.output[..], &said.errors[..]), (0, output, ""));
}

/// A service, which ends with this.
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
            eprintln!("the service ended ({ended:?}) and said: {said}");
        }
    }
}

impl Grove {
    /// Starts a service and waits until it answers.
    pub(crate) fn serve(&self, options: &[&str]) -> Service {
        self.service(self.command(&[&["serve"], options].concat()))
    }

    /// The same, as this command has it.
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
    /// Asks, and returns the status with the body.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let (status, answer) = self.answer(method, path, body.as_bytes());
        (status, String::from_utf8(answer).expect("an answer is text"))
    }

    /// Asks for what is answered by bytes, or with them.
    #[track_caller]
    pub(crate) fn bytes(&self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        let (status, answer) = self.answer(method, path, body);
        assert!((200..300).contains(&status), "{status} {}", text(&answer));
        answer
    }

    fn answer(&self, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut stream = BufReader::new(self.send(method, path, body));
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

    /// Waits for a line on its standard error, and tells whether it is about that.
    pub(crate) fn says(&mut self, what: &str) -> bool {
        let mut line = String::new();
        self.errors.read_line(&mut line).expect("it can be read");
        line.contains(what)
    }

    /// Begins to ask, with a body of so many bytes to come.
    pub(crate) fn begin(&self, method: &str, path: &str, length: usize) -> UnixStream {
        let mut stream = UnixStream::connect(&self.socket).expect("it listens");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        // It may be answered before all of it was read.
        let _ = stream.write_all(head.as_bytes());
        stream
    }

    /// Asks, and does not wait for the answer.
    pub(crate) fn send(&self, method: &str, path: &str, body: &[u8]) -> UnixStream {
        let mut stream = self.begin(method, path, body.len());
        let _ = stream.write_all(body);
        stream
    }

    /// Waits until a cell says this.
    #[track_caller]
    pub(crate) fn hear(&self, place: &str, what: &str) {
        let said = BufReader::new(self.send("GET", &format!("{place}/output?follow=true"), b""));
        assert!(said.lines().map_while(Result::ok).any(|line| line.contains(what)), "{place} ends and has not said {what}");
    }

    /// Asks for what is answered by JSON.
    #[track_caller]
    pub(crate) fn json(&self, method: &str, path: &str, body: serde_json::Value) -> serde_json::Value {
        // Nobody reads a body where none is expected.
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) = self.ask(method, path, &body);
        assert!((200..300).contains(&status), "{status} {answer}");
        serde_json::from_str(&answer).expect("it is JSON")
    }
}
