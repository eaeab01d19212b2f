// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default scheduler: siblings share CPU time by their weights, at every level of the tree of cells.
//!
//! The cells of the operator are one *group*. Each cell with children has a group as well. Its members are the cell itself, with the
//! default weight, and its children with their descendants. A member has a *virtual time*: the CPU time that it has used, divided by its
//! weight. The member with the least virtual time is next, then the next in its group, down to a cell. So a family counts as one cell in
//! the group around it, however many cells it has.
//!
//! Members that return from idling are compensated (Denali section 3.2.1): they go first unless they are ahead by more than a quantum, but
//! at most [`OVERTAKING`] times in a row.

use super::scheduler::{ReadyReason, Scheduler};
use crate::cell::CellId;
use crate::cell::share::Weight;
use crate::limits::{OVERTAKING, QUANTUM};
use std::collections::BTreeMap;
use std::time::Duration;

/// Weighted fair sharing among siblings.
#[derive(Debug, Default)]
pub struct FairShare {
    /// The cells of the operator.
    root: Group,
    /// All cells, by index.
    nodes: Vec<Option<Node>>,
    /// Number of times that a member was queued.
    queued: u64,
}

/// A cell in the tree.
#[derive(Debug)]
struct Node {
    id: CellId,
    parent: Option<CellId>,
    weight: Weight,
    /// Whether the cell itself waits for a vCPU.
    is_ready: bool,
    /// Its place in its parent's group, together with its descendants.
    member: Member,
    /// Its own group, from its first child on.
    family: Option<Box<Family>>,
}

/// The group of a cell with children.
#[derive(Debug, Default)]
struct Family {
    /// The place of the cell itself.
    own: Member,
    group: Group,
}

/// The state of a member of a group.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// CPU time that it has used, in nanoseconds at the default weight.
    virtual_time: u64,
    /// Its place in the queue of its group, if it waits.
    place: Option<Place>,
    /// It is a child that has never waited.
    is_new: bool,
}

/// A place in the queue of a group. The least is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    class: Class,
    /// The virtual time, in class [`Class::Fair`].
    virtual_time: u64,
    sequence: u64,
}

/// The classes of waiting members, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// Returns from idling, and has not used more than its part: first in, first out.
    Woken,
    /// Has a rest of its quantum: last in, first out.
    Interrupted,
    /// Waits by its virtual time.
    Fair,
}

/// The name of a member in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberName {
    /// The cell whose group it is.
    Own(CellId),
    /// A child, with its descendants.
    Child(CellId),
}

/// Members that wait, by their places. One member alone takes no allocation, as is usual at the levels of a deep family.
#[derive(Debug, Default)]
struct Queue {
    first: Option<(Place, MemberName)>,
    others: BTreeMap<Place, MemberName>,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The last place.
    fn last(&self) -> Option<Place> {
        self.others.last_key_value().map(|(place, _)| *place).or(self.first.map(|(place, _)| place))
    }

    /// The first place from this one on.
    fn first_from(&self, start: Place) -> Option<Place> {
        let (first, _) = self.first?;
        if first >= start { Some(first) } else { self.others.range(start..).next().map(|(place, _)| *place) }
    }

    fn insert(&mut self, place: Place, name: MemberName) {
        match self.first.replace((place, name)) {
            None => {}
            Some(first) if place < first.0 => drop(self.others.insert(first.0, first.1)),
            Some(first) => {
                self.first = Some(first);
                self.others.insert(place, name);
            }
        }
    }

    fn remove(&mut self, place: Place) -> Option<MemberName> {
        if self.first.is_some_and(|(first, _)| first == place) {
            return std::mem::replace(&mut self.first, self.others.pop_first()).map(|(_, name)| name);
        }
        self.others.remove(&place)
    }
}

/// Members of one level that wait for a vCPU.
#[derive(Debug, Default)]
struct Group {
    queue: Queue,
    /// Virtual time of the group: no member that begins to wait is further behind.
    floor: u64,
    /// Number of members in a row that overtook others.
    overtaken: u32,
}

impl Group {
    /// Takes the next member out of the queue.
    fn pop(&mut self) -> Option<MemberName> {
        let (first, _) = self.queue.first?;
        let is_woken = |place: Place| place.class == Class::Woken;
        let has_others = self.queue.last().is_some_and(|last| !is_woken(last));
        let place = if is_woken(first) && has_others && self.overtaken >= OVERTAKING {
            self.queue.first_from(Place { class: Class::Interrupted, virtual_time: 0, sequence: 0 }).unwrap_or(first)
        } else {
            first
        };
        self.overtaken = if is_woken(place) { self.overtaken + u32::from(has_others) } else { 0 };
        if place.class == Class::Fair {
            self.floor = self.floor.max(place.virtual_time);
        }
        self.queue.remove(place)
    }
}

