// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of calls whose port, or whose right to reply, was given up: some at a time.

use crate::core::state::State;
use crate::limits::IPC_RELEASE_STEP;
use pando_abi::Refusal;

impl State {
    /// Tells the other parties of rights that were given up, some at a time.
    pub(in crate::core) fn release_rights(&mut self) {
        for _ in 0..IPC_RELEASE_STEP {
            if let Some(ticket) = self.released.replies.pop() {
                self.refuse(ticket, Refusal::NoReply);
            } else if let Some((call, ticket)) = self.released.calls.pop() {
                self.withdraw(&call, ticket);
            } else if let Some(port) = self.released.ports.last_mut() {
                match port.pop() {
                    Some(ticket) => self.refuse(ticket, Refusal::NoSuchHolding),
                    None => drop(self.released.ports.pop()),
                }
            } else {
                return;
            }
        }
    }
}
