// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for files: only the standard input can make a program wait; everything else is ready.

use alloc::vec::Vec;

use pando_rt::hypercall::NO_DEADLINE;
use pando_rt::{clock, console, events};

use super::{Files, Kind};
use crate::errno::Errno;
use crate::identity::OPEN_MAX;
use crate::process::Process;
use crate::user::{set_word32, set_words, word32, words};

const POLLIN: u16 = 0x001;
const POLLOUT: u16 = 0x004;
const POLLNVAL: u16 = 0x020;
const POLLRDNORM: u16 = 0x040;
const POLLWRNORM: u16 = 0x100;
const READING: u16 = POLLIN | POLLRDNORM;
const WRITING: u16 = POLLOUT | POLLWRNORM;

/// Bytes of a `struct pollfd`.
const POLLFD: u64 = 8;

/// What a descriptor is asked.
#[derive(Clone, Copy)]
struct Question {
    fd: u32,
    wanted: u16,
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

    /// Waits until one of the questions has an answer, or the clock reaches `deadline`. Returns the answers.
    fn wait(&mut self, questions: &[Question], deadline: u64) -> Vec<u16> {
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
        while clock::now() < deadline {
            events::wait(deadline);
        }
        now
    }
}

/// `poll(descriptors, count, timeout)`.
pub fn poll(process: &mut Process, [descriptors, count, timeout, ..]: [u64; 6]) -> Result<u64, Errno> {
    let deadline = match timeout as i32 {
        milliseconds @ 0.. => clock::now().saturating_add(milliseconds as u64 * 1_000_000),
        _ => NO_DEADLINE,
    };
    poll_until(process, descriptors, count, deadline)
}

/// `ppoll(descriptors, count, timeout, mask, size)`.
pub fn ppoll(process: &mut Process, [descriptors, count, timeout, ..]: [u64; 6]) -> Result<u64, Errno> {
    let deadline = if timeout == 0 { NO_DEADLINE } else { clock::now().saturating_add(crate::time::timespec(timeout)?) };
    poll_until(process, descriptors, count, deadline)
}

fn poll_until(process: &mut Process, descriptors: u64, count: u64, deadline: u64) -> Result<u64, Errno> {
    if count > OPEN_MAX {
        return Err(Errno::EINVAL);
    }
    let mut questions = Vec::with_capacity(count as usize);
    for index in 0..count {
        let address = descriptors.wrapping_add(index * POLLFD);
        let (fd, wanted) = (word32(address)?, word32(address.wrapping_add(4))? as u16);
        // A negative descriptor asks nothing.
        questions.push(if fd.cast_signed() < 0 { None } else { Some(Question { fd, wanted }) });
    }
    let asked: Vec<Question> = questions.iter().copied().flatten().collect();
    let mut answers = process.files.wait(&asked, deadline).into_iter();
    let mut answered = 0;
    for (index, question) in (0..count).zip(questions) {
        let ready = question.and_then(|_| answers.next()).unwrap_or_default();
        answered += u64::from(ready != 0);
        pando_rt::user::write(descriptors.wrapping_add(index * POLLFD + 6), &ready.to_le_bytes())?;
    }
    Ok(answered)
}

/// `select(count, read, write, except, timeout)`.
pub fn select(process: &mut Process, [count, read, write, except, timeout, _]: [u64; 6]) -> Result<u64, Errno> {
    let deadline = if timeout == 0 {
        NO_DEADLINE
    } else {
        let [seconds, microseconds] = words(timeout)?;
        clock::now().saturating_add(seconds.saturating_mul(1_000_000_000).saturating_add(microseconds.saturating_mul(1000)))
    };
    select_until(process, count, [read, write, except], deadline)
}

/// `pselect6(count, read, write, except, timeout, mask)`.
pub fn pselect6(process: &mut Process, [count, read, write, except, timeout, _]: [u64; 6]) -> Result<u64, Errno> {
    let deadline = if timeout == 0 { NO_DEADLINE } else { clock::now().saturating_add(crate::time::timespec(timeout)?) };
    select_until(process, count, [read, write, except], deadline)
}

fn select_until(process: &mut Process, count: u64, [read, write, except]: [u64; 3], deadline: u64) -> Result<u64, Errno> {
    let count = count as u32;
    if u64::from(count) > OPEN_MAX {
        return Err(Errno::EINVAL);
    }
    let mut questions = Vec::new();
    for (set, wanted) in [(read, POLLIN), (write, POLLOUT)] {
        for fd in 0..count {
            if set != 0 && words::<1>(set.wrapping_add(u64::from(fd / 64) * 8))?[0] >> (fd % 64) & 1 != 0 {
                process.files.get(fd.into())?;
                questions.push(Question { fd, wanted });
            }
        }
    }
    let answers = process.files.wait(&questions, deadline);
    for set in [read, write, except].into_iter().filter(|set| *set != 0) {
        for word in 0..u64::from(count.div_ceil(64)) {
            set_words(set.wrapping_add(word * 8), &[0])?;
        }
    }
    let mut answered = 0;
    for (question, _) in questions.iter().zip(answers).filter(|(_, ready)| *ready != 0) {
        let set = if question.wanted == POLLIN { read } else { write };
        let address = set.wrapping_add(u64::from(question.fd / 32) * 4);
        set_word32(address, word32(address)? | 1 << (question.fd % 32))?;
        answered += 1;
    }
    Ok(answered)
}
