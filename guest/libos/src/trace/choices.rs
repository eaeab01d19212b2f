// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers that have names.

use alloc::format;
use alloc::string::String;

use crate::signals::{Signal, SignalSet};
use crate::uapi::{
    FUTEX_CLOCK_REALTIME, FUTEX_CMD_MASK, FUTEX_LOCK_PI, FUTEX_LOCK_PI2, FUTEX_PRIVATE_FLAG, FUTEX_WAIT, FUTEX_WAIT_BITSET,
    FUTEX_WAIT_REQUEUE_PI, SCHED_RESET_ON_FORK,
};

/// Names of a number's values, and strace's text for other values.
pub(super) struct Choices(pub &'static [(u64, &'static str)], pub &'static str);

impl Choices {
    /// The name of a number.
    pub(super) fn show(&self, value: u64) -> String {
        let Choices(names, unknown) = self;
        match names.iter().find(|(number, _)| *number == value) {
            Some((_, name)) => (*name).into(),
            None => format!("{value:#x} /* {unknown} */"),
        }
    }
}

pub(super) const WHENCE: Choices =
    Choices(&[(0, "SEEK_SET"), (1, "SEEK_CUR"), (2, "SEEK_END"), (3, "SEEK_DATA"), (4, "SEEK_HOLE")], "SEEK_???");

pub(super) const CLOCK: Choices = Choices(
    &[
        (0, "CLOCK_REALTIME"),
        (1, "CLOCK_MONOTONIC"),
        (2, "CLOCK_PROCESS_CPUTIME_ID"),
        (3, "CLOCK_THREAD_CPUTIME_ID"),
        (4, "CLOCK_MONOTONIC_RAW"),
        (5, "CLOCK_REALTIME_COARSE"),
        (6, "CLOCK_MONOTONIC_COARSE"),
        (7, "CLOCK_BOOTTIME"),
        (8, "CLOCK_REALTIME_ALARM"),
        (9, "CLOCK_BOOTTIME_ALARM"),
        (11, "CLOCK_TAI"),
    ],
    "CLOCK_???",
);

pub(super) const MASK: Choices = Choices(&[(0, "SIG_BLOCK"), (1, "SIG_UNBLOCK"), (2, "SIG_SETMASK")], "SIG_???");

pub(super) const INTERVAL: Choices = Choices(&[(0, "ITIMER_REAL"), (1, "ITIMER_VIRTUAL"), (2, "ITIMER_PROF")], "ITIMER_???");

pub(super) const LOCK_KIND: Choices = Choices(&[(0, "F_RDLCK"), (1, "F_WRLCK"), (2, "F_UNLCK")], "F_???");

pub(super) const EPOLL: Choices = Choices(&[(1, "EPOLL_CTL_ADD"), (2, "EPOLL_CTL_DEL"), (3, "EPOLL_CTL_MOD")], "EPOLL_CTL_???");

pub(super) const USAGE: Choices = Choices(&[(0, "RUSAGE_SELF"), (0xffff_ffff, "RUSAGE_CHILDREN"), (1, "RUSAGE_THREAD")], "RUSAGE_???");

pub(super) const RESOURCE: Choices = Choices(
    &[
        (0, "RLIMIT_CPU"),
        (1, "RLIMIT_FSIZE"),
        (2, "RLIMIT_DATA"),
        (3, "RLIMIT_STACK"),
        (4, "RLIMIT_CORE"),
        (5, "RLIMIT_RSS"),
        (6, "RLIMIT_NPROC"),
        (7, "RLIMIT_NOFILE"),
        (8, "RLIMIT_MEMLOCK"),
        (9, "RLIMIT_AS"),
        (10, "RLIMIT_LOCKS"),
        (11, "RLIMIT_SIGPENDING"),
        (12, "RLIMIT_MSGQUEUE"),
        (13, "RLIMIT_NICE"),
        (14, "RLIMIT_RTPRIO"),
        (15, "RLIMIT_RTTIME"),
    ],
    "RLIMIT_???",
);

pub(super) const PRIORITY_OF: Choices = Choices(&[(0, "PRIO_PROCESS"), (1, "PRIO_PGRP"), (2, "PRIO_USER")], "PRIO_???");

const POLICY: Choices = Choices(
    &[(0, "SCHED_OTHER"), (1, "SCHED_FIFO"), (2, "SCHED_RR"), (3, "SCHED_BATCH"), (5, "SCHED_IDLE"), (6, "SCHED_DEADLINE")],
    "SCHED_???",
);

