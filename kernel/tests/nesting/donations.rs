// SPDX-License-Identifier: MIT OR Apache-2.0
//! Donations of CPU time: a parent that schedules its children by a policy of its own.

use crate::actor::{ask, call_beside, close, result, spinner, start, template, waits};
use pando_abi::holding::{DonationEnd, limit, stop};
use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::virtual_registers::offset;
use pando_abi::{Event, HoldingName, Hypercall, Refusal};
use pando_kernel::{CellId, Config, End, RunState};
use pando_machine::PageCount;
use pando_testing::asm::Asm;
use pando_testing::lab::{Lab, repetitions};

const MILLISECOND: u64 = 1_000_000;
/// Longer than any test.
const FOREVER: u64 = u64::MAX;

/// A parent that may clone an actor, by [`HoldingName::ROOT`], and a cell that computes for ever.
struct Family {
    lab: Lab,
    free: PageCount,
    templates: [CellId; 2],
    parent: CellId,
    computing: HoldingName,
}

impl Family {
    fn new(mut lab: Lab) -> Family {
        let free = lab.kernel.free();
        let templates = [template(&lab), spinner(&lab)];
        let parent = start(&mut lab, templates[0], PageCount(5000), 10);
        let computing = lab.kernel.allow_children(parent, 10, templates[1]).expect("it holds little");
        Family { lab, free, templates, parent, computing }
    }

    fn call(&mut self, wanted: Hypercall) -> Result<u64, Refusal> {
        call_beside(&mut self.lab, self.parent, wanted)
    }

    /// Makes a child of weight 0 that was not started.
    fn child(&mut self, source: HoldingName) -> (HoldingName, CellId) {
        let name = self.call(Hypercall::CellClone { source: source.bits(), quota: 1000, cells: 3 });
        let name = name.ok().and_then(HoldingName::from_bits).expect("room");
        assert_eq!(self.call(Hypercall::CellLimit { cell: name.bits(), kind: limit::CPU_WEIGHT, value: 0 }), Ok(0));
        let children = self.lab.kernel.children(self.parent).expect("it lives");
        (name, children.into_iter().find(|(held, _)| *held == name).expect("it is held").1)
    }

    /// Makes a child of weight 0 that computes for ever, and starts it.
    fn spinner(&mut self) -> (HoldingName, CellId) {
        let (name, id) = self.child(self.computing);
        assert_eq!(self.call(Hypercall::CellRun { cell: name.bits() }), Ok(0));
        (name, id)
    }

    fn donate(&mut self, child: HoldingName, time: u64) -> Option<DonationEnd> {
        self.call(Hypercall::Donate { cell: child.bits(), time }).ok().and_then(DonationEnd::from_bits)
    }

    /// CPU time in milliseconds.
    fn cpu(&self, id: CellId) -> f64 {
        self.lab.kernel.inspect(id).expect("it lives").1.cpu.as_secs_f64() * 1e3
    }

    fn close(mut self) {
        close(&mut self.lab, &[&[self.parent], &self.templates[..]].concat(), self.free);
    }
}

#[test]
fn a_donation_runs_the_child_for_the_donated_time() {
    for lab in Lab::both() {
        let is_exact = lab.sim.is_some();
        let mut family = Family::new(lab);
        let (name, child) = family.spinner();
        let mut last = 0.0;
        // Less than a quantum, and several.
        for time in [1, 3, 35] {
            assert_eq!(family.donate(name, time * MILLISECOND), Some(DonationEnd::TimeOver));
            let (used, time) = (family.cpu(child) - last, time as f64);
            // A real machine counts the time that it takes to enter and leave the cell.
            assert!(if is_exact { (time - 0.5..time + 0.5).contains(&used) } else { used > 0.0 }, "{used} of {time}");
            last += used;
        }
        family.close();
    }
}

