// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the fair shares: turns are counted, without cells and without time.

use super::{FairShare, ReadyReason, Scheduler};
use crate::cell::CellId;
use crate::cell::cpu_limit::Weight;
use crate::limits::{MAX_OVERTAKES, QUANTUM};
use std::collections::HashMap;

const fn cell(index: u32) -> CellId {
    CellId { index, generation: 0 }
}

fn weight(weight: u64) -> Weight {
    Weight::new(weight).expect("it is a weight")
}

/// A scheduler with `count` cells of the operator.
fn flat(count: u32) -> FairShare {
    let mut scheduler = FairShare::default();
    (0..count).for_each(|index| scheduler.add(cell(index), None));
    scheduler
}

/// A cell and its ancestors.
fn path(scheduler: &mut FairShare, id: CellId) -> Vec<CellId> {
    std::iter::successors(Some(id), |id| scheduler.node(*id).and_then(|node| node.parent)).collect()
}

fn drain(scheduler: &mut FairShare) -> Vec<CellId> {
    std::iter::from_fn(|| scheduler.next()).collect()
}

/// Runs cells that never wait for `turns` quanta. Returns how many each got.
fn run(scheduler: &mut FairShare, turns: u32) -> HashMap<CellId, u32> {
    let mut quanta = HashMap::new();
    for _ in 0..turns {
        let id = scheduler.next().expect("all are runnable");
        *quanta.entry(id).or_insert(0) += 1;
        let path = path(scheduler, id);
        scheduler.charge(id, &path, QUANTUM);
        scheduler.ready(id, ReadyReason::Turn);
    }
    quanta
}

#[test]
fn idlers_go_first_and_starve_no_cell() {
    let mut scheduler = flat(2);
    scheduler.ready(cell(0), ReadyReason::Turn);
    for _ in 0..MAX_OVERTAKES {
        scheduler.ready(cell(1), ReadyReason::Woken);
        assert_eq!(scheduler.next(), Some(cell(1)));
    }
    scheduler.ready(cell(1), ReadyReason::Woken);
    assert_eq!(drain(&mut scheduler), [cell(0), cell(1)]);
}

#[test]
fn an_interrupted_cell_is_the_first_of_the_others() {
    let mut scheduler = flat(3);
    scheduler.ready(cell(0), ReadyReason::Turn);
    scheduler.ready(cell(1), ReadyReason::Interrupted);
    scheduler.ready(cell(2), ReadyReason::Woken);
    assert_eq!(drain(&mut scheduler), [cell(2), cell(1), cell(0)]);
}

#[test]
fn the_others_take_turns() {
    let mut scheduler = flat(3);
    for _ in 0..3 {
        (0..3).for_each(|index| scheduler.ready(cell(index), ReadyReason::Turn));
        assert_eq!(drain(&mut scheduler), [cell(0), cell(1), cell(2)]);
    }
}

#[test]
fn an_idler_that_computes_as_much_as_others_does_not_overtake_them() {
    let mut scheduler = flat(2);
    scheduler.ready(cell(0), ReadyReason::Turn);
    let mut quanta = [0; 2];
    for _ in 0..1000 {
        scheduler.ready(cell(1), ReadyReason::Woken);
        let id = scheduler.next().expect("both are runnable");
        quanta[id.index as usize] += 1;
        scheduler.charge(id, &[id], QUANTUM);
        if id == cell(0) {
            scheduler.ready(id, ReadyReason::Turn);
        }
    }
    assert!(quanta[0] >= 498, "{quanta:?}");
}

#[test]
fn a_stream_of_new_cells_starves_no_cell() {
    let mut scheduler = flat(2);
    (0..2).for_each(|index| scheduler.ready(cell(index), ReadyReason::Turn));
    let (mut turns, mut newest) = (0, 1);
    for _ in 0..100 {
        let id = scheduler.next().expect("two are runnable");
        scheduler.charge(id, &[id], QUANTUM);
        if id == cell(0) {
            turns += 1;
        } else {
            scheduler.remove(id);
            newest += 1;
            scheduler.add(cell(newest), None);
        }
        scheduler.ready(if id == cell(0) { id } else { cell(newest) }, ReadyReason::Turn);
    }
    assert_eq!(turns, 50);
}

