// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando run` inside a cell: a nested cell, which this cell's kernel runs. No machine is made, and nothing is needed of the host.
//!
//! The nested cell is a clone of the same root, so it sees the files that this cell saw at its start. Its budgets are within this cell's.

use crate::arguments::RunOptions;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::{self, RawTerminal};
use crate::{diagnostics, environment};
use pando_kernel::{ConsolePort, End};
use pando_launch::{NestedCells, Nesting, Operator, Program, copy_input, copy_output};
use pando_machine::CellsDevice;
use pando_manager::cell::CellSpec;
use pando_manager::host;
use pando_manager::limits::Limits;
use pando_manager::outcome::{PANDO_FAILURE_STATUS, exit_status};
use pando_manager::time_limits::TimeLimits;
use pando_manager::view::{ViewSpec, program_in_same_view};
use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// A device that every cell has, and no host.
const PANDO_DEVICE: &str = "/dev/pando";
/// The device that only hosts have.
const KVM_DEVICE: &str = "/dev/kvm";

/// How long the reader of the output of a cell that was terminated may read nothing, before the rest is given up.
const STALL_MAX: Duration = Duration::from_millis(200);

/// Opens the device for nested cells. `None`: this process does not run in a cell.
///
/// # Errors
/// It runs in a cell that may have none of its own.
pub(crate) fn device() -> Result<Option<CellsDevice>, Failure> {
    let device = CellsDevice::open().map_err(Failure::Nested)?;
    if device.is_none() && Path::new(PANDO_DEVICE).exists() && !Path::new(KVM_DEVICE).exists() {
        return Err(Failure::NoNesting);
    }
    Ok(device)
}

/// Runs a program in a nested cell, and returns its exit status.
///
/// # Errors
/// An option is not possible here, the cell cannot be made, or a stream failed.
pub(crate) fn run(options: &RunOptions, device: CellsDevice) -> Result<u8, Failure> {
    if let Some(option) = options.unsupported_inside() {
        return Err(Failure::NotInside(option));
    }
    let spec = ViewSpec::from(&options.view);
    let program = program_in_same_view(&spec, options.program(), &environment::caller(), options.arguments())?;
    let limits = Limits::from(&options.limits);
    // Without a limit of its own it may use whatever this cell may.
    let memory = limits.memory.unwrap_or_else(host::memory);
    let root = NestedCells::root();
    let nesting = NonZeroU32::new(options.nest).map(|descendants| Nesting { descendants, root: root.cell() });
    let program = Program { terminals: terminal::of_program(options.terminal), nesting, memory, ..program };
    let operator: Arc<dyn Operator> = Arc::new(NestedCells::start(device)?);
    let cell = CellSpec { program, limits, host_name: options.host_name() }.create(Arc::clone(&operator), &root)?;
    let port = cell.console()?;
    let time_limits = TimeLimits::start(Arc::clone(&operator)).map_err(Failure::Thread)?;
    let signals = Signals::forward(Arc::clone(&operator), Some(cell.id()), &time_limits)?;
    let unread = Arc::<AtomicBool>::default();
    copy_input(&port, io::stdin(), diagnostics::input_reporter(&unread)).map_err(Failure::Thread)?;
    let terminal = options.terminal.then(RawTerminal::enter).transpose().map_err(Failure::Terminal)?;
    cell.start(&limits, &time_limits)?;
    let (report, carried) = sync_channel(1);
    let (carrier, id, output) = (Arc::clone(&port), cell.id(), limits.output);
    let body = move || {
        // Nobody waits for it any more once the process ends.
        let _ = report.send(copy_output(&*operator, id, &carrier, (io::stdout(), io::stderr()), output));
    };
    std::thread::Builder::new().name("console output".into()).spawn(body).map_err(Failure::Thread)?;
    let mut end = cell.wait()?.end;
    let is_terminated = signals.is_end_requested() || matches!(end, End::TimedOut | End::Killed);
    if !await_output(&carried, &port, is_terminated).map_err(Failure::Output)? {
        end = End::OutputLimit;
    }
    drop(terminal);
    signals.name_request(&mut end);
    diagnostics::report_end(options.program(), &end);
    Ok(if unread.load(Ordering::Relaxed) { PANDO_FAILURE_STATUS } else { exit_status(&end) })
}

/// Waits until the output of an ended cell is written; if the cell was terminated, only as long as its reader reads. Returns whether all of
/// it was within its limit.
fn await_output(carried: &Receiver<io::Result<bool>>, port: &ConsolePort, is_terminated: bool) -> io::Result<bool> {
    let mut left = port.unread_output();
    loop {
        let is_done = if is_terminated { carried.recv_timeout(STALL_MAX) } else { carried.recv().map_err(RecvTimeoutError::from) };
        match is_done {
            Ok(done) => return done,
            Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("the thread that writes it has ended")),
            Err(RecvTimeoutError::Timeout) => {
                let before = std::mem::replace(&mut left, port.unread_output());
                if left == before {
                    return Ok(true);
                }
            }
        }
    }
}
