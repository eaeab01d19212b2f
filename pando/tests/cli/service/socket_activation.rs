// SPDX-License-Identifier: MIT OR Apache-2.0
//! A service that a service manager starts when a client connects (systemd's socket activation).

use crate::fixture::Fixture;
use pando_testing::{are_installed, host_program, needs_kvm};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn a_connection_starts_the_service_and_the_socket_outlives_it() {
    needs_kvm!();
    if !are_installed(&["systemd-socket-activate"]) {
        return;
    }
    let fixture = Fixture::new();
    let socket = fixture.path("data/pando/run/socket");
    std::fs::create_dir_all(socket.parent().expect("it lies in a directory")).expect("the directory is ours");
    let mut manager = Command::new(host_program("systemd-socket-activate"));
    manager.arg("--listen").arg(&socket).arg(format!("--setenv=XDG_DATA_HOME={}", fixture.path("data").display()));
    // The service becomes the manager's process.
    let mut service = manager.args([crate::case::PANDO, "serve"]).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut errors = BufReader::new(service.stderr.take().expect("it was asked for"));
    let mut line = String::new();
    while !line.contains("Listening on") {
        line.clear();
        assert!(errors.read_line(&mut line).expect("it can be read") > 0, "it ended");
    }
    let listed = fixture.pando(&["ps", "-q"]);
    assert_eq!((listed.status, &listed.output[..], &listed.errors[..]), (0, "", ""));
    kill_process(Pid::from_child(&service), Signal::TERM).expect("it is a child");
    assert!(service.wait().expect("it ends").success());
    assert!(socket.exists(), "the manager keeps its socket");
}
