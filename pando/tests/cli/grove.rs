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

    /// Makes a template of a shell's script.
    pub(crate) fn plant(&self, name: &str, script: &str) {
        let Said { status, errors, .. } = self.pando(&["template", "create", name, "--", "busybox", "sh", "-c", script]);
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
        let mut child = self.command(&[&["serve"], options].concat()).stderr(Stdio::piped()).spawn().expect("pando starts");
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
        let mut stream = self.send(method, path, body);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer is text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("an answer has a status");
        (status, body.into())
    }

    /// Asks, and does not wait for the answer.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> UnixStream {
        let mut stream = UnixStream::connect(&self.socket).expect("it listens");
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}"
        );
        write!(stream, "{head}\r\n\r\n{body}").expect("it reads");
        stream
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