impl Node {
    /// Whether a cell of its family waits for a vCPU.
    fn is_family_ready(&self) -> bool {
        self.family.as_ref().map_or(self.is_ready, |family| !family.group.queue.is_empty())
    }
}

impl FairShare {
    fn node(&mut self, id: CellId) -> Option<&mut Node> {
        self.nodes.get_mut(id.index as usize)?.as_mut().filter(|node| node.id == id)
    }

    /// The group of a cell, or that of the operator's cells.
    fn group(&mut self, cell: Option<CellId>) -> Option<&mut Group> {
        match cell {
            None => Some(&mut self.root),
            Some(id) => self.node(id)?.family.as_mut().map(|family| &mut family.group),
        }
    }

    /// The group that a member belongs to.
    fn group_of(&mut self, name: MemberName) -> Option<&mut Group> {
        let cell = match name {
            MemberName::Own(id) => Some(id),
            MemberName::Child(id) => self.node(id)?.parent,
        };
        self.group(cell)
    }

    /// A member and its weight.
    fn member(&mut self, name: MemberName) -> Option<(&mut Member, Weight)> {
        match name {
            MemberName::Own(id) => Some((&mut self.node(id)?.family.as_mut()?.own, Weight::DEFAULT)),
            MemberName::Child(id) => self.node(id).map(|node| (&mut node.member, node.weight)),
        }
    }

    /// Queues a member, or queues it better if it returns from idling. Returns whether its place has changed.
    fn enqueue(&mut self, name: MemberName, reason: ReadyReason) -> bool {
        self.queued += 1;
        let sequence = self.queued;
        // Cells whose parent has ended do not run any more.
        let Some(floor) = self.group_of(name).map(|group| group.floor) else { return false };
        let Some((member, weight)) = self.member(name) else { return false };
        let before = member.place;
        // A new member waits for a turn of those that are there, so that a stream of new ones starves nobody.
        let debit = if std::mem::take(&mut member.is_new) { virtual_time(QUANTUM, weight) } else { 0 };
        member.virtual_time = member.virtual_time.max(floor.saturating_add(debit));
        let is_ahead = member.virtual_time - floor > virtual_time(QUANTUM, weight);
        let place = match reason {
            ReadyReason::Woken if !is_ahead => Place { class: Class::Woken, virtual_time: 0, sequence },
            ReadyReason::Interrupted => Place { class: Class::Interrupted, virtual_time: 0, sequence: u64::MAX - sequence },
            ReadyReason::Turn | ReadyReason::Woken => Place { class: Class::Fair, virtual_time: member.virtual_time, sequence },
        };
        if before.is_some_and(|before| before <= place) {
            return false;
        }
        member.place = Some(place);
        let Some(group) = self.group_of(name) else { return false };
        before.map(|before| group.queue.remove(before));
        group.queue.insert(place, name);
        true
    }

    /// Takes a member out of the queue of its group.
    fn dequeue(&mut self, name: MemberName) {
        let Some(place) = self.member(name).and_then(|(member, _)| member.place.take()) else { return };
        if let Some(group) = self.group_of(name) {
            group.queue.remove(place);
        }
    }

    /// Makes the queue of a cell's parent agree with whether the cell's family waits, and those of its ancestors.
    fn update(&mut self, cell: CellId, reason: ReadyReason) {
        let mut next = Some(cell);
        while let Some(node) = next.and_then(|id| self.node(id)) {
            let name = MemberName::Child(node.id);
            let (waits, is_queued) = (node.weight.get() > 0 && node.is_family_ready(), node.member.place.is_some());
            next = node.parent;
            let is_changed = match (waits, is_queued) {
                (true, true) if reason != ReadyReason::Woken => false,
                (true, _) => self.enqueue(name, reason),
                (false, true) => {
                    self.dequeue(name);
                    true
                }
                // The places of a cell that was just taken, and of its ancestors, are gone already.
                (false, false) => reason != ReadyReason::Woken,
            };
            if !is_changed {
                // All above is right already.
                return;
            }
        }
    }

