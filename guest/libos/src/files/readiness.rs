// SPDX-License-Identifier: MIT OR Apache-2.0
//! What files are ready for: the console's input, pipes and counters can make a program wait; everything else is ready.

use alloc::vec::Vec;

use pando_rt::{clock, console, events};

use super::{Files, Kind};

/// Bytes can be read.
pub const POLLIN: u16 = 0x001;
/// Bytes can be written.
pub const POLLOUT: u16 = 0x004;
/// The other end is gone, so writing fails.
pub const POLLERR: u16 = 0x008;
/// The other end is gone, so what is there is all.
pub const POLLHUP: u16 = 0x010;
const POLLNVAL: u16 = 0x020;
const POLLRDNORM: u16 = 0x040;
const POLLWRNORM: u16 = 0x100;
/// What a file says that can be read.
pub const READING: u16 = POLLIN | POLLRDNORM;
/// What a file says that can be written.
pub const WRITING: u16 = POLLOUT | POLLWRNORM;

/// What a descriptor is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The descriptor.
    pub fd: u32,
    /// Events of `poll`.
    pub wanted: u16,
}

impl Files {
    /// What a descriptor is ready for.
    fn ready(&self, question: Question, input_ready: bool) -> u16 {
        let Ok(file) = self.look(question.fd.into()) else { return POLLNVAL };
        let (reads, writes) = (file.readable(), file.writable());
        let ready = match &file.kind {
            Kind::Name(_) => return POLLNVAL,
            Kind::Console { .. } => {
                let reading = if reads && input_ready { READING } else { 0 };
                reading | if writes { WRITING } else { 0 }
            }
            Kind::Pipe(id) => self.pipes.get(*id).map_or(0, |pipe| pipe.ready(reads, writes)),
            Kind::Event(event) => event.ready(),
            _ => READING | WRITING,
        };
        ready & (question.wanted | POLLERR | POLLHUP)
    }

    /// Whether the answer depends on the console's input.
    fn asks_input(&self, question: Question) -> bool {
        question.wanted & READING != 0
            && self.look(question.fd.into()).is_ok_and(|file| file.readable() && matches!(file.kind, Kind::Console { .. }))
    }

    /// Waits until one of the questions has an answer, or the clock reaches `deadline`, or something has happened. Returns the answers.
    pub fn wait(&mut self, questions: &[Question], deadline: u64) -> Vec<u16> {
        let asks_input = questions.iter().any(|question| self.asks_input(*question));
        let answers = |files: &Files, input| questions.iter().map(|question| files.ready(*question, input)).collect::<Vec<_>>();
        let now = answers(self, asks_input && console::input_ready(0));
        if now.iter().any(|ready| *ready != 0) {
            return now;
        }
        if asks_input {
            let input = console::input_ready(deadline);
            return answers(self, input);
        }
        if clock::now() < deadline {
            events::wait(deadline);
        }
        now
    }
}
