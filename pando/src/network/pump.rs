// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pump: forwards frames between a network of the kernel and a gateway's process, and replaces a gateway that is lost.
//!
//! A gateway hangs if it was woken and has not looked at its flags for some seconds. The process of a gateway that hangs, or
//! breaks the rules of the ring, is killed. Another gateway replaces it, also if the process ended by itself, a few times for
//! each cell. After that, the cell goes on without an uplink. Every wait for a gateway has a limit.

use super::launcher::{GatewayLink, Launcher};
use super::messages::{GatewayMessage, Order, hear};
use super::{Uplink, random};
use crate::diagnostics;
use pando_abi::frame::ETHERNET_HEADER;
use pando_gateway::{GatewayReport, HostPort, Refused};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, write};
use rustix::net::RecvFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the pump checks whether a gateway answers.
const TICK: Duration = Duration::from_secs(1);
/// Ticks after which a gateway that does not answer hangs. If the process of cells itself was stopped (Ctrl-Z), that counts as one
/// tick, however long it lasted.
const HANG_TICKS: u32 = 5;
/// Ticks that a gateway may take to stop: more than the two seconds in which it delivers its pending data.
const STOP_TICKS: u32 = 4;
/// The wait before the next attempt when the cell's queue is full.
const FULL: Duration = Duration::from_millis(1);
/// Frames that are forwarded in one direction before the other direction has its turn.
const FRAMES: usize = 256;
/// Turns after which messages are read, even if frames are pending.
const TURNS: u32 = 32;
/// The most messages that a gateway may send: a few destinations and names, and its end.
const MESSAGES: u32 = 64;
/// The most replacements of gateways for each cell, because a cell may have found out how to break them.
const REPLACEMENTS: u32 = 4;

/// A handle that wakes and stops a pump, from any thread.
pub(crate) struct Bell {
    /// The eventfd on which the pump waits. The gateway's process has it too.
    event: Mutex<Arc<OwnedFd>>,
    /// The pump was woken and has not looked since.
    woken: AtomicBool,
    stopped: AtomicBool,
}

impl Bell {
    fn new(event: &Arc<OwnedFd>) -> Bell {
        Bell { event: Mutex::new(Arc::clone(event)), woken: AtomicBool::new(false), stopped: AtomicBool::new(false) }
    }

    /// Notifies the pump of pending frames. Costs at most one system call, and never blocks.
    pub(crate) fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            // The counter of an eventfd is too large to overflow.
            let _ = write(&**self.event.lock().unwrap_or_else(PoisonError::into_inner), &1_u64.to_ne_bytes());
        }
    }

    /// Makes the gateway deliver its pending data, and the pump end.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Returns whether the pump must end. After this call, the next wakeup writes to the eventfd again.
    fn look(&self) -> bool {
        self.woken.store(false, Ordering::SeqCst);
        self.stopped.load(Ordering::SeqCst)
    }
}

/// A gateway that was started and is not connected to a network yet.
pub(crate) struct StartedGateway {
    launcher: Arc<Launcher>,
    order: Order,
    line: GatewayLink,
    event: Arc<OwnedFd>,
    bell: Arc<Bell>,
}

impl StartedGateway {
    /// Starts a gateway.
    ///
    /// # Errors
    /// The host has no process or descriptor for it.
    pub(crate) fn start(launcher: &Arc<Launcher>, order: Order) -> io::Result<StartedGateway> {
        let line = launcher.start_gateway(&order)?;
        let event = Arc::new(line.own.try_clone()?);
        let bell = Arc::new(Bell::new(&event));
        Ok(StartedGateway { launcher: Arc::clone(launcher), order, line, event, bell })
    }

    /// A handle that wakes and stops the pump.
    pub(crate) fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// The pump between the gateway and a network. It reports refused destinations to `told`; `name` is the cell's name.
    pub(crate) fn pump(self, plug: Uplink, name: String, told: impl FnMut(Refused) + Send + 'static) -> Pump {
        let StartedGateway { launcher, order, line, event, bell } = self;
        Pump { launcher, order, line: Some(line), event, bell, plug, waiting: None, name, told: Box::new(told), replaced: 0 }
    }
}

