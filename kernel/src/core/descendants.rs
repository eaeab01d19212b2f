// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listing the descendants of a cell, for the operator and for its parent.

use super::nesting::living_state;
use super::state::State;
use super::{Kernel, OperatorError};
use crate::cell::CellId;
use crate::limits::DESCENDANTS_LISTED;
use pando_abi::DescendantRecord;

impl Kernel {
    /// The living descendants of a cell, parents before their children. If there are many, only some of them, and of each that is listed
    /// its ancestors.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn descendants(&self, id: CellId) -> Result<Vec<DescendantRecord>, OperatorError> {
        let mut state = self.shared.lock();
        if state.living(id).is_none() {
            return Err(OperatorError::NoSuchCell(id));
        }
        Ok(state.descendants(id, DESCENDANTS_LISTED))
    }
}

impl State {
    /// The first `max` of the living descendants of a cell, parents before their children. Visits no more than [`DESCENDANTS_LISTED`]
    /// children, ended ones included.
    pub(super) fn descendants(&mut self, id: CellId, max: usize) -> Vec<DescendantRecord> {
        let mut visits_left = DESCENDANTS_LISTED;
        let mut listed = Vec::new();
        let mut waiting = self.children_of(id, 1, &mut visits_left);
        while let Some((child, depth)) = waiting.pop()
            && listed.len() < max
        {
            let Some((live, frames)) = self.living(child) else { continue };
            let used = frames.usage(live.cell.memory.account()).used.0;
            let cpu = u64::try_from(live.cell.counters.cpu.as_nanos()).unwrap_or(u64::MAX);
            listed.push(DescendantRecord::new(depth, living_state(live), (used, cpu), live.cell.identity.host_name.as_bytes()));
            waiting.extend(self.children_of(child, depth + 1, &mut visits_left));
        }
        listed
    }

    /// The children of a cell with their depth, the first one last. Visits no more than are left.
    fn children_of(&mut self, id: CellId, depth: u32, visits_left: &mut usize) -> Vec<(CellId, u32)> {
        let Some((live, _)) = self.living(id) else { return Vec::new() };
        let children: Vec<CellId> = live.holdings.children().take(*visits_left).map(|(_, child)| child).collect();
        *visits_left -= children.len();
        children.into_iter().rev().map(|child| (child, depth)).collect()
    }
}
