// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a program.

mod static_programs;

use crate::case::Case;
use crate::compile::{Linkage, program};
use pando_testing::needs_kvm;
use std::ffi::OsStr;

#[test]
fn stacks_of_programs_that_run_again_keep_what_was_written() {
    needs_kvm!();
    // A program that runs again starts with memory of its earlier runs.
    let program = program("deep_stacks", Linkage::GLIBC);
    let script = "for run in 1 2 3; do for size in 1000 3000 5000 9000 20000; do \"$0\" $size; echo $?; done; done";
    Case::new("bash", &[OsStr::new("-c"), OsStr::new(script), program.as_os_str()]).file(&program).check();
}

/// The linker's own protections may wait while a program starts, but never the program's.
#[test]
fn writes_to_memory_made_read_only_fault() {
    const MUSL: Linkage = Linkage::c("musl-dynamic", "musl-gcc", &[]);
    const GLIBC: Linkage = Linkage::c("glibc-dynamic", "gcc", &["-pie", "-fPIE"]);
    // With the libraries' own directory in the program, glibc's linker does not need its cache.
    const WITHOUT_CACHE: Linkage =
        Linkage::c("glibc-run-path", "gcc", &["-pie", "-fPIE", "-Wl,-rpath,/lib/x86_64-linux-gnu:/usr/lib64:/usr/lib"]);
    needs_kvm!();
    for (linkage, words) in [(MUSL, &[][..]), (GLIBC, &[]), (GLIBC, &["linker"]), (WITHOUT_CACHE, &[]), (WITHOUT_CACHE, &["linker"])] {
        let case = Case::new(program("read_only", linkage), words);
        if let Err(problem) = case.compare_in(|_| {}) {
            panic!("{} {words:?}: {problem}", linkage.name);
        }
    }
}
