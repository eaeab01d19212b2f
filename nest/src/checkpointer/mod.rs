// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checkpointer: a monitor that writes the whole state of its child to files at intervals, and restores a child from them in another
//! process.
//!
//! The child is halted only as long as the kernel takes to clone it, whatever its size. The clone never runs: its difference to the clone
//! before is written while the program goes on. A restored child is built from extents. Its pages are entries that name a page of a file,
//! as those of a pager are, so it runs before they are read.

mod directory;
mod family;
mod file;
mod image;
mod restore;
mod snapshot;

pub use directory::{CheckpointDirectory, StoredCheckpoint};
pub use file::RestoreRequirements;
pub use snapshot::CheckpointSize;

use crate::input::ProgramInput;
use crate::output::{self, OutputStream};
use crate::watched_cell::StateAccess;
use crate::watched_child::WatchedChild;
use family::HaltedFamily;
use image::{MemberRecord, MemberRunState};
use pando_abi::holding::ChildState;
use pando_abi::watch::{HaltReason, resume};
use pando_abi::{Event, HoldingName};
use pando_machine::CellsDevice;
use restore::PageSource;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use snapshot::{Base, SnapshotWriter};
use std::collections::HashMap;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

/// How often a checkpoint is tried again if a nested cell is in a state that soon changes.
const ATTEMPTS: u32 = 50;
/// The time until it is tried again.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(20);

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
    /// How many checkpoints are kept. `None`: all.
    pub keep: Option<u32>,
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
    /// Checkpoints that are not to be kept could not be removed.
    NotRemoved {
        /// The reason.
        error: &'a Error,
    },
}

