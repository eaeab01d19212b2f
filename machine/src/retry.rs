// SPDX-License-Identifier: MIT OR Apache-2.0
//! Repeating what a signal interrupted, and what the host cannot do at this moment.

use std::thread;
use std::time::Duration;
use vmm_sys_util::errno::Error;

/// How often `EAGAIN` is taken for an answer of this moment: some of what the host is short of (processes of this user) comes back in milliseconds or never.
const ATTEMPTS: u32 = 100;
/// The time between two of them.
const PAUSE: Duration = Duration::from_millis(1);

/// Makes a call until it is neither interrupted by a signal nor put off.
///
/// # Errors
/// Those of the call; `EAGAIN` once the host has put it off a hundred times.
pub(crate) fn retry<T>(mut call: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let mut attempts = 0;
    loop {
        match call() {
            Err(error) if error.errno() == libc::EINTR => {}
            Err(error) if error.errno() == libc::EAGAIN && attempts < ATTEMPTS => {
                attempts += 1;
                thread::sleep(PAUSE);
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ATTEMPTS, Error, retry};

    /// How many calls are made of one that fails so `times` before it succeeds, and what comes of it.
    fn calls(errno: i32, times: u32) -> (u32, Result<(), Error>) {
        let mut calls = 0;
        let outcome = retry(|| {
            calls += 1;
            if calls > times { Ok(()) } else { Err(Error::new(errno)) }
        });
        (calls, outcome)
    }

    #[test]
    fn an_interrupted_call_is_made_again() {
        assert_eq!(calls(libc::EINTR, 1_000), (1_001, Ok(())));
        assert_eq!(calls(libc::EAGAIN, 3), (4, Ok(())));
    }

    #[test]
    fn any_other_error_is_told_at_once_and_a_lasting_shortage_after_a_while() {
        assert_eq!(calls(libc::ENOMEM, 1), (1, Err(Error::new(libc::ENOMEM))));
        assert_eq!(calls(libc::EAGAIN, u32::MAX), (ATTEMPTS + 1, Err(Error::new(libc::EAGAIN))));
    }
}
