// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readiness of files. The console's input, pipes, counters and the like can block; everything else is always ready.

use alloc::vec::Vec;

use pando_rt::{clock, registers};

use super::inotify::Inotify;
use super::mqueue::MessageQueue;
use super::poll::{READING, WRITING};
use super::pty::PtyEnd;
use super::{Files, Kind, OpenFile};
use crate::uapi::{POLLERR, POLLHUP, POLLIN, POLLNVAL};
use crate::wait::Channel;

/// A query of a descriptor's readiness.
#[derive(Clone, Copy, Debug)]
pub struct PollQuery {
    /// The descriptor.
    pub fd: u32,
    /// Events of `poll`.
    pub wanted: u16,
}

impl Files {
    /// The readiness of a descriptor.
    fn ready(&self, question: PollQuery) -> u16 {
        match self.look(question.fd.into()) {
            Ok(file) if !file.is_name() => self.ready_for(file) & (question.wanted | POLLERR | POLLHUP),
            _ => POLLNVAL,
        }
    }

    /// The readiness of an open file.
    pub(super) fn ready_for(&self, file: &OpenFile) -> u16 {
        let (reads, writes) = (file.readable(), file.writable());
        match &file.kind {
            Kind::Console { .. } => {
                let reading = if reads && self.input.is_some() { READING } else { 0 };
                reading | if writes { WRITING } else { 0 }
            }
            Kind::Pipe(id) => self.pipes.get(*id).map_or(0, |pipe| pipe.ready(reads, writes)),
            Kind::Event(event) => event.ready(),
            Kind::Master(id, _) => self.ptys.get(*id).map_or(POLLHUP, |pty| pty.ready(PtyEnd::Master)),
            Kind::Slave(id, _) => self.ptys.get(*id).map_or(POLLHUP, |pty| pty.ready(PtyEnd::Slave)),
            Kind::Timer(id) => self.timers.get(*id).map_or(0, |timer| timer.ready(clock::now())),
            Kind::Epoll(id) => self.epoll_ready(*id),
            Kind::Socket(id) => self.sockets.ready(*id),
            Kind::Inotify(id) => self.inotifies.get(*id).map_or(0, Inotify::ready),
            Kind::Messages(id) => self.queues.get(*id).map_or(0, MessageQueue::ready),
            Kind::Process(id) => self.watched.get(*id).map_or(0, |watched| watched.ready()),
            Kind::Clones(_, told) => WRITING | if *told == registers::identity().generation { 0 } else { READING },
            Kind::Signals(wanted) => {
                if self.signals.0.0 & wanted.0 != 0 {
                    POLLIN
                } else {
                    0
                }
            }
            _ => READING | WRITING,
        }
    }

    /// The channels that are woken when a file's readiness may have changed; empty if it never changes.
    #[must_use]
    pub fn channels(&self, fd: u64) -> Vec<Channel> {
        let mut channels = Vec::new();
        if let Ok(index) = self.index(fd) {
            self.add_channels(index, &mut channels);
        }
        // Many files of an epoll instance may share a channel.
        channels.sort_unstable();
        channels.dedup();
        channels
    }

    /// Adds the channels of an open file.
    pub(super) fn add_channels(&self, index: usize, channels: &mut Vec<Channel>) {
        let Some((file, _)) = self.open.get(index) else { return };
        match file.kind {
            Kind::Pipe(id) => channels.push(Channel::Pipe(id.0)),
            Kind::Event(_) => channels.push(Channel::Open(index)),
            Kind::Master(id, _) | Kind::Slave(id, _) => channels.push(Channel::Terminal(id.0)),
            Kind::Timer(_) => channels.push(Channel::Timers),
            Kind::Socket(_) => channels.push(Channel::Sockets),
            Kind::Inotify(_) => channels.push(Channel::Notes),
            Kind::Signals(_) => channels.push(Channel::Signal(self.own.process)),
            Kind::Messages(id) => channels.push(Channel::Messages(id.number())),
            Kind::Process(id) => channels.extend(self.watched.get(id).map(|watched| Channel::Ended(watched.process))),
            Kind::Clones(..) => channels.push(Channel::Generation),
            Kind::Console { .. } => channels.push(Channel::Input),
            Kind::Epoll(id) => {
                channels.push(Channel::Open(index));
                self.add_channels_of_epoll(id, channels);
            }
            _ => {}
        }
    }

    /// Wakes the waiters of changed files.
    pub fn note_changes(&mut self, files: &[u64]) {
        for fd in files {
            self.note_change(*fd);
        }
    }

    /// Wakes the waiters of a changed file.
    pub(super) fn note_change(&mut self, fd: u64) {
        let Ok(index) = self.index(fd) else { return };
        match self.open.get(index) {
            Some((OpenFile { kind: Kind::Pipe(id), .. }, _)) => self.changed.push(Channel::Pipe(id.0)),
            Some((OpenFile { kind: Kind::Socket(_), .. }, _)) => self.changed.push(Channel::Sockets),
            Some((OpenFile { kind: Kind::Event(_) | Kind::Epoll(_), .. }, _)) => self.changed.push(Channel::Open(index)),
            _ => {}
        }
    }

    /// Whether any query depends on the console's input.
    #[must_use]
    pub fn ask_input(&self, questions: &[PollQuery]) -> bool {
        questions
            .iter()
            .any(|question| question.wanted & READING != 0 && self.look(question.fd.into()).is_ok_and(|file| self.is_input(file)))
    }

    /// Whether the readiness of an open file depends on the console's input.
    pub(super) fn is_input(&self, file: &OpenFile) -> bool {
        match file.kind {
            Kind::Console { .. } => file.readable(),
            Kind::Epoll(id) => self.epoll_asks_input(id),
            _ => false,
        }
    }

    /// The answers to all queries.
    #[must_use]
    pub fn answers(&self, questions: &[PollQuery]) -> Vec<u16> {
        questions.iter().map(|question| self.ready(*question)).collect()
    }
}
