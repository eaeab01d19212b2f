// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivery of a message: bytes and holdings, all or nothing, from one cell to another.

use super::port::CallTicket;
use crate::cell::CellId;
use crate::cell::child_operation::CallerBytes;
use crate::cell::message_operation::MessageDescription;
use crate::cell::run_state::{Requirement, RunState};
use crate::core::cell_table::LiveCell;
use crate::core::error::OperationError;
use crate::core::holdings::Holding;
use crate::core::state::State;
use crate::memory::{CopyAuthority, MemoryError, Shortage};
use pando_abi::limits::MAX_MESSAGE_HOLDINGS;
use pando_abi::message::{CALLER_WORDS, MessageHoldings, MessageResult, RECORD_WORDS};
use pando_abi::{HoldingName, PAGE_SIZE, Refusal};

/// Bytes of the kernel's part of a record.
const ANSWER_BYTES: usize = (RECORD_WORDS - CALLER_WORDS) * 8;

/// A party of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Party {
    /// The cell that has made the call.
    Caller,
    /// The cell that receives and answers it.
    Receiver,
}

/// Why a message was not delivered. Nothing has changed.
#[derive(Debug)]
pub(super) enum DeliveryError {
    /// It must be tried again: memory is short, a block must be read first, or the other cell must leave its vCPU.
    Retry(OperationError),
    /// It is the mistake of one party.
    Refused(Party, Refusal),
}

/// A message on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    /// The cell whose vCPU is here. It is one of the two others.
    pub(super) current: CellId,
    /// The sender and its message.
    pub(super) from: (CellId, MessageDescription),
    /// The receiver of this message and its buffer.
    pub(super) to: (CellId, MessageDescription),
    /// The label of the reference.
    pub(super) label: u64,
    /// The call that the receiver of this message may answer. `None`: this is the answer.
    pub(super) call: Option<CallTicket>,
    /// The answer to a posted call: the kernel's part of its record is written later, on the vCPU of its cell.
    pub(super) is_posted: bool,
}

impl Delivery {
    /// The party that sends this message, and the one that it goes to.
    fn parties(&self) -> (Party, Party) {
        if self.call.is_some() { (Party::Caller, Party::Receiver) } else { (Party::Receiver, Party::Caller) }
    }

    /// The error for an error at the memory of a party.
    fn error(&self, cell: CellId, party: Party, error: OperationError) -> DeliveryError {
        match error {
            // Only the cell itself can do something about its quota.
            OperationError::Memory(MemoryError::Shortage(Shortage::Quota)) if cell != self.current => {
                DeliveryError::Refused(party, Refusal::Quota)
            }
            // The page of a posted call: a cell that waits was not halted since it has made the call.
            OperationError::Memory(MemoryError::Taken(_)) if cell != self.current => DeliveryError::Refused(party, Refusal::Taken),
            OperationError::Memory(MemoryError::Shortage(_) | MemoryError::Absent(_) | MemoryError::Taken(_))
            | OperationError::PeerRuns { .. } => DeliveryError::Retry(error),
            OperationError::Memory(MemoryError::Refused(refusal)) => DeliveryError::Refused(party, refusal),
            _ => DeliveryError::Refused(party, Refusal::BadAddress),
        }
    }
}

impl State {
    /// Reads the record of a message.
    ///
    /// # Errors
    /// It cannot be read, or is no record.
    pub(super) fn read_message(&mut self, id: CellId, record: u64) -> Result<MessageDescription, OperationError> {
        let bytes = self.read_caller(id, CallerBytes { address: record, count: CALLER_WORDS * 8 })?;
        let mut words = [0; CALLER_WORDS];
        words.iter_mut().zip(bytes.as_chunks::<8>().0).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
        Ok(MessageDescription::new(record, words)?)
    }

    /// Makes all memory of a message present, and exclusive where the other party's message goes. A shortage, a block that must be read
    /// first, or a page that the cell's parent has taken then concerns the cell itself, and not the other party.
    ///
    /// # Errors
    /// A page is not there yet, or the cell may not access it.
    pub(super) fn prefault_message(&mut self, id: CellId, message: &MessageDescription) -> Result<(), OperationError> {
        let (live, frames) = self.expect_living(id);
        let CallerBytes { address, count } = message.bytes;
        for place in pages_of(address, count) {
            live.cell.memory.read(frames, place, &mut [0], CopyAuthority::Cell)?;
        }
        for CallerBytes { address, count } in [message.buffer, CallerBytes { address: message.answer, count: ANSWER_BYTES }] {
            live.cell.memory.prefault_for_writing(frames, address, count)?;
        }
        Ok(())
    }

