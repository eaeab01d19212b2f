// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for files.

use alloc::vec::Vec;

use pando_rt::clock;
use pando_rt::hypercall::NO_DEADLINE;

use crate::calls::signals::set;
use crate::errno::Errno;
use crate::files::OPEN_MAX;
use crate::files::readiness::{POLLIN, POLLOUT, Question};
use crate::process::Process;
use crate::user::{set_word32, set_words, timespec, word32, words};

/// Bytes of a `struct pollfd`.
const POLLFD: u64 = 8;

/// `poll(descriptors, count, timeout)`.
pub fn poll(process: &mut Process, [descriptors, count, timeout, ..]: [u64; 6]) -> Result<u64, Errno> {
    let deadline = match timeout as i32 {
        milliseconds @ 0.. => clock::now().saturating_add(milliseconds as u64 * 1_000_000),
        _ => NO_DEADLINE,
    };
    poll_until(process, descriptors, count, deadline)
}

/// `ppoll(descriptors, count, timeout, mask, size)`.
pub fn ppoll(process: &mut Process, [descriptors, count, timeout, mask, size, _]: [u64; 6]) -> Result<u64, Errno> {
    let deadline = if timeout == 0 { NO_DEADLINE } else { clock::now().saturating_add(timespec(timeout)?) };
    if mask != 0 {
        process.signals.set_mask_for_call(set(mask, size)?);
    }
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
    let mut answers = wait(process, &asked, deadline)?.into_iter();
    let mut answered = 0;
    for (index, question) in (0..count).zip(questions) {
        let ready = question.and_then(|_| answers.next()).unwrap_or_default();
        answered += u64::from(ready != 0);
        pando_rt::user::write(descriptors.wrapping_add(index * POLLFD + 6), &ready.to_le_bytes())?;
    }
    Ok(answered)
}

/// Waits until one of the questions has an answer, or the clock reaches `deadline`. Returns the answers.
///
/// # Errors
/// `EINTR`: a signal came first.
fn wait(process: &mut Process, questions: &[Question], deadline: u64) -> Result<Vec<u16>, Errno> {
    loop {
        let answers = process.files.wait(questions, deadline);
        if answers.iter().any(|ready| *ready != 0) || clock::now() >= deadline {
            return Ok(answers);
        }
        process.interruption().map_err(Errno::without_restart)?;
    }
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
pub fn pselect6(process: &mut Process, [count, read, write, except, timeout, mask]: [u64; 6]) -> Result<u64, Errno> {
    let deadline = if timeout == 0 { NO_DEADLINE } else { clock::now().saturating_add(timespec(timeout)?) };
    if mask != 0 {
        // The sixth argument names two: where the set is, and its size.
        let [address, size] = words(mask)?;
        if address != 0 {
            process.signals.set_mask_for_call(set(address, size)?);
        }
    }
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
    let answers = wait(process, &questions, deadline)?;
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