/// A scheduling policy with its flag.
pub(super) fn policy(policy: u32) -> String {
    let name = POLICY.show((policy & !SCHED_RESET_ON_FORK).into());
    if policy & SCHED_RESET_ON_FORK == 0 { name } else { name + "|SCHED_RESET_ON_FORK" }
}

pub(super) const ADVICE: Choices = Choices(
    &[
        (0, "MADV_NORMAL"),
        (1, "MADV_RANDOM"),
        (2, "MADV_SEQUENTIAL"),
        (3, "MADV_WILLNEED"),
        (4, "MADV_DONTNEED"),
        (8, "MADV_FREE"),
        (9, "MADV_REMOVE"),
        (10, "MADV_DONTFORK"),
        (11, "MADV_DOFORK"),
        (14, "MADV_HUGEPAGE"),
        (15, "MADV_NOHUGEPAGE"),
        (16, "MADV_DONTDUMP"),
        (17, "MADV_DODUMP"),
        (18, "MADV_WIPEONFORK"),
        (19, "MADV_KEEPONFORK"),
        (20, "MADV_COLD"),
        (21, "MADV_PAGEOUT"),
        (22, "MADV_POPULATE_READ"),
        (23, "MADV_POPULATE_WRITE"),
    ],
    "MADV_???",
);

pub(super) const FILE_ADVICE: Choices = Choices(
    &[
        (0, "POSIX_FADV_NORMAL"),
        (1, "POSIX_FADV_RANDOM"),
        (2, "POSIX_FADV_SEQUENTIAL"),
        (3, "POSIX_FADV_WILLNEED"),
        (4, "POSIX_FADV_DONTNEED"),
        (5, "POSIX_FADV_NOREUSE"),
    ],
    "POSIX_FADV_???",
);

pub(super) const ARCHITECTURE: Choices = Choices(
    &[
        (0x1001, "ARCH_SET_GS"),
        (0x1002, "ARCH_SET_FS"),
        (0x1003, "ARCH_GET_FS"),
        (0x1004, "ARCH_GET_GS"),
        (0x1011, "ARCH_GET_CPUID"),
        (0x1012, "ARCH_SET_CPUID"),
        (0x3001, "ARCH_CET_STATUS"),
        (0x5001, "ARCH_SHSTK_ENABLE"),
    ],
    "ARCH_???",
);

pub(super) const PROCESS_CONTROL: Choices = Choices(
    &[
        (1, "PR_SET_PDEATHSIG"),
        (2, "PR_GET_PDEATHSIG"),
        (3, "PR_GET_DUMPABLE"),
        (4, "PR_SET_DUMPABLE"),
        (7, "PR_GET_KEEPCAPS"),
        (8, "PR_SET_KEEPCAPS"),
        (15, "PR_SET_NAME"),
        (16, "PR_GET_NAME"),
        (21, "PR_GET_SECCOMP"),
        (22, "PR_SET_SECCOMP"),
        (23, "PR_CAPBSET_READ"),
        (24, "PR_CAPBSET_DROP"),
        (27, "PR_GET_SECUREBITS"),
        (28, "PR_SET_SECUREBITS"),
        (29, "PR_SET_TIMERSLACK"),
        (30, "PR_GET_TIMERSLACK"),
        (36, "PR_SET_CHILD_SUBREAPER"),
        (37, "PR_GET_CHILD_SUBREAPER"),
        (38, "PR_SET_NO_NEW_PRIVS"),
        (39, "PR_GET_NO_NEW_PRIVS"),
        (41, "PR_SET_THP_DISABLE"),
        (42, "PR_GET_THP_DISABLE"),
        (47, "PR_CAP_AMBIENT"),
        (0x5356_4d41, "PR_SET_VMA"),
    ],
    "PR_???",
);

pub(super) const FILE_CONTROL: Choices = Choices(
    &[
        (0, "F_DUPFD"),
        (1, "F_GETFD"),
        (2, "F_SETFD"),
        (3, "F_GETFL"),
        (4, "F_SETFL"),
        (5, "F_GETLK"),
        (6, "F_SETLK"),
        (7, "F_SETLKW"),
        (8, "F_SETOWN"),
        (9, "F_GETOWN"),
        (36, "F_OFD_GETLK"),
        (37, "F_OFD_SETLK"),
        (38, "F_OFD_SETLKW"),
        (1024, "F_SETLEASE"),
        (1025, "F_GETLEASE"),
        (1030, "F_DUPFD_CLOEXEC"),
        (1031, "F_SETPIPE_SZ"),
        (1032, "F_GETPIPE_SZ"),
        (1033, "F_ADD_SEALS"),
        (1034, "F_GET_SEALS"),
    ],
    "F_???",
);