    /// Delivers a message. Returns the kernel's part of the record, with the number of bytes as the result.
    ///
    /// # Errors
    /// Nothing was delivered. The receiver's buffer may have been written to.
    pub(super) fn deliver(&mut self, delivery: &Delivery) -> Result<MessageResult, DeliveryError> {
        let Delivery { from: (from, sent), to: (to, accepted), label, call, .. } = *delivery;
        let (sender, receiver) = delivery.parties();
        let count = sent.holdings.iter().flatten().count();
        if sent.bytes.count > accepted.buffer.count || count > accepted.accepted {
            // The caller has chosen the message, or the buffer for the answer.
            return Err(DeliveryError::Refused(Party::Caller, Refusal::TooLong));
        }
        let bytes = if sent.bytes.count == 0 { Ok(Vec::new()) } else { self.read_caller(from, sent.bytes) };
        let bytes = bytes.map_err(|error| delivery.error(from, sender, error))?;
        let copies = self.copies(from, &sent.holdings).map_err(|refusal| DeliveryError::Refused(sender, refusal))?;
        let mut given = Vec::with_capacity(MAX_MESSAGE_HOLDINGS + 1);
        let holdings = &mut self.living(to).ok_or(DeliveryError::Refused(receiver, Refusal::NoSuchHolding))?.0.holdings;
        let mut answer = MessageResult { result: bytes.len() as u64, label, ..MessageResult::default() };
        if call.is_some() && !holdings.has_room() {
            return Err(DeliveryError::Refused(receiver, Refusal::TooMany));
        }
        let mut is_full = false;
        let mut give = |holding| {
            let name = holdings.insert(holding);
            is_full |= name.is_none();
            given.extend(name);
            name
        };
        for (place, copy) in answer.holdings.iter_mut().zip(copies) {
            *place = copy.and_then(&mut give);
        }
        answer.reply = call.and_then(|call| give(Holding::Reply(call)));
        let written = match is_full {
            true => Err(DeliveryError::Refused(Party::Caller, Refusal::TooMany)),
            false => self.write_message(delivery, &bytes, &answer).map_err(|error| delivery.error(to, receiver, error)),
        };
        if written.is_err() {
            self.revoke(to, &given);
        }
        written.map(|()| answer)
    }

    /// Removes the holdings of a message that could not be delivered.
    fn revoke(&mut self, to: CellId, given: &[HoldingName]) {
        if let Some((live, _)) = self.living(to) {
            for name in given {
                let _ = live.holdings.remove(*name);
            }
        }
    }

    /// Copies of the holdings that a message names.
    fn copies(&mut self, from: CellId, names: &MessageHoldings) -> Result<[Option<Holding>; MAX_MESSAGE_HOLDINGS], Refusal> {
        let mut copies = [const { None }; MAX_MESSAGE_HOLDINGS];
        let Some((live, _)) = self.living(from) else { return Err(Refusal::NoSuchHolding) };
        for (copy, name) in copies.iter_mut().zip(names) {
            let Some(name) = name else { continue };
            *copy = Some(live.holdings.get(*name)?.copy().ok_or(Refusal::NoSuchHolding)?);
        }
        Ok(copies)
    }

    /// Writes a message into the cell that it is for.
    fn write_message(&mut self, delivery: &Delivery, bytes: &[u8], answer: &MessageResult) -> Result<(), OperationError> {
        let (to, message) = delivery.to;
        if !bytes.is_empty() {
            self.write_peer(delivery.current, to, message.buffer.address, bytes)?;
        }
        if delivery.is_posted {
            return Ok(());
        }
        self.write_peer(delivery.current, to, message.answer, &answer_bytes(answer))
    }

    /// Copies bytes into a cell that is at rest, or whose vCPU is here. A cell that runs elsewhere is written to only where no entry of its
    /// tables changes.
    fn write_peer(&mut self, current: CellId, to: CellId, address: u64, bytes: &[u8]) -> Result<(), OperationError> {
        let (LiveCell { cell, execution, ipc, .. }, frames) = self.require(to, Requirement::Living)?;
        if to != current {
            match (execution.run_state(), execution.unconfirmed) {
                (RunState::Running { vcpu }, unconfirmed) => {
                    if unconfirmed.is_some() || !cell.memory.is_present_for_writing(frames, address, bytes.len())? {
                        ipc.prefault_request = Some(Box::new(CallerBytes { address, count: bytes.len() }));
                        return Err(OperationError::PeerRuns { vcpu });
                    }
                }
                (_, Some(write)) => {
                    // The vCPU that it ran on may still see the old page.
                    cell.memory.renew_path(frames, write.address)?;
                    execution.unconfirmed = None;
                    write.confirm(frames);
                }
                (_, None) => {}
            }
        }
        Ok(cell.memory.write(frames, address, bytes, CopyAuthority::Cell)?)
    }
}

/// The bytes of the kernel's part of a record.
pub(super) fn answer_bytes(answer: &MessageResult) -> Vec<u8> {
    answer.to_words().iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// An address in each page of some bytes.
fn pages_of(address: u64, count: usize) -> impl Iterator<Item = u64> {
    let last = address.saturating_add(count as u64);
    let next = (address / PAGE_SIZE + 1..last.div_ceil(PAGE_SIZE)).map(|page| page * PAGE_SIZE);
    std::iter::once(address).filter(move |_| count > 0).chain(next)
}
