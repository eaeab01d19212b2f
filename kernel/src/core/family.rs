// SPDX-License-Identifier: MIT OR Apache-2.0
//! Families: views of descendants, and the parts of an image that relate a cell to its parent and its children.
//!
//! A cell above reads them of halted cells, and builds a family of cells that were not started. They are untrusted, as all of an image is.

use super::error::OperationError;
use super::holdings::{Cloner, Holding};
use super::state::State;
use crate::cell::CellId;
use crate::cell::child_operation::CallerBytes;
use crate::cell::cpu_limit::{CpuLimit, Weight};
use crate::cell::operation::Operation;
use crate::cell::run_state::{Requirement, RunState};
use crate::cell::watch::WatchMask;
use crate::device::console::chunk::ConsoleChunk;
use crate::sched::cpu_budget::CpuBudget;
use pando_abi::holding_record::{ChildRecord, HOLDING_WORDS, HoldingContent, HoldingRecord, MAX_HOLDINGS_WRITTEN};
use pando_abi::watch::{HaltReason, REASON_WORDS};
use pando_abi::{HoldingName, Refusal};
use pando_machine::PageCount;

/// Bytes of streams in a chunk of a console that one call reads. Encoded, even chunks of single bytes fit the caller's largest buffer.
const CONSOLE_CHUNK_BYTES: usize = 16 << 10;
/// Bytes of the count at the beginning of a chunk.
const COUNT_BYTES: usize = 8;

impl State {
    /// Makes a view of a cell that a child, or a cell of another view, holds as a child. Returns its name.
    pub(super) fn view_child(&mut self, caller: CellId, cell: HoldingName, name: HoldingName) -> Result<u64, OperationError> {
        let holder = self.child(caller, cell)?;
        let Holding::Child { cell: viewed, .. } = *self.holding(holder, name)? else { return Err(Refusal::NoSuchHolding.into()) };
        let (live, _) = self.require(caller, Requirement::Living)?;
        Ok(live.holdings.insert(Holding::View(viewed)).ok_or(Refusal::TooMany)?.bits())
    }

    /// Records that a cell is about to be halted or resumed through a view.
    pub(super) fn note_view_halt(&mut self, caller: CellId, cell: CellId, operation: &Operation) {
        let Some((live, _)) = self.living(cell) else { return };
        let is_running = !matches!(live.execution.run_state(), RunState::New | RunState::Halted | RunState::Frozen);
        let watch = &mut live.cell.watch;
        match operation {
            // A pending halt that another holder requested stays with that holder.
            Operation::Halt if watch.halt_waiter.is_none() && is_running => watch.halt_waiter = Some(caller),
            // A halt that this caller has requested, and that has not happened yet, is withdrawn. Those of others stay.
            Operation::Resume(_) if watch.halt_waiter == Some(caller) && !watch.is_halted_by_parent && watch.first_reason.is_none() => {
                (watch.must_halt, watch.halt_waiter) = (false, None);
            }
            _ => {}
        }
    }

    /// Records that a cell was halted or resumed by its parent.
    pub(super) fn note_parent_halt(&mut self, cell: CellId, operation: &Operation) {
        let Some((live, _)) = self.living(cell) else { return };
        match operation {
            Operation::Halt => live.cell.watch.is_halted_by_parent = true,
            Operation::Resume(_) => live.cell.watch.is_halted_by_parent = false,
            _ => {}
        }
    }

    /// Copies records of the holdings of a cell into the caller. Returns the number of bytes.
    pub(super) fn read_holdings(&mut self, caller: CellId, child: CellId, first: u32, buffer: CallerBytes) -> Result<u64, OperationError> {
        self.require(child, Requirement::NewOrHalted)?;
        let root = self.require(caller, Requirement::Living)?.0.holdings.get(HoldingName::ROOT).ok().and_then(Holding::cell);
        let (live, _) = self.require(child, Requirement::NewOrHalted)?;
        let most = buffer.count / (HOLDING_WORDS * 8);
        let content = |holding: Option<&Holding>| match holding {
            None => (HoldingContent::Nothing, None),
            Some(Holding::Child { cell, .. }) => (HoldingContent::Other, Some(*cell)),
            Some(Holding::Template(template)) if Some(*template) == root => (HoldingContent::Root, None),
            Some(_) => (HoldingContent::Other, None),
        };
        let places = live.holdings.slots().skip(first as usize).take(most);
        let places: Vec<_> = places.map(|(name, holding)| (name, content(holding))).collect();
        let mut bytes = Vec::new();
        for (name, (content, child)) in places {
            let content = child.map_or(content, |child| HoldingContent::Child(self.child_record(child)));
            bytes.extend(HoldingRecord { name, content }.to_words().into_iter().flat_map(u64::to_le_bytes));
        }
        self.write_caller(caller, buffer.address, &bytes)?;
        Ok(bytes.len() as u64)
    }

