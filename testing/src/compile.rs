// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small C programs for cells.

use pando_packages::host_program;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a C program and links it statically, into a directory. Without a compiler, as on an emulated machine, prints
/// the reason and returns `None`.
///
/// # Panics
/// If the compiler rejects the program.
#[must_use]
pub fn compiled(source: &Path, directory: &Path) -> Option<PathBuf> {
    let program = directory.join(source.file_stem()?);
    let mut compiler = Command::new(host_program("gcc"));
    compiler.args(["-O2", "-static", "-Wall", "-Wextra", "-Werror", "-o"]).args([&program, source]);
    let Ok(output) = compiler.output() else {
        println!("left out: this test needs gcc");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}
