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
