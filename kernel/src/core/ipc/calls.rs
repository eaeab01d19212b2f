// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls of cells on ports: call, receive and reply.

use super::delivery::{Delivery, DeliveryError, Party};
use super::port::{Call, CallTicket, MessagePort, Reference};
use super::wait::WaitReason;
use crate::cell::CellId;
use crate::cell::message_operation::{Deadline, MessageDescription, MessageOperation, MessageStep};
use crate::cell::run_state::Requirement;
use crate::core::error::OperationError;
use crate::core::holdings::Holding;
use crate::core::state::State;
use crate::limits::RECEIVE_TRIES;
use pando_abi::message::MessageResult;
use pando_abi::{Event, HoldingName, Refusal};
use pando_machine::Nanos;

impl State {
    /// Performs the next step of a call of the running cell `id`.
    ///
    /// # Errors
    /// The step has changed nothing; earlier steps stay.
    pub(in crate::core) fn step_message(
        &mut self,
        id: CellId,
        operation: &mut MessageOperation,
        now: Nanos,
    ) -> Result<MessageStep, OperationError> {
        match operation {
            MessageOperation::CreatePort => {
                let port = MessagePort::new(self.next_serial());
                let name = self.expect_living(id).0.holdings.insert(Holding::Port(Box::new(port))).ok_or(Refusal::TooMany)?;
                Ok(MessageStep::Done(name.bits()))
            }
            MessageOperation::Call { reference, record, deadline } => {
                let message = self.read_message(id, *record)?;
                let Holding::Reference(reference) = *self.holding(id, *reference)? else { return Err(Refusal::NoSuchHolding.into()) };
                self.call(id, reference, message, *deadline, now)
            }
            MessageOperation::Receive { port, record, deadline, reply } => {
                let message = self.read_message(id, *record)?;
                if !matches!(self.holding(id, *port)?, Holding::Port(_)) {
                    return Err(Refusal::NoSuchHolding.into());
                }
                self.prefault_message(id, &message)?;
                let mut answered = None;
                if let Some(right) = reply.take() {
                    match self.reply(id, right, message) {
                        Ok((_, caller)) => answered = caller,
                        Err(error) => {
                            *reply = Some(right);
                            return Err(error);
                        }
                    }
                    // If the call is made again, it does not answer again.
                    self.expect_living(id).0.execution.context.registers.r10 = 0;
                }
                let step = self.receive(id, *port, message, *deadline, now);
                if let Ok(MessageStep::Wait { until, .. }) = step {
                    return Ok(MessageStep::Wait { until, next: answered });
                }
                self.notifications.has_runnable_cell |= answered.is_some();
                step
            }
            MessageOperation::Reply { reply, record } => {
                let message = self.read_message(id, *record)?;
                let (result, answered) = self.reply(id, *reply, message)?;
                self.notifications.has_runnable_cell |= answered.is_some();
                Ok(MessageStep::Done(result))
            }
        }
    }

    /// A number that no other port and no other call has.
    fn next_serial(&mut self) -> u64 {
        self.serials += 1;
        self.serials
    }

    /// The port that a reference names, if it is there still.
    pub(super) fn port_of(&mut self, reference: &Reference) -> Option<&mut MessagePort> {
        match self.living(reference.owner)?.0.holdings.get_mut(reference.port)? {
            Holding::Port(port) if port.serial == reference.serial => Some(port),
            _ => None,
        }
    }

    /// The call of a ticket, if its caller has not given it up.
    pub(super) fn call_of(&mut self, ticket: CallTicket) -> Option<&mut Call> {
        let (live, _) = self.living(ticket.caller)?;
        let call = match ticket.posted {
            None => match live.ipc.wait.as_deref_mut()?.reason {
                WaitReason::Call(ref mut call) => call,
                WaitReason::Receive { .. } => return None,
            },
            Some(name) => match live.holdings.get_mut(name)? {
                Holding::Call(call) => call,
                _ => return None,
            },
        };
        (call.serial == ticket.serial).then_some(call)
    }

    /// Checks that a cell may begin to wait.
    fn check_wait(&mut self, id: CellId, deadline: Nanos, now: Nanos) -> Result<(), OperationError> {
        let (live, frames) = self.expect_living(id);
        if deadline <= now {
            return Err(Refusal::TimedOut.into());
        }
        if live.cell.has_unmasked_events(frames) { Err(Refusal::Interrupted.into()) } else { Ok(()) }
    }

