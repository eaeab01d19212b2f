// SPDX-License-Identifier: MIT OR Apache-2.0
//! Repetition of interrupted system calls, and of temporarily failing ones.

use std::thread;
use std::time::Duration;
use vmm_sys_util::errno::Error;

/// Attempts while the result is `EAGAIN`: a shortage on the host (processes of this user) ends in milliseconds or never.
const ATTEMPTS: u32 = 100;
/// The time between two of them.
const PAUSE: Duration = Duration::from_millis(1);

/// Repeats a call while a signal interrupts it, and for a while if it returns `EAGAIN`.
///
/// # Errors
/// Those of the call; `EAGAIN` after a hundred attempts.
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

    /// Returns the number of calls to a function that fails `times` times, and the final result.
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
    fn other_errors_are_returned_at_once_and_a_lasting_shortage_after_retries() {
        assert_eq!(calls(libc::ENOMEM, 1), (1, Err(Error::new(libc::ENOMEM))));
        assert_eq!(calls(libc::EAGAIN, u32::MAX), (ATTEMPTS + 1, Err(Error::new(libc::EAGAIN))));
    }
}
