// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleep: a cell whose memory left for swap space goes on as if it had only waited.

use crate::cell::template_that_waits;
use pando_abi::Event;
use pando_kernel::{CellId, Config, End, OperatorError, RunState, SwapUsage};
use pando_machine::{Nanos, PageCount};
use pando_testing::lab::{Lab, QUOTA};
use pando_testing::swap::{SwapFault, TestSwap};
use std::sync::Arc;

const ARENA: PageCount = PageCount(1 << 16);

/// Labs of both kinds whose cells can sleep.
fn labs() -> Vec<(Lab, Arc<TestSwap>)> {
    let swaps = std::cell::RefCell::new(Vec::new());
    let labs = Lab::each(ARENA, || {
        let swap = Arc::new(TestSwap::default());
        swaps.borrow_mut().push(Arc::clone(&swap));
        Config { swap: Some(swap), ..Config::default() }
    });
    labs.into_iter().zip(swaps.into_inner()).collect()
}

/// A clone of the template, which waits.
fn waiting_clone(lab: &mut Lab, template: CellId) -> CellId {
    let clone = lab.kernel.clone_cell(template, QUOTA).expect("a template can be cloned");
    lab.kernel.start(clone).expect("it was not started before");
    lab.run_all();
    assert_eq!(state(lab, clone), RunState::Idle { until: Nanos::NEVER }, "no check failed");
    clone
}

fn state(lab: &Lab, id: CellId) -> RunState {
    lab.kernel.inspect(id).expect("it lives").0
}

/// Wakes a cell by an event; it then checks its memory.
fn finish(lab: &mut Lab, id: CellId) {
    lab.kernel.raise(id, Event::Console);
    assert_eq!(lab.finish(id).end, End::Exited { status: 0 }, "the number of the check that failed is the status");
}

/// Ends everything, and checks that every frame and every byte of swap space is free.
fn check_empty(lab: &Lab, swap: &TestSwap, cells: &[CellId], before: PageCount) {
    cells.iter().for_each(|id| drop(lab.kernel.end(*id, End::Killed)));
    lab.kernel.settle();
    assert_eq!(lab.kernel.free(), before);
    assert_eq!(swap.lengths(), [0_usize; 0]);
    assert_eq!(lab.kernel.swap_usage().map(|usage| usage.records), Some(0));
}

#[test]
fn a_cell_finds_memory_of_every_kind_again() {
    for (mut lab, swap) in labs() {
        let before = lab.kernel.free();
        let (template, _) = template_that_waits(&mut lab);
        let awake = waiting_clone(&mut lab, template);
        let asleep = waiting_clone(&mut lab, template);
        lab.kernel.settle();
        let resident = lab.kernel.inspect(asleep).expect("it lives").2.used;
        lab.kernel.sleep(asleep).expect("it is idle");
        assert_eq!(state(&lab, asleep), RunState::Asleep { until: Nanos::NEVER });
        lab.kernel.settle();
        let used = lab.kernel.inspect(asleep).expect("it lives").2.used;
        assert_eq!(used, PageCount(0), "all frames are given back");
        let [length] = swap.lengths()[..] else { panic!("one record") };
        assert!(length < 4096, "{length} bytes for {resident}");
        finish(&mut lab, asleep);
        finish(&mut lab, awake);
        check_empty(&lab, &swap, &[template], before);
    }
}
