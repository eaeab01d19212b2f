// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports with the calls that wait at them, references to ports, and calls.

use crate::cell::CellId;
use crate::cell::message_operation::MessageDescription;
use pando_abi::HoldingName;
use std::collections::{BTreeMap, HashMap};

/// A reference to a port. It contains no pointer: if the port is gone, nothing has its serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) struct Reference {
    /// The cell that holds the port.
    pub(in crate::core) owner: CellId,
    /// Its name for the port.
    pub(in crate::core) port: HoldingName,
    /// The port's serial number, which no other port of the kernel ever has.
    pub(in crate::core) serial: u64,
    /// The label that the kernel delivers with each message.
    pub(in crate::core) label: u64,
}

/// The identity of a call: where its caller keeps it, and its serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) struct CallTicket {
    /// The caller.
    pub(in crate::core) caller: CellId,
    /// The caller's name for a posted call. `None`: the call blocks the caller.
    pub(in crate::core) posted: Option<HoldingName>,
    /// The call's serial number.
    pub(in crate::core) serial: u64,
}

/// A call that waits at a port, or for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) struct Call {
    /// Its serial number, which no other call of the kernel ever has.
    pub(in crate::core) serial: u64,
    /// The reference by which it was made.
    pub(in crate::core) reference: Reference,
    /// The message, and where the answer goes.
    pub(in crate::core) message: MessageDescription,
    /// Its place in the port's queue. `None`: it was received, and waits for the answer.
    pub(in crate::core) place: Option<QueuePosition>,
}

/// A place in a port's queue, the least first: the round, and the serial number of the call.
pub(in crate::core) type QueuePosition = (u64, u64);

/// The receiver's end of calls. Callers take turns: each has one call in a round.
#[derive(Clone, Debug)]
pub(in crate::core) struct MessagePort {
    /// Its serial number.
    pub(in crate::core) serial: u64,
    /// Calls that wait, by their places.
    waiting: BTreeMap<QueuePosition, CallTicket>,
    /// The number of calls of each caller in the queue.
    counts: HashMap<CellId, u64>,
    /// The round of the call that was taken last.
    round: u64,
}

impl MessagePort {
    /// A port at which no call waits.
    pub(in crate::core) fn new(serial: u64) -> MessagePort {
        MessagePort { serial, waiting: BTreeMap::new(), counts: HashMap::new(), round: 0 }
    }

    /// Queues a call behind as many rounds as its caller has calls in the queue. Returns its place.
    pub(in crate::core) fn push(&mut self, ticket: CallTicket) -> QueuePosition {
        let count = self.counts.entry(ticket.caller).or_default();
        let place = (self.round + *count, ticket.serial);
        *count += 1;
        self.waiting.insert(place, ticket);
        place
    }

    /// The call that is next.
    pub(in crate::core) fn first(&self) -> Option<(QueuePosition, CallTicket)> {
        self.waiting.first_key_value().map(|(place, ticket)| (*place, *ticket))
    }

    /// The call at a place.
    pub(in crate::core) fn get(&self, place: QueuePosition) -> Option<CallTicket> {
        self.waiting.get(&place).copied()
    }

    /// Takes a call out of the queue.
    pub(in crate::core) fn remove(&mut self, place: QueuePosition) {
        let is_first = self.waiting.first_key_value().is_some_and(|(first, _)| *first == place);
        let Some(ticket) = self.waiting.remove(&place) else { return };
        if is_first {
            self.round = self.round.max(place.0);
        }
        if let Some(count) = self.counts.get_mut(&ticket.caller) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&ticket.caller);
            }
        }
    }

    /// Takes the first call out of the queue.
    pub(in crate::core) fn pop(&mut self) -> Option<CallTicket> {
        let (place, ticket) = self.first()?;
        self.remove(place);
        Some(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::{CallTicket, MessagePort};
    use crate::cell::CellId;

    fn ticket(caller: u32, serial: u64) -> CallTicket {
        CallTicket { caller: CellId { index: caller, generation: 0 }, posted: None, serial }
    }

    #[test]
    fn callers_take_turns_however_many_calls_each_has_made() {
        let mut port = MessagePort::new(1);
        for serial in 0..100 {
            port.push(ticket(1, serial));
        }
        port.push(ticket(2, 100));
        port.push(ticket(3, 101));
        let order: Vec<u64> = std::iter::from_fn(|| port.pop()).map(|ticket| ticket.serial).take(4).collect();
        assert_eq!(order, [0, 100, 101, 1]);
        // One that was not there before does not wait for those that were.
        port.push(ticket(4, 102));
        assert_eq!(port.pop().map(|ticket| ticket.serial), Some(102));
    }

    #[test]
    fn a_call_that_is_withdrawn_leaves_nothing() {
        let mut port = MessagePort::new(1);
        let places: Vec<_> = (0..10).map(|serial| port.push(ticket(serial as u32 % 3, serial))).collect();
        places.iter().rev().for_each(|place| port.remove(*place));
        assert!(port.first().is_none() && port.counts.is_empty());
    }
}