#[test]
fn a_family_gets_no_more_than_a_cell() {
    let mut scheduler = flat(2);
    (2..52).for_each(|index| scheduler.add(cell(index), Some(cell(1))));
    (0..52).for_each(|index| scheduler.ready(cell(index), ReadyReason::Turn));
    let quanta = run(&mut scheduler, 1020);
    assert_eq!(quanta[&cell(0)], 510);
    // The parent and its 50 children have equal parts of the rest.
    assert!((1..52).all(|index| quanta[&cell(index)] == 10), "{quanta:?}");
}

#[test]
fn weights_hold_at_each_level() {
    let mut scheduler = flat(2);
    (2..4).for_each(|index| scheduler.add(cell(index), Some(cell(1))));
    for (index, of) in [(0, 300), (1, 100), (2, 200), (3, 50)] {
        scheduler.set_weight(cell(index), weight(of));
        scheduler.ready(cell(index), ReadyReason::Turn);
    }
    let quanta = run(&mut scheduler, 1400);
    // Three quarters; and of the last quarter the parent has 100 of 350.
    for (index, wanted) in [(0, 1050), (1, 100), (2, 200), (3, 50)] {
        assert!(quanta[&cell(index)].abs_diff(wanted) <= 1, "{quanta:?}");
    }
}

#[test]
fn a_cell_of_weight_0_runs_only_with_its_family() {
    let mut scheduler = flat(1);
    (1..4).for_each(|index| scheduler.add(cell(index), Some(cell(index - 1))));
    scheduler.set_weight(cell(1), weight(0));
    [1, 2, 3].into_iter().for_each(|index| scheduler.ready(cell(index), ReadyReason::Woken));
    assert!(scheduler.is_empty() && scheduler.next().is_none());
    assert_eq!(scheduler.next_of_family(cell(3)), Some(cell(3)));
    let both: Vec<_> = std::iter::from_fn(|| scheduler.next_of_family(cell(1))).collect();
    assert_eq!(both, [cell(1), cell(2)]);
    scheduler.ready(cell(3), ReadyReason::Turn);
    scheduler.set_weight(cell(1), weight(1));
    assert_eq!(drain(&mut scheduler), [cell(3)]);
}

#[test]
fn a_family_pays_for_a_turn_in_which_a_cell_of_it_ends() {
    let mut scheduler = flat(2);
    for (index, parent) in [(2, 1), (3, 2), (4, 1)] {
        scheduler.add(cell(index), Some(cell(parent)));
    }
    scheduler.ready(cell(3), ReadyReason::Turn);
    assert_eq!(scheduler.next(), Some(cell(3)));
    let path = path(&mut scheduler, cell(3));
    assert_eq!(path, [cell(3), cell(2), cell(1)]);
    scheduler.remove(cell(2));
    scheduler.charge(cell(3), &path, QUANTUM * 5);
    [4, 0].into_iter().for_each(|index| scheduler.ready(cell(index), ReadyReason::Turn));
    let quanta = run(&mut scheduler, 4);
    assert_eq!(quanta, HashMap::from([(cell(0), 4)]));
}

#[test]
fn a_cell_that_gets_weight_0_during_its_turn_pays_for_that_turn_only() {
    let mut scheduler = flat(2);
    (0..2).for_each(|index| scheduler.ready(cell(index), ReadyReason::Turn));
    assert_eq!(scheduler.next(), Some(cell(0)));
    scheduler.set_weight(cell(0), weight(0));
    scheduler.charge(cell(0), &[cell(0)], QUANTUM);
    scheduler.set_weight(cell(0), weight(100));
    scheduler.ready(cell(0), ReadyReason::Turn);
    assert_eq!(run(&mut scheduler, 10), HashMap::from([(cell(0), 5), (cell(1), 5)]));
}

#[test]
fn a_cell_of_weight_0_that_wakes_does_not_move_its_family() {
    let mut scheduler = flat(2);
    (2..5).for_each(|index| scheduler.add(cell(index), Some(cell(1))));
    scheduler.set_weight(cell(3), weight(0));
    [0, 2, 4].into_iter().for_each(|index| scheduler.ready(cell(index), ReadyReason::Turn));
    scheduler.ready(cell(3), ReadyReason::Woken);
    assert_eq!(scheduler.next(), Some(cell(0)));
    // One that competes does.
    scheduler.ready(cell(0), ReadyReason::Turn);
    scheduler.ready(cell(4), ReadyReason::Woken);
    assert_eq!(drain(&mut scheduler), [cell(4), cell(0), cell(2)]);
}

