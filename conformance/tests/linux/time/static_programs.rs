// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timers: each part of a static program gives the same results as on the host.

use crate::case::{Case, Input};
use crate::parts::{C, check};
use pando_testing::needs_kvm;

parts! {
    timers_of_the_process: "timers" C ["intervals"];
    timers_that_programs_create: "timers" C ["created"];
    time_that_programs_run: "timers" C ["running"];
    time_that_others_run: "timers" C ["parked"];
}

#[test]
fn the_clock_is_that_of_the_host() {
    needs_kvm!();
    let now = || std::time::UNIX_EPOCH.elapsed().expect("the clock is set").as_secs();
    let before = now();
    let outcome = Case::new("busybox", &["date", "+%s"]).cell();
    let after = now();
    let shown: u64 = String::from_utf8_lossy(&outcome.output).trim().parse().expect("a number of seconds");
    // A tolerance of one second: the clocks are read at different places.
    assert!((before - 1..=after + 1).contains(&shown), "{before} {shown} {after}");
}
