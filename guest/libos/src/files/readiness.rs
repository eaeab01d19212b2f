// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readiness of files. The console's input, pipes, counters and the like can block; everything else is always ready.

use alloc::vec::Vec;

use super::poll::READING;
use super::{Files, OpenFile};
use crate::uapi::{POLLERR, POLLHUP, POLLNVAL};
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
        match self.raw_file(question.fd.into()) {
            Ok(file) if !file.is_path() => file.operations().poll(self, file) & (question.wanted | POLLERR | POLLHUP),
            _ => POLLNVAL,
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
        file.operations().add_channels(self, index, channels);
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
        let Ok(file) = self.file_at(index) else { return };
        let channel = file.operations().changed_channel(index);
        self.changed.extend(channel);
    }

    /// Whether any query depends on the console's input.
    #[must_use]
    pub fn polls_console_input(&self, queries: &[PollQuery]) -> bool {
        queries
            .iter()
            .any(|question| question.wanted & READING != 0 && self.raw_file(question.fd.into()).is_ok_and(|file| self.is_input(file)))
    }

    /// Whether the readiness of an open file depends on the console's input.
    pub(super) fn is_input(&self, file: &OpenFile) -> bool {
        file.operations().polls_console(self, file)
    }

    /// The answers to all queries.
    #[must_use]
    pub fn poll_all(&self, queries: &[PollQuery]) -> Vec<u16> {
        queries.iter().map(|question| self.ready(*question)).collect()
    }
}
