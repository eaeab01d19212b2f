// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kinds of arguments: each word of a signature has a function that formats the register.

use alloc::format;

use super::argument::{Show, show_pointee};
use super::choices::{self, Choices};
use super::flags::{self, Flags};
use super::structures as structure;
use super::text::{bytes, hexadecimal, octal, pointer, random_bytes, string};
use super::{ipc, request, sockets, system, waiting};
use crate::errno::Errno;
use crate::uapi::{__O_TMPFILE, F_DUPFD, F_DUPFD_CLOEXEC, F_SETFD, F_SETFL, MREMAP_FIXED, O_CREAT, PR_GET_NAME, PR_SET_NAME};

/// A kind of argument.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    /// Formats it.
    pub show: Show,
    /// The call fills it in.
    pub is_filled: bool,
}

impl Kind {
    /// The kind with this name.
    pub(super) fn find(word: &str) -> Option<Kind> {
        let name = word.strip_suffix('=').unwrap_or(word);
        let (_, show) = KINDS.iter().find(|(kind, _)| *kind == name)?;
        Some(Kind { show: *show, is_filled: name.len() < word.len() })
    }

    /// The kind with this name, or else that of numbers.
    pub(super) fn of(word: &str) -> Kind {
        Kind::find(word).unwrap_or(Kind { show: |argument, text| *text += &hexadecimal(argument.value()), is_filled: false })
    }
}

/// A kind that is a number with a name.
macro_rules! choice {
    ($choices:path) => {
        |argument, text| {
            const CHOICES: Choices = $choices;
            *text += &CHOICES.show(u64::from(argument.value() as u32));
        }
    };
}

/// A kind that is a set of flags.
macro_rules! flag {
    ($flags:path) => {
        |argument, text| {
            const FLAGS: Flags = $flags;
            *text += &FLAGS.show(u64::from(argument.value() as u32));
        }
    };
}

/// A kind that is the address of a structure.
macro_rules! structure {
    ($show:path) => {
        |argument, text| show_pointee(argument, text, $show)
    };
}

