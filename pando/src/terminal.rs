// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's terminal while a program has it (`-t`): raw, so that every key reaches the program, and put back on every way out.

use rustix::io::retry_on_intr;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the terminal was before. Global, because a panic anywhere must find it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

fn before() -> MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A terminal that is raw until this is dropped, or a thread panics.
#[derive(Debug)]
pub(crate) struct RawTerminal(());

impl RawTerminal {
    /// Makes the terminal of standard input raw. What was typed before stays to be read.
    pub(crate) fn enter() -> std::io::Result<RawTerminal> {
        let usual = tcgetattr(std::io::stdin())?;
        *before() = Some(usual);
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            report(panic);
        }));
        let terminal = RawTerminal(());
        resume()?;
        Ok(terminal)
    }
}

/// Makes a terminal that ought to be raw so again, after somebody else had it: a shell, while this process was stopped.
pub(crate) fn resume() -> std::io::Result<()> {
    if let Some(mut settings) = before().clone() {
        settings.make_raw();
        retry_on_intr(|| tcsetattr(std::io::stdin(), OptionalActions::Drain, &settings))?;
    }
    Ok(())
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Puts the terminal back, once.
fn restore() {
    if let Some(settings) = before().take() {
        // A terminal that is gone needs nothing.
        let _ = retry_on_intr(|| tcsetattr(std::io::stdin(), OptionalActions::Drain, &settings));
    }
}

/// Rows and columns of the first standard stream that is a terminal; zeros if none is, or it does not know.
pub(crate) fn window() -> [u16; 2] {
    let size = tcgetwinsize(std::io::stdin()).or_else(|_| tcgetwinsize(std::io::stdout())).or_else(|_| tcgetwinsize(std::io::stderr()));
    size.map_or([0, 0], |size| [size.ws_row, size.ws_col])
}

/// Whether standard input is a terminal.
pub(crate) fn is_there() -> bool {
    std::io::stdin().is_terminal()
}
