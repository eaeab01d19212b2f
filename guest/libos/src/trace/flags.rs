// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flags by name.

use alloc::format;
use alloc::string::String;

/// Names of the bits of a word.
pub(super) struct Flags {
    /// The bits that hold an enumerated value, with the names of the values.
    pub choice: (u64, &'static [(u64, &'static str)]),
    /// Names of bits; those that share bits with others come first.
    pub bits: &'static [(u64, &'static str)],
    /// strace's text for bits without a name.
    pub unknown: &'static str,
}

const NO_CHOICE: (u64, &[(u64, &str)]) = (0, &[]);

impl Flags {
    /// Flags without an enumerated value.
    pub(super) const fn named(bits: &'static [(u64, &'static str)], unknown: &'static str) -> Flags {
        Flags { choice: NO_CHOICE, bits, unknown }
    }

    /// Formats the bits of a word.
    pub(super) fn show(&self, value: u64) -> String {
        let (mask, choices) = self.choice;
        let mut left = value;
        let mut text = String::new();
        if let Some((chosen, name)) = choices.iter().find(|(chosen, _)| *chosen == value & mask) {
            left &= !chosen;
            text += name;
        }
        for (bits, name) in self.bits {
            if left & bits == *bits {
                left &= !bits;
                text += if text.is_empty() { "" } else { "|" };
                text += name;
            }
        }
        match (left, text.is_empty()) {
            (0, true) => "0".into(),
            (0, false) => text,
            (_, true) => format!("{left:#x} /* {} */", self.unknown),
            (_, false) => format!("{text}|{left:#x}"),
        }
    }
}

pub(super) const PROCESS_FILE: Flags = Flags::named(&[(0o4000, "PIDFD_NONBLOCK")], "PIDFD_???");

pub(super) const OPEN: Flags = Flags {
    choice: (3, &[(0, "O_RDONLY"), (1, "O_WRONLY"), (2, "O_RDWR"), (3, "O_ACCMODE")]),
    bits: &[
        (0o100, "O_CREAT"),
        (0o200, "O_EXCL"),
        (0o400, "O_NOCTTY"),
        (0o1000, "O_TRUNC"),
        (0o2000, "O_APPEND"),
        (0o4000, "O_NONBLOCK"),
        (0o4_010_000, "O_SYNC"),
        (0o10000, "O_DSYNC"),
        (0o40000, "O_DIRECT"),
        (0o100_000, "O_LARGEFILE"),
        (0o400_000, "O_NOFOLLOW"),
        (0o1_000_000, "O_NOATIME"),
        (0o2_000_000, "O_CLOEXEC"),
        (0o10_000_000, "O_PATH"),
        (0o20_200_000, "O_TMPFILE"),
        (0o200_000, "O_DIRECTORY"),
        (0o20000, "FASYNC"),
    ],
    unknown: "O_???",
};

/// Flags of `open` for a descriptor that is no opened file.
pub(super) const DESCRIPTOR: Flags = Flags { choice: NO_CHOICE, bits: OPEN.bits, unknown: "O_???" };

pub(super) const PROTECTION: Flags = Flags {
    choice: (7, &[(0, "PROT_NONE")]),
    bits: &[(1, "PROT_READ"), (2, "PROT_WRITE"), (4, "PROT_EXEC"), (0x0100_0000, "PROT_GROWSDOWN"), (0x0200_0000, "PROT_GROWSUP")],
    unknown: "PROT_???",
};

