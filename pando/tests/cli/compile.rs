// SPDX-License-Identifier: MIT OR Apache-2.0
//! The test programs of `tests/programs/`, compiled on demand.

use crate::data;
use pando_testing::host_program;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The compiler and linkage of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Linked {
    /// By gcc with glibc.
    Glibc,
    /// By gcc with glibc, position independent.
    GlibcPie,
    /// By gcc with musl.
    Musl,
    /// By rustc with glibc.
    Rust,
    /// By rustc with glibc, position independent.
    RustPie,
}

impl Linked {
    fn command(self) -> Command {
        let (program, arguments): (_, &[&str]) = match self {
            Linked::Glibc => ("gcc", &["-static", "-no-pie"]),
            Linked::GlibcPie => ("gcc", &["-static-pie", "-fPIE"]),
            Linked::Musl => ("musl-gcc", &["-static", "-no-pie"]),
            Linked::Rust => ("rustc", &["-C", "target-feature=+crt-static", "-C", "relocation-model=static"]),
            Linked::RustPie => ("rustc", &["-C", "target-feature=+crt-static"]),
        };
        let mut command = Command::new(host_program(program));
        command.args(arguments);
        match self {
            Linked::Rust | Linked::RustPie => command.args(["--edition=2024", "-Copt-level=2", "-Dwarnings"]),
            _ => command.args(["-std=gnu17", "-O2", "-Wall", "-Wextra"]),
        };
        command
    }

    fn suffix(self) -> &'static str {
        match self {
            Linked::Rust | Linked::RustPie => "rs",
            _ => "c",
        }
    }
}

/// Compiles `tests/programs/NAME`; the executable is alone in its directory.
pub(crate) fn program(name: &'static str, linked: Linked) -> PathBuf {
    static DONE: Mutex<Option<HashMap<(&str, Linked), PathBuf>>> = Mutex::new(None);
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    let done = done.get_or_insert_default();
    done.entry((name, linked)).or_insert_with(|| compile(name, linked)).clone()
}

fn compile(name: &str, linked: Linked) -> PathBuf {
    let directory = data::directory().join(format!("{name}-{linked:?}").to_lowercase());
    fs::create_dir_all(&directory).expect("the target directory can be written");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension(linked.suffix());
    let program = directory.join(name);
    let mut command = linked.command();
    command.arg(&source).arg("-o").arg(&program);
    if linked.suffix() == "c" {
        // After the object that needs it, or the linker ignores it.
        command.arg("-lm");
    }
    let output = command.output().unwrap_or_else(|error| panic!("{linked:?} needs its compiler ({error}): `cargo xtask test` installs it"));
    assert!(output.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&output.stderr));
    program
}
