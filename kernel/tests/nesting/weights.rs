// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU weights: siblings share CPU time by their weights, at every level, and a family counts as one cell.
//!
//! The cells of these tests give their turns away, for which they are charged a whole quantum. So quanta can be counted that take no time.

use crate::actor::{call, call_beside, clone_root, template};
use pando_abi::holding::limit;
use pando_abi::limits::MAX_CPU_WEIGHT;
use pando_abi::{HoldingName, Hypercall, Refusal};
use pando_kernel::limits::QUANTUM;
use pando_kernel::{CellId, Weight};
use pando_machine::PageCount;
use pando_testing::asm::Asm;
use pando_testing::lab::{Lab, seeds};

/// A parent that waits, and whose root is a cell that always wants a vCPU.
fn parent(lab: &mut Lab, root: CellId, yielding: CellId, cells: u32) -> CellId {
    let id = lab.kernel.clone_cell(root, PageCount(20_000)).expect("room");
    assert_eq!(lab.kernel.allow_children(id, cells, yielding), Ok(HoldingName::ROOT));
    lab.kernel.start(id).expect("it was not started");
    while !crate::actor::waits(lab, id) {
        assert!(lab.turn(0), "it waits for ever");
    }
    id
}

/// A cell of the operator that always wants a vCPU.
fn single(lab: &Lab, yielding: CellId) -> CellId {
    let id = lab.kernel.clone_cell(yielding, PageCount(300)).expect("room");
    lab.kernel.start(id).expect("it was not started");
    id
}

fn set_weight(lab: &mut Lab, parent: CellId, child: HoldingName, value: u64) -> Result<u64, Refusal> {
    call_beside(lab, parent, Hypercall::CellLimit { cell: child.bits(), kind: limit::CPU_WEIGHT, value })
}

/// A cell that gives each of its turns away, not started.
fn yielding(lab: &Lab) -> CellId {
    let mut asm = Asm::new();
    let again = asm.here();
    asm.call_kernel(Hypercall::Relinquish {}).jmp(again);
    lab.cell(&asm.finish())
}

/// Quanta that a cell has used.
fn quanta(lab: &Lab, id: CellId) -> u64 {
    lab.kernel.inspect(id).expect("it lives").1.hypercalls
}

/// The quanta of each cell, of the next `turns` that these cells get; and how many quanta the host may have cost meanwhile. If it takes the
/// CPU away in the middle of a turn, the cell is charged for the time.
fn quanta_of(lab: &mut Lab, cells: &[CellId], turns: u64) -> (Vec<u64>, u64) {
    let (start, before) = (lab.kernel.now(), cells.iter().map(|id| quanta(lab, *id)).collect::<Vec<u64>>());
    let sum = |lab: &Lab| cells.iter().map(|id| quanta(lab, *id)).sum::<u64>();
    let wanted = sum(lab) + turns;
    while sum(lab) < wanted {
        assert!(lab.turn(0), "all want a vCPU");
    }
    let lost = lab.kernel.now().since(start).as_nanos() / QUANTUM.as_nanos();
    let used = cells.iter().zip(before).map(|(id, before)| quanta(lab, *id) - before).collect();
    (used, if lab.sim.is_some() { 0 } else { 2 * lost as u64 + 2 })
}

#[test]
fn a_family_of_fifty_gets_no_more_than_one_cell() {
    for mut lab in Lab::both() {
        let (root, yielding) = (template(&lab), yielding(&lab));
        let parent = parent(&mut lab, root, yielding, 50);
        for _ in 0..50 {
            clone_root(&mut lab, parent, PageCount(300), 0).expect("room");
        }
        let children: Vec<CellId> = lab.kernel.children(parent).expect("it lives").into_iter().map(|(_, id)| id).collect();
        children.iter().for_each(|id| lab.kernel.start(*id).expect("it was not started"));
        let single = single(&lab, yielding);
        let turns = 1000;
        let all: Vec<CellId> = children.iter().copied().chain([single]).collect();
        let (used, lost) = quanta_of(&mut lab, &all, turns);
        let tolerance = 1 + lost;
        assert!(used[50].abs_diff(turns / 2) <= tolerance, "{used:?}");
        assert!(used[..50].iter().all(|quanta| quanta.abs_diff(turns / 100) <= tolerance), "{used:?}");
    }
}