pub(super) const MAP: Flags = Flags {
    choice: (0xf, &[(1, "MAP_SHARED"), (2, "MAP_PRIVATE"), (3, "MAP_SHARED_VALIDATE")]),
    bits: &[
        (0x10, "MAP_FIXED"),
        (0x20, "MAP_ANONYMOUS"),
        (0x40, "MAP_32BIT"),
        (0x4000, "MAP_NORESERVE"),
        (0x8000, "MAP_POPULATE"),
        (0x1_0000, "MAP_NONBLOCK"),
        (0x100, "MAP_GROWSDOWN"),
        (0x800, "MAP_DENYWRITE"),
        (0x1000, "MAP_EXECUTABLE"),
        (0x2000, "MAP_LOCKED"),
        (0x2_0000, "MAP_STACK"),
        (0x4_0000, "MAP_HUGETLB"),
        (0x8_0000, "MAP_SYNC"),
        (0x10_0000, "MAP_FIXED_NOREPLACE"),
    ],
    unknown: "MAP_???",
};

pub(super) const REMAP: Flags =
    Flags { choice: NO_CHOICE, bits: &[(1, "MREMAP_MAYMOVE"), (2, "MREMAP_FIXED"), (4, "MREMAP_DONTUNMAP")], unknown: "MREMAP_???" };

pub(super) const LOCKING: Flags =
    Flags { choice: NO_CHOICE, bits: &[(1, "MCL_CURRENT"), (2, "MCL_FUTURE"), (4, "MCL_ONFAULT")], unknown: "MCL_???" };

pub(super) const SYNC: Flags =
    Flags { choice: NO_CHOICE, bits: &[(4, "MS_SYNC"), (1, "MS_ASYNC"), (2, "MS_INVALIDATE")], unknown: "MS_???" };

pub(super) const AT: Flags = Flags {
    choice: NO_CHOICE,
    bits: &[
        (0x100, "AT_SYMLINK_NOFOLLOW"),
        (0x400, "AT_SYMLINK_FOLLOW"),
        (0x800, "AT_NO_AUTOMOUNT"),
        (0x1000, "AT_EMPTY_PATH"),
        (0x2000, "AT_STATX_FORCE_SYNC"),
        (0x4000, "AT_STATX_DONT_SYNC"),
        (0x8000, "AT_RECURSIVE"),
    ],
    unknown: "AT_???",
};

/// Flags of `unlinkat`.
pub(super) const REMOVE: Flags = Flags { choice: NO_CHOICE, bits: &[(0x200, "AT_REMOVEDIR")], unknown: "AT_???" };

/// Flags of `faccessat2`.
pub(super) const ACCESS_AT: Flags = Flags {
    choice: NO_CHOICE,
    bits: &[(0x200, "AT_EACCESS"), (0x100, "AT_SYMLINK_NOFOLLOW"), (0x1000, "AT_EMPTY_PATH")],
    unknown: "AT_???",
};

pub(super) const ACCESS: Flags = Flags { choice: (7, &[(0, "F_OK")]), bits: &[(4, "R_OK"), (2, "W_OK"), (1, "X_OK")], unknown: "?_OK" };

pub(super) const ACTION: Flags = Flags {
    choice: NO_CHOICE,
    bits: &[
        (0x0400_0000, "SA_RESTORER"),
        (0x0800_0000, "SA_ONSTACK"),
        (0x1000_0000, "SA_RESTART"),
        (0x4000_0000, "SA_NODEFER"),
        (0x8000_0000, "SA_RESETHAND"),
        (4, "SA_SIGINFO"),
        (1, "SA_NOCLDSTOP"),
        (2, "SA_NOCLDWAIT"),
        (0x400, "SA_UNSUPPORTED"),
        (0x800, "SA_EXPOSE_TAGBITS"),
    ],
    unknown: "SA_???",
};

pub(super) const STACK: Flags =
    Flags { choice: (3, &[(1, "SS_ONSTACK"), (2, "SS_DISABLE")]), bits: &[(1 << 31, "SS_AUTODISARM")], unknown: "SS_???" };

pub(super) const POLL: Flags = Flags {
    choice: NO_CHOICE,
    bits: &[
        (1, "POLLIN"),
        (2, "POLLPRI"),
        (4, "POLLOUT"),
        (0x40, "POLLRDNORM"),
        (0x80, "POLLRDBAND"),
        (0x100, "POLLWRNORM"),
        (0x200, "POLLWRBAND"),
        (0x400, "POLLMSG"),
        (8, "POLLERR"),
        (0x10, "POLLHUP"),
        (0x20, "POLLNVAL"),
        (0x2000, "POLLRDHUP"),
    ],
    unknown: "POLL???",
};

