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
    min_virtual_time: u64,
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
            self.min_virtual_time = self.min_virtual_time.max(place.virtual_time);
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
        let Some(min_virtual_time) = self.group_of(name).map(|group| group.min_virtual_time) else { return false };
        let Some((member, weight)) = self.member(name) else { return false };
        let before = member.place;
        // A new member waits for a turn of those that are there, so that a stream of new ones starves nobody.
        let debit = if std::mem::take(&mut member.is_new) { virtual_time(QUANTUM, weight) } else { 0 };
        member.virtual_time = member.virtual_time.max(min_virtual_time.saturating_add(debit));
        let is_ahead = member.virtual_time - min_virtual_time > virtual_time(QUANTUM, weight);
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

    /// Whether a cell may run out of turn: neither it nor an ancestor runs by donations only, or has used more than a quantum beyond its
    /// part.
    fn may_overtake(&mut self, cell: CellId) -> bool {
        let mut name =
            if self.node(cell).is_some_and(|node| node.family.is_some()) { MemberName::Own(cell) } else { MemberName::Child(cell) };
        loop {
            let Some(floor) = self.group_of(name).map(|group| group.min_virtual_time) else { return false };
            let Some((member, weight)) = self.member(name) else { return false };
            if weight.get() == 0 || member.virtual_time.saturating_sub(floor) > virtual_time(QUANTUM, weight) {
                return false;
            }
            name = match name {
                MemberName::Own(id) => MemberName::Child(id),
                MemberName::Child(id) => match self.node(id).and_then(|node| node.parent) {
                    Some(parent) => MemberName::Child(parent),
                    None => return true,
                },
            };
        }
    }

    /// Takes the next cell of a group.
    fn take_next(&mut self, group: Option<CellId>) -> Option<CellId> {
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
        self.take_next(None)
    }

    fn take(&mut self, cell: CellId) -> bool {
        let Some(node) = self.node(cell) else { return false };
        if !node.is_ready || !self.may_overtake(cell) {
            return false;
        }
        let Some(node) = self.node(cell) else { return false };
        node.is_ready = false;
        if node.family.is_some() {
            self.dequeue(MemberName::Own(cell));
        }
        self.update(cell, ReadyReason::Turn);
        true
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
            return self.take_next(Some(cell));
        }
        if !std::mem::take(&mut node.is_ready) {
            return None;
        }
        self.update(cell, ReadyReason::Turn);
        Some(cell)
    }
}

#[cfg(test)]
mod tests;
