// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU limits: a cell gets no more of a vCPU than its limit, and other cells get the rest.

use pando_abi::Event;
use pando_kernel::RunState;
use pando_kernel::limits::CPU_LIMIT_PERIOD;
use pando_kernel::{CellId, Config, CpuLimit, End};
use pando_machine::PageCount;
use pando_testing::lab::Lab;
use std::time::Duration;

fn limit(part: f64) -> CpuLimit {
    CpuLimit::new(part).expect("a part of a whole")
}

/// A cell that loops for ever, with a limit.
fn spinner(lab: &Lab, part: f64) -> CellId {
    let id = lab.launch(|asm| {
        let again = asm.here();
        asm.jmp(again);
    });
    lab.kernel.set_cpu_limit(id, limit(part)).expect("it lives");
    id
}

/// Drives the machine for `periods` periods. Returns how many passed.
fn run(lab: &mut Lab, periods: u32) -> f64 {
    let start = lab.kernel.now();
    while lab.kernel.now() < start + CPU_LIMIT_PERIOD * periods {
        assert!(lab.turn(0), "nobody wants to run any more");
    }
    lab.kernel.now().since(start).div_duration_f64(CPU_LIMIT_PERIOD)
}

/// CPU time of a cell, in periods.
fn time_of(lab: &Lab, id: CellId) -> f64 {
    lab.kernel.inspect(id).expect("it lives").1.cpu.div_duration_f64(CPU_LIMIT_PERIOD)
}

/// The software machine, whose time is exact.
fn exact() -> Lab {
    Lab::sim(1, PageCount(1 << 12), 1, Config::default())
}

#[test]
fn a_cell_gets_its_share_even_if_the_rest_is_unused() {
    for part in [0.05, 0.3] {
        let mut lab = exact();
        let id = spinner(&lab, part);
        let passed = run(&mut lab, 3);
        let time = time_of(&lab, id);
        // The time of the current period may be used already or not.
        assert!((part * (passed - 1.0)..=part * (passed + 1.0)).contains(&time), "{part}: {time} of {passed}");
    }
}

#[test]
fn on_any_machine_a_cell_waits_for_its_share_and_gets_it() {
    for mut lab in Lab::both() {
        let id = spinner(&lab, 0.2);
        let mut waits = 0;
        while waits < 3 {
            assert!(lab.turn(0), "it waits for ever");
            waits += u32::from(matches!(lab.kernel.inspect(id).expect("it lives").0, RunState::Throttled { .. }));
        }
    }
}

#[test]
fn time_beyond_a_cells_share_goes_to_other_cells() {
    let mut lab = exact();
    let (limited, unlimited) = (spinner(&lab, 0.2), spinner(&lab, 1.0));
    let passed = run(&mut lab, 2);
    let (limited, unlimited) = (time_of(&lab, limited), time_of(&lab, unlimited));
    assert!((0.15..0.25).contains(&(limited / passed)), "{limited} of {passed}");
    assert!(unlimited / passed > 0.7, "{unlimited} of {passed}");
}

#[test]
fn a_cell_that_has_had_its_share_waits_whatever_happens_to_it() {
    for mut lab in Lab::both() {
        let id = spinner(&lab, 0.01);
        let waits = |lab: &Lab| match lab.kernel.inspect(id).expect("it lives").0 {
            RunState::Throttled { until } => Some(until),
            _ => None,
        };
        while waits(&lab).is_none() {
            lab.turn(0);
        }
        let (until, before) = (waits(&lab), time_of(&lab, id));
        lab.kernel.raise(id, Event::Console);
        assert!(lab.kernel.write(id, pando_testing::lab::DATA, &[1]).is_err(), "it only waits for its turn");
        lab.workers[0].turn();
        // A slow machine may be past that time.
        assert!(waits(&lab) == until && time_of(&lab, id) == before || lab.kernel.now() >= until.expect("it waited"));
        lab.kernel.end(id, End::Killed).expect("it lives");
        assert_eq!(lab.kernel.collect(id).map(|outcome| outcome.end), Some(End::Killed));
    }
}

#[test]
fn a_cell_that_idles_most_of_the_time_never_waits() {
    let mut lab = exact();
    let start = lab.kernel.now().0;
    let id = lab.launch(|asm| {
        use pando_testing::asm::Register::{R12, Rax, Rcx, Rdi};
        asm.mov_imm(R12, start);
        let again = asm.here();
        asm.mov_imm(Rcx, 10_000_000).add(R12, Rcx).mov(Rdi, R12).mov_imm(Rax, 1).hypercall().jmp(again);
    });
    lab.kernel.set_cpu_limit(id, limit(0.1)).expect("it lives");
    let mut spent = false;
    for _ in 0..60 {
        lab.turn(0);
        spent |= matches!(lab.kernel.inspect(id).expect("it lives").0, RunState::Throttled { .. });
    }
    assert!(!spent && lab.kernel.now().0 - start > Duration::from_millis(200).as_nanos() as u64);
}
