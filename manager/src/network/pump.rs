// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pump: forwards frames between a network of the kernel and a gateway's process, and replaces a gateway that is lost.
//!
//! A gateway hangs if it was woken and has not looked at its flags for some seconds. The pump also wakes a gateway to which the
//! cell sends nothing, every few seconds: otherwise one that hangs would never be noticed, and clients of a server in the cell
//! would wait for ever. The process of a gateway that hangs, or breaks the rules of the ring, is killed. Another gateway
//! replaces it, also if the process ended by itself, a few times for each cell. After that, the cell goes on without an uplink.
//! Every wait for a gateway has a limit.

use super::error::StartError;
use super::launcher::{GatewayLink, Launcher};
use super::messages::{GatewayConfig, GatewayMessage, receive_message, try_send_message};
use super::random;
use super::uplink::Uplink;
use crate::report::{Reporter, Warning};
use pando_abi::frame::ETHERNET_HEADER;
use pando_gateway::{DirectoryAnswer, FramePort, GatewayReport, PortForward, RefusedDestination};
use pando_kernel::network::address::Addresses;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, write};
use rustix::net::RecvFlags;
use std::io;
use std::net::SocketAddr;
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
/// How often the pump wakes a gateway to check that it answers. Each check costs an idle cell a few system calls.
const PROBE: Duration = Duration::from_secs(5);
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
/// After this time without a loss, a gateway that many cells share may be replaced as often again.
const REPLACEMENTS_TIME: Duration = Duration::from_secs(600);

/// The reason for ending a gateway that breaks the protocol.
const INVALID_MESSAGE: &str = "it sent an invalid message";

/// The names of cells, for a gateway that leads clients to them by name.
pub trait CellDirectory: Send + Sync {
    /// The address at which the cell of this name serves, or the reason why there is none, for the client.
    ///
    /// # Errors
    /// There is no such cell.
    fn find(&self, name: &str) -> Result<SocketAddr, String>;
}

/// A handle that wakes and stops a pump, from any thread.
pub struct PumpWaker {
    /// The eventfd on which the pump waits. The gateway's process has it too.
    event: Mutex<Arc<OwnedFd>>,
    /// The pump was woken and has not looked since.
    woken: AtomicBool,
    stopped: AtomicBool,
}

impl PumpWaker {
    fn new(event: &Arc<OwnedFd>) -> PumpWaker {
        PumpWaker { event: Mutex::new(Arc::clone(event)), woken: AtomicBool::new(false), stopped: AtomicBool::new(false) }
    }

    /// Notifies the pump of pending frames. Costs at most one system call, and never blocks.
    pub fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            // The counter of an eventfd is too large to overflow.
            let _ = write(&**self.event.lock().unwrap_or_else(PoisonError::into_inner), &1_u64.to_ne_bytes());
        }
    }

    /// Makes the gateway deliver its pending data, and the pump end.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Returns whether the pump must end. After this call, the next wakeup writes to the eventfd again.
    fn poll(&self) -> bool {
        self.woken.store(false, Ordering::SeqCst);
        self.stopped.load(Ordering::SeqCst)
    }
}

/// A gateway that was started and is not connected to a network yet.
pub struct StartedGateway {
    launcher: Arc<Launcher>,
    config: GatewayConfig,
    link: GatewayLink,
    event: Arc<OwnedFd>,
    waker: Arc<PumpWaker>,
}

impl StartedGateway {
    /// Starts a gateway.
    ///
    /// # Errors
    /// A port forward cannot listen, or the host has no process or descriptor for it.
    pub(super) fn start(launcher: &Arc<Launcher>, config: GatewayConfig) -> Result<StartedGateway, StartError> {
        let link = launcher.start_gateway(&config)?;
        let event = Arc::new(link.own.try_clone()?);
        let waker = Arc::new(PumpWaker::new(&event));
        Ok(StartedGateway { launcher: Arc::clone(launcher), config, link, event, waker })
    }

