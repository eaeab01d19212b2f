// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default scheduler: siblings share CPU time by their weights, at every level of the tree of cells.
//!
//! The cells of the operator are one *group*. Each cell with children has a group as well. Its entities are the cell itself, with the
//! default weight, and its children with their descendants. An entity has a *virtual time*: the CPU time that it has used, divided by its
//! weight. The entity with the least virtual time is next, then the next in its group, down to a cell. So a family counts as one cell in
//! the group around it, however many cells it has.
//!
//! Entities that wake up are compensated (Denali section 3.2.1): they go first unless they are ahead by more than a quantum, but
//! at most [`MAX_OVERTAKES`] times in a row.

use super::scheduler::{ReadyReason, Scheduler};
use crate::cell::CellId;
use crate::cell::cpu_limit::Weight;
use crate::limits::{MAX_OVERTAKES, QUANTUM};
use std::collections::BTreeMap;
use std::time::Duration;

/// Weighted fair sharing among siblings.
#[derive(Debug, Default)]
pub struct FairShare {
    /// The cells of the operator.
    root: Group,
    /// All cells, by index.
    nodes: Vec<Option<Node>>,
    /// Number of times that an entity was queued.
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
    entity: SchedulingEntity,
    /// Its own group, from its first child on.
    family: Option<Box<Family>>,
}

/// The group of a cell with children.
#[derive(Debug, Default)]
struct Family {
    /// The place of the cell itself.
    own: SchedulingEntity,
    group: Group,
}

/// The state of an entity of a group.
#[derive(Clone, Copy, Debug, Default)]
struct SchedulingEntity {
    /// CPU time that it has used, in nanoseconds at the default weight.
    virtual_time: u64,
    /// Its place in the queue of its group, if it waits.
    place: Option<QueueKey>,
    /// It is a child that has never waited.
    is_new: bool,
}

/// A place in the queue of a group. The least is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueueKey {
    class: Class,
    /// The virtual time, in class [`Class::Fair`].
    virtual_time: u64,
    sequence: u64,
}

/// The classes of waiting entities, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// Returns from idling, and has not used more than its part: first in, first out.
    Woken,
    /// Has a rest of its quantum: last in, first out.
    Interrupted,
    /// Waits by its virtual time.
    Fair,
}

/// The name of an entity in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntityName {
    /// The cell whose group it is.
    Own(CellId),
    /// A child, with its descendants.
    Child(CellId),
}

/// Entities that wait, by their places. One entity alone takes no allocation, as is usual at the levels of a deep family.
#[derive(Debug, Default)]
struct Queue {
    first: Option<(QueueKey, EntityName)>,
    others: BTreeMap<QueueKey, EntityName>,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The last place.
    fn last(&self) -> Option<QueueKey> {
        self.others.last_key_value().map(|(place, _)| *place).or(self.first.map(|(place, _)| place))
    }

    /// The first place from this one on.
    fn first_from(&self, start: QueueKey) -> Option<QueueKey> {
        let (first, _) = self.first?;
        if first >= start { Some(first) } else { self.others.range(start..).next().map(|(place, _)| *place) }
    }

    fn insert(&mut self, place: QueueKey, name: EntityName) {
        match self.first.replace((place, name)) {
            None => {}
            Some(first) if place < first.0 => drop(self.others.insert(first.0, first.1)),
            Some(first) => {
                self.first = Some(first);
                self.others.insert(place, name);
            }
        }
    }

    fn remove(&mut self, place: QueueKey) -> Option<EntityName> {
        if self.first.is_some_and(|(first, _)| first == place) {
            return std::mem::replace(&mut self.first, self.others.pop_first()).map(|(_, name)| name);
        }
        self.others.remove(&place)
    }
}

/// Entities of one level that wait for a vCPU.
#[derive(Debug, Default)]
struct Group {
    queue: Queue,
    /// Virtual time of the group: no entity that begins to wait is further behind.
    min_virtual_time: u64,
    /// Number of entities in a row that overtook others.
    overtaken: u32,
}

