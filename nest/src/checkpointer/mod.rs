// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checkpointer: a monitor that writes the whole state of its child to files at intervals, and restores a child from them in another
//! process.
//!
//! A program can also move to another process: [`MigrationListener`] hands it over, and [`Checkpointer::receive`] takes it.
//!
//! The child is halted only as long as the kernel takes to clone it, whatever its size. The clone never runs: its difference to the clone
//! before is written while the program goes on. A restored child is built from extents. Its pages are entries that name a page of a file,
//! as those of a pager are, so it runs before they are read.

mod directory;
mod family;
mod file;
mod image;
mod image_reader;
mod migration;
mod moving;
mod page_source;
mod page_store;
mod restore;
mod serve;
mod snapshot;

pub use directory::{CheckpointDirectory, StoredCheckpoint};
pub use file::RestoreRequirements;
pub use migration::{MigrationConnection, MigrationListener, MigrationOffer, MigrationToken};
pub use snapshot::CheckpointSize;

use family::HaltedFamily;
use image::{MemberRecord, MemberRunState};
use page_source::PageSource;
use page_store::PageStore;
use pando_abi::HoldingName;
use pando_abi::holding::ChildState;
use pando_machine::CellsDevice;
use serve::WriteResult;
use snapshot::{Base, SnapshotWriter};
use std::collections::HashMap;
use std::io::{Error, Result, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, Scope};
use std::time::Duration;

/// Where checkpoints are written, and how often.
#[derive(Clone, Debug)]
pub struct CheckpointSettings {
    /// The directory. `None`: no checkpoint is written or read.
    pub directory: Option<CheckpointDirectory>,
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
    /// The program has moved here, and runs.
    TakenOver {
        /// The time since it was asked for.
        time: Duration,
    },
    /// The program was not handed over to another process. It goes on here.
    NotMoved {
        /// The reason.
        error: &'a Error,
    },
    /// The connection over which the program has moved here is broken, and pages are missing. The program goes on until it needs one.
    PagesLost {
        /// The reason.
        reason: &'a str,
    },
    /// The program has moved, and Ctrl-C was pressed while the destination still needs pages from here.
    InterruptedWhileSending {
        /// The name of the destination.
        destination: &'a str,
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

/// The end of the work on a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// It has ended, in this state.
    Ended(ChildState),
    /// It has moved to another process.
    Moved {
        /// The name of that process.
        destination: String,
        /// Number of its pages.
        pages: u64,
    },
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
    /// The port at which another process asks for the program.
    listener: Option<MigrationListener>,
}

impl<'a> Checkpointer<'a> {
    /// A checkpointer of a new child, which has not started.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn new(device: &'a CellsDevice, child: HoldingName, settings: CheckpointSettings) -> Result<Checkpointer<'a>> {
        let mut newest = 0;
        if let Some(directory) = &settings.directory {
            directory.remove_unfinished();
            newest = directory.checkpoints()?.first().copied().unwrap_or(0);
        }
        let next = newest
            .checked_add(1)
            .ok_or_else(|| Error::other("the directory has the last possible number of a checkpoint: choose another"))?;
        Ok(Checkpointer { device, child, settings, base: None, next, pages: None, nested: Vec::new(), listener: None })
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
        checkpointer.pages = Some(PageSource::new(Box::new(stored), Vec::new()));
        Ok(checkpointer)
    }

    /// A checkpointer of a child that has not started, and which takes over a program that moves when it runs. `name` is this process's,
    /// for the user of the source.
    ///
    /// # Errors
    /// The source refuses, the kernel refuses the image, or the connection is broken.
    pub fn receive(
        device: &'a CellsDevice,
        child: HoldingName,
        (connection, name): (MigrationConnection, &str),
        settings: CheckpointSettings,
    ) -> Result<Checkpointer<'a>> {
        let mut checkpointer = Checkpointer::new(device, child, settings)?;
        let mut moved = connection.receive(name)?;
        let built = restore::build(device, child, &mut moved);
        let built = built.and_then(|nested| Ok((nested, page_source::places(moved.image(), child)?)));
        let (nested, places) = built.inspect_err(|error| moved.refuse(error))?;
        checkpointer.nested = nested;
        checkpointer.pages = Some(PageSource::new(Box::new(moved), places));
        Ok(checkpointer)
    }

    /// Lets another process ask for the program.
    pub fn listen(&mut self, listener: MigrationListener) {
        self.listener = Some(listener);
    }

    /// The number of pages that a restored program was given so far.
    #[must_use]
    pub fn pages_given(&self) -> u64 {
        self.pages.as_ref().map_or(0, |pages| pages.given)
    }

    /// Runs the child with the streams of this process until it has ended, or has moved. `interrupted` is set by Ctrl-C.
    ///
    /// # Errors
    /// The device does not allow it, a stream failed, a page of a restored program cannot be read, or the connection to the process to
    /// which the program has moved is broken.
    pub fn run(&mut self, interrupted: &AtomicBool, report: EventSink<'_>) -> Result<ProgramEnd> {
        let (woken, waker) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let peers = self.listener.take().map(|listener| listener.start(waker.try_clone()?)).transpose()?;
        self.start()?;
        if let Some(time) = self.pages.as_ref().and_then(|pages| pages.store.time_since_request()) {
            report(CheckpointEvent::TakenOver { time });
        }
        let end = thread::scope(|scope| self.serve(scope, interrupted, (&woken, &waker), peers, report));
        if let Some(pages) = &mut self.pages {
            pages.store.finish();
        }
        end
    }

    /// Starts the child and all cells below it. A program that moves is taken over last, when nothing but the start may fail.
    fn start(&mut self) -> Result<()> {
        if let Some(pages) = &mut self.pages {
            pages.store.take_over()?;
        }
        let started = restore::start(self.device, std::mem::take(&mut self.nested)).and_then(|()| self.device.run(self.child));
        match &mut self.pages {
            Some(pages) => pages.store.confirm_start(started),
            None => started,
        }
    }

    /// Clones the halted child and all cells below it.
    fn clone_family(&self) -> Result<Vec<(MemberRecord, HoldingName)>> {
        HaltedFamily::halt(self.device, self.child, self.settings.memory, None)?.clone_cells()
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
        let requirements = self.settings.requirements.clone();
        let directory = self.settings.directory.clone().ok_or_else(|| Error::other("there is no directory for checkpoints"))?;
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
}
