// SPDX-License-Identifier: MIT OR Apache-2.0
//! The streams of a child while a monitor serves its halts: they are those of this process.

use crate::input::ProgramInput;
use crate::output::{self, OutputStream};
use pando_abi::holding::ChildState;
use pando_abi::{Event, HoldingName};
use pando_machine::CellsDevice;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{Result, Stdin};
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a child that has not started, until it has ended. `interrupted` is set by Ctrl-C; `serve` is called after each event of the child.
/// Returns the state in which the child has ended.
///
/// # Errors
/// The device does not allow it, a stream failed, or `serve` did.
pub(crate) fn run(
    device: &CellsDevice,
    child: HoldingName,
    interrupted: &AtomicBool,
    mut serve: impl FnMut() -> Result<()>,
) -> Result<ChildState> {
    device.run(child)?;
    let (mut input, stdin) = (ProgramInput::Unwanted, std::io::stdin());
    loop {
        // Clears pending events before it reads the state, so that a later event wakes the next wait.
        device.forget_events()?;
        if interrupted.swap(false, Ordering::Relaxed) {
            device.raise(child, Event::Interrupt, 0)?;
        }
        serve()?;
        // After the child was resumed: whether a halted one wants input is not known, and it may make no further event.
        input.pass_on(device, child)?;
        if output::pass_on(device, child, OutputStream::Output)? {
            return device.state(child);
        }
        if wait(device, input.is_open().then_some(&stdin))? {
            input.read(&stdin)?;
        }
    }
}

/// Waits for an event of a child, or for input. Returns whether there is input.
///
/// # Errors
/// The device does not allow it.
fn wait(device: &CellsDevice, input: Option<&Stdin>) -> Result<bool> {
    let mut polled = vec![PollFd::new(device, PollFlags::IN)];
    polled.extend(input.map(|input| PollFd::new(input, PollFlags::IN)));
    match poll(&mut polled, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(polled.get(1).is_some_and(|source| !source.revents().is_empty()))
}