/// Operations of `futex`, without their flags.
const FUTEX: Choices = Choices(
    &[
        (0, "FUTEX_WAIT"),
        (1, "FUTEX_WAKE"),
        (3, "FUTEX_REQUEUE"),
        (4, "FUTEX_CMP_REQUEUE"),
        (5, "FUTEX_WAKE_OP"),
        (6, "FUTEX_LOCK_PI"),
        (7, "FUTEX_UNLOCK_PI"),
        (8, "FUTEX_TRYLOCK_PI"),
        (9, "FUTEX_WAIT_BITSET"),
        (10, "FUTEX_WAKE_BITSET"),
        (11, "FUTEX_WAIT_REQUEUE_PI"),
        (12, "FUTEX_CMP_REQUEUE_PI"),
        (13, "FUTEX_LOCK_PI2"),
    ],
    "FUTEX_???",
);

/// Whether an operation of `futex` may wait.
pub(super) fn futex_waits(operation: u64) -> bool {
    let command = operation & FUTEX_CMD_MASK;
    matches!(command, FUTEX_WAIT | FUTEX_LOCK_PI | FUTEX_WAIT_BITSET | FUTEX_WAIT_REQUEUE_PI | FUTEX_LOCK_PI2)
}

/// Name of an operation of `futex`.
pub(super) fn futex(operation: u64) -> String {
    let private = if operation & FUTEX_PRIVATE_FLAG != 0 { "_PRIVATE" } else { "" };
    let realtime = if operation & FUTEX_CLOCK_REALTIME != 0 { "|FUTEX_CLOCK_REALTIME" } else { "" };
    FUTEX.show(operation & FUTEX_CMD_MASK) + private + realtime
}

/// Names of signals, from 1 on.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM", "STKFLT", "CHLD",
    "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// A signal's name without `SIG`.
fn short(signal: Signal) -> String {
    match usize::from(signal.0) {
        number @ 1..=31 => SIGNALS[number - 1].into(),
        32 => "RTMIN".into(),
        number => format!("RT_{}", number.saturating_sub(32)),
    }
}

/// A signal's name.
pub(super) fn signal(signal: Signal) -> String {
    format!("SIG{}", short(signal))
}

/// Name of a number that should be a signal.
pub(super) fn signal_number(number: u64) -> String {
    match number as u32 {
        number @ 1..=64 => signal(Signal(number as u8)),
        number => format!("{}", number.cast_signed()),
    }
}

/// A set of signals: its members, or if they are many, those that are missing (`~[]`).
pub(super) fn set(set: SignalSet) -> String {
    /// Sets of more signals are given by the missing ones.
    const MANY: u32 = 42;
    let (mark, listed) = if set.0.count_ones() > MANY { ("~", SignalSet(!set.0)) } else { ("", set) };
    let names = (1..=64).map(Signal).filter(|signal| listed.contains(*signal)).map(short);
    format!("{mark}[{}]", names.collect::<alloc::vec::Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::{CLOCK, futex, policy, set, signal_number};
    use crate::signals::SignalSet;

    #[test]
    fn numbers_with_names_are_names() {
        assert_eq!((CLOCK.show(1), CLOCK.show(77)), ("CLOCK_MONOTONIC".into(), "0x4d /* CLOCK_??? */".into()));
        assert_eq!((futex(0x80), futex(0x189)), ("FUTEX_WAIT_PRIVATE".into(), "FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME".into()));
        assert_eq!((policy(1), policy(0x4000_0002)), ("SCHED_FIFO".into(), "SCHED_RR|SCHED_RESET_ON_FORK".into()));
        assert_eq!((signal_number(2), signal_number(34), signal_number(0)), ("SIGINT".into(), "SIGRT_2".into(), "0".into()));
        assert_eq!((set(SignalSet(0)), set(SignalSet(0x4002)), set(SignalSet(!1))), ("[]".into(), "[INT TERM]".into(), "~[HUP]".into()));
    }
}