/// Forwards frames between a cell and its gateway's process.
pub(crate) struct Pump {
    launcher: Arc<Launcher>,
    order: Order,
    line: Option<GatewayLink>,
    event: Arc<OwnedFd>,
    bell: Arc<Bell>,
    plug: Uplink,
    /// A frame that did not fit into the ring.
    waiting: Option<bytes::Bytes>,
    /// The cell's name, for messages.
    name: String,
    told: Box<dyn FnMut(Refused) + Send>,
    /// How often the gateway was replaced.
    replaced: u32,
}

/// How a gateway ended.
enum End {
    /// As requested.
    Stopped(Box<GatewayReport>),
    /// Unexpectedly, with the reason.
    Lost(String),
}

/// Counts the ticks for which a condition lasts.
#[derive(Default)]
struct Clock {
    next: Option<Instant>,
    ticks: u32,
}

impl Clock {
    /// Returns the ticks so far; 0 if the condition does not hold.
    fn look(&mut self, lasts: bool) -> u32 {
        let now = Instant::now();
        match self.next {
            _ if !lasts => *self = Clock::default(),
            None => self.next = Some(now + TICK),
            Some(next) if now >= next => *self = Clock { next: Some(now + TICK), ticks: self.ticks + 1 },
            Some(_) => {}
        }
        self.ticks
    }
}

/// The outcome of one turn of forwarding frames to the cell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ForwardOutcome {
    /// No frame was pending.
    Nothing,
    /// Some frames were forwarded.
    Some,
    /// The cell's queue was full.
    Full,
}

impl Pump {
    /// Forwards frames until it is stopped, and returns the last gateway's report.
    ///
    /// # Errors
    /// The gateway did not stop as requested.
    pub(crate) fn run(mut self) -> io::Result<GatewayReport> {
        while let Some(mut line) = self.line.take() {
            let why = match self.lead(&mut line) {
                End::Stopped(report) => return Ok(*report),
                End::Lost(why) => why,
            };
            // This makes the launcher kill its process.
            drop(line);
            if self.bell.look() {
                return Err(io::Error::other(why));
            }
            match self.replace() {
                Ok(()) => diagnostics::problem(&format_args!(
                    "{}: the gateway was lost: {why}; connections through it are lost too, and another takes its place",
                    self.name
                )),
                Err(error) => diagnostics::problem(&format_args!(
                    "{}: the gateway was lost: {why}; the cell goes on without a way out of its network: {error}",
                    self.name
                )),
            }
        }
        self.idle();
        Ok(GatewayReport::default())
    }