/// The kinds by name. A `=` after the name in a signature means that the call fills it in.
const KINDS: &[(&str, Show)] = &[
    ("int", |argument, text| *text += &format!("{}", argument.value() as i32)),
    ("uint", |argument, text| *text += &format!("{}", argument.value() as u32)),
    ("size", |argument, text| *text += &format!("{}", argument.value())),
    ("offset", |argument, text| *text += &format!("{}", argument.value().cast_signed())),
    ("hex", |argument, text| *text += &hexadecimal(argument.value())),
    ("pointer", |argument, text| *text += &pointer(argument.value())),
    ("fd", |argument, text| *text += &format!("{}", argument.value() as i32)),
    ("at", |argument, text| {
        *text += &match argument.value() as i32 {
            -100 => "AT_FDCWD".into(),
            fd => format!("{fd}"),
        }
    }),
    ("status", |argument, text| *text += &format!("{}", argument.value() as i32)),
    ("path", |argument, text| *text += &string(argument.value())),
    ("bytes", |argument, text| show_pointee(argument, text, |address| bytes(address, argument.length()))),
    ("text", |argument, text| show_pointee(argument, text, string)),
    ("random-bytes", |argument, text| show_pointee(argument, text, |address| random_bytes(address, argument.length()))),
    ("mode", |argument, text| *text += &octal(argument.value() as u32 as u64)),
    ("type", |argument, text| *text += &structure::mode(argument.value() as u32)),
    ("device", |argument, text| {
        if matches!(argument.before() & 0o170_000, 0o020_000 | 0o060_000) {
            *text += &structure::device(argument.value());
        }
    }),
    ("created", |argument, text| {
        if argument.before() & (O_CREAT | __O_TMPFILE) != 0 {
            *text += &octal(argument.value() as u32 as u64);
        }
    }),
    ("moved", |argument, text| {
        if argument.before() & MREMAP_FIXED != 0 {
            *text += &pointer(argument.value());
        }
    }),
    ("open", flag!(flags::OPEN)),
    ("descriptor", flag!(flags::DESCRIPTOR)),
    ("protection", flag!(flags::PROTECTION)),
    ("map", flag!(flags::MAP)),
    ("remap", flag!(flags::REMAP)),
    ("capability-header", structure!(system::capability_header)),
    ("locking", flag!(flags::LOCKING)),
    ("policy", |argument, text| *text += &choices::policy(argument.value() as u32)),
    ("priority-of", choice!(choices::PRIORITY_OF)),
    ("processors-given", |argument, text| *text += &system::processors(argument.value(), argument.before())),
    ("sync", flag!(flags::SYNC)),
    ("at-flags", flag!(flags::AT)),
    ("statx-flags", |argument, text| *text += &flags::statx(u64::from(argument.value() as u32))),
    ("removal", flag!(flags::REMOVE)),
    ("access", flag!(flags::ACCESS)),
    ("access-flags", flag!(flags::ACCESS_AT)),
    ("timer-flags", flag!(flags::TIMER)),
    ("timer-file", flag!(flags::TIMER_FILE)),
    ("timer-file-flags", flag!(flags::TIMER_FILE_SET)),
    ("signal-file", flag!(flags::SIGNAL_FILE)),
    ("notes-file", flag!(flags::INOTIFY_INIT)),
    ("notes", flag!(flags::INOTIFY_MASK)),
    ("splicing", flag!(flags::SPLICE)),
    ("offset-at", structure!(structure::number64)),
    ("epoll-flags", flag!(flags::EPOLL_CREATE)),
    ("epoll", choice!(choices::EPOLL)),
    ("event", structure!(waiting::event)),
    ("events", |argument, text| {
        show_pointee(argument, text, |address| waiting::events(address, argument.moved()));
    }),
    ("random", flag!(flags::RANDOM)),
    ("event-flags", flag!(flags::EVENT)),
    ("memory-flags", flag!(flags::MEMORY_FILE)),
    ("renaming", flag!(flags::RENAME)),
    ("attribute-flags", flag!(flags::ATTRIBUTE)),
    ("lock", flag!(flags::LOCK)),
    ("allocation", flag!(flags::ALLOCATE)),
    ("closing", flag!(flags::CLOSE)),
    ("statx-mask", flag!(flags::STATX)),
    ("whence", choice!(choices::WHENCE)),
    ("clock", choice!(choices::CLOCK)),
    ("mask-change", choice!(choices::MASK)),
    ("interval", choice!(choices::INTERVAL)),
    ("who", choice!(choices::USAGE)),
    ("resource", choice!(choices::RESOURCE)),
    ("advice", choice!(choices::ADVICE)),
    ("file-advice", choice!(choices::FILE_ADVICE)),
    ("architecture", choice!(choices::ARCHITECTURE)),
    ("process-control", choice!(choices::PROCESS_CONTROL)),
    ("file-control", choice!(choices::FILE_CONTROL)),
    ("request", |argument, text| *text += &request::name(argument.value() as u32)),
    ("futex", |argument, text| *text += &choices::futex(u64::from(argument.value() as u32))),
    ("signal", |argument, text| *text += &choices::signal_number(argument.value())),
    ("timespec", structure!(structure::timespec)),
    ("timeval", structure!(structure::timeval)),
    ("times", structure!(structure::times)),
    ("itimerval", structure!(structure::itimerval)),
    ("timevals", structure!(system::timevals)),
    ("utimbuf", structure!(system::access_times)),
    ("usage", structure!(system::usage)),
    ("process-times", structure!(system::process_times)),
    ("sysinfo", structure!(system::system)),
    ("itimerspec", structure!(structure::itimerspec)),
    ("sigevent", structure!(structure::sigevent)),
    ("set", structure!(structure::set)),
    ("pointed-set", structure!(system::pointed_set)),
    ("action", structure!(structure::action)),
    ("stack", structure!(structure::stack)),
    ("siginfo", structure!(structure::information_at)),
    ("stat", structure!(structure::status)),
    ("statx", structure!(structure::statx)),
    ("limits", structure!(structure::limits)),
    ("utsname", structure!(structure::names)),
    ("number32", structure!(structure::number32)),
    ("number64", structure!(structure::number64)),
    ("family", choice!(sockets::FAMILY)),
    ("socket-type", flag!(sockets::TYPE)),
    ("socket-flags", flag!(sockets::TYPE_FLAGS)),
    ("protocol", |argument, text| *text += &sockets::protocol(argument.all[0], u64::from(argument.value() as u32))),
    ("shut", choice!(sockets::SHUT)),
    ("message-flags", flag!(sockets::MESSAGE)),
    ("socket-level", choice!(sockets::LEVEL)),
    ("socket-option", |argument, text| *text += &sockets::option(argument.before(), u64::from(argument.value() as u32))),
    ("sockaddr", |argument, text| {
        *text += &match argument.result {
            None => sockets::address(argument.value(), u64::from(argument.next() as u32)),
            Some(Ok(_)) => sockets::returned_address(argument.value(), argument.next()),
            Some(Err(_)) => pointer(argument.value()),
        }
    }),
    ("pair", structure!(structure::descriptors)),
    ("how", structure!(structure::how)),
    // Only filled in if the sleep was interrupted.
    ("left", |argument, text| {
        *text += &match argument.result {
            Some(Err(Errno::EINTR)) => structure::timespec(argument.value()),
            _ => pointer(argument.value()),
        }
    }),
    ("vectors", |argument, text| {
        let moved = argument.result.map_or(u64::MAX, Result::unwrap_or_default);
        show_pointee(argument, text, |address| structure::vectors(address, argument.next(), moved));
    }),
    ("groups", |argument, text| {
        let count = argument.result.map_or(argument.before(), Result::unwrap_or_default);
        show_pointee(argument, text, |address| system::groups(address, count));
    }),
    ("processors", |argument, text| show_pointee(argument, text, |address| system::processors(address, argument.moved()))),
    // Only operations that wait have a timeout.
    ("futex-timeout", |argument, text| {
        if choices::futex_waits(argument.all[1]) {
            *text += &structure::timespec(argument.value());
        }
    }),
    ("process-argument", |argument, text| match argument.before() as u32 {
        PR_SET_NAME => *text += &string(argument.value()),
        PR_GET_NAME => show_pointee(argument, text, string),
        _ => *text += &hexadecimal(argument.value()),
    }),
    ("polls", |argument, text| *text += &structure::questions(argument.value(), argument.next())),
    ("descriptors", |argument, text| *text += &structure::descriptor_set(argument.value(), argument.all[0] as u32 as u64)),
    ("entries", |argument, text| show_pointee(argument, text, |address| structure::entries(address, argument.length(), 18))),
    ("control-argument", |argument, text| {
        let value = argument.value();
        match argument.before() as u32 as u64 {
            F_SETFD => *text += if value == 1 { "FD_CLOEXEC" } else { "0" },
            F_SETFL => *text += &flags::OPEN.show(value),
            F_DUPFD | F_DUPFD_CLOEXEC => *text += &format!("{}", value as i32),
            6 | 7 | 37 | 38 => *text += &waiting::lock(value),
            // Commands without an argument.
            1 | 3 | 9 | 1025 | 1032 | 1034 => {}
            _ => *text += &hexadecimal(value),
        }
    }),
    ("process-file", flag!(flags::PROCESS_FILE)),
    ("queue-limits", structure!(ipc::queue_limits)),
    ("ipc-key", |argument, text| *text += &ipc::key(argument.value() as u32)),
    ("ipc-flags", |argument, text| *text += &ipc::get(u64::from(argument.value() as u32), false)),
    ("shared-flags", |argument, text| *text += &ipc::get(u64::from(argument.value() as u32), true)),
    ("attaching", flag!(ipc::ATTACH)),
    ("message-operation", flag!(ipc::MESSAGE)),
    ("semaphore-operations", |argument, text| *text += &ipc::operations(argument.value(), u64::from(argument.next() as u32))),
    ("typed-message", |argument, text| show_pointee(argument, text, |address| ipc::message(address, argument.next()))),
    ("memory-control", choice!(ipc::MEMORY_CONTROL)),
    ("memory-control-argument", ipc::memory_argument),
    ("semaphore-control", choice!(ipc::SEMAPHORE_CONTROL)),
    ("semaphore-control-argument", ipc::semaphore_argument),
    ("queue-control", choice!(ipc::QUEUE_CONTROL)),
    ("queue-control-argument", ipc::queue_argument),
    ("request-argument", |argument, text| request::argument(argument.before() as u32, argument, text)),
];