#[test]
fn a_donation_tells_why_it_ends() {
    for lab in Lab::both() {
        let mut family = Family::new(lab);
        let (name, child) = family.child(HoldingName::ROOT);
        assert_eq!(family.donate(name, FOREVER), Some(DonationEnd::Stopped), "it was not started");
        assert_eq!(family.call(Hypercall::CellRun { cell: name.bits() }), Ok(0));
        assert_eq!(family.donate(name, FOREVER), Some(DonationEnd::Idle));
        assert!(waits(&family.lab, child), "it has run until it waited");
        for how in [stop::HALT, stop::FORCE] {
            assert_eq!(family.call(Hypercall::CellStop { cell: name.bits(), how }), Ok(0));
            assert_eq!(family.donate(name, FOREVER), Some(DonationEnd::Stopped));
            let _ = family.call(Hypercall::CellResume { cell: name.bits(), how: 0 });
            let _ = family.donate(name, FOREVER);
        }
        assert_eq!(family.call(Hypercall::CellEnd { cell: name.bits() }), Ok(0));
        assert_eq!(family.donate(name, FOREVER), Some(DonationEnd::Ended));
        // A child that has used its share of the CPU does not wait for a vCPU.
        let (limited, id) = family.spinner();
        assert_eq!(family.call(Hypercall::CellLimit { cell: limited.bits(), kind: limit::CPU, value: 10 }), Ok(0));
        assert_eq!(family.donate(limited, FOREVER), Some(DonationEnd::Idle));
        assert!(matches!(family.lab.kernel.inspect(id).expect("it lives").0, RunState::Throttled { .. } | RunState::Ready));
        family.close();
    }
}

#[test]
fn an_event_or_a_timer_of_the_donor_ends_the_donation() {
    for lab in Lab::both() {
        let is_exact = lab.sim.is_some();
        let mut family = Family::new(lab);
        let (name, child) = family.spinner();
        ask(&family.lab, family.parent, Hypercall::Donate { cell: name.bits(), time: FOREVER });
        for _ in 0..2 {
            assert!(family.lab.turn(0), "the child computes");
        }
        assert!(!waits(&family.lab, family.parent) && family.cpu(child) > 0.0);
        family.lab.kernel.raise(family.parent, Event::Console);
        while !waits(&family.lab, family.parent) {
            assert!(family.lab.turn(0), "the donor waits for ever");
        }
        assert_eq!(result(&family.lab, family.parent), Ok(DonationEnd::Event as u64));
        let before = family.cpu(child);
        let due = family.lab.kernel.now().0 + 5 * MILLISECOND;
        family.lab.kernel.write(family.parent, VIRTUAL_REGISTERS + offset::TIMER as u64, &due.to_le_bytes()).expect("it waits");
        assert_eq!(family.donate(name, FOREVER), Some(DonationEnd::Event));
        assert!(!is_exact || (4.0..6.0).contains(&(family.cpu(child) - before)), "{} {before}", family.cpu(child));
        family.close();
    }
}

#[test]
fn a_donor_pays_for_its_child() {
    let mut family = Family::new(Lab::sim(1, PageCount(1 << 16), 1, Config::default()));
    let (name, child) = family.spinner();
    let (sibling_name, sibling) = family.spinner();
    let weight = Hypercall::CellLimit { cell: sibling_name.bits(), kind: limit::CPU_WEIGHT, value: 100 };
    assert_eq!(family.call(weight), Ok(0));
    let rival = family.lab.kernel.clone_cell(family.templates[1], PageCount(300)).expect("room");
    family.lab.kernel.start(rival).expect("it was not started");
    ask(&family.lab, family.parent, Hypercall::Donate { cell: name.bits(), time: FOREVER });
    for _ in 0..60 {
        family.lab.turn(0);
    }
    // The family has half of the time, and the donor half of that.
    let [donated, beside, rivals] = [child, sibling, rival].map(|id| family.cpu(id));
    assert!((donated - beside).abs() <= 21.0 && donated > 100.0, "{donated} ms donated, {beside} ms of the sibling");
    assert!((donated + beside - rivals).abs() <= 31.0, "{donated} and {beside} ms of the family, {rivals} ms of the rival");
    family.lab.kernel.end(rival, End::Killed).expect("it lives");
    family.lab.kernel.collect(rival);
    family.close();
}