    /// The record of a child. One that has ended has no limits.
    fn child_record(&mut self, child: CellId) -> ChildRecord {
        let weight = self.scheduler.weight(child).get();
        let Some((live, frames)) = self.living(child) else {
            return ChildRecord { quota: 0, cells: 0, weight, cpu_limit: 0, mask: 0, is_halted_by_parent: false, has_control: false };
        };
        let account = live.cell.memory.account();
        ChildRecord {
            quota: frames.usage(account).quota.0,
            cells: frames.cell_quota(account),
            weight,
            cpu_limit: live.cpu_budget.as_ref().map_or(0, |cpu_budget| (cpu_budget.limit().fraction() * 1000.0).round() as u64),
            mask: live.cell.watch.mask.bits(),
            is_halted_by_parent: live.cell.watch.is_halted_by_parent,
            has_control: live.control.is_some(),
        }
    }

    /// Adds holdings to a cell that was not started: the caller's root, and clones of it as children.
    pub(super) fn build_holdings(&mut self, caller: CellId, parent: CellId, bytes: &[u8]) -> Result<u64, OperationError> {
        let (words, rest) = bytes.as_chunks::<8>();
        let (records, more) = words.as_chunks::<HOLDING_WORDS>();
        if !rest.is_empty() || !more.is_empty() || records.len() > MAX_HOLDINGS_WRITTEN {
            return Err(Refusal::BadArgument.into());
        }
        for words in records {
            let record = HoldingRecord::from_words(words.map(u64::from_le_bytes)).ok_or(Refusal::BadArgument)?;
            let Holding::Template(root) = *self.holding(caller, HoldingName::ROOT)? else { return Err(Refusal::NoSuchHolding.into()) };
            let (holding, child) = match record.content {
                HoldingContent::Nothing => (None, None),
                HoldingContent::Root => (Some(Holding::Template(root)), None),
                HoldingContent::Child(child) => {
                    let cell = self.build_child(root, parent, &child)?;
                    (Some(self.new_child_holding(cell, child.cells)), Some(cell))
                }
                HoldingContent::Other => return Err(Refusal::BadArgument.into()),
            };
            if !self.expect_living(parent).0.holdings.insert_at(record.name, holding) {
                child.into_iter().for_each(|child| self.abandon(child));
                return Err(Refusal::BadArgument.into());
            }
        }
        Ok(0)
    }

    /// Makes a child of another cell than the caller: a clone of the root.
    fn build_child(&mut self, root: CellId, parent: CellId, record: &ChildRecord) -> Result<CellId, OperationError> {
        let weight = Weight::new(record.weight).ok_or(Refusal::BadArgument)?;
        let limit = match record.cpu_limit {
            0 => None,
            thousandths @ 1..=1000 => CpuLimit::new(thousandths as f64 / 1000.0),
            _ => return Err(Refusal::BadArgument.into()),
        };
        let mask = WatchMask::from_bits(record.mask)?;
        let cell = self.clone_cell(root, PageCount(record.quota), Some(Cloner { cell: parent, is_view: false }))?;
        self.scheduler.set_weight(cell, weight);
        let (live, frames) = self.expect_living(cell);
        live.cpu_budget = limit.map(|limit| Box::new(CpuBudget::new(limit, frames.machine().now())));
        live.cell.watch.mask = mask;
        Ok(cell)
    }

    /// Lets a cell that was not started halt with a reason when it is started.
    pub(super) fn build_halt(&mut self, child: CellId, bytes: &[u8]) -> Result<u64, OperationError> {
        let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let words: [u64; REASON_WORDS] = words.try_into().map_err(|_| Refusal::BadArgument)?;
        let reason = HaltReason::from_words(words).filter(|_| bytes.len() == REASON_WORDS * 8).ok_or(Refusal::BadArgument)?;
        let (live, _) = self.require(child, Requirement::NotStarted)?;
        live.cell.watch.must_halt = true;
        live.cell.watch.first_reason = Some(Box::new(reason));
        live.cell.watch.is_halted_by_parent = reason == HaltReason::Requested;
        Ok(0)
    }

    /// Copies a chunk of what was not read on a cell's console into the caller. Returns the number of bytes.
    pub(super) fn read_console_state(
        &mut self,
        caller: CellId,
        child: CellId,
        first: u32,
        buffer: CallerBytes,
    ) -> Result<u64, OperationError> {
        let (live, _) = self.require(child, Requirement::NewOrHalted)?;
        let chunk = live.console.port().chunk(first as usize, CONSOLE_CHUNK_BYTES);
        let encoded = postcard::to_allocvec(&chunk).map_err(|_| Refusal::TooMany)?;
        let bytes: Vec<u8> = (chunk.stream_bytes() as u64).to_le_bytes().into_iter().chain(encoded).collect();
        if bytes.len() > buffer.count {
            return Err(Refusal::TooMany.into());
        }
        self.write_caller(caller, buffer.address, &bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Appends a chunk to the console of a cell that was not started.
    pub(super) fn build_console(&mut self, child: CellId, bytes: &[u8]) -> Result<u64, OperationError> {
        let encoded = bytes.get(COUNT_BYTES..).ok_or(Refusal::BadArgument)?;
        let (chunk, rest): (ConsoleChunk, _) = postcard::take_from_bytes(encoded).map_err(|_| Refusal::BadArgument)?;
        if !rest.is_empty() {
            return Err(Refusal::BadArgument.into());
        }
        let (live, _) = self.require(child, Requirement::NotStarted)?;
        if live.console.port().append_chunk(chunk) { Ok(0) } else { Err(Refusal::BadArgument.into()) }
    }
}
