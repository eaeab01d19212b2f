// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checkpointer: a program whose whole state is written to files at intervals, and goes on from them in another process.
//!
//! The child is halted only as long as the kernel takes to clone it, whatever its size. The clone never runs: its difference to the clone
//! before is written while the program goes on. A restored child is built from extents. Its pages are entries that name a page of a file,
//! as those of a pager are, so it runs before they are read.

mod directory;
mod file;
mod image;
mod restoring;
mod snapshot;

pub use directory::{CheckpointDirectory, StoredCheckpoint};
pub use file::RestoreRequirements;
pub use snapshot::CheckpointSize;

use crate::input::ProgramInput;
use crate::output::{self, OutputStream};
use crate::watched_child::WatchedChild;
use pando_abi::holding::ChildState;
use pando_abi::watch::{HaltReason, resume, state};
use pando_abi::{DescendantRecord, Event, HoldingName};
use pando_machine::CellsDevice;
use restoring::PageSource;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use snapshot::{Base, SnapshotWriter};
use std::collections::HashMap;
use std::io::{Error, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

/// Where checkpoints are written, and how often.
#[derive(Clone, Debug)]
pub struct CheckpointSettings {
    /// The directory.
    pub directory: CheckpointDirectory,
    /// The time from one checkpoint to the next. `None`: none is written.
    pub interval: Option<Duration>,
    /// The program's requirements of a machine.
    pub requirements: RestoreRequirements,
    /// Pages that the program may use.
    pub memory: u64,
}

/// An event of a checkpointer, for its user.
#[derive(Debug)]
pub enum CheckpointEvent<'a> {
    /// A checkpoint is complete.
    Written {
        /// Its number.
        number: u32,
        /// Its sizes.
        size: CheckpointSize,
        /// For how long the program was halted.
        pause: Duration,
    },
    /// A checkpoint could not be written. The program goes on.
    Failed {
        /// Its number.
        number: u32,
        /// The reason.
        error: &'a Error,
    },
}

/// Receives events.
pub type EventSink<'a> = &'a mut dyn FnMut(CheckpointEvent<'_>);

/// A clone of the program's cell, and for how long that took.
struct Snapshot {
    cell: HoldingName,
    pause: Duration,
}

/// The result of the work on a checkpoint.
struct WriteResult {
    number: u32,
    snapshot: Snapshot,
    result: Result<(Base, CheckpointSize)>,
}

/// Checkpoints a child.
pub struct Checkpointer<'a> {
    device: &'a CellsDevice,
    child: HoldingName,
    settings: CheckpointSettings,
    /// The last checkpoint that is complete, with its snapshot.
    base: Option<Arc<Base>>,
    /// The number of the next checkpoint.
    next: u32,
    /// The pages that a restored child has not needed yet.
    pages: Option<PageSource>,
}