    fn call(
        &mut self,
        id: CellId,
        reference: Reference,
        message: MessageDescription,
        deadline: Deadline,
        now: Nanos,
    ) -> Result<MessageStep, OperationError> {
        self.port_of(&reference).ok_or(Refusal::NoSuchHolding)?;
        self.prefault_message(id, &message)?;
        if let Deadline::At(until) = deadline {
            self.check_wait(id, until, now)?;
        }
        let mut call = Call { serial: self.next_serial(), reference, message, place: None };
        let posted = match deadline {
            Deadline::Now => Some(self.expect_living(id).0.holdings.insert(Holding::Call(Box::new(call))).ok_or(Refusal::TooMany)?),
            Deadline::At(_) => None,
        };
        let ticket = CallTicket { caller: id, posted, serial: call.serial };
        let receiver = match self.deliver_to_waiting(&call, ticket) {
            Ok(receiver) => receiver,
            Err(error) => {
                if let Some(name) = posted {
                    let _ = self.expect_living(id).0.holdings.remove(name);
                }
                return Err(error);
            }
        };
        if receiver.is_none() {
            call.place = self.port_of(&reference).map(|port| port.push(ticket));
            if let Some(waiting) = self.call_of(ticket) {
                waiting.place = call.place;
            }
            // As with other events for a cell that runs, the next exit is soon enough: clients do not interrupt the server.
            self.notifications.has_runnable_cell |= self.raise(reference.owner, Event::Port);
            let (live, frames) = self.expect_living(id);
            if posted.is_none() && reference.owner == id && live.cell.has_unmasked_events(frames) {
                // The event is its own.
                self.withdraw(&call, ticket);
                return Err(Refusal::Interrupted.into());
            }
        }
        match (deadline, posted) {
            (Deadline::At(deadline), None) => {
                let until = self.begin_wait(id, WaitReason::Call(call), deadline);
                Ok(MessageStep::Wait { until, next: receiver })
            }
            (_, posted) => {
                self.notifications.has_runnable_cell |= receiver.is_some();
                Ok(MessageStep::Done(posted.map_or(0, HoldingName::bits)))
            }
        }
    }

    /// Delivers a call of the running cell to the holder of the port, if that waits for it. Returns the holder, which goes on.
    fn deliver_to_waiting(&mut self, call: &Call, ticket: CallTicket) -> Result<Option<CellId>, OperationError> {
        let Reference { owner, port: wanted, label, .. } = call.reference;
        let waiting = self.living(owner).and_then(|(live, _)| live.ipc.wait.as_ref()).map(|wait| wait.reason);
        let Some(WaitReason::Receive { port, message }) = waiting else { return Ok(None) };
        if port != wanted {
            return Ok(None);
        }
        let (from, to) = ((ticket.caller, call.message), (owner, message));
        match self.deliver(&Delivery { current: ticket.caller, from, to, label, call: Some(ticket), is_posted: false }) {
            Ok(answer) => {
                self.finish_wait(owner, answer.result);
                Ok(Some(owner))
            }
            Err(DeliveryError::Refused(Party::Receiver, refusal)) => {
                self.finish_wait(owner, refusal.to_result());
                self.notifications.has_runnable_cell = true;
                Ok(None)
            }
            Err(DeliveryError::Refused(Party::Caller, refusal)) => Err(refusal.into()),
            Err(DeliveryError::Retry(error)) => Err(error),
        }
    }