    /// A handle that wakes and stops the pump.
    pub fn waker(&self) -> Arc<PumpWaker> {
        Arc::clone(&self.waker)
    }

    /// The port forwards for which the launcher listens.
    pub fn forwards(&self) -> &[PortForward] {
        &self.link.forwards
    }

    /// The address of its virtual hosts.
    pub fn virtual_hosts(&self) -> Option<SocketAddr> {
        self.link.virtual_hosts
    }

    /// The pump between the gateway and a network with this router; `program` is the cell's program, for warnings.
    pub fn pump(self, uplink: Uplink, program: String, router: Addresses, reporter: Reporter) -> Pump {
        let StartedGateway { launcher, config, link, event, waker } = self;
        let (directory, lost) = (None, None);
        let link = Some(link);
        Pump { launcher, config, link, event, waker, uplink, waiting: None, directory, program, router, reporter, replaced: 0, lost }
    }
}

/// Forwards frames between a cell and its gateway's process.
pub struct Pump {
    launcher: Arc<Launcher>,
    config: GatewayConfig,
    link: Option<GatewayLink>,
    event: Arc<OwnedFd>,
    waker: Arc<PumpWaker>,
    uplink: Uplink,
    /// A frame that did not fit into the ring.
    waiting: Option<bytes::Bytes>,
    /// The names of the network's cells, if clients reach them by name.
    directory: Option<Arc<dyn CellDirectory>>,
    /// The cell's program, for warnings.
    program: String,
    /// The address of the gateway in the network.
    router: Addresses,
    reporter: Reporter,
    /// How often the gateway was replaced.
    replaced: u32,
    /// When a gateway was last lost.
    lost: Option<Instant>,
}

impl Drop for Pump {
    fn drop(&mut self) {
        if let Some(listeners) = &self.config.listeners {
            self.launcher.close(listeners.id);
        }
    }
}

/// How a gateway ended.
enum GatewayEnd {
    /// As requested.
    Stopped(Box<GatewayReport>),
    /// Unexpectedly, with the reason.
    Lost(String),
}

/// Counts the ticks for which a condition lasts.
#[derive(Default)]
struct TickCounter {
    next: Option<Instant>,
    ticks: u32,
}

