// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of System V calls, printed as by strace.

use alloc::format;
use alloc::string::String;

use super::argument::Argument;
use super::choices::Choices;
use super::flags::Flags;
use super::structures::{array, at, word32};
use super::text::{bytes, copy, hexadecimal, octal, pointer, words};
use crate::uapi::{IPC_INFO, IPC_RMID, IPC_SET, IPC_STAT, MSG_INFO, SEM_INFO, SETVAL, SHM_INFO};

const GET: Flags = Flags::named(&[(0o1000, "IPC_CREAT"), (0o2000, "IPC_EXCL")], "IPC_???");
const GET_MEMORY: Flags =
    Flags::named(&[(0o1000, "IPC_CREAT"), (0o2000, "IPC_EXCL"), (0o4000, "SHM_HUGETLB"), (0o10_000, "SHM_NORESERVE")], "SHM_???");
pub(super) const ATTACH: Flags =
    Flags::named(&[(0o10_000, "SHM_RDONLY"), (0o20_000, "SHM_RND"), (0o40_000, "SHM_REMAP"), (0o100_000, "SHM_EXEC")], "SHM_???");
pub(super) const MESSAGE: Flags =
    Flags::named(&[(0o10_000, "MSG_NOERROR"), (0o20_000, "MSG_EXCEPT"), (0o40_000, "MSG_COPY"), (0o4000, "IPC_NOWAIT")], "MSG_???");
const OPERATION: Flags = Flags::named(&[(0o10_000, "SEM_UNDO"), (0o4000, "IPC_NOWAIT")], "SEM_???");

pub(super) const MEMORY_CONTROL: Choices = Choices(
    &[
        (IPC_RMID, "IPC_RMID"),
        (IPC_SET, "IPC_SET"),
        (IPC_STAT, "IPC_STAT"),
        (IPC_INFO, "IPC_INFO"),
        (11, "SHM_LOCK"),
        (12, "SHM_UNLOCK"),
        (13, "SHM_STAT"),
        (14, "SHM_INFO"),
        (15, "SHM_STAT_ANY"),
    ],
    "SHM_???",
);
pub(super) const SEMAPHORE_CONTROL: Choices = Choices(
    &[
        (IPC_RMID, "IPC_RMID"),
        (IPC_SET, "IPC_SET"),
        (IPC_STAT, "IPC_STAT"),
        (IPC_INFO, "IPC_INFO"),
        (11, "GETPID"),
        (12, "GETVAL"),
        (13, "GETALL"),
        (14, "GETNCNT"),
        (15, "GETZCNT"),
        (16, "SETVAL"),
        (17, "SETALL"),
        (18, "SEM_STAT"),
        (19, "SEM_INFO"),
        (20, "SEM_STAT_ANY"),
    ],
    "SEM_???",
);
pub(super) const QUEUE_CONTROL: Choices = Choices(
    &[
        (IPC_RMID, "IPC_RMID"),
        (IPC_SET, "IPC_SET"),
        (IPC_STAT, "IPC_STAT"),
        (IPC_INFO, "IPC_INFO"),
        (11, "MSG_STAT"),
        (12, "MSG_INFO"),
        (13, "MSG_STAT_ANY"),
    ],
    "MSG_???",
);

/// Formats a key.
pub(super) fn key(key: u32) -> String {
    if key == 0 { "IPC_PRIVATE".into() } else { hexadecimal(key.into()) }
}

/// Formats flags and permissions of a call that finds or creates an object.
pub(super) fn get(value: u64, is_memory: bool) -> String {
    let flags = value & !0o777;
    let names = if is_memory { GET_MEMORY } else { GET }.show(flags);
    let permissions = octal(value & 0o777);
    if flags == 0 { permissions } else { format!("{names}|{permissions}") }
}

