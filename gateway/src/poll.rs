// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for many descriptors at once, and being woken from another thread.

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::{Errno, write};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) use epoll::EventFlags as Ready;

/// Events that are taken at a time.
const EVENTS: usize = 256;
/// Nobody waits longer without looking around.
const LONG: Duration = Duration::from_secs(3600);

/// What a descriptor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// Who wakes the gateway.
    Waker,
    /// A forward of TCP.
    Listener(u32),
    /// A forward of UDP.
    Datagrams(u32),
    /// A connection.
    Splice(u32),
    /// A conversation by datagrams.
    Flow(u32),
    /// A question to a resolver.
    Question(u32),
}

impl Token {
    fn to_bits(self) -> u64 {
        let (kind, index) = match self {
            Token::Waker => (0, 0),
            Token::Listener(index) => (1, index),
            Token::Datagrams(index) => (2, index),
            Token::Splice(index) => (3, index),
            Token::Flow(index) => (4, index),
            Token::Question(index) => (5, index),
        };
        kind << 32 | u64::from(index)
    }

    fn from_bits(bits: u64) -> Token {
        let index = bits as u32;
        match bits >> 32 {
            1 => Token::Listener(index),
            2 => Token::Datagrams(index),
            3 => Token::Splice(index),
            4 => Token::Flow(index),
            5 => Token::Question(index),
            _ => Token::Waker,
        }
    }
}

/// What waits.
#[derive(Debug)]
pub(crate) struct Poll {
    epoll: OwnedFd,
}

impl Poll {
    pub(crate) fn new() -> io::Result<Poll> {
        Ok(Poll { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Listens to a descriptor until it is closed.
    pub(crate) fn add(&self, descriptor: impl AsFd, token: Token, ready: Ready) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(token.to_bits()), ready)?)
    }

    /// Waits until something is ready, or so long, and says what.
    pub(crate) fn wait(&self, most: Option<Duration>) -> io::Result<Vec<(Token, Ready)>> {
        let mut room = [const { MaybeUninit::uninit() }; EVENTS];
        // To be early means to come again for nothing.
        let most = most.map(|most| most.min(LONG).as_nanos().div_ceil(1_000_000) as i64);
        let most = most.map(|millis| Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 });
        match epoll::wait(&self.epoll, &mut room, most.as_ref()) {
            Ok((events, _)) => Ok(events.iter().map(|event| (Token::from_bits(event.data.u64()), event.flags)).collect()),
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Wakes a gateway, from any thread, and stops it.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    event: OwnedFd,
    /// It was woken and has not looked yet.
    woken: AtomicBool,
    stopped: AtomicBool,
}

impl Handle {
    pub(crate) fn new() -> io::Result<Handle> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Handle { shared: Arc::new(Shared { event, woken: AtomicBool::new(false), stopped: AtomicBool::new(false) }) })
    }

    /// What is ready to be read, and written once more, whenever somebody was woken.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }

    /// Tells the gateway that frames wait for it. Costs a system call at most, and never blocks.
    pub fn wake(&self) {
        if !self.shared.woken.swap(true, Ordering::SeqCst) {
            // It has as much room as nobody can fill.
            let _ = write(&self.shared.event, &1_u64.to_ne_bytes());
        }
    }

    /// Makes the gateway deliver what it has and return.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Whether it shall stop. From here on it needs to be woken again.
    pub(crate) fn look(&self) -> bool {
        self.shared.woken.store(false, Ordering::SeqCst);
        self.shared.stopped.load(Ordering::SeqCst)
    }
}
