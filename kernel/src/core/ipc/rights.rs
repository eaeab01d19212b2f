// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports, posted calls and rights to reply that their holders have given up.

use super::port::{Call, CallTicket, MessagePort};
use super::wait::WaitReason;
use crate::cell::CellId;
use crate::core::cell_table::LiveCell;
use crate::core::holdings::Holding;
use pando_abi::HoldingName;

/// Rights that were given up, and whose other parties do not know it yet.
#[derive(Debug, Default)]
pub(in crate::core) struct ReleaseQueue {
    pub(super) ports: Vec<MessagePort>,
    pub(super) replies: Vec<CallTicket>,
    pub(super) calls: Vec<(Call, CallTicket)>,
}

impl ReleaseQueue {
    /// Whether nothing is left to do.
    pub(in crate::core) fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.replies.is_empty() && self.calls.is_empty()
    }

    /// Queues a holding that `holder` knew by a name. Only ports, calls and rights to reply have other parties.
    pub(in crate::core) fn push(&mut self, holder: CellId, name: HoldingName, holding: Holding) {
        match holding {
            Holding::Port(port) => self.ports.push(*port),
            Holding::Reply(ticket) => self.replies.push(ticket),
            Holding::Call(call) => self.calls.push((*call, CallTicket { caller: holder, posted: Some(name), serial: call.serial })),
            Holding::Child { .. } | Holding::View(_) | Holding::Template(_) | Holding::Reference(_) => {}
        }
    }

    /// Queues what is left of the calls of a cell that never runs again.
    pub(in crate::core) fn push_all(&mut self, of: CellRights) {
        of.rights.into_iter().for_each(|(name, holding)| self.push(of.cell, name, holding));
        self.calls.extend(of.call.map(|call| (call, CallTicket { caller: of.cell, posted: None, serial: call.serial })));
    }
}

/// The ports, calls and rights to reply of a cell that never runs again.
pub(in crate::core) struct CellRights {
    cell: CellId,
    rights: Vec<(HoldingName, Holding)>,
    /// The call in which it is blocked.
    call: Option<Call>,
}

impl CellRights {
    /// Takes them from a cell.
    pub(in crate::core) fn take(live: &mut LiveCell) -> CellRights {
        live.ipc.answers.clear();
        let call = match live.ipc.wait.take().map(|wait| wait.reason) {
            Some(WaitReason::Call(call)) => Some(call),
            Some(WaitReason::Receive { .. }) | None => None,
        };
        CellRights { cell: live.cell.id, rights: live.holdings.take_rights(), call }
    }
}