pub(super) const TIMER: Flags = Flags { choice: NO_CHOICE, bits: &[(1, "TIMER_ABSTIME")], unknown: "TIMER_???" };
pub(super) const TIMER_FILE: Flags =
    Flags { choice: NO_CHOICE, bits: &[(0o2_000_000, "TFD_CLOEXEC"), (0o4000, "TFD_NONBLOCK")], unknown: "TFD_???" };
pub(super) const TIMER_FILE_SET: Flags =
    Flags { choice: NO_CHOICE, bits: &[(1, "TFD_TIMER_ABSTIME"), (2, "TFD_TIMER_CANCEL_ON_SET")], unknown: "TFD_???" };
pub(super) const SIGNAL_FILE: Flags =
    Flags { choice: NO_CHOICE, bits: &[(0o2_000_000, "SFD_CLOEXEC"), (0o4000, "SFD_NONBLOCK")], unknown: "SFD_???" };
pub(super) const INOTIFY_INIT: Flags =
    Flags { choice: NO_CHOICE, bits: &[(0o2_000_000, "IN_CLOEXEC"), (0o4000, "IN_NONBLOCK")], unknown: "IN_???" };
pub(super) const INOTIFY_MASK: Flags = Flags {
    choice: NO_CHOICE,
    bits: &[
        (1, "IN_ACCESS"),
        (2, "IN_MODIFY"),
        (4, "IN_ATTRIB"),
        (8, "IN_CLOSE_WRITE"),
        (0x10, "IN_CLOSE_NOWRITE"),
        (0x20, "IN_OPEN"),
        (0x40, "IN_MOVED_FROM"),
        (0x80, "IN_MOVED_TO"),
        (0x100, "IN_CREATE"),
        (0x200, "IN_DELETE"),
        (0x400, "IN_DELETE_SELF"),
        (0x800, "IN_MOVE_SELF"),
        (0x2000, "IN_UNMOUNT"),
        (0x4000, "IN_Q_OVERFLOW"),
        (0x8000, "IN_IGNORED"),
        (0x0100_0000, "IN_ONLYDIR"),
        (0x0200_0000, "IN_DONT_FOLLOW"),
        (0x0400_0000, "IN_EXCL_UNLINK"),
        (0x1000_0000, "IN_MASK_CREATE"),
        (0x2000_0000, "IN_MASK_ADD"),
        (0x4000_0000, "IN_ISDIR"),
        (0x8000_0000, "IN_ONESHOT"),
    ],
    unknown: "IN_???",
};
pub(super) const SPLICE: Flags = Flags {
    choice: NO_CHOICE,
    bits: &[(1, "SPLICE_F_MOVE"), (2, "SPLICE_F_NONBLOCK"), (4, "SPLICE_F_MORE"), (8, "SPLICE_F_GIFT")],
    unknown: "SPLICE_F_???",
};
pub(super) const EPOLL_CREATE: Flags = Flags { choice: NO_CHOICE, bits: &[(0o2_000_000, "EPOLL_CLOEXEC")], unknown: "EPOLL_???" };
pub(super) const EPOLL: Flags = Flags {
    choice: NO_CHOICE,
    bits: &[
        (1, "EPOLLIN"),
        (2, "EPOLLPRI"),
        (4, "EPOLLOUT"),
        (0x40, "EPOLLRDNORM"),
        (0x80, "EPOLLRDBAND"),
        (0x100, "EPOLLWRNORM"),
        (0x200, "EPOLLWRBAND"),
        (0x400, "EPOLLMSG"),
        (8, "EPOLLERR"),
        (0x10, "EPOLLHUP"),
        (0x2000, "EPOLLRDHUP"),
        (1 << 28, "EPOLLEXCLUSIVE"),
        (1 << 29, "EPOLLWAKEUP"),
        (1 << 30, "EPOLLONESHOT"),
        (1 << 31, "EPOLLET"),
    ],
    unknown: "EPOLL???",
};
pub(super) const RANDOM: Flags =
    Flags { choice: NO_CHOICE, bits: &[(1, "GRND_NONBLOCK"), (2, "GRND_RANDOM"), (4, "GRND_INSECURE")], unknown: "GRND_???" };
