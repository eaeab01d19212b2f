// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop of a checkpointer while its child runs: streams, halts, pages, checkpoints and moves.

use super::migration::{MovedFamily, Peer, serve_pages};
use super::moving::MoveAttempt;
use super::page_source::PageSource;
use super::snapshot::{Base, CheckpointSize};
use super::{CheckpointEvent, Checkpointer, EventSink, ProgramEnd, Snapshot};
use crate::input::ProgramInput;
use crate::output::{self, OutputStream};
use crate::watched_cell::StateAccess;
use crate::watched_child::WatchedChild;
use pando_abi::Event;
use pando_abi::watch::{HaltReason, resume};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::Scope;
use std::time::{Duration, Instant};

/// How often a checkpoint or a move is tried again if a nested cell is in a state that soon changes.
const ATTEMPTS: u32 = 50;
/// The time until it is tried again.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(20);

/// The time until it is looked again whether there is memory.
const MEMORY_INTERVAL: Duration = Duration::from_millis(100);

/// The result of the work on a checkpoint.
pub(super) struct WriteResult {
    pub(super) number: u32,
    pub(super) snapshot: Snapshot,
    pub(super) result: Result<(Base, CheckpointSize)>,
    /// The result of the removal of older checkpoints.
    pub(super) removed: Result<()>,
}

/// The outcome of a halt of the child that was served.
enum ServedHalt {
    /// It was halted for a page, or for pages that have come.
    Pages,
    /// It was halted for a checkpoint.
    Snapshot(Result<Snapshot>),
    /// It was halted for a move.
    Move(MoveAttempt),
}

/// The reasons for which the child is to be halted, and the work on its last checkpoint.
struct Requests {
    /// The time of the next checkpoint.
    due: Option<Instant>,
    /// When the halt for a checkpoint was requested.
    checkpoint_since: Option<Instant>,
    writing: Option<Receiver<WriteResult>>,
    /// Processes that ask for the program.
    peers: Option<Receiver<Peer>>,
    /// The one that gets it, and the time from which on it is tried.
    peer: Option<(Peer, Instant)>,
    attempts_left: u32,
    /// A halt was requested, and the child was not resumed since.
    is_halt_requested: bool,
    /// The loss of pages was reported.
    is_loss_reported: bool,
}

