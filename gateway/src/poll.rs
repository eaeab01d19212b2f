// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for many descriptors at once, with wakeups from other threads.

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::{Errno, write};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) use epoll::EventFlags as Ready;

/// Events per call.
const MAX_EVENTS: usize = 256;
/// The longest wait.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// The owner of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The wakeup event.
    Waker,
    /// A TCP forward.
    TcpForward(u32),
    /// A UDP forward.
    UdpForward(u32),
    /// A TCP connection.
    Proxy(u32),
    /// A UDP flow.
    Flow(u32),
    /// A DNS query.
    DnsQuery(u32),
    /// The listening socket of virtual hosts.
    VirtualHosts,
    /// A client of virtual hosts.
    VirtualHostClient(u32),
    /// The directory of cells.
    Directory,
}

impl Token {
    fn to_bits(self) -> u64 {
        let (kind, index) = match self {
            Token::Waker => (0, 0),
            Token::TcpForward(index) => (1, index),
            Token::UdpForward(index) => (2, index),
            Token::Proxy(index) => (3, index),
            Token::Flow(index) => (4, index),
            Token::DnsQuery(index) => (5, index),
            Token::VirtualHosts => (6, 0),
            Token::VirtualHostClient(index) => (7, index),
            Token::Directory => (8, 0),
        };
        kind << 32 | u64::from(index)
    }

    fn from_bits(bits: u64) -> Token {
        let index = bits as u32;
        match bits >> 32 {
            1 => Token::TcpForward(index),
            2 => Token::UdpForward(index),
            3 => Token::Proxy(index),
            4 => Token::Flow(index),
            5 => Token::DnsQuery(index),
            6 => Token::VirtualHosts,
            7 => Token::VirtualHostClient(index),
            8 => Token::Directory,
            _ => Token::Waker,
        }
    }
}

/// The epoll instance.
#[derive(Debug)]
pub(crate) struct Poll {
    epoll: OwnedFd,
}

impl Poll {
    pub(crate) fn new() -> io::Result<Poll> {
        Ok(Poll { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Watches a descriptor until it is closed.
    pub(crate) fn add(&self, descriptor: impl AsFd, token: Token, ready: Ready) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(token.to_bits()), ready)?)
    }

    /// Ends watching a descriptor that stays open.
    pub(crate) fn remove(&self, descriptor: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, descriptor)?)
    }

    /// Waits until descriptors are ready, or until `timeout` has passed. Returns their events.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<Vec<(Token, Ready)>> {
        let mut room = [const { MaybeUninit::uninit() }; MAX_EVENTS];
        // Rounded up: an early return would only wait again.
        let timeout = timeout.map(|timeout| timeout.min(MAX_WAIT).as_nanos().div_ceil(1_000_000) as i64);
        let timeout = timeout.map(|millis| Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 });
        match epoll::wait(&self.epoll, &mut room, timeout.as_ref()) {
            Ok((events, _)) => Ok(events.iter().map(|event| (Token::from_bits(event.data.u64()), event.flags)).collect()),
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The gateway's side of the handle that wakes and stops it.
pub trait Wakeup {
    /// A descriptor that becomes readable, with a new edge, at each wakeup of the gateway. The gateway does not read it.
    fn event(&self) -> BorrowedFd<'_>;

    /// Returns whether the gateway must stop. After this call, the next wakeup signals the event again.
    fn take_stop_request(&self) -> bool;
}

/// A handle that wakes and stops a gateway, from any thread.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    event: OwnedFd,
    /// It was woken and has not handled that yet.
    is_woken: AtomicBool,
    is_stopping: AtomicBool,
}

impl Handle {
    pub(crate) fn new() -> io::Result<Handle> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Handle { shared: Arc::new(Shared { event, is_woken: AtomicBool::new(false), is_stopping: AtomicBool::new(false) }) })
    }

    /// Notifies the gateway of pending frames. Costs at most one system call, and never blocks.
    pub fn wake(&self) {
        if !self.shared.is_woken.swap(true, Ordering::SeqCst) {
            // The counter cannot overflow.
            let _ = write(&self.shared.event, &1_u64.to_ne_bytes());
        }
    }

    /// Makes the gateway deliver queued data and return.
    pub fn stop(&self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.wake();
    }
}

impl Wakeup for Handle {
    fn event(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }

    fn take_stop_request(&self) -> bool {
        self.shared.is_woken.store(false, Ordering::SeqCst);
        self.shared.is_stopping.load(Ordering::SeqCst)
    }
}