impl Group {
    /// Takes the next entity out of the queue.
    fn pop(&mut self) -> Option<EntityName> {
        let (first, _) = self.queue.first?;
        let is_woken = |place: QueueKey| place.class == Class::Woken;
        let has_others = self.queue.last().is_some_and(|last| !is_woken(last));
        let place = if is_woken(first) && has_others && self.overtaken >= MAX_OVERTAKES {
            self.queue.first_from(QueueKey { class: Class::Interrupted, virtual_time: 0, sequence: 0 }).unwrap_or(first)
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

    /// The group that an entity belongs to.
    fn group_of(&mut self, name: EntityName) -> Option<&mut Group> {
        let cell = match name {
            EntityName::Own(id) => Some(id),
            EntityName::Child(id) => self.node(id)?.parent,
        };
        self.group(cell)
    }

    /// An entity and its weight.
    fn entity(&mut self, name: EntityName) -> Option<(&mut SchedulingEntity, Weight)> {
        match name {
            EntityName::Own(id) => Some((&mut self.node(id)?.family.as_mut()?.own, Weight::DEFAULT)),
            EntityName::Child(id) => self.node(id).map(|node| (&mut node.entity, node.weight)),
        }
    }

    /// Queues an entity, or queues it better if it returns from idling. Returns whether its place has changed.
    fn enqueue(&mut self, name: EntityName, reason: ReadyReason) -> bool {
        self.queued += 1;
        let sequence = self.queued;
        // Cells whose parent has ended do not run any more.
        let Some(min_virtual_time) = self.group_of(name).map(|group| group.min_virtual_time) else { return false };
        let Some((entity, weight)) = self.entity(name) else { return false };
        let before = entity.place;
        // A new entity waits for a turn of those that are there, so that a stream of new ones starves nobody.
        let debit = if std::mem::take(&mut entity.is_new) { virtual_time(QUANTUM, weight) } else { 0 };
        entity.virtual_time = entity.virtual_time.max(min_virtual_time.saturating_add(debit));
        let is_ahead = entity.virtual_time - min_virtual_time > virtual_time(QUANTUM, weight);
        let place = match reason {
            ReadyReason::Woken if !is_ahead => QueueKey { class: Class::Woken, virtual_time: 0, sequence },
            ReadyReason::Interrupted => QueueKey { class: Class::Interrupted, virtual_time: 0, sequence: u64::MAX - sequence },
            ReadyReason::Turn | ReadyReason::Woken => QueueKey { class: Class::Fair, virtual_time: entity.virtual_time, sequence },
        };
        if before.is_some_and(|before| before <= place) {
            return false;
        }
        entity.place = Some(place);
        let Some(group) = self.group_of(name) else { return false };
        before.map(|before| group.queue.remove(before));
        group.queue.insert(place, name);
        true
    }

    /// Takes an entity out of the queue of its group.
    fn dequeue(&mut self, name: EntityName) {
        let Some(place) = self.entity(name).and_then(|(entity, _)| entity.place.take()) else { return };
        if let Some(group) = self.group_of(name) {
            group.queue.remove(place);
        }
    }

    /// Makes the queue of a cell's parent agree with whether the cell's family waits, and those of its ancestors.
    fn update(&mut self, cell: CellId, reason: ReadyReason) {
        let mut next = Some(cell);
        while let Some(node) = next.and_then(|id| self.node(id)) {
            let name = EntityName::Child(node.id);
            let (waits, is_queued) = (node.weight.get() > 0 && node.is_family_ready(), node.entity.place.is_some());
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
            if self.node(cell).is_some_and(|node| node.family.is_some()) { EntityName::Own(cell) } else { EntityName::Child(cell) };
        loop {
            let Some(floor) = self.group_of(name).map(|group| group.min_virtual_time) else { return false };
            let Some((entity, weight)) = self.entity(name) else { return false };
            if weight.get() == 0 || entity.virtual_time.saturating_sub(floor) > virtual_time(QUANTUM, weight) {
                return false;
            }
            name = match name {
                EntityName::Own(id) => EntityName::Child(id),
                EntityName::Child(id) => match self.node(id).and_then(|node| node.parent) {
                    Some(parent) => EntityName::Child(parent),
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
            self.entity(name)?.0.place = None;
            match name {
                EntityName::Own(id) => break id,
                EntityName::Child(id) if self.node(id)?.family.is_some() => group = Some(id),
                EntityName::Child(id) => break id,
            }
        };
        self.node(cell)?.is_ready = false;
        // Families that still wait are queued again.
        self.update(cell, ReadyReason::Turn);
        Some(cell)
    }

    /// Charges an entity.
    fn charge_member(&mut self, name: EntityName, time: Duration) {
        let Some((entity, weight)) = self.entity(name) else { return };
        entity.virtual_time = entity.virtual_time.saturating_add(virtual_time(time, weight));
        let (virtual_time, before) = (entity.virtual_time, entity.place.filter(|place| place.class == Class::Fair));
        if let Some(before) = before {
            let place = QueueKey { virtual_time, ..before };
            entity.place = Some(place);
            if let Some(group) = self.group_of(name) {
                group.queue.remove(before);
                group.queue.insert(place, name);
            }
        }
    }
}

/// The virtual time for CPU time at a weight. An entity whose weight became 0 in the middle of its turn pays as by default.
fn virtual_time(time: Duration, weight: Weight) -> u64 {
    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    if weight == Weight::DEFAULT || weight.get() == 0 { time } else { time.saturating_mul(Weight::DEFAULT.get()) / weight.get() }
}

impl Scheduler for FairShare {
    fn ready(&mut self, cell: CellId, reason: ReadyReason) {
        let Some(node) = self.node(cell) else { return };
        node.is_ready = true;
        if node.family.is_some() {
            self.enqueue(EntityName::Own(cell), reason);
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
            self.dequeue(EntityName::Own(cell));
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
                self.enqueue(EntityName::Own(id), ReadyReason::Turn);
            }
        }
        let index = cell.index as usize;
        self.nodes.resize_with(self.nodes.len().max(index + 1), || None);
        let entity = SchedulingEntity { is_new: true, ..SchedulingEntity::default() };
        let node = Node { id: cell, parent, weight: Weight::DEFAULT, is_ready: false, entity, family: None };
        self.nodes[index] = Some(node);
    }

    fn remove(&mut self, cell: CellId) {
        self.dequeue(EntityName::Child(cell));
        let Some(parent) = self.node(cell).map(|node| node.parent) else { return };
        self.nodes[cell.index as usize] = None;
        if let Some(parent) = parent {
            self.update(parent, ReadyReason::Turn);
        }
    }

    fn weight(&self, cell: CellId) -> Weight {
        let node = self.nodes.get(cell.index as usize).and_then(Option::as_ref).filter(|node| node.id == cell);
        node.map_or(Weight::DEFAULT, |node| node.weight)
    }

    fn set_weight(&mut self, cell: CellId, weight: Weight) {
        if let Some(node) = self.node(cell) {
            node.weight = weight;
            self.update(cell, ReadyReason::Turn);
        }
    }

    fn charge(&mut self, cell: CellId, entities: &[CellId], time: Duration) {
        self.charge_member(EntityName::Own(cell), time);
        entities.iter().for_each(|id| self.charge_member(EntityName::Child(*id), time));
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
