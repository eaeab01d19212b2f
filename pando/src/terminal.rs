// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's terminal under `-t`: raw while the program has it, and restored on every exit.

use pando_launch::Terminals;
use rustix::io::retry_on_intr;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The terminal's settings before. Global, so that a panic anywhere can restore them.
static SAVED_SETTINGS: Mutex<Option<Termios>> = Mutex::new(None);

fn saved_settings() -> MutexGuard<'static, Option<Termios>> {
    SAVED_SETTINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A terminal that is raw until this is dropped, or a thread panics.
#[derive(Debug)]
pub(crate) struct RawTerminal(());

impl RawTerminal {
    /// Makes the terminal of standard input raw. Keeps input that was typed before.
    pub(crate) fn enter() -> std::io::Result<RawTerminal> {
        let usual = tcgetattr(std::io::stdin())?;
        *saved_settings() = Some(usual);
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

/// Makes the terminal raw again after another process had it: a shell, while this process was stopped.
pub(crate) fn resume() -> std::io::Result<()> {
    if let Some(mut settings) = saved_settings().clone() {
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

/// Restores the terminal, once.
fn restore() {
    if let Some(settings) = saved_settings().take() {
        // The terminal may be gone.
        let _ = retry_on_intr(|| tcsetattr(std::io::stdin(), OptionalActions::Drain, &settings));
    }
}

/// Rows and columns of the first standard stream that is a terminal; zeros if there is none or the size is unknown.
pub(crate) fn window() -> [u16; 2] {
    let size = tcgetwinsize(std::io::stdin()).or_else(|_| tcgetwinsize(std::io::stdout())).or_else(|_| tcgetwinsize(std::io::stderr()));
    size.map_or([0, 0], |size| [size.ws_row, size.ws_col])
}

/// Whether standard input is a terminal.
pub(crate) fn stdin_is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// Determines which of a program's streams are terminals, and their size; `raw`: the program has the terminal.
pub(crate) fn of_program(raw: bool) -> Terminals {
    let [rows, columns] = window();
    Terminals {
        input: std::io::stdin().is_terminal(),
        output: std::io::stdout().is_terminal(),
        errors: std::io::stderr().is_terminal(),
        raw,
        rows,
        columns,
    }
}