/// Receives events.
pub type EventSink<'a> = &'a mut dyn FnMut(CheckpointEvent<'_>);

/// Clones of the program's cell and of all below it, and for how long that took.
struct Snapshot {
    cells: Vec<(MemberRecord, HoldingName)>,
    pause: Duration,
}

/// The result of the work on a checkpoint.
struct WriteResult {
    number: u32,
    snapshot: Snapshot,
    result: Result<(Base, CheckpointSize)>,
    /// The result of the removal of older checkpoints.
    removed: Result<()>,
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
    /// The nested cells of a restored child, until they are started.
    nested: Vec<(HoldingName, MemberRunState)>,
}

impl<'a> Checkpointer<'a> {
    /// A checkpointer of a new child, which has not started.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn new(device: &'a CellsDevice, child: HoldingName, settings: CheckpointSettings) -> Result<Checkpointer<'a>> {
        settings.directory.remove_unfinished();
        let newest = settings.directory.checkpoints()?.first().copied().unwrap_or(0);
        let next = newest
            .checked_add(1)
            .ok_or_else(|| Error::other("the directory has the last possible number of a checkpoint: choose another"))?;
        Ok(Checkpointer { device, child, settings, base: None, next, pages: None, nested: Vec::new() })
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
        let nested = restore::build(device, child, &mut stored)?;
        let mut checkpointer = Checkpointer::new(device, child, settings)?;
        checkpointer.nested = nested;
        if checkpointer.settings.interval.is_some() {
            // The nested cells have no base: their memory is built anew.
            let snapshots = vec![device.clone_cell(child, checkpointer.settings.memory, 0)?];
            let (image, files) = (stored.image().clone(), stored.ranges());
            checkpointer.base = Some(Arc::new(Base { snapshots, image, files, next_page: stored.next_page(), known: HashMap::new() }));
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
        restore::start(self.device, std::mem::take(&mut self.nested))?;
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
        let mut attempts_left = ATTEMPTS;
        // When the halt for a checkpoint was requested.
        let mut halted_since: Option<Instant> = None;
        loop {
            // Forgotten first: an event that comes from now on is not lost.
            self.device.forget_events()?;
            while woken.read(&mut [0; 16]).is_ok_and(|count| count > 0) {}
            if interrupted.swap(false, Ordering::Relaxed) {
                self.device.raise(self.child, Event::Interrupt, 0)?;
            }
            if let Some(finished) = writing.as_ref().and_then(|writing| writing.try_recv().ok()) {
                writing = None;
                self.note_finished(finished, report);
            }
            let now = Instant::now();
            let served = self.serve_halt(&mut halted_since)?;
            let was_served = served.is_some();
            match served {
                Some(Ok(snapshot)) => {
                    attempts_left = ATTEMPTS;
                    writing = Some(self.start_writing(scope, snapshot, waker)?);
                }
                // Only for a moment.
                Some(Err(error)) if error.kind() == ErrorKind::WouldBlock && attempts_left > 0 => {
                    attempts_left -= 1;
                    due = now.checked_add(ATTEMPT_PAUSE);
                }
                Some(Err(error)) => {
                    attempts_left = ATTEMPTS;
                    report(CheckpointEvent::Failed { number: self.next, error: &error });
                }
                None => {}
            }
            if due.is_some_and(|due| due <= now) && writing.is_none() && halted_since.is_none() {
                due = self.settings.interval.and_then(|interval| now.checked_add(interval));
                halted_since = Some(now);
                self.device.halt(self.child)?;
            }
            // After the child was resumed: whether a halted one wants input is not known, and it may make no further event.
            input.pass_on(self.device, self.child)?;
            // The output of a child that is halted for a checkpoint comes before the checkpoint.
            if output::pass_on(self.device, self.child, OutputStream::Output)? {
                return self.device.state(self.child);
            }
            // Events came while nested cells were halted.
            if was_served {
                continue;
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
        let served = self.serve_halt_of(child, halted_since);
        Ok(child.unless_ended(served)?.flatten())
    }

    fn serve_halt_of(&mut self, child: WatchedChild<'_>, halted_since: &mut Option<Instant>) -> Result<Option<Result<Snapshot>>> {
        let Some(reason) = child.reason_if_halted()? else { return Ok(None) };
        match reason {
            HaltReason::Taken { space, address, number } => {
                let pages = self.pages.as_mut().ok_or_else(|| {
                    Error::other(format!("the program needs stored page {number}, but it was not restored from a checkpoint"))
                })?;
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
                let cells = since.map(|since| (since, self.clone_family()));
                self.device.resume(self.child, resume::CONTINUE)?;
                Ok(cells.map(|(since, cells)| Ok(Snapshot { cells: cells?, pause: since.elapsed() })))
            }
        }
    }

    /// Clones the halted child and all cells below it.
    fn clone_family(&self) -> Result<Vec<(MemberRecord, HoldingName)>> {
        HaltedFamily::halt(self.device, self.child, self.settings.memory)?.clone_cells()
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
        let (mut waker, keep) = (waker.try_clone()?, self.settings.keep);
        self.next += 1;
        thread::Builder::new().name("checkpoint".into()).spawn_scoped(scope, move || {
            let writer = SnapshotWriter { device, directory: &directory, requirements, keep };
            let result = writer.write(&snapshot.cells, base.as_deref(), number);
            let removed = keep.filter(|_| result.is_ok()).map_or(Ok(()), |keep| directory.remove_older(keep));
            // Nobody waits for it any more once the program has ended.
            let _ = sender.send(WriteResult { number, snapshot, result, removed });
            let _ = waker.write_all(&[0]);
        })?;
        Ok(receiver)
    }

    /// Keeps the snapshot of a complete checkpoint as the base of the next one.
    fn note_finished(&mut self, finished: WriteResult, report: EventSink<'_>) {
        let WriteResult { number, snapshot: Snapshot { cells, pause }, result, removed } = finished;
        if let Err(error) = removed {
            report(CheckpointEvent::NotRemoved { error: &error });
        }
        let unused: Vec<HoldingName> = match result {
            Ok((base, size)) => {
                report(CheckpointEvent::Written { number, size, pause });
                self.base.replace(Arc::new(base)).map(|base| base.snapshots.clone()).unwrap_or_default()
            }
            Err(error) => {
                report(CheckpointEvent::Failed { number, error: &error });
                cells.into_iter().map(|(_, cell)| cell).collect()
            }
        };
        // One that cannot be given up takes memory, and hinders nothing else.
        unused.into_iter().for_each(|unused| drop(self.device.give_up(unused)));
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
