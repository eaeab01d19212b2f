// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting in a call of a port, and the ends of waits.

use super::port::{Call, CallTicket};
use super::wait::{Wait, WaitReason};
use crate::cell::CellId;
use crate::cell::run_state::RunState;
use crate::core::cell_table::LiveCell;
use crate::core::state::State;
use crate::sched::ReadyReason;
use pando_abi::Refusal;
use pando_machine::Nanos;

/// Bytes of the hypercall instruction.
const INSTRUCTION_BYTES: u64 = 2;

impl State {
    /// Blocks the running cell `id` in its present call. Returns when an alarm must ring.
    pub(super) fn begin_wait(&mut self, id: CellId, reason: WaitReason, deadline: Nanos) -> Nanos {
        let (LiveCell { cell, execution, ipc, .. }, frames) = self.expect_living(id);
        let resume_rip = execution.context.registers.rip;
        // Until the wait is over, the instruction was not executed.
        execution.context.registers.rip = resume_rip.wrapping_sub(INSTRUCTION_BYTES);
        let wait = Wait { reason, resume_rip, deadline };
        cell.memory.note_pause();
        let until = if wait.awaits_reply() { deadline } else { cell.idles_until(frames, deadline) };
        ipc.wait = Some(Box::new(wait));
        until
    }

    /// Makes a cell that has left its vCPU wait in its call.
    pub(in crate::core) fn make_blocked(&mut self, id: CellId, until: Nanos) {
        self.expect_living(id).0.execution.transition(RunState::Idle { until });
        if until != Nanos::NEVER {
            self.set_alarm(id, until);
        }
    }

    /// Ends the wait of a cell with the result of its call, and makes the cell runnable.
    pub(super) fn finish_wait(&mut self, id: CellId, result: u64) {
        if self.set_result(id, result) {
            self.make_ready(id, ReadyReason::Woken);
        }
    }

    /// Ends the wait of a cell, if it waits in a call, with the result of the call. Returns whether it does.
    fn set_result(&mut self, id: CellId, result: u64) -> bool {
        let Some(wait) = self.living(id).and_then(|(live, _)| live.ipc.wait.take()) else { return false };
        self.withdraw_wait(id, &wait);
        let registers = &mut self.expect_living(id).0.execution.context.registers;
        registers.rip = wait.resume_rip;
        registers.rax = result;
        true
    }

    /// Ends the wait of an idle cell because of an event.
    pub(in crate::core) fn interrupt_wait(&mut self, id: CellId) {
        self.set_result(id, Refusal::Interrupted.to_result());
    }

    /// Ends the wait of an idle cell because its deadline has come, or its timer is due.
    pub(in crate::core) fn expire_wait(&mut self, id: CellId, now: Nanos) {
        let deadline = self.living(id).and_then(|(live, _)| live.ipc.wait.as_ref()).map(|wait| wait.deadline);
        if let Some(deadline) = deadline {
            let refusal = if deadline <= now { Refusal::TimedOut } else { Refusal::Interrupted };
            self.set_result(id, refusal.to_result());
        }
    }

    /// Lets a cell whose call was received wait until its deadline, also if its timer is due before.
    pub(super) fn extend_wait(&mut self, id: CellId) {
        let Some((live, _)) = self.living(id) else { return };
        let Some(deadline) = live.ipc.wait.as_ref().map(|wait| wait.deadline) else { return };
        live.execution.extend_idle(deadline);
        if deadline != Nanos::NEVER {
            self.set_alarm(id, deadline);
        }
    }

    /// Takes a cell out of its call, as if it had not made it. The cell makes it again if it continues.
    pub(in crate::core) fn roll_back_wait(&mut self, id: CellId) {
        if let Some(wait) = self.living(id).and_then(|(live, _)| live.ipc.wait.take()) {
            self.withdraw_wait(id, &wait);
        }
    }

    /// Takes the call of a blocked cell out of the port's queue.
    fn withdraw_wait(&mut self, caller: CellId, wait: &Wait) {
        if let WaitReason::Call(call) = wait.reason {
            self.withdraw(&call, CallTicket { caller, posted: None, serial: call.serial });
        }
    }

    /// Takes a call out of the queue of its port, if it was not received.
    pub(super) fn withdraw(&mut self, call: &Call, ticket: CallTicket) {
        if let Some(place) = call.place
            && let Some(port) = self.port_of(&call.reference)
            && port.get(place) == Some(ticket)
        {
            port.remove(place);
        }
    }
}
