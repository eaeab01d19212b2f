// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers that gdb's protocol has for Linux's signals.

use gdbstub::common::Signal;

/// The numbers for Linux's signals from 1 on.
const STANDARD: [Signal; 31] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGABRT,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGKILL,
    Signal::SIGUSR1,
    Signal::SIGSEGV,
    Signal::SIGUSR2,
    Signal::SIGPIPE,
    Signal::SIGALRM,
    Signal::SIGTERM,
    // SIGSTKFLT, which the protocol does not have.
    Signal::SIGZERO,
    Signal::SIGCHLD,
    Signal::SIGCONT,
    Signal::SIGSTOP,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGURG,
    Signal::SIGXCPU,
    Signal::SIGXFSZ,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGWINCH,
    Signal::SIGIO,
    Signal::SIGPWR,
    Signal::SIGSYS,
];

/// The protocol's number for a signal of Linux.
pub(crate) fn of_linux(number: u8) -> Signal {
    match number {
        1..=31 => STANDARD[usize::from(number) - 1],
        32 => Signal::SIG32,
        33..=63 => Signal(Signal::SIG33.0 + number - 33),
        64 => Signal::SIG64,
        _ => Signal::SIGZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::of_linux;
    use gdbstub::common::Signal;

    #[test]
    fn signals_have_the_numbers_of_the_protocol() {
        for (number, signal) in [(2, Signal::SIGINT), (7, Signal::SIGBUS), (11, Signal::SIGSEGV), (31, Signal::SIGSYS), (34, Signal::SIG34)]
        {
            assert_eq!(of_linux(number), signal, "{number}");
        }
        assert_eq!((of_linux(63), of_linux(64), of_linux(65)), (Signal::SIG63, Signal::SIG64, Signal::SIGZERO));
    }
}
