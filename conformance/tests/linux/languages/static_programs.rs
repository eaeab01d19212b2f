// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C library and the standard library of Rust: each part of a static program gives the same results as on the host.

use crate::case::{Case, Input};
use crate::compile::{Linkage, program};
use crate::parts::{C, RUST, check};
use pando_testing::lab::is_kvm_available;

parts! {
    formats_and_buffers: "compute" C ["formats"];
    floating_point: "compute" C ["floats"];
    vector_registers: "compute" C ["vectors"];
    long_jumps: "compute" C ["jumps"];
    strings_and_sorting: "compute" C ["strings"];
    functions_at_exit: "compute" C ["leaving", "200"];
    rust_collections: "standard" RUST ["collections"];
    rust_files: "standard" RUST ["files", "data"];
    rust_clocks: "standard" RUST ["clocks"];
    rust_panics: "standard" RUST ["panic"];
    rust_exits: "standard" RUST ["exit", "9"];
}

#[test]
fn a_second_thread_runs() {
    if is_kvm_available() {
        let outcome = Case::new(program("standard", Linkage::RUST), &["thread"]).cell();
        assert_eq!((outcome.status, &outcome.output[..], &outcome.errors[..]), (0, &b"Some(42)\n"[..], ""));
    }
}
