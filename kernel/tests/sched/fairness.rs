// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns: every cell gets its own, whatever other cells do in theirs.

use pando_abi::{Event, Hypercall};
use pando_kernel::RunState;
use pando_kernel::{CellId, End};
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{R12, R15, Rax, Rbx, Rcx, Rdi, Rdx};
use pando_testing::lab::{DATA, Lab, repetitions};
use pando_testing::virtual_registers::{application, exit, set_control, with_handlers, words};
use std::time::Duration;

/// A cell that counts in memory for ever.
fn counter(lab: &Lab) -> CellId {
    lab.launch(|asm| {
        asm.mov_imm(Rbx, DATA);
        let again = asm.here();
        asm.inc(Rax).store(Rbx, 0, Rax).jmp(again);
    })
}

/// CPU time of a cell.
fn time_of(lab: &Lab, id: CellId) -> Duration {
    lab.kernel.inspect(id).expect("it lives").1.cpu
}

fn preemptions(lab: &Lab, id: CellId) -> u64 {
    lab.kernel.inspect(id).expect("it lives").1.preemptions
}

/// Checks that each cell has had `wanted` whole quanta. A real machine may interrupt a quantum, which the cell continues later:
/// there, half of `wanted` suffices.
fn assert_quanta(lab: &Lab, cells: &[CellId], wanted: u64) {
    let quanta: Vec<_> = cells.iter().map(|id| preemptions(lab, *id)).collect();
    let exact = quanta.iter().all(|quanta| *quanta == wanted);
    let nearly = lab.sim.is_none() && quanta.iter().all(|quanta| *quanta >= wanted / 2);
    assert!(exact || nearly, "{quanta:?} quanta instead of {wanted} each");
}

#[test]
fn cells_that_want_everything_take_turns() {
    for mut lab in Lab::both() {
        let cells: Vec<_> = (0..5).map(|_| counter(&lab)).collect();
        for _ in 0..20 {
            lab.turn(0);
        }
        assert_quanta(&lab, &cells, 4);
    }
}

/// Programs that keep the kernel busy for ever, each in another way.
fn busy_ways() -> Vec<(&'static str, Vec<u8>)> {
    let program = |build: &dyn Fn(&mut Asm)| {
        let mut asm = Asm::new();
        build(&mut asm);
        asm.finish()
    };
    let mut ways = vec![(
        "loops",
        program(&|asm| {
            let again = asm.here();
            asm.jmp(again);
        }),
    )];
    for (name, call) in [
        ("rings the doorbell", Hypercall::Doorbell {}),
        ("idles until long ago", Hypercall::Idle { deadline: 0 }),
        ("makes bad calls", Hypercall::SpaceDestroy { space: 77 }),
        ("maps and maps", Hypercall::Map { space: u64::MAX, address: 0x2000_0000, pages: 1, flags: 0xb }),
        ("makes and destroys", Hypercall::SegmentCreate {}),
    ] {
        ways.push((
            name,
            program(&|asm| {
                let again = asm.here();
                asm.call_kernel(call).jmp(again);
            }),
        ));
    }
    ways.push((
        "faults and faults",
        program(&|asm| {
            let again = asm.here();
            asm.ud2().jmp(again);
        }),
    ));
    ways.push((
        "calls its libOS",
        program(&|asm| {
            let again = asm.here();
            asm.syscall().jmp(again);
        }),
    ));
    ways
}

#[test]
fn a_cell_that_keeps_the_kernel_busy_starves_no_cell() {
    for mut lab in Lab::both() {
        for (name, program) in busy_ways() {
            let handler = {
                let mut asm = Asm::new();
                // Back to the program, as an application.
                asm.mov_imm(Rbx, pando_abi::layout::VIRTUAL_REGISTERS);
                asm.store_imm(Rbx, pando_abi::virtual_registers::offset::LEVEL as i32, 0);
                asm.mov_imm(Rcx, pando_testing::lab::CODE).jmp_to(Rcx);
                asm.finish()
            };
            let busy = lab.cell(&with_handlers(&program, &handler, &[]));
            set_control(&lab, busy, &application());
            lab.kernel.start(busy).expect("it was not started before");
            let other = counter(&lab);
            for _ in 0..6 {
                lab.turn(0);
            }
            // A busy cell that has to wait for a flush yields its turns.
            assert!(preemptions(&lab, other) >= if lab.sim.is_some() { 3 } else { 1 }, "a cell that {name}");
            assert!(lab.kernel.inspect(busy).expect("it lives").1.exits > 0, "a cell that {name}");
            for id in [busy, other] {
                lab.kernel.end(id, End::Killed).expect("it lives");
                lab.kernel.collect(id);
            }
        }
    }
}

#[test]
fn a_cell_that_gives_its_turn_away_is_the_last_to_get_the_next() {
    for mut lab in Lab::both() {
        let polite = lab.launch(|asm| {
            let again = asm.here();
            asm.call_kernel(Hypercall::Relinquish {}).jmp(again);
        });
        let others = [counter(&lab), counter(&lab)];
        for _ in 0..9 {
            lab.turn(0);
        }
        let (_, counters, _) = lab.kernel.inspect(polite).expect("it lives");
        let turns = counters.hypercalls + counters.preemptions;
        assert!(turns == 3 || lab.sim.is_none() && turns >= 1, "{turns} turns");
        assert_quanta(&lab, &others, 3);
    }
}

