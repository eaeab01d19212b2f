// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator's ends of a cell's console, channel and control channel.

use super::error::OperationError;
use super::state::State;
use super::{Kernel, OperatorError};
use crate::cell::CellId;
use crate::cell::run_state::Requirement;
use crate::device::console::{Console, ConsolePort};
use pando_abi::Event;
use std::sync::{Arc, Weak};

/// Wakes a cell after the operator's side of a port has changed.
type Waker = Box<dyn Fn() + Send + Sync>;

impl State {
    /// The waker for a console or a channel of a cell.
    pub(super) fn waker(&self, id: CellId) -> Waker {
        let shared = Weak::clone(&self.shared);
        Box::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.raise(id, Event::Console);
            }
        })
    }

    /// The waker for a control channel, which a cell notices at once.
    fn control_waker(&self, id: CellId) -> Waker {
        let shared = Weak::clone(&self.shared);
        Box::new(move || {
            if let Some(shared) = shared.upgrade() {
                let mut state = shared.lock();
                state.raise_at_once(id, Event::Control);
                shared.notify(&mut state);
            }
        })
    }

    /// The operator's or the parent's end of a cell's control channel, opened if there is none yet.
    ///
    /// # Errors
    /// There is no such living cell, or it is frozen.
    pub(super) fn control(&mut self, id: CellId) -> Result<Arc<ConsolePort>, OperationError> {
        let waker = self.control_waker(id);
        let (live, _) = self.require(id, Requirement::NotFrozen)?;
        if let Some(control) = &live.control {
            return Ok(Arc::clone(control.port()));
        }
        let control = live.control.insert(Box::new(Console::control(waker)));
        let port = Arc::clone(control.port());
        // The rings are initialised when the kernel next serves them.
        self.raise_at_once(id, Event::Control);
        Ok(port)
    }
}

impl Kernel {
    /// The host's end of a cell's console; stays readable after the cell's end.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn console(&self, id: CellId) -> Result<Arc<ConsolePort>, OperatorError> {
        self.query("open the console of", id, |live, _| Arc::clone(live.console.port()))
    }

    /// The operator's end of a channel to a cell, opened if there is none yet. It carries the libOS's own messages to the operator,
    /// and the answers. A clone has its own channel, which receives nothing from its source's. If a cell may be waiting for an
    /// answer when it is cloned, end the clone's input with [`ConsolePort::close_input`].
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn channel(&self, id: CellId) -> Result<Arc<ConsolePort>, OperatorError> {
        self.attempt("open the channel of", |state| {
            let waker = state.waker(id);
            let (live, _) = state.require(id, Requirement::Living)?;
            let channel = live.channel.get_or_insert_with(|| Box::new(Console::channel(waker)));
            Ok(Arc::clone(channel.port()))
        })
    }

    /// The operator's end of a cell's control channel, opened if there is none yet: requests to its libOS, and its reports
    /// ([`pando_abi::control`]). Clones do not inherit it.
    ///
    /// # Errors
    /// There is no such living cell, or it is frozen.
    pub fn control(&self, id: CellId) -> Result<Arc<ConsolePort>, OperatorError> {
        self.attempt("open the control channel of", |state| state.control(id))
    }
}
