// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of ports: posted calls, `receive` and `reply`, with the memory that they need.

use alloc::vec::Vec;
use core::mem;

use pando_abi::message::{CALLER_WORDS, MessageHoldings, MessageResult, PENDING, RECORD_WORDS};
use pando_abi::{HoldingName, Hypercall, MessageRecord, Refusal};

use crate::hypercall::{perform, perform_with_rest};

/// A message to send, a buffer for one that comes, and the record that describes both.
#[derive(Debug)]
pub struct MessageMemory {
    record: Vec<u64>,
    sent: Vec<u8>,
    buffer: Vec<u8>,
}

impl MessageMemory {
    /// Memory for a message with these bytes and holdings, and for one that fits into `buffer` with `accepted` holdings.
    ///
    /// # Errors
    /// `NoMemory`.
    pub fn new(sent: Vec<u8>, holdings: MessageHoldings, buffer: Vec<u8>, accepted: u8) -> Result<MessageMemory, Refusal> {
        let mut record = Vec::new();
        record.try_reserve_exact(RECORD_WORDS).map_err(|_| Refusal::NoMemory)?;
        record.resize(RECORD_WORDS, 0);
        let mut memory = MessageMemory { record, sent, buffer };
        let described = MessageRecord {
            address: memory.sent.as_ptr().expose_provenance() as u64,
            bytes: memory.sent.len() as u64,
            holdings,
            buffer: memory.buffer.as_mut_ptr().expose_provenance() as u64,
            size: memory.buffer.len() as u32,
            accepted,
        };
        memory.record[..CALLER_WORDS].copy_from_slice(&described.to_words());
        memory.record[CALLER_WORDS] = PENDING;
        Ok(memory)
    }

    /// The address of the record.
    fn address(&mut self) -> u64 {
        self.record.as_mut_ptr().expose_provenance() as u64
    }

    /// The kernel's part of the record. `None`: the call is not over.
    #[must_use]
    pub fn answer(&self) -> Option<MessageResult> {
        let mut words = [0; RECORD_WORDS - CALLER_WORDS];
        for (word, written) in words.iter_mut().zip(&self.record[CALLER_WORDS..]) {
            // SAFETY: it is a live word. The kernel may have written it since this program has.
            *word = unsafe { (&raw const *written).read_volatile() };
        }
        MessageResult::from_words(words).filter(|answer| answer.result != PENDING)
    }

    /// The first `count` bytes that have come.
    #[must_use]
    pub fn received(&self, count: u64) -> &[u8] {
        &self.buffer[..self.buffer.len().min(count as usize)]
    }
}

/// Takes a call that waits at a port, after the message was sent by the right to reply `reply`, if it is not 0. Returns also the right that
/// is left: 0 if it was used.
///
/// # Errors
/// The reason for the refusal; `NothingWaits`.
pub fn receive(port: u64, memory: &mut MessageMemory, reply: u64) -> (Result<u64, Refusal>, u64) {
    let message = memory.address();
    // SAFETY: 1: it writes into the record and the buffer, which are exclusively the caller's. 2: a call that does not wait keeps them.
    unsafe { perform_with_rest(Hypercall::Receive { port, message, deadline: 0, reply }) }
}

/// Answers a call.
///
/// # Errors
/// The reason for the refusal.
pub fn reply(reply: u64, memory: &mut MessageMemory) -> Result<u64, Refusal> {
    let message = memory.address();
    // SAFETY: 1: it only reads memory of this cell. 2: vector registers survive it.
    unsafe { perform(Hypercall::Reply { reply, message }) }
}

/// A call that was posted. Dropping it withdraws it, or drops the holdings of an answer that was not taken.
#[derive(Debug)]
pub struct PostedCall {
    /// Its name. `None`: it is over, or is that of the cell that this one was cloned from.
    name: Option<HoldingName>,
    memory: MessageMemory,
}

impl PostedCall {
    /// Posts a call.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn post(reference: u64, mut memory: MessageMemory) -> Result<PostedCall, Refusal> {
        let message = memory.address();
        // SAFETY: 1: the kernel writes into the record and the buffer later. Both are in the returned value, which withdraws the call
        // before it frees them. 2: a call that does not wait keeps vector registers.
        let name = unsafe { perform(Hypercall::Call { reference, message, deadline: 0 }) }?;
        Ok(PostedCall { name: HoldingName::from_bits(name), memory })
    }

    /// The kernel's part of the record. `None`: the call is not over.
    #[must_use]
    pub fn answer(&self) -> Option<MessageResult> {
        match self.name {
            // The source's answer is not for this cell.
            None => Some(MessageResult { result: Refusal::NoSuchHolding.to_result(), ..MessageResult::default() }),
            Some(_) => self.memory.answer(),
        }
    }

    /// The bytes of the answer.
    #[must_use]
    pub fn received(&self, count: u64) -> &[u8] {
        self.memory.received(count)
    }

    /// Records that the answer was taken, with its holdings.
    pub fn note_taken(&mut self) {
        self.name = None;
    }

    /// Records that this cell is a clone now: the call is its source's.
    pub fn note_clone(&mut self) {
        self.name = None;
    }
}

impl Drop for PostedCall {
    fn drop(&mut self) {
        let Some(name) = self.name.take() else { return };
        let is_withdrawn = self.memory.answer().is_none() && drop_holding(name).is_ok();
        match self.memory.answer() {
            Some(answer) => answer.holdings.into_iter().flatten().for_each(|name| _ = drop_holding(name)),
            None if is_withdrawn => {}
            // The kernel still may write: the memory is not free.
            None => mem::forget(mem::replace(&mut self.memory, MessageMemory { record: Vec::new(), sent: Vec::new(), buffer: Vec::new() })),
        }
    }
}

fn drop_holding(name: HoldingName) -> Result<u64, Refusal> {
    // SAFETY: 1: it changes no memory, but that a posted call may be over afterwards, whose memory is live. 2: vector registers survive it.
    unsafe { perform(Hypercall::Drop { holding: name.bits() }) }
}