/// Random trees of two levels with random weights. Each cell's quanta follow from the weights on its path.
#[test]
fn quanta_follow_the_weights_on_the_path() {
    for (seed, mut lab) in seeds(1, 8, 400).flat_map(|seed| Lab::both().into_iter().map(move |lab| (seed, lab))) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (root, yielding) = (template(&lab), yielding(&lab));
        // By cell: its part of the whole.
        let mut parts: Vec<(CellId, f64)> = Vec::new();
        let weights: Vec<u64> = (0..random.u32(2..5)).map(|_| random.u64(20..500)).collect();
        let sum: u64 = weights.iter().sum();
        for weight in weights {
            let part = weight as f64 / sum as f64;
            let top = if random.u8(0..3) == 0 {
                let id = single(&lab, yielding);
                parts.push((id, part));
                id
            } else {
                let parent = parent(&mut lab, root, yielding, 10);
                let mut below: Vec<(CellId, u64)> = Vec::new();
                for _ in 0..random.u32(1..6) {
                    let held =
                        call_beside(&mut lab, parent, Hypercall::CellClone { source: HoldingName::ROOT.bits(), quota: 300, cells: 0 });
                    let name = held.ok().and_then(HoldingName::from_bits).expect("room");
                    let weight = random.u64(10..1000);
                    assert_eq!(set_weight(&mut lab, parent, name, weight), Ok(0));
                    let children = lab.kernel.children(parent).expect("it lives");
                    let (_, child) = *children.iter().find(|(held, _)| *held == name).expect("it is held");
                    below.push((child, weight));
                }
                below.iter().for_each(|(id, _)| lab.kernel.start(*id).expect("it was not started"));
                let sum: u64 = below.iter().map(|(_, weight)| weight).sum();
                parts.extend(below.into_iter().map(|(id, weight)| (id, part * weight as f64 / sum as f64)));
                parent
            };
            lab.kernel.set_weight(top, Weight::new(weight).expect("a weight")).expect("it lives");
        }
        let cells: Vec<CellId> = parts.iter().map(|(id, _)| *id).collect();
        // Cells that were made before others have had some turns alone.
        quanta_of(&mut lab, &cells, 200);
        let (used, lost) = quanta_of(&mut lab, &cells, 1000);
        for ((id, part), used) in parts.iter().zip(&used) {
            let wanted = part * 1000.0;
            // A quantum at either end of the measurement, at each level.
            assert!(
                (*used as f64 - wanted).abs() <= 4.0 + lost as f64,
                "seed {seed}: {id} has {used} quanta instead of {wanted}: {parts:?} {used:?}"
            );
        }
    }
}

#[test]
fn a_child_of_weight_0_waits_and_one_of_the_largest_weight_gets_nearly_all() {
    for mut lab in Lab::both() {
        let (root, yielding) = (template(&lab), yielding(&lab));
        let parent = parent(&mut lab, root, yielding, 3);
        let names: Vec<_> = (0..3).map(|_| clone_root(&mut lab, parent, PageCount(300), 0).expect("room")).collect();
        for ((name, _), weight) in names.iter().zip([0, MAX_CPU_WEIGHT, 1]) {
            assert_eq!(set_weight(&mut lab, parent, *name, weight), Ok(0));
        }
        assert_eq!(set_weight(&mut lab, parent, names[0].0, MAX_CPU_WEIGHT + 1), Err(Refusal::BadArgument));
        assert_eq!(set_weight(&mut lab, parent, names[0].0, u64::MAX), Err(Refusal::BadArgument));
        // It is not even a reason for the kernel to wake up.
        assert_eq!(call(&mut lab, parent, Hypercall::CellRun { cell: names[0].0.bits() }), Ok(0));
        assert_eq!(lab.kernel.inspect(names[0].1).expect("it lives").1.exits, 0);
        for (name, _) in &names[1..] {
            assert_eq!(call_beside(&mut lab, parent, Hypercall::CellRun { cell: name.bits() }), Ok(0));
        }
        let cells: Vec<CellId> = names.iter().map(|(_, id)| *id).collect();
        let (used, lost) = quanta_of(&mut lab, &cells, 400);
        assert!(used[0] == 0 && used[1] + lost >= 397, "{used:?}");
        // Its weight may change while it waits.
        assert_eq!(set_weight(&mut lab, parent, names[0].0, MAX_CPU_WEIGHT), Ok(0));
        let (used, lost) = quanta_of(&mut lab, &cells, 400);
        assert!(used[0].abs_diff(used[1]) <= 2 + lost, "{used:?}");
    }
}