impl<'a> Checkpointer<'a> {
    pub(super) fn serve<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        interrupted: &AtomicBool,
        (mut woken, waker): (&UnixStream, &UnixStream),
        peers: Option<Receiver<Peer>>,
        report: EventSink<'_>,
    ) -> Result<ProgramEnd>
    where
        'a: 'scope,
    {
        let (mut input, stdin) = (ProgramInput::Unwanted, std::io::stdin());
        let mut requests = Requests {
            due: self.settings.interval.and_then(|interval| Instant::now().checked_add(interval)),
            checkpoint_since: None,
            writing: None,
            peers,
            peer: None,
            attempts_left: ATTEMPTS,
            is_halt_requested: false,
            is_loss_reported: false,
        };
        loop {
            // Forgotten first: an event that comes from now on is not lost.
            self.device.forget_events()?;
            while woken.read(&mut [0; 16]).is_ok_and(|count| count > 0) {}
            if interrupted.swap(false, Ordering::Relaxed) {
                self.device.raise(self.child, Event::Interrupt, 0)?;
            }
            if let Some(finished) = requests.writing.as_ref().and_then(|writing| writing.try_recv().ok()) {
                requests.writing = None;
                self.note_finished(finished, report);
            }
            // First: the program may end at once, because it needs a page that has not come.
            self.report_loss(&mut requests, report);
            let served = self.serve_halt(&mut requests)?;
            let was_served = served.is_some();
            match served {
                Some(ServedHalt::Snapshot(snapshot)) => {
                    if let Some(snapshot) = requests.note_attempt(self.next, snapshot, report) {
                        requests.writing = Some(self.start_writing(scope, snapshot, waker)?);
                    }
                }
                Some(ServedHalt::Move(attempt)) => {
                    if let Some((destination, moved)) = requests.note_move(attempt, report)? {
                        return self.send_pages(destination, moved, interrupted, report);
                    }
                }
                Some(ServedHalt::Pages) | None => {}
            }
            self.request_halt(&mut requests)?;
            // After the child was resumed: whether a halted one wants input is not known, and it may make no further event.
            input.pass_on(self.device, self.child)?;
            // The output of a child that is halted for a checkpoint comes before the checkpoint.
            if output::pass_on(self.device, self.child, OutputStream::Output)? {
                return self.device.state(self.child).map(ProgramEnd::Ended);
            }
            // Events came while nested cells were halted.
            if was_served {
                continue;
            }
            if self.wait(input.is_open().then_some(&stdin), woken, self.next_time(&requests))? {
                input.read(&stdin)?;
            }
        }
    }

    /// Reports once that pages are lost.
    fn report_loss(&self, requests: &mut Requests, report: EventSink<'_>) {
        if let Some(reason) = self.pages.as_ref().and_then(|pages| pages.store.lost()).filter(|_| !requests.is_loss_reported) {
            report(CheckpointEvent::PagesLost { reason });
            requests.is_loss_reported = true;
        }
    }

    /// Serves the halt of the child, if it is halted. `None`: it is not, or waits for a page.
    fn serve_halt(&mut self, requests: &mut Requests) -> Result<Option<ServedHalt>> {
        let child = WatchedChild { device: self.device, name: self.child };
        let served = self.serve_halt_of(child, requests);
        Ok(child.unless_ended(served)?.flatten())
    }

    fn serve_halt_of(&mut self, child: WatchedChild<'_>, requests: &mut Requests) -> Result<Option<ServedHalt>> {
        let Some(reason) = child.reason_if_halted()? else { return Ok(None) };
        let needed = if let HaltReason::Taken { space, address, number } = reason { Some((space, address, number)) } else { None };
        let mut served = ServedHalt::Pages;
        let is_page_given = match needed {
            Some((.., number)) if self.pages.is_none() => {
                return Err(Error::other(format!("the program needs stored page {number}, but it was neither restored nor moved")));
            }
            Some(needed) => self.pages.as_mut().map_or(Ok(true), |pages| pages.give(self.device, self.child, needed))?,
            None => true,
        };
        if let Some(pages) = &mut self.pages {
            pages.give_arrived(self.device, self.child)?;
        }
        if !is_page_given {
            return Ok(None);
        }
        if needed.is_none() {
            if let Some(since) = requests.checkpoint_since.take() {
                let cells = self.clone_family();
                served = ServedHalt::Snapshot(cells.map(|cells| Snapshot { cells, pause: since.elapsed() }));
            } else if let Some((peer, _)) = requests.peer.take() {
                let attempt = self.try_move(peer)?;
                if matches!(attempt, MoveAttempt::Moved { .. } | MoveAttempt::Unknown(_)) {
                    return Ok(Some(ServedHalt::Move(attempt)));
                }
                served = ServedHalt::Move(attempt);
            }
        }
        self.device.resume(self.child, resume::CONTINUE)?;
        requests.is_halt_requested = false;
        Ok(Some(served))
    }

    /// Requests a halt of the child if something is due.
    fn request_halt(&mut self, requests: &mut Requests) -> Result<()> {
        let now = Instant::now();
        if requests.due.is_some_and(|due| due <= now) && requests.is_free() {
            requests.due = self.settings.interval.and_then(|interval| now.checked_add(interval));
            requests.checkpoint_since = Some(now);
        }
        if let Some(mut peer) = requests.peers.as_ref().and_then(|peers| peers.try_recv().ok()) {
            if self.pages.as_ref().is_none_or(|pages| pages.store.is_complete()) {
                requests.attempts_left = ATTEMPTS;
                requests.peer = Some((peer, now));
            } else {
                peer.refuse(&Error::other("the program has moved there a moment ago, and not all of its pages have come: try again later"));
            }
        }
        let wants_move = requests.writing.is_none() && requests.peer.as_ref().is_some_and(|(_, from)| *from <= now);
        let wants_pages = self.pages.as_ref().is_some_and(|pages| pages.store.wants_halt()) && self.has_memory();
        if let Some(pages) = self.pages.as_mut().filter(|pages| pages.has_memory()) {
            pages.store.request_next();
        }
        if (requests.checkpoint_since.is_some() || wants_move || wants_pages) && !requests.is_halt_requested {
            requests.is_halt_requested = true;
            self.device.halt(self.child)?;
        }
        Ok(())
    }

    /// Whether there is memory for pages that the program does not wait for.
    fn has_memory(&self) -> bool {
        self.pages.as_ref().is_none_or(PageSource::has_memory)
    }

    /// Sends the pages of the program that has moved.
    fn send_pages(
        &mut self,
        destination: String,
        moved: MovedFamily,
        interrupted: &AtomicBool,
        report: EventSink<'_>,
    ) -> Result<ProgramEnd> {
        let store = self.pages.as_mut().map(|pages| &mut *pages.store);
        let mut on_wake = || {
            if interrupted.swap(false, Ordering::Relaxed) {
                report(CheckpointEvent::InterruptedWhileSending { destination: &destination });
            }
        };
        let pages = serve_pages(self.device, moved, store, &mut on_wake).map_err(|error| {
            let text =
                format!("the program has moved to {destination}, and the connection broke before all of its pages were sent: {error}");
            Error::new(error.kind(), text)
        })?;
        Ok(ProgramEnd::Moved { destination, pages })
    }

    /// The time at which something is due.
    fn next_time(&self, requests: &Requests) -> Option<Instant> {
        let due = requests.due.filter(|_| requests.is_free());
        let attempt = requests.peer.as_ref().map(|(_, from)| *from).filter(|_| requests.writing.is_none() && !requests.is_halt_requested);
        let page = self.pages.as_ref().and_then(|pages| pages.store.deadline());
        // The program frees memory without an event for this cell.
        let memory = page.filter(|_| !self.has_memory()).map(|_| Instant::now() + MEMORY_INTERVAL);
        [due, attempt, page, memory].into_iter().flatten().min()
    }

    /// Waits for an event of the child, for input, for pages, for the end of the work on a checkpoint, for a process that asks for the
    /// program, or for a time. Returns whether there is input.
    fn wait(&mut self, input: Option<&std::io::Stdin>, woken: &UnixStream, until: Option<Instant>) -> Result<bool> {
        let descriptor = self.pages.as_ref().and_then(|pages| pages.store.descriptor());
        let has_pages = descriptor.is_some();
        let mut polled = vec![PollFd::new(self.device, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        polled.extend(descriptor.map(|pages| PollFd::from_borrowed_fd(pages, PollFlags::IN)));
        polled.extend(input.map(|input| PollFd::new(input, PollFlags::IN)));
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |index: usize| polled.get(index).is_some_and(|source| !source.revents().is_empty());
        let (pages_came, has_input) = (has_pages && is_ready(2), is_ready(2 + usize::from(has_pages)));
        match &mut self.pages {
            Some(pages) if pages_came => pages.store.receive(),
            Some(pages) => pages.store.check_silence(),
            None => {}
        }
        Ok(has_input)
    }
}

impl Requests {
    /// Whether no checkpoint and no move is under way.
    fn is_free(&self) -> bool {
        self.writing.is_none() && self.checkpoint_since.is_none() && self.peer.is_none()
    }

    /// Notes the result of an attempt at a checkpoint. Returns its snapshot.
    fn note_attempt(&mut self, number: u32, snapshot: Result<Snapshot>, report: EventSink<'_>) -> Option<Snapshot> {
        match snapshot {
            Ok(snapshot) => {
                self.attempts_left = ATTEMPTS;
                return Some(snapshot);
            }
            // Only for a moment.
            Err(error) if error.kind() == ErrorKind::WouldBlock && self.attempts_left > 0 => {
                self.attempts_left -= 1;
                self.due = Instant::now().checked_add(ATTEMPT_PAUSE);
            }
            Err(error) => {
                self.attempts_left = ATTEMPTS;
                report(CheckpointEvent::Failed { number, error: &error });
            }
        }
        None
    }

    /// Notes the result of an attempt at a move. Returns the destination and the pages that it needs.
    fn note_move(&mut self, attempt: MoveAttempt, report: EventSink<'_>) -> Result<Option<(String, MovedFamily)>> {
        match attempt {
            MoveAttempt::Moved { destination, moved } => {
                // Nobody else gets it.
                self.peers = None;
                return Ok(Some((destination, *moved)));
            }
            MoveAttempt::TryAgain { peer, .. } if self.attempts_left > 0 => {
                self.attempts_left -= 1;
                self.peer = Some((peer, Instant::now() + ATTEMPT_PAUSE));
            }
            MoveAttempt::TryAgain { mut peer, error } => {
                peer.refuse(&error);
                report(CheckpointEvent::NotMoved { error: &error });
            }
            MoveAttempt::Unknown(error) => return Err(error),
            MoveAttempt::Failed(error) => report(CheckpointEvent::NotMoved { error: &error }),
        }
        Ok(None)
    }
}