/// A child that gives its turns away costs its donor the donated time, not whole quanta.
#[test]
fn a_donor_pays_for_no_more_than_it_donates() {
    let mut family = Family::new(Lab::sim(1, PageCount(1 << 16), 1, Config::default()));
    let mut asm = Asm::new();
    let again = asm.here();
    asm.call_kernel(Hypercall::Relinquish {}).jmp(again);
    let yielding = family.lab.cell(&asm.finish());
    let source = family.lab.kernel.allow_children(family.parent, 10, yielding).expect("it holds little");
    let (name, child) = family.child(source);
    assert_eq!(family.call(Hypercall::CellRun { cell: name.bits() }), Ok(0));
    let (computing_name, computing) = family.spinner();
    let rival = family.lab.kernel.clone_cell(family.templates[1], PageCount(300)).expect("room");
    family.lab.kernel.start(rival).expect("it was not started");
    assert_eq!(family.donate(name, MILLISECOND), Some(DonationEnd::TimeOver));
    assert!(family.lab.kernel.inspect(child).expect("it lives").1.hypercalls > 20, "it has given many turns away");
    ask(&family.lab, family.parent, Hypercall::Donate { cell: computing_name.bits(), time: FOREVER });
    for _ in 0..20 {
        family.lab.turn(0);
    }
    assert!(family.cpu(computing) > 60.0, "{} ms", family.cpu(computing));
    for id in [rival, yielding] {
        family.lab.kernel.end(id, End::Killed).expect("it lives");
        family.lab.kernel.collect(id);
    }
    family.close();
}

/// A parent that gives one child three times as much as the other, beside a rival that computes.
#[test]
fn a_parent_schedules_by_a_policy_of_its_own() {
    for lab in Lab::both() {
        let is_exact = lab.sim.is_some();
        let mut family = Family::new(lab);
        let children = [family.spinner(), family.spinner()];
        let rival = family.lab.kernel.clone_cell(family.templates[1], PageCount(300)).expect("room");
        family.lab.kernel.start(rival).expect("it was not started");
        for _ in 0..repetitions(2, 6, 20) {
            for ((name, _), time) in children.into_iter().zip([6, 2]) {
                assert_eq!(family.donate(name, time * MILLISECOND), Some(DonationEnd::TimeOver));
            }
        }
        let [more, less] = children.map(|(_, id)| family.cpu(id));
        assert!(if is_exact { (2.8..3.2).contains(&(more / less)) } else { more > less }, "{more} and {less}");
        family.lab.kernel.end(rival, End::Killed).expect("it lives");
        family.lab.kernel.collect(rival);
        family.close();
    }
}

/// A child that is given time gives it to its own child, for longer than it has itself.
#[test]
fn donations_form_chains() {
    for lab in Lab::both() {
        let is_exact = lab.sim.is_some();
        let mut family = Family::new(lab);
        let (name, child) = family.child(HoldingName::ROOT);
        let granted = family.call(Hypercall::Grant { cell: name.bits(), holding: family.computing.bits(), label: 0 });
        assert_eq!(family.call(Hypercall::CellRun { cell: name.bits() }), Ok(0));
        assert_eq!(family.donate(name, FOREVER), Some(DonationEnd::Idle));
        // The child has no weight, so it makes each of its calls in donated time.
        let of_child = |family: &mut Family, wanted: Hypercall, time: u64, end: DonationEnd| {
            ask(&family.lab, child, wanted);
            assert_eq!(family.donate(name, time), Some(end), "{wanted:?}");
        };
        let clone = Hypercall::CellClone { source: granted.expect("room"), quota: 300, cells: 0 };
        of_child(&mut family, clone, FOREVER, DonationEnd::Idle);
        let (below, grandchild) = family.lab.kernel.children(child).expect("it lives")[0];
        let weightless = Hypercall::CellLimit { cell: below.bits(), kind: limit::CPU_WEIGHT, value: 0 };
        of_child(&mut family, weightless, FOREVER, DonationEnd::Idle);
        of_child(&mut family, Hypercall::CellRun { cell: below.bits() }, FOREVER, DonationEnd::Idle);
        assert_eq!(family.cpu(grandchild), 0.0);
        of_child(&mut family, Hypercall::Donate { cell: below.bits(), time: FOREVER }, 4 * MILLISECOND, DonationEnd::TimeOver);
        let used = family.cpu(grandchild);
        assert!(if is_exact { (3.5..4.5).contains(&used) } else { used > 0.0 }, "{used}");
        // The child's donation goes on when it is given time again, until the child has an event.
        assert_eq!(family.donate(name, 4 * MILLISECOND), Some(DonationEnd::TimeOver));
        assert!(family.cpu(grandchild) > used);
        family.lab.kernel.raise(child, Event::Console);
        assert_eq!(family.donate(name, FOREVER), Some(DonationEnd::Idle));
        assert_eq!(result(&family.lab, child), Ok(DonationEnd::Event as u64));
        family.close();
    }
}

