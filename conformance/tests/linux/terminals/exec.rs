// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dialogues with programs that `pando exec -t` starts in a running cell, against the same programs natively, byte for byte.

use super::dialogues::{LINES, SIGNALS, WINDOW, cache, lead};
use crate::case::PANDO;
use crate::compile::{Linkage, program};
use pando_testing::needs_kvm;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A service with a cell named `box`.
struct Service {
    directory: tempfile::TempDir,
    process: Child,
}

impl Service {
    /// Starts a service, and a cell that sees `shown`.
    fn with_cell(shown: &Path) -> Service {
        let directory = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(PANDO);
        command.args(["serve", "--show"]).arg(shown).stderr(Stdio::piped());
        command.env("XDG_RUNTIME_DIR", directory.path()).env("HOME", directory.path()).env("XDG_CACHE_HOME", cache());
        let mut process = command.spawn().expect("it starts");
        let errors = process.stderr.take().expect("it is a pipe");
        let service = Service { directory, process };
        let first = BufReader::new(errors).lines().next();
        assert!(first.is_some_and(|line| line.is_ok_and(|line| line.contains("serving at"))), "the service runs");
        let mut command = Command::new(PANDO);
        let volume = format!("{0}:{0}:ro", shown.display());
        command.args(["run", "-d", "--name", "box", "-v", &volume, "--", "busybox", "sleep", "1000"]).stdin(Stdio::null());
        command.env("XDG_RUNTIME_DIR", service.directory.path()).env("HOME", service.directory.path());
        let started = command.env("XDG_CACHE_HOME", cache()).output().expect("it runs");
        assert!(started.status.success(), "{started:?}");
        service
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn programs_of_exec_have_a_terminal() {
    needs_kvm!();
    let typing = program("typing", Linkage::GLIBC);
    let (directory, typing) = (typing.parent().expect("a directory"), typing.to_str().expect("a plain path"));
    let service = Service::with_cell(directory);
    let socket = format!("XDG_RUNTIME_DIR={}", service.directory.path().display());
    for (part, steps) in [("lines", LINES), ("signals", SIGNALS), ("window", WINDOW)] {
        let native = lead(&[typing, part], directory, steps);
        let cell = lead(&["env", &socket, PANDO, "exec", "-it", "box", typing, part], directory, steps);
        assert_eq!(native, cell, "{part}");
    }
}