    /// Starts another gateway.
    fn replace(&mut self) -> io::Result<()> {
        if self.replaced == REPLACEMENTS {
            return Err(io::Error::other("too many were lost; start the cell again"));
        }
        self.replaced += 1;
        self.order.inside.seed = random()?;
        let line = self.launcher.start_gateway(&self.order)?;
        self.event = Arc::new(line.own.try_clone()?);
        *self.bell.event.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&self.event);
        self.line = Some(line);
        Ok(())
    }

    /// Drops the cell's frames until the pump is stopped.
    fn idle(&mut self) {
        self.waiting = None;
        while !self.bell.look() {
            while self.plug.receive().is_some() {}
            let mut watched = [PollFd::new(&self.event, PollFlags::IN)];
            if poll(&mut watched, None).is_ok() {
                clear(&self.event);
            }
        }
    }

    /// Forwards frames between the network and one gateway, until the gateway ends.
    fn lead(&mut self, line: &mut GatewayLink) -> End {
        let (mut hanging, mut stopping, mut is_told, mut turn, mut messages) = (Clock::default(), Clock::default(), false, 0_u32, 0);
        loop {
            let stopped = self.bell.look();
            line.rings.look();
            if stopped && !is_told {
                line.rings.stop();
                is_told = true;
                line.wake();
            }
            let given = self.give(line);
            let taken = match self.take(line) {
                Ok(taken) => taken,
                Err(error) => return End::Lost(error.to_string()),
            };
            if hanging.look(line.rings.is_wakeup_pending()) >= HANG_TICKS {
                return End::Lost("it did not answer, and its process was ended".into());
            }
            if stopping.look(is_told) >= STOP_TICKS {
                return End::Lost("it did not stop in time, and its process was ended".into());
            }
            turn = turn.wrapping_add(1);
            let is_busy = given || taken == ForwardOutcome::Some;
            if is_busy && !turn.is_multiple_of(TURNS) {
                continue;
            }
            let most = match taken {
                _ if is_busy => Some(Duration::ZERO),
                ForwardOutcome::Full => Some(FULL),
                _ => (line.rings.is_wakeup_pending() || is_told).then_some(TICK),
            };
            match self.wait(line, most) {
                Ok(false) => {}
                Ok(true) if messages == MESSAGES => return End::Lost("it sends too many messages".into()),
                Ok(true) => {
                    messages += 1;
                    if let Some(end) = self.hear(line) {
                        return end;
                    }
                }
                Err(error) => return End::Lost(error.to_string()),
            }
        }
    }

    /// Forwards frames of the cell to the gateway. Returns whether there were any.
    fn give(&mut self, line: &mut GatewayLink) -> bool {
        let mut given = 0;
        while given < FRAMES
            && let Some(frame) = self.waiting.take().or_else(|| self.plug.receive())
        {
            if !line.rings.send(&frame) {
                self.waiting = Some(frame);
                break;
            }
            given += 1;
        }
        if given > 0 || self.waiting.is_some() {
            line.wake();
        }
        given > 0
    }

    /// Forwards frames of the gateway to the cell, until the cell's queue is full.
    fn take(&mut self, line: &mut GatewayLink) -> io::Result<ForwardOutcome> {
        let mut taken = ForwardOutcome::Nothing;
        for _ in 0..FRAMES {
            let Some(length) = line.rings.next_length().map_err(io::Error::other)? else { break };
            if length < ETHERNET_HEADER {
                return Err(io::Error::other("it sent something that is no frame"));
            }
            if !self.plug.has_room() {
                taken = if taken == ForwardOutcome::Nothing { ForwardOutcome::Full } else { taken };
                break;
            }
            self.plug.send(length, |place| line.rings.receive(place));
            taken = ForwardOutcome::Some;
        }
        self.plug.flush();
        if line.rings.peer_waits_for_space() {
            line.wake();
        }
        Ok(taken)
    }

    /// Waits until the pump is woken or `most` has passed. Returns whether the gateway has sent a message.
    fn wait(&self, line: &GatewayLink, most: Option<Duration>) -> io::Result<bool> {
        let most = most.map(|most| Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() });
        let mut watched = [PollFd::new(&self.event, PollFlags::IN), PollFd::new(&line.control, PollFlags::IN)];
        match poll(&mut watched, most.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [is_woken, has_said] = watched.each_ref().map(|watched| !watched.revents().is_empty());
        if is_woken {
            clear(&self.event);
        }
        Ok(has_said)
    }

    /// Reads a message of the gateway. Returns its end, if it has ended.
    fn hear(&mut self, line: &mut GatewayLink) -> Option<End> {
        match hear(&line.control, RecvFlags::DONTWAIT) {
            Ok(Some(GatewayMessage::Refused(refused))) => (self.told)(refused),
            Ok(Some(GatewayMessage::Stopped(report))) => {
                // Forward the frames that it sent before this message.
                let _ = self.take(line);
                return Some(if self.bell.look() { End::Stopped(report) } else { End::Lost("it stopped by itself".into()) });
            }
            Ok(Some(GatewayMessage::Failed(why) | GatewayMessage::Ended(why))) => return Some(End::Lost(why)),
            Ok(None) => return Some(End::Lost("the process that starts gateways has ended".into())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Some(End::Lost("it sent a message that makes no sense".into())),
        }
        None
    }
}

impl GatewayLink {
    /// Wakes the gateway, if it was not woken since it last looked.
    fn wake(&self) {
        if self.rings.must_wake() {
            // The counter of an eventfd is too large to overflow.
            let _ = write(&self.gateway, &1_u64.to_ne_bytes());
        }
    }
}

/// Resets an eventfd, so that the next poll waits for a write.
fn clear(event: impl AsFd) {
    // The number of wakeups does not matter.
    let _ = read(event, &mut [0; 8]);
}

#[cfg(test)]
mod tests {
    use super::{Clock, TICK};

    #[test]
    fn what_does_not_last_has_no_ticks() {
        let mut clock = Clock::default();
        assert_eq!(clock.look(true), 0);
        let long_ago = |clock: &mut Clock| clock.next = clock.next.and_then(|next| next.checked_sub(100 * TICK));
        long_ago(&mut clock);
        assert_eq!((clock.look(true), clock.look(true)), (1, 1), "one, however long it was");
        long_ago(&mut clock);
        assert_eq!((clock.look(true), clock.look(false), clock.look(true)), (2, 0, 0));
    }
}
