// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwards messages between a cell and its file servers. Nothing here waits for a server: one that does not answer in time is given up.

use pando_launch::{AnswerSender, FileServers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a server may take for an answer while it has requests: disks may be slow.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// How often a thread looks for requests that the server's socket had no room for.
const INTERVAL: Duration = Duration::from_millis(20);
/// Bytes of requests that wait for a server: a libOS does not send more than a few MiB ahead.
const WAITING_MAX: usize = 64 << 20;
/// Most bytes of a message.
const MESSAGE_MAX: usize = pando_fileserver::MESSAGE_MAX;
/// Bytes that a waiting message is charged with besides its own.
const MESSAGE_COST: usize = 64;
/// Bytes of a `fuse_in_header`.
const IN_HEADER: usize = 40;
/// Bytes before a message: the index of its mount.
const INDEX: usize = 4;
/// The code of the notification that a server is gone, as the libOS knows it.
const END: i32 = 0x5058;
/// Bytes of a `fuse_out_header`.
const OUT_HEADER: usize = 16;
/// The opcodes without an answer: `FUSE_FORGET` and `FUSE_BATCH_FORGET`.
const UNANSWERED: [u32; 2] = [2, 42];

/// The live mounts of a cell, with a connection to each file server.
#[derive(Debug, Default)]
pub struct LiveMounts {
    servers: Vec<Arc<Server>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// The connection to a file server.
#[derive(Debug)]
struct Server {
    socket: OwnedFd,
    queue: Mutex<Queue>,
}

/// The requests to a server.
#[derive(Debug, Default)]
struct Queue {
    /// Those that its socket had no room for. An empty one ends the connection.
    waiting: VecDeque<Vec<u8>>,
    /// Their charge.
    bytes: usize,
    /// Requests that it has not answered.
    unanswered: u64,
    /// How long this process has waited for its next answer: the time of a stop of both processes does not count.
    waited: Duration,
    /// It is given up.
    is_dead: bool,
}

impl LiveMounts {
    pub(super) fn new(sockets: Vec<OwnedFd>) -> LiveMounts {
        let servers = sockets.into_iter().map(|socket| Arc::new(Server { socket, queue: Mutex::default() })).collect();
        LiveMounts { servers, threads: Vec::new() }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }
}

impl FileServers for LiveMounts {
    fn start(&mut self, answers: AnswerSender) -> io::Result<()> {
        for (index, server) in (0..).zip(&self.servers) {
            let (server, answers) = (Arc::clone(server), answers.clone());
            let thread = std::thread::Builder::new().name("mount".into()).spawn(move || server.forward_answers(index, &answers))?;
            self.threads.push(thread);
        }
        Ok(())
    }

    fn send(&mut self, mount: u32, message: &[u8]) {
        if let Some(server) = self.servers.get(mount as usize)
            && (IN_HEADER..=MESSAGE_MAX).contains(&message.len())
        {
            server.push(message.to_vec());
        }
    }

    fn end(&mut self) {
        // The servers do what they have been asked for, and end.
        self.servers.iter().for_each(|server| server.finish());
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended as well.
            let _ = thread.join();
        }
    }
}

impl Queue {
    /// Gives the server up: drops all requests to it.
    fn give_up(&mut self) {
        self.is_dead = true;
        self.waiting = VecDeque::new();
        self.bytes = 0;
    }
}

impl Server {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, or lets it wait.
    fn push(&self, message: Vec<u8>) {
        let mut queue = self.queue();
        if queue.is_dead {
            return;
        }
        let is_answered = message.get(4..8).is_none_or(|opcode| UNANSWERED.iter().all(|other| other.to_le_bytes() != *opcode));
        if is_answered {
            queue.unanswered += 1;
        }
        queue.bytes += message.len() + MESSAGE_COST;
        queue.waiting.push_back(message);
        if queue.bytes > WAITING_MAX {
            queue.give_up();
        }
        self.send_waiting(&mut queue);
    }

    /// Ends the connection after the requests that wait.
    fn finish(&self) {
        let mut queue = self.queue();
        if !queue.is_dead {
            // An empty packet is the end of the connection for the server. A cell cannot send one.
            queue.bytes += MESSAGE_COST;
            queue.waiting.push_back(Vec::new());
            self.send_waiting(&mut queue);
        }
    }

    /// Sends what the socket has room for.
    fn send_waiting(&self, queue: &mut Queue) {
        while let Some(message) = queue.waiting.front() {
            match retry_on_intr(|| send(&self.socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)) {
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => return,
                Err(_) => return queue.give_up(),
            }
            queue.bytes -= queue.waiting.pop_front().map_or(0, |message| message.len() + MESSAGE_COST);
        }
    }

    /// Forwards the server's answers to the cell until one of them has ended.
    fn forward_answers(&self, index: u32, answers: &AnswerSender) {
        let mut message = vec![0; INDEX + MESSAGE_MAX];
        message[..INDEX].copy_from_slice(&index.to_le_bytes());
        while let Ok(length) = self.receive(&mut message[INDEX..]) {
            let header = &message[INDEX..INDEX + length];
            // Notifications have the number 0.
            if length >= OUT_HEADER && header[8..OUT_HEADER] != [0; 8] {
                let mut queue = self.queue();
                queue.unanswered = queue.unanswered.saturating_sub(1);
                queue.waited = Duration::ZERO;
            }
            let is_whole = length >= OUT_HEADER && header[..4] == (length as u32).to_le_bytes();
            if !is_whole || !answers.send(&message[..INDEX + length]) {
                break;
            }
        }
        self.queue().give_up();
        let mut end = message[..INDEX].to_vec();
        end.extend((OUT_HEADER as u32).to_le_bytes());
        end.extend(END.to_le_bytes());
        end.extend(0_u64.to_le_bytes());
        answers.send(&end);
    }

    /// Receives the server's next message. Returns an error if there are no more, or if the server is given up.
    fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            let has_waiting = {
                let mut queue = self.queue();
                self.send_waiting(&mut queue);
                if queue.is_dead {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                !queue.waiting.is_empty()
            };
            let interval = if has_waiting { INTERVAL } else { Duration::from_secs(1) };
            let until = Timespec::try_from(interval).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
            let mut wait = [PollFd::new(&self.socket, PollFlags::IN)];
            if retry_on_intr(|| poll(&mut wait, Some(&until)))? == 0 {
                let mut queue = self.queue();
                queue.waited = if queue.unanswered > 0 { queue.waited + interval } else { Duration::ZERO };
                if queue.waited > ANSWER_MAX {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                continue;
            }
            return match retry_on_intr(|| recv(&self.socket, &mut room[..], RecvFlags::DONTWAIT)) {
                Ok((0, _)) => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((length, _)) => Ok(length),
                Err(Errno::AGAIN) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// A cell's mounts with one server, and the server's end of the connection.
    fn connected() -> (LiveMounts, OwnedFd) {
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (own, other) = pair.expect("the host has sockets");
        (LiveMounts::new(vec![own]), other)
    }

    #[test]
    fn messages_without_a_whole_header_are_dropped() {
        let (mut mounts, server) = connected();
        for length in [0, 1, IN_HEADER - 1, MESSAGE_MAX + 1] {
            mounts.send(0, &vec![0; length]);
        }
        mounts.send(0, &[1; IN_HEADER]);
        let mut room = [0; 64];
        let (received, _) = recv(&server, &mut room[..], RecvFlags::DONTWAIT).expect("one message has come");
        assert_eq!(room[..received], [1; IN_HEADER]);
        assert_eq!(mounts.servers[0].queue().unanswered, 1);
    }

    #[test]
    fn a_server_that_takes_nothing_is_given_up() {
        let (mut mounts, _server) = connected();
        let messages = WAITING_MAX / (IN_HEADER + MESSAGE_COST);
        (0..messages * 2).for_each(|_| mounts.send(0, &[0; IN_HEADER]));
        let queue = mounts.servers[0].queue();
        assert!(queue.is_dead && queue.waiting.is_empty() && queue.bytes == 0);
    }

    #[test]
    fn an_answer_that_came_during_a_long_stop_is_forwarded() {
        let (mut mounts, server) = connected();
        let mut room = [0; 64];
        mounts.send(0, &[1; IN_HEADER]);
        mounts.send(0, &[1; IN_HEADER]);
        mounts.servers[0].queue().waited = ANSWER_MAX;
        send(&server, &[2; OUT_HEADER], SendFlags::NOSIGNAL).expect("there is room");
        assert_eq!(mounts.servers[0].receive(&mut room).expect("the answer has come"), OUT_HEADER);
        // Without an answer the server is given up.
        assert_eq!(mounts.servers[0].receive(&mut room).expect_err("no answer comes").kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn waiting_requests_are_sent_before_the_end() {
        let (mut mounts, server) = connected();
        (0..10_000).for_each(|_| mounts.send(0, &[1; IN_HEADER]));
        assert!(!mounts.servers[0].queue().waiting.is_empty(), "the socket has less room");
        mounts.servers[0].finish();
        let (mut received, mut room) = (0, [0; 64]);
        loop {
            match recv(&server, &mut room[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => break,
                Ok(_) => received += 1,
                Err(_) => mounts.servers[0].send_waiting(&mut mounts.servers[0].queue()),
            }
        }
        assert_eq!(received, 10_000);
    }
}
