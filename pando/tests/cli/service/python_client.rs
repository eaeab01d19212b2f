// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Python client, `clients/python`: its own tests, against a service of this program.

use crate::case::{PANDO, text};
use pando_testing::{host_program, needs_kvm};
use std::path::{Path, PathBuf};
use std::process::Command;

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("clients").join("python")
}

#[track_caller]
fn succeeds(command: &mut Command) {
    let outcome = command.current_dir(package()).output().expect("it starts");
    assert!(outcome.status.success(), "{}{}", text(&outcome.stdout), text(&outcome.stderr));
}

/// Runs the tests of the files that match.
#[track_caller]
fn its_tests_succeed(files: &str) {
    // Debian's Python: the one in PATH may lack the HTTP library.
    let words = ["-B", "-X", "dev", "-m", "unittest", "discover", "-s", "tests", "-p", files];
    succeeds(Command::new(host_program("/usr/bin/python3")).args(words).env("PANDO", PANDO));
}

// Two parts, so that they run at the same time.

#[test]
fn its_tests_from_a_to_l_succeed() {
    needs_kvm!();
    its_tests_succeed("test_[a-l]*.py");
}

#[test]
fn its_tests_from_m_to_z_succeed() {
    needs_kvm!();
    its_tests_succeed("test_[m-z]*.py");
}

#[test]
fn its_types_fit() {
    succeeds(Command::new(host_program("/usr/bin/mypy")).arg("--cache-dir=/dev/null"));
}