#[test]
fn hostile_donations_are_refused_or_harm_the_donor() {
    for lab in Lab::both() {
        let mut family = Family::new(lab);
        let (name, child) = family.spinner();
        for bits in [0, 1, name.bits() + 1, name.bits() | 1 << 40, u64::MAX, HoldingName::ROOT.bits(), family.computing.bits()] {
            assert_eq!(family.call(Hypercall::Donate { cell: bits, time: 1 }), Err(Refusal::NoSuchHolding), "{bits:#x}");
        }
        assert_eq!(family.call(Hypercall::Donate { cell: name.bits(), time: 0 }), Err(Refusal::BadArgument));
        assert_eq!(family.donate(name, 1), Some(DonationEnd::TimeOver));
        // The operator ends the child while it runs in place of the donor.
        ask(&family.lab, family.parent, Hypercall::Donate { cell: name.bits(), time: FOREVER });
        for _ in 0..2 {
            assert!(family.lab.turn(0), "the child computes");
        }
        family.lab.kernel.end(child, End::Killed).expect("it lives");
        while !waits(&family.lab, family.parent) {
            assert!(family.lab.turn(0), "the donor waits for ever");
        }
        assert_eq!(result(&family.lab, family.parent), Ok(DonationEnd::Ended as u64));
        assert_eq!(family.call(Hypercall::Drop { holding: name.bits() }), Ok(0));
        // The donor itself is frozen in the middle, and its clone sees an end.
        let (name, _) = family.spinner();
        ask(&family.lab, family.parent, Hypercall::Donate { cell: name.bits(), time: FOREVER });
        for _ in 0..2 {
            assert!(family.lab.turn(0), "the child computes");
        }
        assert!(family.lab.kernel.clone_cell(family.parent, PageCount(300)).is_err(), "it waits for a vCPU");
        family.lab.kernel.force_freeze(family.parent).expect("it was started");
        for _ in 0..3 {
            family.lab.turn(0);
        }
        assert_eq!(family.lab.kernel.inspect(family.parent).expect("it lives").0, RunState::Frozen);
        let clone = family.lab.kernel.clone_cell(family.parent, PageCount(1000)).expect("it is frozen");
        family.lab.kernel.start(clone).expect("it was not started");
        family.lab.run_all();
        assert_eq!(result(&family.lab, clone), Ok(DonationEnd::Event as u64));
        family.lab.kernel.end(clone, End::Killed).expect("it lives");
        family.lab.kernel.collect(clone);
        family.close();
    }
}

/// The donor ends in the middle of a donation.
#[test]
fn a_donor_that_ends_takes_its_child_along() {
    for lab in Lab::both() {
        let mut family = Family::new(lab);
        let (name, _) = family.spinner();
        ask(&family.lab, family.parent, Hypercall::Donate { cell: name.bits(), time: FOREVER });
        for _ in 0..2 {
            assert!(family.lab.turn(0), "the child computes");
        }
        family.close();
    }
}
