// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwarding of host signals to the program in the cell.
//!
//! `SIGINT` interrupts the program; a second one within a second ends the cell. `SIGTERM`, `SIGHUP` and `SIGQUIT` ask the program to
//! end, and terminate the cell if it does not. A changed window size is passed on, and a process that continues after a stop makes
//! its terminal raw again. Ctrl-C typed under `-t` is no signal: the program reads it.

use crate::diagnostics;
use crate::failure::Failure;
use crate::terminal;
use pando_abi::Event;
use pando_kernel::{CellId, End};
use pando_launch::Operator;
use pando_manager::time_limits::TimeLimits;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::iterator;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Two interrupts within this time end the cell.
const DOUBLE_INTERRUPT_MAX: Duration = Duration::from_secs(1);
/// How long a program may take to end after the request: as long as container tools allow.
pub(crate) const GRACE_PERIOD: Duration = Duration::from_secs(10);

/// The signal that the kernel reports for every request to end (`SIGTERM`).
pub(crate) const SIGNAL_TO_END: u8 = SIGTERM as u8;

/// Forwards signals until this is dropped.
pub(crate) struct Signals {
    handle: iterator::Handle,
    requested: Arc<AtomicU8>,
    has_ended: Arc<AtomicBool>,
    target: Target,
}

/// The cell that receives them; without one, the process ends as by default.
type Target = Arc<Mutex<Option<CellId>>>;

/// The action for a signal of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalAction {
    /// Interrupt the program.
    Interrupt,
    /// Ask the program to end.
    RequestEnd,
    /// Terminate the cell.
    End,
}

/// Earlier signals, which determine the meaning of the next.
#[derive(Debug, Default)]
pub(crate) struct SignalHistory {
    interrupted: Option<Instant>,
    requested: bool,
    warned: bool,
}

impl SignalHistory {
    /// The action for a signal other than `SIGWINCH` and `SIGCONT`.
    pub(crate) fn receive(&mut self, signal: i32) -> SignalAction {
        match signal {
            SIGINT if self.interrupted.replace(Instant::now()).is_some_and(|before| before.elapsed() < DOUBLE_INTERRUPT_MAX) => {
                SignalAction::End
            }
            SIGINT => SignalAction::Interrupt,
            // A second request terminates the cell.
            _ if std::mem::replace(&mut self.requested, true) => SignalAction::End,
            _ => SignalAction::RequestEnd,
        }
    }

    /// Whether a signal after the cell's end ends this process: the second one does.
    fn leaves(&mut self) -> bool {
        std::mem::replace(&mut self.warned, true)
    }
}

/// The state of the signal thread.
struct Receiver {
    operator: Arc<dyn Operator>,
    target: Target,
    requested: Arc<AtomicU8>,
    has_ended: Arc<AtomicBool>,
    history: SignalHistory,
    time_limits: TimeLimits,
}

impl Signals {
    /// Starts to forward signals to a cell, or to none.
    pub(crate) fn forward(operator: Arc<dyn Operator>, cell: Option<CellId>, time_limits: &TimeLimits) -> Result<Signals, Failure> {
        let mut signals = iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT]).map_err(Failure::Signals)?;
        let (handle, requested, has_ended) = (signals.handle(), Arc::<AtomicU8>::default(), Arc::<AtomicBool>::default());
        let target = Arc::new(Mutex::new(cell));
        let mut receiver = Receiver {
            operator,
            target: Arc::clone(&target),
            requested: Arc::clone(&requested),
            has_ended: Arc::clone(&has_ended),
            history: SignalHistory::default(),
            time_limits: time_limits.clone(),
        };
        let body = move || signals.forever().for_each(|signal| receiver.receive(signal));
        std::thread::Builder::new().name("signals".into()).spawn(body).map_err(Failure::Signals)?;
        Ok(Signals { handle, requested, has_ended, target })
    }

    /// Forwards signals to another cell from now on, or to none.
    pub(crate) fn set_target(&self, cell: Option<CellId>) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = cell;
    }

    /// Takes note that the cell has ended, and that its changes are still written back: a second signal ends the process from now on.
    pub(crate) fn note_end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Whether the host asked the program to end.
    pub(crate) fn is_end_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed) != 0
    }

    /// Names the signal by which the host asked the program to end: the kernel reports one signal for every such request.
    pub(crate) fn name_request(&self, end: &mut End) {
        let requested = self.requested.load(Ordering::Relaxed);
        if let End::Signalled { signal, .. } = end
            && *signal == SIGNAL_TO_END
            && requested != 0
        {
            *signal = requested;
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
    }
}

impl Receiver {
    /// Handles a signal. Errors are ignored: the cell may have just ended.
    fn receive(&mut self, signal: i32) {
        let target = *self.target.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = match target {
            Some(cell) => cell,
            None if matches!(signal, SIGWINCH | SIGCONT) => return,
            None => std::process::exit(128 + signal),
        };
        if matches!(signal, SIGWINCH | SIGCONT) {
            let _ = terminal::resume();
            let [rows, columns] = terminal::window();
            let _ = self.operator.set_window(cell, rows, columns);
            return;
        }
        if self.has_ended.load(Ordering::Relaxed) {
            return match self.history.leaves() {
                true => std::process::exit(128 + signal),
                false => diagnostics::print_notice(
                    &"the program has ended; its changes are being written back: signal again to leave without them",
                ),
            };
        }
        let action = self.history.receive(signal);
        if signal != SIGINT {
            self.requested.store(signal as u8, Ordering::Relaxed);
        }
        match action {
            SignalAction::Interrupt => _ = self.operator.interrupt(cell),
            SignalAction::RequestEnd => {
                self.operator.raise(cell, Event::Terminate);
                self.time_limits.limit(cell, GRACE_PERIOD, ended_by(signal as u8));
            }
            SignalAction::End => _ = self.operator.end(cell, ended_by(signal as u8)),
        }
    }
}

/// The end of a cell that a host signal terminated.
pub(crate) fn ended_by(signal: u8) -> End {
    End::Signalled { signal, address: 0, instruction: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_before_the_end_do_not_count_after_it() {
        let mut history = SignalHistory::default();
        assert_eq!(history.receive(SIGINT), SignalAction::Interrupt);
        assert_eq!((history.receive(SIGTERM), history.receive(SIGTERM)), (SignalAction::RequestEnd, SignalAction::End));
        assert_eq!((history.leaves(), history.leaves()), (false, true));
    }
}
