// SPDX-License-Identifier: MIT OR Apache-2.0
//! What files are ready for: only the standard input can make a program wait; everything else is ready.

use alloc::vec::Vec;

use pando_rt::{clock, console, events};

use super::{Files, Kind};

/// Bytes can be read.
pub const POLLIN: u16 = 0x001;
/// Bytes can be written.
pub const POLLOUT: u16 = 0x004;
const POLLNVAL: u16 = 0x020;
const POLLRDNORM: u16 = 0x040;
const POLLWRNORM: u16 = 0x100;
const READING: u16 = POLLIN | POLLRDNORM;
const WRITING: u16 = POLLOUT | POLLWRNORM;

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
    fn ready(&mut self, question: Question, input_ready: bool) -> u16 {
        let Ok(file) = self.get(question.fd.into()) else { return POLLNVAL };
        let mut ready = 0;
        if file.readable() && (input_ready || !matches!(file.kind, Kind::Console { .. })) {
            ready |= READING;
        }
        if file.writable() {
            ready |= WRITING;
        }
        ready & question.wanted
    }

    /// Whether the answer depends on the console's input.
    fn asks_input(&mut self, question: Question) -> bool {
        question.wanted & READING != 0
            && self.get(question.fd.into()).is_ok_and(|file| file.readable() && matches!(file.kind, Kind::Console { .. }))
    }

    /// Waits until one of the questions has an answer, or the clock reaches `deadline`, or something has happened. Returns the answers.
    pub fn wait(&mut self, questions: &[Question], deadline: u64) -> Vec<u16> {
        let asks_input = questions.iter().any(|question| self.asks_input(*question));
        let answers = |files: &mut Files, input| questions.iter().map(|question| files.ready(*question, input)).collect::<Vec<_>>();
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
