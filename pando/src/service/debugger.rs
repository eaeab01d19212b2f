// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debugging running cells: a request's body is the bytes of gdb, and the answer is the bytes for gdb.
//!
//! A thread serves gdb's protocol as long as the client is connected. It acts on the cell by the verbs of the operator.

use super::problem::Problem;
use super::streams::{RequestBody, ResponseBody};
use axum::body::{Body, Bytes};
use pando_abi::Event;
use pando_abi::holding::ChildState;
use pando_abi::watch::mask;
use pando_kernel::End;
use pando_launch::LaunchError;
use pando_manager::cells::{DebuggedCell, ManagedCell};
use pando_nest::WatchedCell;
use pando_nest::debugger::{AttachError, AttachedDebugger, Mailbox};
use std::cell::Cell;
use std::fmt;
use std::io::{Error, ErrorKind, Result, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Packets for gdb that are queued for a slow reader.
const QUEUED_PIECES: usize = 4;

/// The most debuggers at a time, each of which has a thread.
pub(super) const DEBUGGERS: usize = 4;
/// The threads for them. A confined service starts none later.
static THREADS: Semaphore = Semaphore::const_new(DEBUGGERS);

/// Debugs a process of a cell; `None`: the first one. Returns the answer: the cell is halted.
///
/// # Errors
/// The cell has ended or is queued, another debugger has it, it does not answer, or it has no such process.
pub(super) async fn debug(cell: &Arc<ManagedCell>, process: Option<u64>, body: Body) -> std::result::Result<Body, Problem> {
    let number = cell.id();
    let Ok(thread) = THREADS.try_acquire() else {
        return Err(Problem::state(format!("cannot debug cell {number}: {DEBUGGERS} debuggers are attached to cells: detach one first")));
    };
    let debugged = cell.debug()?;
    let (sender, replies) = mpsc::channel(QUEUED_PIECES);
    let mailbox = Arc::new(Mailbox::new(Box::new(Replies(sender))));
    let (report, attached) = oneshot::channel();
    let served = Arc::clone(&mailbox);
    tokio::task::spawn_blocking(move || {
        let _thread = thread;
        serve(debugged, served, process, report);
    });
    // It ends when the client disconnects, which ends the thread's wait.
    tokio::spawn(copy_input(RequestBody::new(body), mailbox));
    let refused = |error: AttachError| match error {
        AttachError::Operator(error) if error.kind() != ErrorKind::WouldBlock => {
            Problem::server(format!("cannot debug cell {number}: {error}"))
        }
        error => Problem::state(format!("cannot debug cell {number}: {error}")),
    };
    attached.await.map_err(Problem::server)?.map_err(refused)?;
    let (outgoing, answer) = ResponseBody::new();
    tokio::spawn(copy_output(replies, outgoing));
    Ok(answer)
}

/// Serves gdb behind a mailbox, until gdb has gone or the cell has ended. Reports once the cell is halted.
fn serve(
    debugged: DebuggedCell,
    mailbox: Arc<Mailbox>,
    process: Option<u64>,
    report: oneshot::Sender<std::result::Result<(), AttachError>>,
) {
    // Without a receiver the client is gone.
    let cell = match WatchedServiceCell::watch(debugged, &mailbox) {
        Ok(cell) => cell,
        Err(error) => return drop(report.send(Err(error.into()))),
    };
    match AttachedDebugger::attach(&cell, Arc::clone(&mailbox), process) {
        Ok(debugger) => {
            let _ = report.send(Ok(()));
            // After an error the cell is released when `cell` is dropped. gdb notices that the connection ends.
            let _ = debugger.serve();
            // Before the end of the answer, so that another debugger can be attached after it.
            drop(cell);
        }
        Err(error) => {
            drop(cell);
            let _ = report.send(Err(error));
        }
    }
    mailbox.end_replies();
}

/// Passes the bytes of gdb on.
async fn copy_input(mut incoming: RequestBody, mailbox: Arc<Mailbox>) {
    while let Ok(Some(bytes)) = incoming.next().await
        && mailbox.add(&bytes)
    {}
    mailbox.close();
}

/// Passes the bytes for gdb on.
async fn copy_output(mut replies: mpsc::Receiver<Bytes>, mut outgoing: ResponseBody) {
    while let Ok(Some(bytes)) = outgoing.unless_disconnected(replies.recv()).await
        && outgoing.send(bytes).await.is_ok()
    {}
}

/// The writer of bytes for gdb, for the thread.
struct Replies(mpsc::Sender<Bytes>);

impl Write for Replies {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let sent = self.0.blocking_send(Bytes::copy_from_slice(bytes));
        sent.map(|()| bytes.len()).map_err(|_| ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A cell of the service that is watched. It goes on when this is dropped.
struct WatchedServiceCell {
    debugged: DebuggedCell,
    /// The state in which it has ended.
    end: Arc<Mutex<Option<ChildState>>>,
    /// Its libOS will learn that nobody watches.
    is_unwatched: Cell<bool>,
}

impl WatchedServiceCell {
    fn watch(debugged: DebuggedCell, mailbox: &Arc<Mailbox>) -> Result<WatchedServiceCell> {
        let end = Arc::<Mutex<Option<ChildState>>>::default();
        let (noted, mailbox) = (Arc::clone(&end), Arc::clone(mailbox));
        let callback = Box::new(move |ended: Option<&End>| {
            if let Some(ended) = ended {
                *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended.child_state());
            }
            mailbox.note_event();
        });
        debugged.operator().watch(debugged.id(), mask::EXCEPTIONS | mask::REPORTS, callback).map_err(failed)?;
        Ok(WatchedServiceCell { debugged, end, is_unwatched: Cell::new(false) })
    }

    fn end_state(&self) -> Option<ChildState> {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WatchedServiceCell {
    fn drop(&mut self) {
        if !self.is_unwatched.get() {
            self.debugged.operator().unwatch(self.debugged.id());
            self.debugged.operator().raise(self.debugged.id(), Event::Debug);
        }
    }
}

impl fmt::Debug for WatchedServiceCell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("WatchedServiceCell").field("cell", &self.debugged.id()).finish_non_exhaustive()
    }
}

/// Converts an error of the operator to an I/O error.
fn failed(error: LaunchError) -> Error {
    let kind = if error.is_wrong_state() { ErrorKind::WouldBlock } else { ErrorKind::Other };
    Error::new(kind, error)
}

impl WatchedCell for WatchedServiceCell {
    fn state(&self) -> Result<ChildState> {
        match self.end_state() {
            Some(end) => Ok(end),
            None => self.debugged.operator().cell_state(self.debugged.id()).map_err(failed),
        }
    }

    fn halt(&self) -> Result<()> {
        match self.debugged.operator().halt(self.debugged.id()) {
            // It has halted or ended by itself, or an end is noted in a moment.
            Err(error) if !error.is_wrong_state() && self.end_state().is_none() => Err(failed(error)),
            _ => Ok(()),
        }
    }

    fn resume(&self, how: u64) -> Result<()> {
        self.debugged.operator().resume(self.debugged.id(), how).map_err(failed)
    }

    fn unwatch(&self) -> Result<()> {
        self.debugged.operator().set_watched_events(self.debugged.id(), 0).map_err(failed)?;
        self.is_unwatched.set(true);
        Ok(())
    }

    fn raise_debug_event(&self) -> Result<()> {
        self.debugged.operator().raise(self.debugged.id(), Event::Debug);
        Ok(())
    }

    fn end(&self) -> Result<()> {
        self.debugged.kill();
        Ok(())
    }

    fn read_state(&self, kind: u64, buffer: &mut [u8]) -> Result<usize> {
        self.debugged.operator().read_state(self.debugged.id(), kind, buffer).map_err(failed)
    }

    fn write_state(&self, kind: u64, bytes: &[u8]) -> Result<()> {
        self.debugged.operator().write_state(self.debugged.id(), kind, bytes).map_err(failed)
    }

    fn read(&self, space: Option<u32>, address: u64, buffer: &mut [u8]) -> Result<usize> {
        self.debugged.operator().read_space(self.debugged.id(), space, address, buffer).map_err(failed)
    }

    fn write(&self, space: Option<u32>, address: u64, bytes: &[u8]) -> Result<()> {
        self.debugged.operator().write_space(self.debugged.id(), space, address, bytes).map_err(failed)
    }
}