    /// Takes the next cell of a group.
    fn take(&mut self, group: Option<CellId>) -> Option<CellId> {
        let mut group = group;
        let cell = loop {
            let name = self.group(group)?.pop()?;
            self.member(name)?.0.place = None;
            match name {
                MemberName::Own(id) => break id,
                MemberName::Child(id) if self.node(id)?.family.is_some() => group = Some(id),
                MemberName::Child(id) => break id,
            }
        };
        self.node(cell)?.is_ready = false;
        // Families that still wait are queued again.
        self.update(cell, ReadyReason::Turn);
        Some(cell)
    }

    /// Charges a member.
    fn charge_member(&mut self, name: MemberName, time: Duration) {
        let Some((member, weight)) = self.member(name) else { return };
        member.virtual_time = member.virtual_time.saturating_add(virtual_time(time, weight));
        let (virtual_time, before) = (member.virtual_time, member.place.filter(|place| place.class == Class::Fair));
        if let Some(before) = before {
            let place = Place { virtual_time, ..before };
            member.place = Some(place);
            if let Some(group) = self.group_of(name) {
                group.queue.remove(before);
                group.queue.insert(place, name);
            }
        }
    }
}

/// The virtual time for CPU time at a weight. A member whose weight became 0 in the middle of its turn pays as by default.
fn virtual_time(time: Duration, weight: Weight) -> u64 {
    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    if weight == Weight::DEFAULT || weight.get() == 0 { time } else { time.saturating_mul(Weight::DEFAULT.get()) / weight.get() }
}

impl Scheduler for FairShare {
    fn ready(&mut self, cell: CellId, reason: ReadyReason) {
        let Some(node) = self.node(cell) else { return };
        node.is_ready = true;
        if node.family.is_some() {
            self.enqueue(MemberName::Own(cell), reason);
        }
        self.update(cell, reason);
    }

    fn next(&mut self) -> Option<CellId> {
        self.take(None)
    }

    fn is_empty(&self) -> bool {
        self.root.queue.is_empty()
    }

    fn add(&mut self, cell: CellId, parent: Option<CellId>) {
        if let Some(id) = parent
            && let Some(node) = self.node(id)
            && node.family.is_none()
        {
            node.family = Some(Box::default());
            if node.is_ready {
                self.enqueue(MemberName::Own(id), ReadyReason::Turn);
            }
        }
        let index = cell.index as usize;
        self.nodes.resize_with(self.nodes.len().max(index + 1), || None);
        let member = Member { is_new: true, ..Member::default() };
        let node = Node { id: cell, parent, weight: Weight::DEFAULT, is_ready: false, member, family: None };
        self.nodes[index] = Some(node);
    }

    fn remove(&mut self, cell: CellId) {
        self.dequeue(MemberName::Child(cell));
        let Some(parent) = self.node(cell).map(|node| node.parent) else { return };
        self.nodes[cell.index as usize] = None;
        if let Some(parent) = parent {
            self.update(parent, ReadyReason::Turn);
        }
    }

    fn set_weight(&mut self, cell: CellId, weight: Weight) {
        if let Some(node) = self.node(cell) {
            node.weight = weight;
            self.update(cell, ReadyReason::Turn);
        }
    }

    fn charge(&mut self, cell: CellId, members: &[CellId], time: Duration) {
        self.charge_member(MemberName::Own(cell), time);
        members.iter().for_each(|id| self.charge_member(MemberName::Child(*id), time));
    }

    fn next_of_family(&mut self, cell: CellId) -> Option<CellId> {
        let node = self.node(cell)?;
        if node.family.is_some() {
            return self.take(Some(cell));
        }
        if !std::mem::take(&mut node.is_ready) {
            return None;
        }
        self.update(cell, ReadyReason::Turn);
        Some(cell)
    }
}

#[cfg(test)]
mod tests {
    use super::{FairShare, ReadyReason, Scheduler};
    use crate::cell::CellId;
    use crate::cell::share::Weight;
    use crate::limits::{OVERTAKING, QUANTUM};
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
    fn idlers_go_first_but_starve_nobody() {
        let mut scheduler = flat(2);
        scheduler.ready(cell(0), ReadyReason::Turn);
        for _ in 0..OVERTAKING {
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
    fn a_stream_of_new_cells_starves_nobody() {
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
                        scheduler
                            .ready(id, *random.choice(&[ReadyReason::Turn, ReadyReason::Interrupted, ReadyReason::Woken]).expect("three"));
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
}