impl<'a> Checkpointer<'a> {
    /// A checkpointer of a new child, which has not started.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn new(device: &'a CellsDevice, child: HoldingName, settings: CheckpointSettings) -> Result<Checkpointer<'a>> {
        settings.directory.remove_unfinished();
        let next = settings.directory.checkpoints()?.first().map_or(1, |newest| newest + 1);
        Ok(Checkpointer { device, child, settings, base: None, next, pages: None })
    }

    /// A checkpointer of a child that has not started, and which is built from a checkpoint.
    ///
    /// # Errors
    /// The kernel refuses the image, or the directory cannot be read.
    pub fn restore(
        device: &'a CellsDevice,
        child: HoldingName,
        mut stored: StoredCheckpoint,
        settings: CheckpointSettings,
    ) -> Result<Checkpointer<'a>> {
        restoring::build(device, child, &mut stored)?;
        let mut checkpointer = Checkpointer::new(device, child, settings)?;
        if checkpointer.settings.interval.is_some() {
            let snapshot = device.clone_cell(child, checkpointer.settings.memory, 0)?;
            let (image, files) = (stored.image().clone(), stored.ranges());
            checkpointer.base = Some(Arc::new(Base { snapshot, image, files, next_page: stored.next_page(), known: HashMap::new() }));
        }
        checkpointer.pages = Some(PageSource::new(stored));
        Ok(checkpointer)
    }

    /// The number of pages that a restored program was given so far.
    #[must_use]
    pub fn pages_given(&self) -> u64 {
        self.pages.as_ref().map_or(0, |pages| pages.given)
    }

    /// Runs the child with the streams of this process until it has ended. `interrupted` is set by Ctrl-C. Returns the state in which the
    /// child has ended.
    ///
    /// # Errors
    /// The device does not allow it, a stream failed, or a page of a restored program cannot be read.
    pub fn run(&mut self, interrupted: &AtomicBool, report: EventSink<'_>) -> Result<ChildState> {
        self.device.run(self.child)?;
        let (woken, waker) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        thread::scope(|scope| self.serve(scope, interrupted, (&woken, &waker), report))
    }

    fn serve<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        interrupted: &AtomicBool,
        (mut woken, waker): (&UnixStream, &UnixStream),
        report: EventSink<'_>,
    ) -> Result<ChildState>
    where
        'a: 'scope,
    {
        let (mut input, stdin) = (ProgramInput::Unwanted, std::io::stdin());
        let mut due = self.settings.interval.and_then(|interval| Instant::now().checked_add(interval));
        let mut writing: Option<Receiver<WriteResult>> = None;
        // When the halt for a checkpoint was requested.
        let mut halted_since: Option<Instant> = None;
        loop {
            // Forgotten first: an event that comes from now on is not lost.
            self.device.forget_events()?;
            while woken.read(&mut [0; 16]).is_ok_and(|count| count > 0) {}
            if interrupted.swap(false, Ordering::Relaxed) {
                self.device.raise(self.child, Event::Interrupt, 0)?;
            }
            input.pass_on(self.device, self.child)?;
            if let Some(finished) = writing.as_ref().and_then(|writing| writing.try_recv().ok()) {
                writing = None;
                self.note_finished(finished, report)?;
            }
            match self.serve_halt(&mut halted_since)? {
                Some(Ok(snapshot)) => writing = Some(self.start_writing(scope, snapshot, waker)?),
                Some(Err(error)) => report(CheckpointEvent::Failed { number: self.next, error: &error }),
                None => {}
            }
            let now = Instant::now();
            if due.is_some_and(|due| due <= now) && writing.is_none() && halted_since.is_none() {
                due = self.settings.interval.and_then(|interval| now.checked_add(interval));
                halted_since = Some(now);
                self.device.halt(self.child)?;
            }
            // The output of a child that is halted for a checkpoint comes before the checkpoint.
            if output::pass_on(self.device, self.child, OutputStream::Output)? {
                return self.device.state(self.child);
            }
            let waits_until = due.filter(|_| writing.is_none() && halted_since.is_none());
            if self.wait(input.is_open().then_some(&stdin), woken, waits_until)? {
                input.read(&stdin)?;
            }
        }
    }

    /// Serves the halt of the child, if it is halted. Returns a snapshot if it was halted for one, or the reason why there is none.
    fn serve_halt(&mut self, halted_since: &mut Option<Instant>) -> Result<Option<Result<Snapshot>>> {
        let child = WatchedChild { device: self.device, name: self.child };
        let Some(reason) = child.reason_if_halted()? else { return Ok(None) };
        match reason {
            HaltReason::Taken { space, address, number } => {
                let pages = self.pages.as_mut().ok_or_else(|| Error::other("the program has lost a page"))?;
                pages.give(self.device, self.child, (space, address, number))?;
                self.device.resume(self.child, resume::CONTINUE)?;
                if halted_since.is_some() {
                    // This halt was not for the checkpoint.
                    self.device.halt(self.child)?;
                }
                Ok(None)
            }
            _ => {
                let since = halted_since.take();
                let cell = since.map(|since| (since, self.clone_child()));
                self.device.resume(self.child, resume::CONTINUE)?;
                Ok(cell.map(|(since, cell)| Ok(Snapshot { cell: cell?, pause: since.elapsed() })))
            }
        }
    }

    /// Clones the halted child.
    fn clone_child(&self) -> Result<HoldingName> {
        let mut record = [0; DescendantRecord::SIZE];
        if self.device.read_state(self.child, state::DESCENDANTS, &mut record)? > 0 {
            return Err(Error::other("the program has nested cells at present, which no checkpoint can have"));
        }
        self.device.clone_cell(self.child, self.settings.memory, 0)
    }

    /// Writes the checkpoint of a snapshot on a thread.
    fn start_writing<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        snapshot: Snapshot,
        waker: &UnixStream,
    ) -> Result<Receiver<WriteResult>>
    where
        'a: 'scope,
    {
        let (sender, receiver) = channel();
        let (device, number, base) = (self.device, self.next, self.base.clone());
        let (directory, requirements) = (self.settings.directory.clone(), self.settings.requirements.clone());
        let mut waker = waker.try_clone()?;
        self.next += 1;
        thread::Builder::new().name("checkpoint".into()).spawn_scoped(scope, move || {
            let writer = SnapshotWriter { device, directory: &directory, requirements };
            let result = writer.write(snapshot.cell, base.as_deref(), number);
            // Nobody waits for it any more once the program has ended.
            let _ = sender.send(WriteResult { number, snapshot, result });
            let _ = waker.write_all(&[0]);
        })?;
        Ok(receiver)
    }

    /// Keeps the snapshot of a complete checkpoint as the base of the next one.
    fn note_finished(&mut self, finished: WriteResult, report: EventSink<'_>) -> Result<()> {
        let WriteResult { number, snapshot: Snapshot { cell, pause }, result } = finished;
        let unused = match result {
            Ok((base, size)) => {
                report(CheckpointEvent::Written { number, size, pause });
                self.base.replace(Arc::new(base)).map(|base| base.snapshot)
            }
            Err(error) => {
                report(CheckpointEvent::Failed { number, error: &error });
                Some(cell)
            }
        };
        unused.map_or(Ok(()), |unused| self.device.give_up(unused))
    }

    /// Waits for an event of the child, for input, for the end of the work on a checkpoint, or for a time. Returns whether there is input.
    fn wait(&self, input: Option<&std::io::Stdin>, woken: &UnixStream, until: Option<Instant>) -> Result<bool> {
        let mut polled = vec![PollFd::new(self.device, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        polled.extend(input.map(|input| PollFd::new(input, PollFlags::IN)));
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(polled.get(2).is_some_and(|source| !source.revents().is_empty()))
    }
}
