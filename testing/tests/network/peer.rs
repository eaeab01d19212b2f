// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that speaks for cells where busybox does not: `programs/peer.c`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program, compiled and linked statically. In a cell whose root has it, it is `/peer`. `None`: this machine has no compiler, as an emulated one has none.
pub fn program() -> Option<PathBuf> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compile = || {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/network/programs/peer.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peer");
        let mut compiler = Command::new("gcc");
        compiler.args(["-O2", "-static", "-Wall", "-Wextra", "-Werror", "-o"]).args([&program, &source]);
        let Ok(output) = compiler.output() else {
            println!("left out: this test needs gcc");
            return None;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(program)
    };
    PROGRAM.get_or_init(compile).clone()
}
