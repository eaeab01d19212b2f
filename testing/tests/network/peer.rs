// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that speaks for cells where busybox does not: `programs/peer.c`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program, compiled and linked statically. In a cell whose root has it, it is `/peer`.
pub fn program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let compile = || {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/network/programs/peer.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peer");
        let mut compiler = Command::new("gcc");
        compiler.args(["-O2", "-static", "-Wall", "-Wextra", "-Werror", "-o"]).args([&program, &source]);
        let output = compiler.output().unwrap_or_else(|error| panic!("gcc is needed ({error}): `cargo xtask test` installs it"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    };
    PROGRAM.get_or_init(compile).clone()
}
