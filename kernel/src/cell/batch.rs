// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches: many calls of a cell at one exit, about its memory and about cells that it holds.

use super::child_operation::ChildOperation;
use super::memory_operation::{MemoryOperation, OperationProgress};
use crate::memory::{CopyAuthority, Frames, MemoryError, SpaceSet};
use pando_abi::hypercall::RECORD_WORDS;
use pando_abi::limits::MAX_BATCH_CALLS;
use pando_abi::{HoldingName, Hypercall, Refusal, SpaceIndex};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Bytes of a record.
const RECORD: usize = RECORD_WORDS * WORD;

/// A checked call of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BatchCall {
    /// It changes or describes the memory of the caller.
    Memory(MemoryOperation),
    /// It is about a held cell.
    Child(ChildOperation),
}

/// The rest of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The address of the next record.
    address: u64,
    /// Number of calls that were performed.
    performed: u64,
    /// Number of calls that were not performed yet.
    left: u64,
    /// The call whose first steps were performed.
    current: Option<Box<BatchCall>>,
    /// The child that was made last.
    newest_child: Option<HoldingName>,
    /// The space that was made last.
    newest_space: Option<SpaceIndex>,
    /// The name or the index of the one that was made last of these.
    newest: u64,
}

impl Batch {
    /// A batch of `calls` records at `address`.
    ///
    /// # Errors
    /// There are no calls or too many.
    pub(super) fn new(address: u64, calls: u64) -> Result<Batch, Refusal> {
        if calls == 0 || calls > MAX_BATCH_CALLS {
            return Err(Refusal::BadArgument);
        }
        Ok(Batch { address, performed: 0, left: calls, current: None, newest_child: None, newest_space: None, newest: 0 })
    }

    /// Number of calls that were performed.
    pub(super) fn performed(&self) -> u64 {
        self.performed
    }

    /// The result so far: the number of calls that were performed, and in the upper half the name of the child, or the index of the
    /// space, that was made last.
    pub(crate) fn result(&self) -> u64 {
        self.performed | self.newest << 32
    }

    /// The next call, whose first steps may have been performed.
    ///
    /// # Errors
    /// No such call may be in a batch.
    pub(crate) fn current(&mut self, memory: &mut SpaceSet, frames: &Frames) -> Result<&mut BatchCall, MemoryError> {
        Ok(match &mut self.current {
            Some(current) => current,
            none => {
                let call = read_record(self.address, memory, frames)?;
                let call = self.newest_space.map_or(call, |space| call.for_newest_space(space));
                none.insert(Box::new(check(self.newest_child.map_or(call, |child| call.for_newest(child)), memory)?))
            }
        })
    }

    /// Whether the current call is about the caller's own memory.
    pub(crate) fn is_about_caller(&self) -> bool {
        matches!(self.current.as_deref(), Some(BatchCall::Memory(_)))
    }

    /// Goes on after a step of the current call.
    pub(crate) fn after_step(&mut self, progress: OperationProgress) -> OperationProgress {
        let OperationProgress::Done(result) = progress else { return OperationProgress::More };
        match self.current.take().as_deref() {
            Some(BatchCall::Child(ChildOperation::Clone { .. })) => {
                (self.newest_child, self.newest) = (HoldingName::from_bits(result), result)
            }
            Some(BatchCall::Memory(MemoryOperation::SpaceClone(_) | MemoryOperation::SpaceCreate)) => {
                (self.newest_space, self.newest) = (u32::try_from(result).ok().map(SpaceIndex), result);
            }
            _ => {}
        }
        // A record behind the last address cannot be read.
        self.address = self.address.saturating_add(RECORD as u64);
        self.performed += 1;
        self.left -= 1;
        if self.left == 0 { OperationProgress::Done(self.result()) } else { OperationProgress::More }
    }
}

/// Reads a record.
fn read_record(address: u64, memory: &mut SpaceSet, frames: &Frames) -> Result<Hypercall, MemoryError> {
    let mut bytes = [0; RECORD];
    memory.read(frames, address, &mut bytes, CopyAuthority::Cell)?;
    let (words, _) = bytes.as_chunks::<WORD>();
    let mut record = [0; RECORD_WORDS];
    record.iter_mut().zip(words).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    Ok(Hypercall::from_record(record).ok_or(Refusal::NoSuchCall)?)
}

/// Checks a call.
fn check(call: Hypercall, memory: &mut SpaceSet) -> Result<BatchCall, MemoryError> {
    match ChildOperation::decode(call)? {
        Some(operation) => Ok(BatchCall::Child(operation)),
        None => Ok(BatchCall::Memory(MemoryOperation::decode(call, memory)?)),
    }
}