impl TickCounter {
    /// Returns the ticks so far; 0 if the condition does not hold.
    fn poll(&mut self, lasts: bool) -> u32 {
        let now = Instant::now();
        match self.next {
            _ if !lasts => *self = TickCounter::default(),
            None => self.next = Some(now + TICK),
            Some(next) if now >= next => *self = TickCounter { next: Some(now + TICK), ticks: self.ticks + 1 },
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
    /// A handle that wakes and stops the pump.
    pub fn waker(&self) -> Arc<PumpWaker> {
        Arc::clone(&self.waker)
    }

    /// The pump of a gateway that leads clients to cells by name.
    pub fn with_directory(mut self, directory: Arc<dyn CellDirectory>) -> Pump {
        self.directory = Some(directory);
        self
    }

    /// Forwards frames until it is stopped, and returns the last gateway's report.
    ///
    /// # Errors
    /// The gateway did not stop as requested.
    pub fn run(mut self) -> io::Result<GatewayReport> {
        while let Some(mut link) = self.link.take() {
            let reason = match self.serve(&mut link) {
                GatewayEnd::Stopped(report) => return Ok(*report),
                GatewayEnd::Lost(reason) => reason,
            };
            // This makes the launcher kill its process.
            drop(link);
            if self.waker.poll() {
                return Err(io::Error::other(reason));
            }
            match self.replace() {
                Ok(()) => self.reporter.warn(Warning::GatewayReplaced { program: self.program.clone(), reason }),
                Err(error) => self.reporter.warn(Warning::GatewayLost { program: self.program.clone(), reason, error }),
            }
        }
        self.idle();
        Ok(GatewayReport::default())
    }

    /// Reports a destination that the gateway refuses.
    fn warn_refused(&self, refused: RefusedDestination) {
        self.reporter.warn(Warning::Refused { program: self.program.clone(), router: self.router, refused });
    }

    /// Starts another gateway.
    fn replace(&mut self) -> io::Result<()> {
        let is_long_ago = self.lost.replace(Instant::now()).is_some_and(|lost| lost.elapsed() >= REPLACEMENTS_TIME);
        if is_long_ago && self.directory.is_some() {
            self.replaced = 0;
        }
        if self.replaced == REPLACEMENTS {
            return Err(io::Error::other("too many were lost; start the cell again"));
        }
        self.replaced += 1;
        self.config.addresses.seed = random()?;
        let link = self.launcher.start_gateway(&self.config).map_err(|error| match error {
            StartError::NotListening(reason) => io::Error::other(reason),
            StartError::Host(error) => error,
        })?;
        self.event = Arc::new(link.own.try_clone()?);
        *self.waker.event.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&self.event);
        self.link = Some(link);
        Ok(())
    }

    /// Drops the cell's frames until the pump is stopped.
    fn idle(&mut self) {
        self.waiting = None;
        while !self.waker.poll() {
            while self.uplink.receive().is_some() {}
            let mut watched = [PollFd::new(&self.event, PollFlags::IN)];
            if poll(&mut watched, None).is_ok() {
                clear(&self.event);
            }
        }
    }

    /// Forwards frames between the network and one gateway, until the gateway ends.
    fn serve(&mut self, link: &mut GatewayLink) -> GatewayEnd {
        let (mut hanging, mut stopping, mut is_stop_requested, mut turn, mut messages) =
            (TickCounter::default(), TickCounter::default(), false, 0_u32, 0);
        let mut probed = Instant::now();
        loop {
            let stopped = self.waker.poll();
            link.rings.poll();
            if stopped && !is_stop_requested {
                link.rings.stop();
                is_stop_requested = true;
                link.wake();
            }
            if probed.elapsed() >= PROBE {
                probed = Instant::now();
                link.wake();
            }
            let given = self.forward_to_gateway(link);
            let taken = match self.forward_to_cell(link) {
                Ok(taken) => taken,
                Err(error) => return GatewayEnd::Lost(error.to_string()),
            };
            if hanging.poll(link.rings.is_wakeup_pending()) >= HANG_TICKS {
                return GatewayEnd::Lost("it did not answer, and its process was ended".into());
            }
            if stopping.poll(is_stop_requested) >= STOP_TICKS {
                return GatewayEnd::Lost("it did not stop in time, and its process was ended".into());
            }
            turn = turn.wrapping_add(1);
            let is_busy = given || taken == ForwardOutcome::Some;
            if is_busy && !turn.is_multiple_of(TURNS) {
                continue;
            }
            let timeout = match taken {
                _ if is_busy => Some(Duration::ZERO),
                ForwardOutcome::Full => Some(FULL),
                _ if link.rings.is_wakeup_pending() || is_stop_requested => Some(TICK),
                _ => Some(PROBE),
            };
            match self.wait(link, timeout) {
                Ok(false) => {}
                Ok(true) if messages == MESSAGES => return GatewayEnd::Lost("it sends too many messages".into()),
                Ok(true) => match self.receive_message(link) {
                    Ok(is_report) => messages += u32::from(is_report),
                    Err(end) => return end,
                },
                Err(error) => return GatewayEnd::Lost(error.to_string()),
            }
        }
    }

    /// Forwards frames of the cell to the gateway. Returns whether there were any.
    fn forward_to_gateway(&mut self, link: &mut GatewayLink) -> bool {
        let mut given = 0;
        while given < FRAMES
            && let Some(frame) = self.waiting.take().or_else(|| self.uplink.receive())
        {
            if !link.rings.send(&frame) {
                self.waiting = Some(frame);
                break;
            }
            given += 1;
        }
        if given > 0 || self.waiting.is_some() {
            link.wake();
        }
        given > 0
    }

    /// Forwards frames of the gateway to the cell, until the cell's queue is full.
    fn forward_to_cell(&mut self, link: &mut GatewayLink) -> io::Result<ForwardOutcome> {
        let mut taken = ForwardOutcome::Nothing;
        for _ in 0..FRAMES {
            let Some(length) = link.rings.next_length().map_err(io::Error::other)? else { break };
            if length < ETHERNET_HEADER {
                return Err(io::Error::other("it sent something that is no frame"));
            }
            if !self.uplink.has_room() {
                taken = if taken == ForwardOutcome::Nothing { ForwardOutcome::Full } else { taken };
                break;
            }
            self.uplink.send(length, |place| link.rings.receive(place));
            taken = ForwardOutcome::Some;
        }
        self.uplink.flush();
        if link.rings.peer_waits_for_space() {
            link.wake();
        }
        Ok(taken)
    }

    /// Waits until the pump is woken or `timeout` has passed. Returns whether the gateway has sent a message.
    fn wait(&self, link: &GatewayLink, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() });
        let mut watched = [PollFd::new(&self.event, PollFlags::IN), PollFd::new(&link.control, PollFlags::IN)];
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [is_woken, has_sent] = watched.each_ref().map(|watched| !watched.revents().is_empty());
        if is_woken {
            clear(&self.event);
        }
        Ok(has_sent)
    }

    /// Reads a message of the gateway. Returns whether it is one of a limited number of reports.
    ///
    /// # Errors
    /// The gateway has ended.
    fn receive_message(&mut self, link: &mut GatewayLink) -> Result<bool, GatewayEnd> {
        match receive_message(&link.control, RecvFlags::DONTWAIT) {
            Ok(Some(GatewayMessage::Refused(refused))) => self.warn_refused(refused),
            Ok(Some(GatewayMessage::Lookup { query, name })) => return self.find(link, query, &name).map(|()| false),
            Ok(Some(GatewayMessage::Stopped(report))) => {
                // Forward the frames that it sent before this message.
                let _ = self.forward_to_cell(link);
                return Err(if self.waker.poll() { GatewayEnd::Stopped(report) } else { GatewayEnd::Lost("it stopped by itself".into()) });
            }
            Ok(Some(GatewayMessage::Failed(why) | GatewayMessage::Ended(why))) => return Err(GatewayEnd::Lost(why)),
            Ok(None) => return Err(GatewayEnd::Lost("the process that starts gateways has ended".into())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(GatewayEnd::Lost(INVALID_MESSAGE.into())),
        }
        Ok(true)
    }

    /// Answers a request for the address of a cell.
    fn find(&self, link: &GatewayLink, query: u64, name: &str) -> Result<(), GatewayEnd> {
        let Some(directory) = &self.directory else { return Err(GatewayEnd::Lost(INVALID_MESSAGE.into())) };
        let answer = DirectoryAnswer { query, found: directory.find(name) };
        // It requests no more than fits into the socket's buffer.
        try_send_message(&link.control, &answer).map_err(|error| GatewayEnd::Lost(format!("it does not read answers: {error}")))
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
    use super::{TICK, TickCounter};

    #[test]
    fn ticks_count_while_a_condition_lasts() {
        let mut clock = TickCounter::default();
        assert_eq!(clock.poll(true), 0);
        let long_ago = |clock: &mut TickCounter| clock.next = clock.next.and_then(|next| next.checked_sub(100 * TICK));
        long_ago(&mut clock);
        assert_eq!((clock.poll(true), clock.poll(true)), (1, 1), "one, however long it was");
        long_ago(&mut clock);
        assert_eq!((clock.poll(true), clock.poll(false), clock.poll(true)), (2, 0, 0));
    }
}
