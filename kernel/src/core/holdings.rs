// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holdings: the cells, ports and calls that a cell may name. And parents, which hold their children.

use super::ipc::{Call, CallTicket, MessagePort, Reference};
use crate::cell::CellId;
use crate::device::console::ConsolePort;
use crate::memory::AccountId;
use pando_abi::limits::{MAX_HOLDINGS, MAX_PORTS_AND_CALLS};
use pando_abi::{HoldingName, Refusal};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The parent of a nested cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    /// The parent, which may have ended.
    pub(super) cell: CellId,
    /// Its account, which pays for the child.
    pub(super) account: AccountId,
    /// Whether the parent still holds the child: then the child's outcome is kept for it.
    pub(super) is_holding: bool,
}

/// A cell that clones one that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cloner {
    pub(super) cell: CellId,
    /// It has a view of the cloned cell, which is a child of another one below it.
    pub(super) is_view: bool,
}

/// A thing that a cell may name.
pub(super) enum Holding {
    /// A child: the holder may do anything to it, and it ends when it is dropped.
    Child {
        /// The child.
        cell: CellId,
        /// The holder's end of its console, readable after its end.
        console: Arc<ConsolePort>,
        /// The same of its control channel, if the holder has opened it.
        control: Option<Arc<ConsolePort>>,
    },
    /// A template that the holder may clone.
    Template(CellId),
    /// A descendant that is no child of the holder. It may have ended.
    View(CellId),
    /// A port, at which the holder receives calls.
    Port(Box<MessagePort>),
    /// A reference to a port, by which the holder may call.
    Reference(Reference),
    /// A call that the holder has posted.
    Call(Box<Call>),
    /// The right to answer a call, once.
    Reply(CallTicket),
}

impl Holding {
    /// The cell.
    pub(super) fn cell(&self) -> Option<CellId> {
        match self {
            Holding::Child { cell, .. } | Holding::Template(cell) | Holding::View(cell) => Some(*cell),
            Holding::Port(_) | Holding::Reference(_) | Holding::Call(_) | Holding::Reply(_) => None,
        }
    }

    fn is_port_or_call(&self) -> bool {
        matches!(self, Holding::Port(_) | Holding::Call(_))
    }

    /// A copy for another cell. `None`: only one cell may hold this.
    pub(super) fn copy(&self) -> Option<Holding> {
        match self {
            Holding::Template(template) => Some(Holding::Template(*template)),
            Holding::Reference(reference) => Some(Holding::Reference(*reference)),
            Holding::Child { .. } | Holding::View(_) | Holding::Port(_) | Holding::Call(_) | Holding::Reply(_) => None,
        }
    }
}

/// A slot with the generation of its present or next holding.
struct Slot {
    generation: u32,
    holding: Option<Holding>,
}

/// All holdings of a cell. Most cells have none.
#[derive(Default)]
pub(super) struct Holdings(Option<Box<HoldingTable>>);

/// The holdings of a cell that has had some.
#[derive(Default)]
struct HoldingTable {
    slots: Vec<Slot>,
    /// Indices of empty slots.
    free: Vec<u32>,
    /// Indices of the slots of children: a cell that once held many takes no longer to list.
    children: BTreeSet<u32>,
    /// Number of ports and posted calls.
    ports_and_calls: usize,
}

/// The table of a cell that never held anything.
static EMPTY: HoldingTable = HoldingTable { slots: Vec::new(), free: Vec::new(), children: BTreeSet::new(), ports_and_calls: 0 };

impl Holdings {
    fn table(&self) -> &HoldingTable {
        self.0.as_deref().unwrap_or(&EMPTY)
    }

    fn table_mut(&mut self) -> &mut HoldingTable {
        self.0.get_or_insert_default()
    }
}

impl Holdings {
    /// Whether there are ports or posted calls.
    pub(super) fn has_ports_or_calls(&self) -> bool {
        self.table().ports_and_calls > 0
    }

    /// Whether another holding can be added.
    pub(super) fn has_room(&self) -> bool {
        let HoldingTable { slots, free, .. } = self.table();
        !free.is_empty() || slots.len() < MAX_HOLDINGS
    }

    /// Adds a holding, and returns its name. `None`: there are too many.
    pub(super) fn insert(&mut self, holding: Holding) -> Option<HoldingName> {
        if !self.has_room() || (holding.is_port_or_call() && self.table().ports_and_calls >= MAX_PORTS_AND_CALLS) {
            return None;
        }
        let HoldingTable { slots, free, children, ports_and_calls } = self.table_mut();
        *ports_and_calls += usize::from(holding.is_port_or_call());
        let index = free.pop().unwrap_or_else(|| {
            slots.push(Slot { generation: 1, holding: None });
            slots.len() as u32 - 1
        });
        if matches!(holding, Holding::Child { .. }) {
            children.insert(index);
        }
        let slot = &mut slots[index as usize];
        slot.holding = Some(holding);
        Some(HoldingName::new(index, slot.generation))
    }