pub(super) const EVENT: Flags =
    Flags { choice: NO_CHOICE, bits: &[(1, "EFD_SEMAPHORE"), (0o2_000_000, "EFD_CLOEXEC"), (0o4000, "EFD_NONBLOCK")], unknown: "EFD_???" };
pub(super) const MEMORY_FILE: Flags =
    Flags { choice: NO_CHOICE, bits: &[(1, "MFD_CLOEXEC"), (2, "MFD_ALLOW_SEALING"), (4, "MFD_HUGETLB")], unknown: "MFD_???" };
pub(super) const RENAME: Flags =
    Flags { choice: NO_CHOICE, bits: &[(1, "RENAME_NOREPLACE"), (2, "RENAME_EXCHANGE"), (4, "RENAME_WHITEOUT")], unknown: "RENAME_??" };
pub(super) const ATTRIBUTE: Flags = Flags { choice: NO_CHOICE, bits: &[(1, "XATTR_CREATE"), (2, "XATTR_REPLACE")], unknown: "XATTR_???" };
pub(super) const LOCK: Flags =
    Flags { choice: NO_CHOICE, bits: &[(1, "LOCK_SH"), (2, "LOCK_EX"), (8, "LOCK_UN"), (4, "LOCK_NB")], unknown: "LOCK_???" };
pub(super) const ALLOCATE: Flags = Flags {
    choice: NO_CHOICE,
    bits: &[
        (1, "FALLOC_FL_KEEP_SIZE"),
        (2, "FALLOC_FL_PUNCH_HOLE"),
        (8, "FALLOC_FL_COLLAPSE_RANGE"),
        (0x10, "FALLOC_FL_ZERO_RANGE"),
        (0x20, "FALLOC_FL_INSERT_RANGE"),
        (0x40, "FALLOC_FL_UNSHARE_RANGE"),
    ],
    unknown: "FALLOC_FL_???",
};
pub(super) const CLOSE: Flags =
    Flags { choice: NO_CHOICE, bits: &[(2, "CLOSE_RANGE_UNSHARE"), (4, "CLOSE_RANGE_CLOEXEC")], unknown: "CLOSE_RANGE_???" };
pub(super) const STATX: Flags = Flags {
    choice: NO_CHOICE,
    bits: &[
        (0xfff, "STATX_ALL"),
        (0x7ff, "STATX_BASIC_STATS"),
        (1, "STATX_TYPE"),
        (2, "STATX_MODE"),
        (4, "STATX_NLINK"),
        (8, "STATX_UID"),
        (0x10, "STATX_GID"),
        (0x20, "STATX_ATIME"),
        (0x40, "STATX_MTIME"),
        (0x80, "STATX_CTIME"),
        (0x100, "STATX_INO"),
        (0x200, "STATX_SIZE"),
        (0x400, "STATX_BLOCKS"),
        (0x800, "STATX_BTIME"),
        (0x1000, "STATX_MNT_ID"),
        (0x2000, "STATX_DIOALIGN"),
    ],
    unknown: "STATX_???",
};

pub(super) const RESOLVE: Flags = Flags {
    choice: NO_CHOICE,
    bits: &[
        (1, "RESOLVE_NO_XDEV"),
        (2, "RESOLVE_NO_MAGICLINKS"),
        (4, "RESOLVE_NO_SYMLINKS"),
        (8, "RESOLVE_BENEATH"),
        (0x10, "RESOLVE_IN_ROOT"),
        (0x20, "RESOLVE_CACHED"),
    ],
    unknown: "RESOLVE_???",
};