#[test]
fn a_cell_that_becomes_a_parent_keeps_its_turn() {
    let mut scheduler = flat(2);
    (0..2).for_each(|index| scheduler.ready(cell(index), ReadyReason::Turn));
    scheduler.add(cell(2), Some(cell(0)));
    scheduler.ready(cell(2), ReadyReason::Turn);
    assert_eq!(drain(&mut scheduler), [cell(0), cell(1), cell(2)]);
}

/// Random changes of a random tree, with a model that knows the runnable cells.
#[test]
fn every_runnable_cell_is_found_once() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut scheduler = FairShare::default();
        // By cell: its parent, and whether it waits.
        let mut model: Vec<(CellId, Option<CellId>, bool)> = Vec::new();
        let mut made = 0;
        for _ in 0..300 {
            let at = random.usize(0..model.len().max(1));
            match (random.u8(0..6), model.get(at).copied()) {
                (0, parent) => {
                    let parent = parent.map(|(id, ..)| id).filter(|_| random.u8(0..4) > 0);
                    scheduler.add(cell(made), parent);
                    model.push((cell(made), parent, false));
                    made += 1;
                }
                (1, Some((id, ..))) if model.iter().all(|(_, parent, _)| *parent != Some(id)) => {
                    scheduler.remove(id);
                    model.retain(|(other, ..)| *other != id);
                }
                (2 | 3, Some((id, _, false))) => {
                    scheduler.ready(id, *random.choice(&[ReadyReason::Turn, ReadyReason::Interrupted, ReadyReason::Woken]).expect("three"));
                    model[at].2 = true;
                }
                (4, Some((id, ..))) => {
                    scheduler.set_weight(id, weight(random.u64(1..=10_000)));
                    let path = path(&mut scheduler, id);
                    scheduler.charge(id, &path, QUANTUM * random.u32(0..3));
                }
                (5, Some((family, ..))) => {
                    let next = if random.bool() { scheduler.next() } else { scheduler.next_of_family(family) };
                    if let Some(next) = next {
                        let found = model.iter_mut().find(|(id, _, waits)| *id == next && *waits);
                        found.expect("it waits in the model").2 = false;
                    }
                }
                _ => {}
            }
            assert_eq!(scheduler.is_empty(), model.iter().all(|(.., waits)| !waits), "seed {seed}");
        }
        let mut left = drain(&mut scheduler);
        left.sort_unstable();
        assert_eq!(left, model.iter().filter(|(.., waits)| *waits).map(|(id, ..)| *id).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn a_cell_is_taken_out_of_turn_only_within_its_part() {
    let mut scheduler = flat(3);
    for index in 0..3 {
        scheduler.ready(cell(index), ReadyReason::Turn);
    }
    assert!(scheduler.take(cell(2)) && !scheduler.take(cell(2)), "it waits no more");
    assert_eq!(drain(&mut scheduler), [cell(0), cell(1)]);
    // Two quanta ahead of the others.
    scheduler.charge(cell(2), &[cell(2)], 2 * QUANTUM);
    scheduler.ready(cell(2), ReadyReason::Woken);
    assert!(!scheduler.take(cell(2)));
    assert_eq!(drain(&mut scheduler), [cell(2)]);
}

#[test]
fn neither_a_cell_nor_an_ancestor_of_weight_0_is_taken_out_of_turn() {
    let mut scheduler = flat(1);
    scheduler.add(cell(1), Some(cell(0)));
    scheduler.add(cell(2), Some(cell(1)));
    scheduler.set_weight(cell(1), weight(0));
    scheduler.ready(cell(2), ReadyReason::Woken);
    assert!(!scheduler.take(cell(2)));
    scheduler.set_weight(cell(1), Weight::DEFAULT);
    assert!(scheduler.take(cell(2)) && scheduler.is_empty());
    // Its ancestors were ahead of their siblings: the family is, too.
    scheduler.charge(cell(2), &[cell(2), cell(1), cell(0)], 3 * QUANTUM);
    scheduler.ready(cell(2), ReadyReason::Woken);
    assert!(!scheduler.take(cell(2)));
}