/// Formats semaphore operations.
pub(super) fn operations(address: u64, count: u64) -> String {
    let one = |index: u64| {
        let bytes = copy(address.wrapping_add(index * 6), 6)?;
        let [number, change, flags] = [0, 2, 4].map(|at| u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        Some(format!("{{sem_num={number}, sem_op={}, sem_flg={}}}", change.cast_signed(), OPERATION.show(flags.into())))
    };
    at(address, |_| array(count, one))
}

/// Formats a message with its type and so many bytes of text.
pub(super) fn message(address: u64, length: u64) -> String {
    at(address, |address| {
        words(address).map(|[kind]| format!("{{mtype={}, mtext={}}}", kind.cast_signed(), bytes(address.wrapping_add(8), length)))
    })
}

/// Formats the owner and permissions of an object; `with_creator`: with its creator.
fn owner(name: &str, address: u64, with_creator: bool) -> Option<String> {
    let bytes = copy(address, 24)?;
    let word = |index: usize| word32(&bytes, 4 * index);
    let rest = if with_creator { format!(", key={}, cuid={}, cgid={}", word(0), word(3), word(4)) } else { String::new() };
    Some(format!("{name}={{uid={}, gid={}, mode={}{rest}}}", word(1), word(2), octal(word(5).into())))
}

/// Formats the buffer of `shmctl`.
pub(super) fn memory_argument(argument: &Argument<'_>, text: &mut String) {
    control_argument(argument, text, SHM_INFO, |wanted, address| match wanted {
        IPC_INFO => words(address).map(|[most, least, count, each, all]| {
            format!("{{shmmax={most}, shmmin={least}, shmmni={count}, shmseg={each}, shmall={all}}}")
        }),
        SHM_INFO => words(address).map(|[used, all, resident, swapped, attempts, successes]| {
            let swap = format!("swap_attempts={attempts}, swap_successes={successes}");
            format!("{{used_ids={used}, shm_tot={all}, shm_rss={resident}, shm_swp={swapped}, {swap}}}")
        }),
        IPC_SET => owner("shm_perm", address, false).map(|owner| format!("{{{owner}}}")),
        _ => {
            let owner = owner("shm_perm", address, true)?;
            let [bytes, attached, detached, changed, processes, users] = words(address.wrapping_add(48))?;
            let (maker, last) = (processes as u32, processes >> 32);
            let times = format!("shm_atime={attached}, shm_dtime={detached}, shm_ctime={changed}");
            Some(format!("{{{owner}, shm_segsz={bytes}, shm_cpid={maker}, shm_lpid={last}, shm_nattch={users}, {times}}}"))
        }
    });
}

/// Formats the argument of `semctl`.
pub(super) fn semaphore_argument(argument: &Argument<'_>, text: &mut String) {
    if wanted(argument) == SETVAL {
        return *text += &hexadecimal(argument.value());
    }
    control_argument(argument, text, SEM_INFO, |wanted, address| match wanted {
        IPC_INFO | SEM_INFO => {
            const NAMES: [&str; 10] = ["semmap", "semmni", "semmns", "semmnu", "semmsl", "semopm", "semume", "semusz", "semvmx", "semaem"];
            numbers(address, &NAMES)
        }
        IPC_SET => owner("sem_perm", address, false).map(|owner| format!("{{{owner}}}")),
        _ => {
            let owner = owner("sem_perm", address, true)?;
            let [operated, _, changed, _, count] = words(address.wrapping_add(48))?;
            Some(format!("{{{owner}, sem_otime={operated}, sem_ctime={changed}, sem_nsems={count}}}"))
        }
    });
}

/// Formats the buffer of `msgctl`.
pub(super) fn queue_argument(argument: &Argument<'_>, text: &mut String) {
    control_argument(argument, text, MSG_INFO, |wanted, address| match wanted {
        IPC_INFO | MSG_INFO => {
            const NAMES: [&str; 8] = ["msgpool", "msgmap", "msgmax", "msgmnb", "msgmni", "msgssz", "msgtql", "msgseg"];
            numbers(address, &NAMES)
        }
        IPC_SET => {
            let [room] = words(address.wrapping_add(88))?;
            owner("msg_perm", address, false).map(|owner| format!("{{{owner}, msg_qbytes={room}}}"))
        }
        _ => {
            let owner = owner("msg_perm", address, true)?;
            let [sent, received, changed, _, count, room, processes] = words(address.wrapping_add(48))?;
            let times = format!("msg_stime={sent}, msg_rtime={received}, msg_ctime={changed}");
            let (sender, receiver) = (processes as u32, processes >> 32);
            Some(format!("{{{owner}, {times}, msg_qnum={count}, msg_qbytes={room}, msg_lspid={sender}, msg_lrpid={receiver}}}"))
        }
    });
}

/// Formats a `struct mq_attr`.
pub(super) fn queue_limits(address: u64) -> String {
    const NON_BLOCKING: Flags = Flags::named(&[(0o4000, "O_NONBLOCK")], "O_???");
    at(address, |address| {
        words(address).map(|[flags, count, bytes, there]| {
            format!("{{mq_flags={}, mq_maxmsg={count}, mq_msgsize={bytes}, mq_curmsgs={there}}}", NON_BLOCKING.show(flags))
        })
    })
}

/// The command before a buffer.
fn wanted(argument: &Argument<'_>) -> u64 {
    u64::from(argument.before() as u32)
}

/// Formats a buffer that depends on the command before it: as a structure for commands that strace knows, as an address otherwise.
fn control_argument(argument: &Argument<'_>, text: &mut String, info: u64, show: impl FnOnce(u64, u64) -> Option<String>) {
    let (wanted, address) = (wanted(argument), argument.value());
    let shows = [IPC_SET, IPC_STAT, IPC_INFO, info].contains(&wanted) && (wanted == IPC_SET || matches!(argument.result, Some(Ok(_))));
    *text += &if shows { at(address, |address| show(wanted, address)) } else { pointer(address) };
}

/// Formats numbers with their names.
fn numbers(address: u64, names: &[&str]) -> Option<String> {
    let bytes = copy(address, 4 * names.len())?;
    let number = |(index, name): (usize, &&str)| format!("{name}={}", word32(&bytes, 4 * index));
    Some(format!("{{{}}}", names.iter().enumerate().map(number).collect::<alloc::vec::Vec<_>>().join(", ")))
}
