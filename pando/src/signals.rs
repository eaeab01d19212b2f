// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals of the host, as the program in the cell shall feel them.
//!
//! `SIGINT` interrupts the program; a second one within a second ends the cell. `SIGTERM`, `SIGHUP` and `SIGQUIT` ask it to end and see to it that it does. A
//! changed window is passed on, and a process that was stopped makes its terminal raw again. Ctrl-C typed under `-t` is no signal: the program reads it.

use crate::failure::Failure;
use crate::terminal;
use crate::watch::Watch;
use pando_abi::Event;
use pando_kernel::{CellId, End, Kernel};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::iterator;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Two interrupts that are no further apart mean it.
const TWICE: Duration = Duration::from_secs(1);
/// How long a program that was asked to end may take for it: what container tools grant.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// The signals that are passed on, until this is dropped.
pub(crate) struct Signals {
    handle: iterator::Handle,
    asked: Arc<AtomicU8>,
    target: Target,
}

/// The cell that feels them; without one, the process ends as it would have without this.
type Target = Arc<Mutex<Option<CellId>>>;

/// What a program feels of a signal of the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Felt {
    /// It is interrupted.
    Interrupted,
    /// It is asked to end.
    Asked,
    /// It is ended.
    Ended,
}

/// The signals that came before, on which depends what the next one means.
#[derive(Debug, Default)]
pub(crate) struct Before {
    interrupted: Option<Instant>,
    asked: bool,
}

impl Before {
    /// What a program feels of a signal that asks it to do something.
    pub(crate) fn feel(&mut self, signal: i32) -> Felt {
        match signal {
            SIGINT if self.interrupted.replace(Instant::now()).is_some_and(|before| before.elapsed() < TWICE) => Felt::Ended,
            SIGINT => Felt::Interrupted,
            // Who was asked before is not asked again.
            _ if std::mem::replace(&mut self.asked, true) => Felt::Ended,
            _ => Felt::Asked,
        }
    }
}

/// What passes them on.
struct Receiver {
    kernel: Arc<Kernel>,
    target: Target,
    asked: Arc<AtomicU8>,
    before: Before,
    watch: Watch,
}

impl Signals {
    /// Passes signals on to a cell from now on, or to none.
    pub(crate) fn pass_on(kernel: &Arc<Kernel>, cell: Option<CellId>, watch: &Watch) -> Result<Signals, Failure> {
        let mut signals = iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT]).map_err(Failure::Signals)?;
        let (handle, asked) = (signals.handle(), Arc::<AtomicU8>::default());
        let target = Arc::new(Mutex::new(cell));
        let mut receiver = Receiver {
            kernel: Arc::clone(kernel),
            target: Arc::clone(&target),
            asked: Arc::clone(&asked),
            before: Before::default(),
            watch: watch.clone(),
        };
        let body = move || signals.forever().for_each(|signal| receiver.receive(signal));
        std::thread::Builder::new().name("signals".into()).spawn(body).map_err(Failure::Signals)?;
        Ok(Signals { handle, asked, target })
    }

    /// Passes signals on to another cell from now on, or to none.
    pub(crate) fn aim(&self, cell: Option<CellId>) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = cell;
    }

    /// The signal by which the host asked for the end, if one did.
    pub(crate) fn asked(&self) -> Option<u8> {
        Some(self.asked.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
    }
}

impl Receiver {
    /// The cell may have ended this very moment, so what cannot be told it needs not be.
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
            let _ = self.kernel.set_window(cell, rows, columns);
            return;
        }
        let felt = self.before.feel(signal);
        if signal != SIGINT {
            self.asked.store(signal as u8, Ordering::Relaxed);
        }
        match felt {
            Felt::Interrupted => _ = self.kernel.interrupt(cell),
            Felt::Asked => {
                self.kernel.raise(cell, Event::Terminate);
                self.watch.limit(cell, GRACE, ended_by(signal as u8));
            }
            Felt::Ended => _ = self.kernel.end(cell, ended_by(signal as u8)),
        }
    }
}

/// How a cell ends that a signal of the host's ends.
pub(crate) fn ended_by(signal: u8) -> End {
    End::Signalled { signal, address: 0, instruction: 0 }
}