/// A cell that idles for ever and counts its wake-ups.
fn idler(lab: &Lab) -> CellId {
    lab.launch(|asm| {
        let again = asm.here();
        asm.mov_imm(Rbx, pando_abi::layout::VIRTUAL_REGISTERS).store_imm(Rbx, 0, 0);
        asm.call_kernel(Hypercall::Idle { deadline: u64::MAX }).mov_imm(Rbx, DATA).inc(R12).store(Rbx, 0, R12).jmp(again);
    })
}

#[test]
fn a_cell_that_comes_back_from_idling_goes_first() {
    for mut lab in Lab::both() {
        let idler = idler(&lab);
        lab.run_all();
        let others: Vec<_> = (0..4).map(|_| counter(&lab)).collect();
        for round in 1..4 {
            lab.kernel.raise(idler, Event::Console);
            lab.turn(0);
            // A slow machine may not let it finish at once.
            while lab.sim.is_none() && lab.kernel.inspect(idler).expect("it lives").0 == RunState::Ready {
                lab.turn(0);
            }
            assert_eq!(words(&lab, idler, DATA), [round], "the idler was not the next to run");
            for _ in 0..4 {
                lab.turn(0);
            }
            assert_quanta(&lab, &others, round);
        }
    }
}

#[test]
fn cells_that_keep_coming_back_starve_no_cell() {
    for mut lab in Lab::both() {
        let idlers: Vec<_> = (0..3).map(|_| idler(&lab)).collect();
        lab.run_all();
        let other = counter(&lab);
        for _ in 0..100 {
            for id in &idlers {
                lab.kernel.raise(*id, Event::Console);
            }
            lab.turn(0);
        }
        // One turn in nine: the limit of cells that may overtake is eight.
        assert!(preemptions(&lab, other) >= if lab.sim.is_some() { 10 } else { 5 }, "{} turns", preemptions(&lab, other));
    }
}

/// A partner that wakes just after the victim's quantum has begun must not cost the victim its quantum.
#[test]
fn a_quantum_that_is_interrupted_is_not_lost() {
    for mut lab in Lab::both() {
        let victim = counter(&lab);
        let spinner = counter(&lab);
        let start = lab.kernel.now();
        // Wakes a little later than a quantum after its last wake-up: the cell that ran in between has had its quantum, and the
        // next has just begun.
        let partner = lab.launch(|asm| {
            asm.mov_imm(R15, start.0);
            let again = asm.here();
            asm.mov_imm(Rdx, 10_200_000).add(R15, Rdx).mov(Rdi, R15).mov_imm(Rax, 1).hypercall().jmp(again);
        });
        let counters = [victim, spinner];
        let (mut last, mut wakes, mut continued) = (None, 0, 0);
        while continued < repetitions(5, 20, 400) {
            // On a busy host, a quantum may be over before its interruption is noticed, but not every time.
            assert!(wakes < 4_000, "of {wakes} quanta that the partner interrupted, {continued} were continued");
            let before = counters.map(|id| preemptions(&lab, id));
            lab.turn(0);
            match counters.iter().zip(before).position(|(id, before)| preemptions(&lab, *id) > before) {
                Some(counter) => {
                    // It ran before the partner, and runs after it.
                    continued += u32::from(last == Some((counter, true)));
                    last = Some((counter, false));
                }
                None => {
                    wakes += 1;
                    last = last.map(|(counter, _)| (counter, true));
                }
            }
        }
        // Only virtual time is that of the cell alone.
        if lab.sim.is_some() {
            let mut times = counters.map(|id| time_of(&lab, id));
            times.sort();
            assert!(times[0] * 2 >= times[1], "of two equals one had {:?}, the other {:?}", times[0], times[1]);
        }
        assert!(matches!(lab.kernel.inspect(partner).expect("it lives").0, RunState::Idle { .. } | RunState::Ready));
    }
}

#[test]
fn a_cell_that_waits_for_a_flush_stops_no_other_cell() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        // Maps and unmaps until its quota is full of retired tables, again and again.
        let churner = {
            let mut asm = Asm::new();
            asm.mov_imm(R15, u64::from(repetitions(200, 400, 4_000)));
            let again = asm.here();
            for flags in [0xb, 0x9] {
                asm.call_kernel(Hypercall::Map { space: u64::MAX, address: 0x2000_0000, pages: 4, flags });
            }
            asm.dec(R15).jump_if(pando_testing::asm::Condition::NotZero, again).call_kernel(exit(0));
            let id = lab.cell_with(&asm.finish(), pando_machine::PageCount(300));
            lab.kernel.start(id).expect("it was not started before");
            id
        };
        let other = counter(&lab);
        assert_eq!(lab.finish(churner).end, End::Exited { status: 0 });
        // It left its vCPU for its own timer and for flushes, but not repeatedly because one flush was due.
        let (_, counters, _) = lab.kernel.inspect(other).expect("it lives");
        assert!(counters.exits < 2000 + 4 * counters.preemptions, "{} exits, {} quanta", counters.exits, counters.preemptions);
        lab.kernel.end(other, End::Killed).expect("it lives");
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}
