// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches: many memory calls of a cell at one exit.

use super::memory_operation::{MemoryOperation, OperationProgress};
use crate::memory::{CopyAuthority, Frames, MemoryError, SpaceSet};
use pando_abi::hypercall::RECORD_WORDS;
use pando_abi::limits::MAX_BATCH_CALLS;
use pando_abi::{Hypercall, Refusal};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Bytes of a record.
const RECORD: usize = RECORD_WORDS * WORD;

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
    current: Option<Box<MemoryOperation>>,
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
        Ok(Batch { address, performed: 0, left: calls, current: None })
    }

    /// Number of calls that were performed.
    pub(super) fn performed(&self) -> u64 {
        self.performed
    }

    /// Performs the next step of the next call.
    ///
    /// # Errors
    /// Those of the call; the step has changed nothing.
    pub(crate) fn step(&mut self, memory: &mut SpaceSet, frames: &mut Frames) -> Result<OperationProgress, MemoryError> {
        let current = match &mut self.current {
            Some(current) => current,
            None => self.current.insert(Box::new(next(self.address, memory, frames)?)),
        };
        if current.step(memory, frames)? == OperationProgress::More {
            return Ok(OperationProgress::More);
        }
        self.current = None;
        // A record behind the last address cannot be read.
        self.address = self.address.saturating_add(RECORD as u64);
        self.performed += 1;
        self.left -= 1;
        Ok(if self.left == 0 { OperationProgress::Done(self.performed) } else { OperationProgress::More })
    }
}

/// Reads and checks a record.
fn next(address: u64, memory: &mut SpaceSet, frames: &Frames) -> Result<MemoryOperation, MemoryError> {
    let mut bytes = [0; RECORD];
    memory.read(frames, address, &mut bytes, CopyAuthority::Cell)?;
    let (words, _) = bytes.as_chunks::<WORD>();
    let mut record = [0; RECORD_WORDS];
    record.iter_mut().zip(words).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    let call = Hypercall::from_record(record).ok_or(Refusal::NoSuchCall)?;
    Ok(MemoryOperation::decode(call, memory)?)
}
