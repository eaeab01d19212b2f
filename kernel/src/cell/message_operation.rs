// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of a cell on ports, references and rights to reply, decoded from hypercalls.

use super::CellId;
use super::child_operation::CallerBytes;
use pando_abi::limits::MAX_MESSAGE_BYTES;
use pando_abi::message::{ANSWER_OFFSET, MessageHoldings};
use pando_abi::{HoldingName, Hypercall, MessageRecord, Refusal};
use pando_machine::Nanos;

/// When a call ends that nothing ends earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// The caller does not wait.
    Now,
    /// At this time.
    At(Nanos),
}

/// The outcome of a step of a call of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageStep {
    /// The call has this result.
    Done(u64),
    /// More steps follow.
    More,
    /// The cell waits.
    Wait {
        /// At most until this time.
        until: Nanos,
        /// The cell that goes on instead.
        next: Option<CellId>,
    },
}

/// A checked operation on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageOperation {
    /// Make a port.
    CreatePort,
    /// Send a message to the port of a reference.
    Call {
        /// The reference.
        reference: HoldingName,
        /// The address of the record.
        record: u64,
        /// How long the caller waits.
        deadline: Deadline,
    },
    /// Take a call that waits at a port.
    Receive {
        /// The port.
        port: HoldingName,
        /// The address of the record.
        record: u64,
        /// How long the caller waits.
        deadline: Deadline,
        /// The right to reply that is used first.
        reply: Option<HoldingName>,
    },
    /// Answer a call.
    Reply {
        /// The right to reply.
        reply: HoldingName,
        /// The address of the record.
        record: u64,
    },
}

impl MessageOperation {
    /// Checks a hypercall. `None`: it is not about messages.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub(crate) fn decode(call: Hypercall) -> Result<Option<MessageOperation>, Refusal> {
        Ok(Some(match call {
            Hypercall::PortCreate {} => MessageOperation::CreatePort,
            Hypercall::Call { reference, message, deadline } => {
                MessageOperation::Call { reference: holding(reference)?, record: message, deadline: deadline_of(deadline) }
            }
            Hypercall::Receive { port, message, deadline, reply } => MessageOperation::Receive {
                port: holding(port)?,
                record: message,
                deadline: deadline_of(deadline),
                reply: if reply == 0 { None } else { Some(holding(reply)?) },
            },
            Hypercall::Reply { reply, message } => MessageOperation::Reply { reply: holding(reply)?, record: message },
            _ => return Ok(None),
        }))
    }
}

fn holding(bits: u64) -> Result<HoldingName, Refusal> {
    HoldingName::from_bits(bits).ok_or(Refusal::NoSuchHolding)
}

fn deadline_of(bits: u64) -> Deadline {
    if bits == 0 { Deadline::Now } else { Deadline::At(Nanos(bits)) }
}

/// A message that a cell sends, and its room for one that comes back, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageDescription {
    /// The bytes to send.
    pub(crate) bytes: CallerBytes,
    /// The holdings to send.
    pub(crate) holdings: MessageHoldings,
    /// The buffer for the message that comes back, or that is received.
    pub(crate) buffer: CallerBytes,
    /// How many holdings are accepted.
    pub(crate) accepted: usize,
    /// The address of the kernel's part of the record.
    pub(crate) answer: u64,
}

impl MessageDescription {
    /// Checks the record at an address.
    ///
    /// # Errors
    /// The message is longer than any may be, or a name is that of no holding.
    pub(crate) fn new(address: u64, words: [u64; pando_abi::message::CALLER_WORDS]) -> Result<MessageDescription, Refusal> {
        let record = MessageRecord::from_words(words).ok_or(Refusal::BadArgument)?;
        let bounded = |address, count| match count {
            0..=MAX_MESSAGE_BYTES => Ok(CallerBytes { address, count: count as usize }),
            _ => Err(Refusal::BadArgument),
        };
        Ok(MessageDescription {
            bytes: bounded(record.address, record.bytes)?,
            holdings: record.holdings,
            buffer: bounded(record.buffer, record.size.into())?,
            accepted: record.accepted.into(),
            answer: address.checked_add(ANSWER_OFFSET).ok_or(Refusal::BadAddress)?,
        })
    }
}
