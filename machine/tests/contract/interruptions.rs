// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals at arbitrary times: interrupted calls to the host are repeated.

use crate::bare::{Bare, size};
use pando_machine::{Exit, HugeFrame, Machine};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Time between two signals: shorter than the construction of a machine, and long enough for progress on an emulated CPU.
fn interval() -> Duration {
    size::choose(Duration::from_millis(20), Duration::from_micros(50), Duration::from_micros(50))
}

/// Makes all kinds of KVM requests: a machine is made, grown and flushed, and its vCPU's states are saved and loaded.
fn use_a_machine() {
    let mut bare = Bare::new();
    bare.machine.provide(HugeFrame(15)).expect("the arena has it");
    bare.machine.flush_tables().expect("KVM takes and gives back a slot");
    let saved = bare.vcpu.save_vector().expect("KVM gives the state");
    bare.vcpu.load_vector(Some(&saved)).expect("KVM takes the state");
    let mut context = bare.start(b"\xe6\x7e");
    let mut exit = bare.run(&mut context);
    while exit == Exit::Interrupted {
        exit = bare.run(&mut context);
    }
    assert_eq!(exit, Exit::Hypercall);
}

#[test]
fn machines_are_made_and_used_under_a_hail_of_signals() {
    let target = Bare::new();
    // Its signals go to this thread, whatever it does.
    let interrupter = target.vcpu.interrupter();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                interrupter.interrupt();
                thread::sleep(interval());
            }
        });
        let outcome = std::panic::catch_unwind(|| (0..size::choose(3, 50, 1_000)).for_each(|_| use_a_machine()));
        done.store(true, Ordering::Relaxed);
        outcome.expect("a signal ended something");
    });
}