pub(super) const INPUT_MODES: Flags = Flags {
    choice: NO_CHOICE,
    bits: &[
        (1, "IGNBRK"),
        (2, "BRKINT"),
        (4, "IGNPAR"),
        (8, "PARMRK"),
        (0x10, "INPCK"),
        (0x20, "ISTRIP"),
        (0x40, "INLCR"),
        (0x80, "IGNCR"),
        (0x100, "ICRNL"),
        (0x200, "IUCLC"),
        (0x400, "IXON"),
        (0x800, "IXANY"),
        (0x1000, "IXOFF"),
        (0x2000, "IMAXBEL"),
        (0x4000, "IUTF8"),
    ],
    unknown: "I???",
};

/// Output flags of a terminal, without the delays.
pub(super) const OUTPUT_MODES: Flags = Flags {
    choice: NO_CHOICE,
    bits: &[(1, "OPOST"), (2, "OLCUC"), (4, "ONLCR"), (8, "OCRNL"), (0x10, "ONOCR"), (0x20, "ONLRET"), (0x40, "OFILL"), (0x80, "OFDEL")],
    unknown: "O???",
};

pub(super) const CONTROL_MODES: Flags = Flags {
    choice: (0x100f, &[(0, "B0"), (13, "B9600"), (14, "B19200"), (15, "B38400"), (0x1001, "B57600"), (0x1002, "B115200")]),
    bits: &[
        (0x30, "CS8"),
        (0x20, "CS7"),
        (0x10, "CS6"),
        (0x40, "CSTOPB"),
        (0x80, "CREAD"),
        (0x100, "PARENB"),
        (0x200, "PARODD"),
        (0x400, "HUPCL"),
        (0x800, "CLOCAL"),
    ],
    unknown: "C???",
};

pub(super) const LOCAL_MODES: Flags = Flags {
    choice: NO_CHOICE,
    bits: &[
        (1, "ISIG"),
        (2, "ICANON"),
        (8, "ECHO"),
        (0x10, "ECHOE"),
        (0x20, "ECHOK"),
        (0x40, "ECHONL"),
        (0x80, "NOFLSH"),
        (0x8000, "IEXTEN"),
        (0x200, "ECHOCTL"),
        (0x400, "ECHOPRT"),
        (0x800, "ECHOKE"),
        (0x100, "TOSTOP"),
        (0x1_0000, "EXTPROC"),
    ],
    unknown: "???",
};

/// Flags of `statx`, two bits of which are an enumerated value.
pub(super) fn statx(flags: u64) -> String {
    const SYNCHRONY: u64 = 0x6000;
    match (flags & SYNCHRONY, flags & !SYNCHRONY) {
        (0, 0) => "AT_STATX_SYNC_AS_STAT".into(),
        (0, others) => format!("AT_STATX_SYNC_AS_STAT|{}", AT.show(others)),
        _ => AT.show(flags),
    }
}

#[cfg(test)]
mod tests {
    use super::{ACCESS, OPEN, PROTECTION, REMOVE};

    #[test]
    fn flags_are_shown_as_names_or_numbers() {
        assert_eq!(OPEN.show(0), "O_RDONLY");
        assert_eq!(OPEN.show(0o2_001_101), "O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC");
        assert_eq!(OPEN.show(0o20_200_002), "O_RDWR|O_TMPFILE");
        assert_eq!(OPEN.show(1 << 40), "O_RDONLY|0x10000000000");
        assert_eq!(
            (PROTECTION.show(0), PROTECTION.show(3), ACCESS.show(0)),
            ("PROT_NONE".into(), "PROT_READ|PROT_WRITE".into(), "F_OK".into())
        );
        assert_eq!((REMOVE.show(0), REMOVE.show(4)), ("0".into(), "0x4 /* AT_??? */".into()));
    }
}