    fn receive(
        &mut self,
        id: CellId,
        name: HoldingName,
        message: MessageDescription,
        deadline: Deadline,
        now: Nanos,
    ) -> Result<MessageStep, OperationError> {
        for _ in 0..RECEIVE_TRIES {
            let Some(Holding::Port(port)) = self.expect_living(id).0.holdings.get_mut(name) else {
                return Err(Refusal::NoSuchHolding.into());
            };
            let Some((place, ticket)) = port.first() else {
                let Deadline::At(deadline) = deadline else { return Err(Refusal::NothingWaits.into()) };
                self.check_wait(id, deadline, now)?;
                let until = self.begin_wait(id, WaitReason::Receive { port: name, message }, deadline);
                return Ok(MessageStep::Wait { until, next: None });
            };
            let call = self.call_of(ticket).copied();
            let delivered = call.map(|call| {
                let (from, to) = ((ticket.caller, call.message), (id, message));
                let label = call.reference.label;
                self.deliver(&Delivery { current: id, from, to, label, call: Some(ticket), is_posted: false })
            });
            match delivered {
                Some(Err(DeliveryError::Refused(Party::Receiver, refusal))) => return Err(refusal.into()),
                Some(Err(DeliveryError::Retry(error))) => return Err(error),
                _ => {}
            }
            if let Some(Holding::Port(port)) = self.expect_living(id).0.holdings.get_mut(name) {
                port.remove(place);
            }
            match delivered {
                Some(Ok(answer)) => {
                    self.note_received(ticket);
                    return Ok(MessageStep::Done(answer.result));
                }
                Some(Err(DeliveryError::Refused(Party::Caller, refusal))) => self.refuse(ticket, refusal),
                _ => {}
            }
        }
        Ok(MessageStep::More)
    }

    /// Records that a call was received. Only its deadline, its answer or the end of a party ends it now.
    fn note_received(&mut self, ticket: CallTicket) {
        if let Some(call) = self.call_of(ticket) {
            call.place = None;
        }
        if ticket.posted.is_none() {
            self.extend_wait(ticket.caller);
        }
    }

    /// Answers a call. Returns 0, and the caller if it goes on, or 1 if nobody waits for the answer.
    fn reply(&mut self, id: CellId, name: HoldingName, message: MessageDescription) -> Result<(u64, Option<CellId>), OperationError> {
        let Holding::Reply(ticket) = *self.holding(id, name)? else { return Err(Refusal::NoSuchHolding.into()) };
        let Some(call) = self.call_of(ticket).copied() else {
            self.expect_living(id).0.holdings.remove(name)?;
            return Ok((1, None));
        };
        let (from, to) = ((id, message), (ticket.caller, call.message));
        let is_posted = ticket.posted.is_some();
        match self.deliver(&Delivery { current: id, from, to, label: 0, call: None, is_posted }) {
            Ok(answer) => self.complete(ticket, answer),
            Err(DeliveryError::Refused(Party::Caller, refusal)) => self.refuse(ticket, refusal),
            Err(DeliveryError::Refused(Party::Receiver, refusal)) => return Err(refusal.into()),
            Err(DeliveryError::Retry(error)) => return Err(error),
        }
        self.expect_living(id).0.holdings.remove(name)?;
        Ok((0, Some(ticket.caller)))
    }

    /// Ends a call with a refusal.
    pub(super) fn refuse(&mut self, ticket: CallTicket, refusal: Refusal) {
        self.complete(ticket, MessageResult { result: refusal.to_result(), ..MessageResult::default() });
        self.notifications.has_runnable_cell = true;
    }

    /// Ends a call, if it is not over yet, with its result.
    fn complete(&mut self, ticket: CallTicket, answer: MessageResult) {
        let Some(call) = self.call_of(ticket).copied() else { return };
        match ticket.posted {
            None => self.finish_wait(ticket.caller, answer.result),
            Some(name) => {
                let live = self.expect_living(ticket.caller).0;
                live.ipc.answers.push((call.message.answer, answer));
                let _ = live.holdings.remove(name);
                self.raise_at_once(ticket.caller, Event::Port);
            }
        }
    }

    /// Gives a cell, which may be the caller itself, a holding of the caller's. Returns the name.
    pub(in crate::core) fn grant(
        &mut self,
        caller: CellId,
        child: Option<HoldingName>,
        name: HoldingName,
        label: u64,
    ) -> Result<u64, OperationError> {
        let to = match child {
            Some(child) => self.child(caller, child)?,
            None => caller,
        };
        self.require(to, Requirement::Living)?;
        let copy = match self.holding(caller, name)? {
            Holding::Port(port) => Holding::Reference(Reference { owner: caller, port: name, serial: port.serial, label }),
            // A label is chosen by the holder of the port alone.
            _ if label != 0 => return Err(Refusal::BadArgument.into()),
            other => other.copy().ok_or(Refusal::NoSuchHolding)?,
        };
        let (live, _) = self.require(to, Requirement::Living)?;
        Ok(live.holdings.insert(copy).ok_or(Refusal::TooMany)?.bits())
    }
}
