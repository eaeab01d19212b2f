// SPDX-License-Identifier: MIT OR Apache-2.0
//! The systemd units: systemd accepts every line of them, and they set the documented limits.

use crate::case::PANDO;
use pando_testing::{are_installed, host_program};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The units, each with its installed name and the options for systemd-analyze.
const UNITS: [(&str, &str, &[&str]); 2] =
    [("system/pando@.service", "pando@alice.service", &[]), ("user/pando.service", "pando.service", &["--user"])];
/// The sockets of these units.
const SOCKETS: [&str; 2] = ["system/pando@.socket", "user/pando.socket"];
/// The program's path in the units.
const INSTALLED: &str = "/usr/local/bin/pando";

fn unit(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/systemd").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn systemd_understands_the_units() {
    if !are_installed(&["systemd-analyze"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    for ((name, installed, options), socket) in UNITS.into_iter().zip(SOCKETS) {
        let text = unit(name);
        assert!(text.contains(&format!("ExecStart={INSTALLED} serve ")), "{name}");
        let file = directory.path().join(installed);
        // systemd reads the socket's unit, too, which it requires.
        fs::write(file.with_extension("socket"), unit(socket)).expect("the directory is ours");
        fs::write(&file, text.replace(INSTALLED, PANDO)).expect("the directory is ours");
        let mut command = Command::new(host_program("systemd-analyze"));
        command.args(options).args(["verify", "--man=no"]).arg(&file).env("XDG_RUNTIME_DIR", directory.path());
        let output = command.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        // systemd reports unknown lines as ignored, and prints nothing else.
        assert!(output.status.success() && said.is_empty(), "{name}: {}: {said}", output.status);
    }
}

#[test]
fn systemd_finds_little_exposed() {
    if !are_installed(&["systemd-analyze"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (name, installed, options) in UNITS {
        // Of 100. A user's own service manager gives no namespaces, which count most; the system's unit lacks what cells need of devices
        // and calls.
        let most = if options.is_empty() { "15" } else { "70" };
        let file = directory.path().join(installed);
        fs::write(&file, unit(name)).expect("the directory is ours");
        let mut command = Command::new(host_program("systemd-analyze"));
        command.args(options).args(["security", "--offline=true", "--no-pager", "--threshold", most]).arg(&file);
        let output = command.env("XDG_RUNTIME_DIR", directory.path()).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("Overall exposure level"), "{name}: {}: {said}", output.status);
    }
}

#[test]
fn units_limit_memory_cpu_threads_and_descriptors() {
    for (name, ..) in UNITS {
        let text = unit(name);
        for key in
            ["MemoryMax", "CPUWeight", "TasksMax", "LimitNOFILE", "LimitCORE", "NoNewPrivileges", "SystemCallFilter", "RestrictNamespaces"]
        {
            let lines: Vec<&str> = text.lines().filter(|line| line.split_once('=').is_some_and(|(found, _)| found == key)).collect();
            assert_eq!(lines.len(), 1, "{name}: {key}: {lines:?}");
        }
    }
}
