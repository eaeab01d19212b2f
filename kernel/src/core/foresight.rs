// SPDX-License-Identifier: MIT OR Apache-2.0
//! What clones of a template are expected to touch: learned from those that the operator names, and made for later ones before they run.

use super::{Kernel, OperatorError};
use crate::cell::{CellId, State as CellState};
use crate::memory::copy::CopyError;
use crate::memory::expected::Expected;
use pando_machine::PageCount;

impl Kernel {
    /// Lets a template learn what its clones touch from this one, which has not started: once it has ended, later clones are given copies of the pages that it wrote before they write them. Of a template that has learned from several clones (from
    /// the last nine, if they were more) they are given what most of those wrote. What an imported one expects counts as one.
    ///
    /// # Errors
    /// The clone was started before, or one of the two does not live.
    pub fn teach(&self, template: CellId, clone: CellId) -> Result<(), OperatorError> {
        let mut state = self.shared.lock();
        state.living(template).ok_or(OperatorError::NoSuchCell)?;
        let (occupant, _) = state.living(clone).ok_or(OperatorError::NoSuchCell)?;
        if occupant.cell.state != CellState::New {
            return Err(OperatorError::Busy(occupant.cell.state));
        }
        occupant.cell.memory.begin_lesson();
        occupant.cell.teaches = Some(template);
        Ok(())
    }

    /// How many pages clones of a template are expected to touch.
    ///
    /// # Errors
    /// It does not live.
    pub fn expected(&self, template: CellId) -> Result<PageCount, OperatorError> {
        self.expected_of(template).map(|expected| PageCount(expected.touches().len() as u64))
    }

    /// Works out what clones of a template are expected to touch, if it has learned since that was last done: without the lock, for it takes milliseconds.
    pub(super) fn weigh_lessons(&self, template: CellId) {
        let news = self.shared.lock().living(template).and_then(|(occupant, _)| occupant.cell.memory.lessons.unweighed());
        let Some((heard, lessons)) = news else { return };
        let expected = Expected::of(&lessons);
        if let Some((occupant, _)) = self.shared.lock().living(template) {
            occupant.cell.memory.lessons.conclude(heard, expected);
        }
    }

    fn expected_of(&self, template: CellId) -> Result<Expected, OperatorError> {
        self.weigh_lessons(template);
        let mut state = self.shared.lock();
        let (occupant, _) = state.living(template).ok_or(OperatorError::NoSuchCell)?;
        Ok(occupant.cell.memory.lessons.expected().clone())
    }

    /// Makes what clones of a template are expected to touch present in the template, so that they share it, and reads the blocks of disks that this takes. For a template that was imported.
    ///
    /// # Errors
    /// It does not live, a block cannot be read, or there is not enough memory.
    pub fn foresee(&self, template: CellId) -> Result<(), OperatorError> {
        let expected = self.expected_of(template)?;
        let mut left = expected.touches();
        while !left.is_empty() {
            self.copy(template, |cell, frames| cell.memory.read_expected(frames, &mut left).map_err(CopyError::from))?;
        }
        Ok(())
    }

    /// Copies for a clone what it is expected to write first, as far as there is memory for it.
    ///
    /// # Errors
    /// Somebody else has started or ended it.
    pub(super) fn copy_expected(&self, clone: CellId) -> Result<(), OperatorError> {
        let Some(mut first) = self.build(clone, |cell, _| Ok(cell.memory.foreseen.first()))? else { return Ok(()) };
        while !first.is_empty() {
            self.build(clone, |cell, frames| {
                cell.memory.own_expected(frames, &mut first);
                Ok(())
            })?;
        }
        Ok(())
    }
}