    /// Finds a holding.
    ///
    /// # Errors
    /// There is none of this name.
    pub(super) fn get(&self, name: HoldingName) -> Result<&Holding, Refusal> {
        let slot = self.table().slots.get(name.index()).filter(|slot| slot.generation == name.generation());
        slot.and_then(|slot| slot.holding.as_ref()).ok_or(Refusal::NoSuchHolding)
    }

    /// Adds the next place of a table that was never used, with a holding or none. `false`: it is not the next, or one too many.
    pub(super) fn insert_at(&mut self, name: HoldingName, holding: Option<Holding>) -> bool {
        let index = self.table().slots.len();
        if name.index() != index || index >= MAX_HOLDINGS {
            return false;
        }
        let HoldingTable { slots, free, children, .. } = self.table_mut();
        match &holding {
            None => free.push(index as u32),
            Some(Holding::Child { .. }) => drop(children.insert(index as u32)),
            Some(_) => {}
        }
        slots.push(Slot { generation: name.generation(), holding });
        true
    }

    /// All places in order, with the name of each holding, or of the next one there.
    pub(super) fn slots(&self) -> impl Iterator<Item = (HoldingName, Option<&Holding>)> {
        (0..).zip(&self.table().slots).map(|(index, slot)| (HoldingName::new(index, slot.generation), slot.holding.as_ref()))
    }

    /// Finds a holding, to change it.
    pub(super) fn get_mut(&mut self, name: HoldingName) -> Option<&mut Holding> {
        self.0.as_mut()?.slots.get_mut(name.index()).filter(|slot| slot.generation == name.generation())?.holding.as_mut()
    }

    /// Removes a holding; its name becomes stale.
    ///
    /// # Errors
    /// There is none of this name.
    pub(super) fn remove(&mut self, name: HoldingName) -> Result<Holding, Refusal> {
        self.get(name)?;
        let HoldingTable { slots, free, children, ports_and_calls } = self.table_mut();
        let slot = &mut slots[name.index()];
        slot.generation = HoldingName::next_generation(slot.generation);
        free.push(name.index() as u32);
        children.remove(&(name.index() as u32));
        let holding = slot.holding.take().ok_or(Refusal::NoSuchHolding)?;
        *ports_and_calls -= usize::from(holding.is_port_or_call());
        Ok(holding)
    }

    /// The children, with their names.
    pub(super) fn children(&self) -> impl Iterator<Item = (HoldingName, CellId)> {
        let HoldingTable { slots, children, .. } = self.table();
        children.iter().filter_map(|index| {
            let slot = &slots[*index as usize];
            let cell = slot.holding.as_ref()?.cell()?;
            Some((HoldingName::new(*index, slot.generation), cell))
        })
    }

    /// Takes all ports, posted calls and rights to reply out of the table, with their names.
    pub(super) fn take_rights(&mut self) -> Vec<(HoldingName, Holding)> {
        let is_right = |holding: &Holding| matches!(holding, Holding::Port(_) | Holding::Call(_) | Holding::Reply(_));
        let named = (0..).zip(&self.table().slots).filter(|(_, slot)| slot.holding.as_ref().is_some_and(is_right));
        let names: Vec<HoldingName> = named.map(|(index, slot)| HoldingName::new(index, slot.generation)).collect();
        names.into_iter().filter_map(|name| Some((name, self.remove(name).ok()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Holding, Holdings};
    use crate::cell::CellId;
    use pando_abi::limits::MAX_HOLDINGS;
    use pando_abi::{HoldingName, Refusal};

    fn template(index: u32) -> Holding {
        Holding::Template(CellId { index, generation: 0 })
    }

    #[test]
    fn a_removed_holding_has_a_stale_name() {
        let mut holdings = Holdings::default();
        let first = holdings.insert(template(1)).expect("there is room");
        assert_eq!(first, HoldingName::ROOT);
        holdings.remove(first).expect("it is there");
        let second = holdings.insert(template(2)).expect("there is room");
        assert_eq!(first.index(), second.index());
        assert_eq!(holdings.get(first).err(), Some(Refusal::NoSuchHolding));
        assert_eq!(holdings.remove(first).err(), Some(Refusal::NoSuchHolding));
        assert_eq!(holdings.get(second).map(|holding| holding.cell().map(|cell| cell.index)), Ok(Some(2)));
    }

    #[test]
    fn a_cell_holds_so_many_and_no_more() {
        let mut holdings = Holdings::default();
        let names: Vec<_> = (0..MAX_HOLDINGS as u32).filter_map(|index| holdings.insert(template(index))).collect();
        assert!(names.len() == MAX_HOLDINGS && holdings.insert(template(0)).is_none());
        holdings.remove(names[17]).expect("it is there");
        assert!(holdings.insert(template(0)).is_some() && !holdings.has_room());
    }
}
