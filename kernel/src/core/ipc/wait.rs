// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a cell in calls of ports.

use super::port::Call;
use crate::cell::child_operation::CallerBytes;
use crate::cell::message_operation::MessageDescription;
use pando_abi::HoldingName;
use pando_abi::message::MessageResult;
use pando_machine::Nanos;

/// The part of a living cell that concerns calls of ports, besides its holdings.
#[derive(Debug, Default)]
pub(in crate::core) struct IpcState {
    /// The call in which it is blocked.
    pub(in crate::core) wait: Option<Box<Wait>>,
    /// Answers to its posted calls, which are written when it runs next: their addresses, and the kernel's parts of the records.
    pub(in crate::core) answers: Vec<(u64, MessageResult)>,
    /// Memory that another cell waits to write a reply to: it is made exclusive to this cell when it next leaves its vCPU.
    pub(in crate::core) prefault_request: Option<Box<CallerBytes>>,
}

/// The state of a cell that is blocked in a call of a port. Its run state is [`RunState::Idle`].
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct Wait {
    /// The event that it waits for.
    pub(in crate::core) reason: WaitReason,
    /// The instruction pointer behind the call. Meanwhile the cell's own points to the call.
    pub(super) resume_rip: u64,
    /// When the wait is over.
    pub(super) deadline: Nanos,
}

/// The event that a blocked cell waits for.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) enum WaitReason {
    /// Its call is received, or answered.
    Call(Call),
    /// A call comes to its port.
    Receive {
        /// The port.
        port: HoldingName,
        /// The description of the cell's buffer.
        message: MessageDescription,
    },
}

impl Wait {
    /// Whether the cell's message was received. Then no event ends the wait, because the message must not be sent again.
    pub(in crate::core) fn awaits_reply(&self) -> bool {
        matches!(self.reason, WaitReason::Call(Call { place: None, .. }))
    }
}
