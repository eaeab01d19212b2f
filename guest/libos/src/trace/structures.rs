// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures in the program's memory, as far as strace prints them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use pando_abi::PAGE_SIZE;

use super::choices;
use super::flags::{ACTION, OPEN, POLL, RESOLVE, STACK};
use super::text::{bytes, copy, hexadecimal, octal, pointer, quoted, words};
use crate::signals::frame::CONTEXT_WORDS;
use crate::signals::info::SigInfo;
use crate::signals::{Signal, SignalSet};
use crate::uapi::{SI_KERNEL, SI_TIMER, SI_TKILL, SI_USER, UTIME_NOW, UTIME_OMIT};

/// Most elements of an array that are printed.
const SHOWN: u64 = 32;

/// Formats the structure at an address by `read`, or the address if there is none or it cannot be read.
pub(super) fn at(address: u64, read: impl FnOnce(u64) -> Option<String>) -> String {
    if address == 0 { pointer(0) } else { read(address).unwrap_or_else(|| pointer(address)) }
}

pub(super) fn word32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}

fn word16(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

pub(super) fn timespec(address: u64) -> String {
    at(address, |address| words(address).map(|[seconds, part]| pair(seconds, "nsec", part)))
}

pub(super) fn timeval(address: u64) -> String {
    at(address, |address| words(address).map(|[seconds, part]| pair(seconds, "usec", part)))
}

fn pair(seconds: u64, unit: &str, part: u64) -> String {
    format!("{{tv_sec={}, tv_{unit}={}}}", seconds.cast_signed(), part.cast_signed())
}

/// Formats two file times.
pub(super) fn times(address: u64) -> String {
    let time = |seconds: u64, part: u64| match part {
        UTIME_NOW => "UTIME_NOW".into(),
        UTIME_OMIT => "UTIME_OMIT".into(),
        _ => pair(seconds, "nsec", part),
    };
    at(address, |address| words(address).map(|[first, part, second, other]| format!("[{}, {}]", time(first, part), time(second, other))))
}

pub(super) fn itimerval(address: u64) -> String {
    at(address, |address| {
        words(address).map(|[interval, part, value, other]| {
            format!("{{it_interval={}, it_value={}}}", pair(interval, "usec", part), pair(value, "usec", other))
        })
    })
}

pub(super) fn itimerspec(address: u64) -> String {
    at(address, |address| {
        words(address).map(|[interval, part, value, other]| {
            format!("{{it_interval={}, it_value={}}}", pair(interval, "nsec", part), pair(value, "nsec", other))
        })
    })
}

pub(super) fn sigevent(address: u64) -> String {
    at(address, |address| {
        words(address).map(|[value, kind, thread]| {
            let signal = choices::signal_number(kind);
            let value = format!("{{sigev_value={{sival_int={}, sival_ptr={value:#x}}}, sigev_signo={signal}", value as i32);
            match kind >> 32 {
                0 => format!("{value}, sigev_notify=SIGEV_SIGNAL}}"),
                1 => format!("{value}, sigev_notify=SIGEV_NONE}}"),
                4 => format!("{value}, sigev_notify=SIGEV_THREAD_ID, sigev_notify_thread_id={}}}", thread as i32),
                other => format!("{value}, sigev_notify={other:#x}}}"),
            }
        })
    })
}

pub(super) fn set(address: u64) -> String {
    at(address, |address| words(address).map(|[set]| choices::set(SignalSet(set))))
}

pub(super) fn action(address: u64) -> String {
    const RESTORER: u64 = 0x0400_0000;
    at(address, |address| {
        words(address).map(|[handler, flags, restorer, mask]| {
            let handler = match handler {
                0 => "SIG_DFL".into(),
                1 => "SIG_IGN".into(),
                handler => format!("{handler:#x}"),
            };
            let restorer = if flags & RESTORER != 0 { format!(", sa_restorer={restorer:#x}") } else { String::new() };
            format!("{{sa_handler={handler}, sa_mask={}, sa_flags={}{restorer}}}", choices::set(SignalSet(mask)), ACTION.show(flags))
        })
    })
}

pub(super) fn stack(address: u64) -> String {
    at(address, |address| {
        words(address).map(|[start, state, size]| {
            format!("{{ss_sp={}, ss_flags={}, ss_size={size}}}", pointer(start), STACK.show(u64::from(state as u32)))
        })
    })
}

/// Formats a `siginfo_t`.
pub(super) fn information(info: &SigInfo) -> String {
    const QUEUED: i32 = -1;
    let signal = info.signal();
    let start = format!("{{si_signo={}, si_code={}", choices::signal(signal), cause(signal, info.code()));
    let rest = match info.code() {
        SI_KERNEL => String::new(),
        SI_TIMER => {
            let value = info.value();
            format!(", si_timerid={:#x}, si_overrun={}, si_int={}, si_ptr={value:#x}", info.first(), info.second(), value as i32)
        }
        QUEUED => {
            let value = info.value();
            format!(", si_pid={}, si_uid={}, si_int={}, si_ptr={value:#x}", info.first(), info.second(), value as i32)
        }
        1.. if SignalSet::SYNCHRONOUS.contains(signal) => format!(", si_addr={}", pointer(info.address())),
        _ => format!(", si_pid={}, si_uid={}", info.first(), info.second()),
    };
    format!("{start}{rest}}}")
}

pub(super) fn information_at(address: u64) -> String {
    at(address, |address| {
        let bytes: [u8; SigInfo::SIZE] = copy(address, SigInfo::SIZE)?.try_into().ok()?;
        let signal = Signal::from_number(word32(&bytes, 0).into()).ok()?;
        Some(information(&SigInfo::from_program(signal, bytes)))
    })
}

/// The name of an `si_code`.
fn cause(signal: Signal, number: i32) -> String {
    let name = match (number, signal) {
        (SI_USER, _) => "SI_USER",
        (SI_KERNEL, _) => "SI_KERNEL",
        (SI_TIMER, _) => "SI_TIMER",
        (SI_TKILL, _) => "SI_TKILL",
        (-1, _) => "SI_QUEUE",
        (1, Signal::SIGSEGV) => "SEGV_MAPERR",
        (2, Signal::SIGSEGV) => "SEGV_ACCERR",
        (1, Signal::SIGBUS) => "BUS_ADRALN",
        (2, Signal::SIGBUS) => "BUS_ADRERR",
        (2, Signal::SIGILL) => "ILL_ILLOPN",
        (2, Signal::SIGTRAP) => "TRAP_TRACE",
        (1, Signal::SIGFPE) => "FPE_INTDIV",
        (3, Signal::SIGFPE) => "FPE_FLTDIV",
        (4, Signal::SIGFPE) => "FPE_FLTOVF",
        (5, Signal::SIGFPE) => "FPE_FLTUND",
        (6, Signal::SIGFPE) => "FPE_FLTRES",
        (7, Signal::SIGFPE) => "FPE_FLTINV",
        _ => return format!("{number}"),
    };
    name.into()
}

/// The arguments of `rt_sigreturn` in its frame: the mask, and the result that the program then sees.
pub(super) fn returned(stack_pointer: u64) -> Option<(String, u64)> {
    const RESULT: usize = 18;
    const MASK: usize = CONTEXT_WORDS - 1;
    let frame: [u64; CONTEXT_WORDS] = words(stack_pointer)?;
    Some((format!("{{mask={}}}", choices::set(SignalSet(frame[MASK]))), frame[RESULT]))
}

/// Formats the type and permissions of a file.
pub(super) fn mode(mode: u32) -> String {
    let kind = match mode & 0o170_000 {
        0o010_000 => "S_IFIFO",
        0o020_000 => "S_IFCHR",
        0o040_000 => "S_IFDIR",
        0o060_000 => "S_IFBLK",
        0o100_000 => "S_IFREG",
        0o120_000 => "S_IFLNK",
        0o140_000 => "S_IFSOCK",
        _ => return octal(mode.into()),
    };
    let special = [(0o4000, "|S_ISUID"), (0o2000, "|S_ISGID"), (0o1000, "|S_ISVTX")];
    let special: String = special.into_iter().filter(|(bit, _)| mode & bit != 0).map(|(_, name)| name).collect();
    format!("{kind}{special}|{}", octal((mode & 0o777).into()))
}

fn has_device(mode: u32) -> bool {
    matches!(mode & 0o170_000, 0o020_000 | 0o060_000)
}

/// Formats a device number.
pub(super) fn device(number: u64) -> String {
    let major = number >> 8 & 0xfff | number >> 32 & 0xffff_f000;
    let minor = number & 0xff | number >> 12 & 0xffff_ff00;
    format!("makedev({}, {})", hexadecimal(major), hexadecimal(minor))
}

pub(super) fn status(address: u64) -> String {
    const SIZE: usize = 144;
    at(address, |address| {
        let bytes = copy(address, SIZE)?;
        let word = |offset: usize| u64::from(word32(&bytes, offset)) | u64::from(word32(&bytes, offset + 4)) << 32;
        let permissions = word32(&bytes, 24);
        let what =
            if has_device(permissions) { format!("st_rdev={}", device(word(40))) } else { format!("st_size={}", word(48).cast_signed()) };
        Some(format!("{{st_mode={}, {what}, ...}}", mode(permissions)))
    })
}

pub(super) fn statx(address: u64) -> String {
    const SIZE: usize = 256;
    at(address, |address| {
        let bytes = copy(address, SIZE)?;
        let size = u64::from(word32(&bytes, 40)) | u64::from(word32(&bytes, 44)) << 32;
        let attributes = u64::from(word32(&bytes, 8)) | u64::from(word32(&bytes, 12)) << 32;
        let filled = super::flags::STATX.show(word32(&bytes, 0).into());
        Some(format!(
            "{{stx_mask={filled}, stx_attributes={}, stx_mode={}, stx_size={size}, ...}}",
            hexadecimal(attributes),
            mode(word16(&bytes, 28).into())
        ))
    })
}

pub(super) fn limits(address: u64) -> String {
    let limit = |value: u64| match value {
        u64::MAX => "RLIM64_INFINITY".into(),
        value if value > 1024 && value.is_multiple_of(1024) => format!("{}*1024", value / 1024),
        value => format!("{value}"),
    };
    at(address, |address| words(address).map(|[current, most]| format!("{{rlim_cur={}, rlim_max={}}}", limit(current), limit(most))))
}

pub(super) fn names(address: u64) -> String {
    const NAME: usize = 65;
    at(address, |address| {
        let bytes = copy(address, 2 * NAME)?;
        let name = |index: usize| {
            let all = &bytes[index * NAME..][..NAME];
            quoted(all.split(|byte| *byte == 0).next().unwrap_or_default())
        };
        Some(format!("{{sysname={}, nodename={}, ...}}", name(0), name(1)))
    })
}

pub(super) fn window(address: u64) -> String {
    at(address, |address| {
        let bytes = copy(address, 8)?;
        let [rows, columns, wide, high] = [0, 2, 4, 6].map(|offset| word16(&bytes, offset));
        Some(format!("{{ws_row={rows}, ws_col={columns}, ws_xpixel={wide}, ws_ypixel={high}}}"))
    })
}

pub(super) fn number32(address: u64) -> String {
    at(address, |address| Some(format!("[{}]", word32(&copy(address, 4)?, 0).cast_signed())))
}

pub(super) fn number64(address: u64) -> String {
    at(address, |address| words(address).map(|[number]| format!("[{number}]")))
}

/// Formats two descriptors.
pub(super) fn descriptors(address: u64) -> String {
    at(address, |address| {
        let bytes = copy(address, 8)?;
        Some(format!("[{}, {}]", word32(&bytes, 0).cast_signed(), word32(&bytes, 4).cast_signed()))
    })
}

/// Formats the elements of an array by `each`, with most of a long one left out.
pub(super) fn array(count: u64, mut each: impl FnMut(u64) -> Option<String>) -> Option<String> {
    let elements: Option<Vec<String>> = (0..count.min(SHOWN)).map(&mut each).collect();
    Some(format!("[{}{}]", elements?.join(", "), if count > SHOWN { ", ..." } else { "" }))
}

/// Formats the buffers of `readv` and `writev` with so many bytes in all.
pub(super) fn vectors(address: u64, count: u64, mut moved: u64) -> String {
    at(address, |address| {
        array(count, |index| {
            let [start, length] = words(address.wrapping_add(index * 16))?;
            let here = length.min(moved);
            moved -= here;
            let content = if here == 0 && length > 0 { "\"\"".into() } else { bytes(start, here) };
            Some(format!("{{iov_base={content}, iov_len={length}}}"))
        })
    })
}

/// Formats the requested events of `poll`.
pub(super) fn questions(address: u64, count: u64) -> String {
    at(address, |address| {
        array(count, |index| {
            let bytes = copy(address.wrapping_add(index * 8), 8)?;
            let fd = word32(&bytes, 0).cast_signed();
            Some(if fd < 0 { format!("{{fd={fd}}}") } else { format!("{{fd={fd}, events={}}}", POLL.show(word16(&bytes, 4).into())) })
        })
    })
}

/// Formats the returned events of `poll`.
pub(super) fn answers(address: u64, count: u64) -> String {
    let ready = (0..count.min(SHOWN)).filter_map(|index| {
        let bytes = copy(address.wrapping_add(index * 8), 8)?;
        let answer = word16(&bytes, 6);
        (answer != 0).then(|| format!("{{fd={}, revents={}}}", word32(&bytes, 0), POLL.show(answer.into())))
    });
    format!("[{}]", ready.collect::<Vec<_>>().join(", "))
}

/// Formats a set of descriptors.
pub(super) fn descriptor_set(address: u64, count: u64) -> String {
    at(address, |address| {
        let bytes = copy(address, count.div_ceil(64).min(PAGE_SIZE) as usize * 8)?;
        let members =
            (0..bytes.len() * 8).take(count as usize).filter(|fd| bytes.get(fd / 8).is_some_and(|byte| byte >> (fd % 8) & 1 != 0));
        Some(format!("[{}]", members.map(|fd| format!("{fd}")).collect::<Vec<_>>().join(" ")))
    })
}

/// Formats the number of entries that a directory returned.
pub(super) fn entries(address: u64, length: u64, header: usize) -> String {
    let mut count = 0;
    let mut offset = 0;
    while offset < length {
        let Some(bytes) = copy(address.wrapping_add(offset), header) else { break };
        let size = u64::from(word16(&bytes, 16));
        if size == 0 {
            break;
        }
        offset += size;
        count += 1;
    }
    format!("{} /* {count} entries */", pointer(address))
}

/// Formats a `struct open_how`.
pub(super) fn how(address: u64) -> String {
    at(address, |address| {
        words(address).map(|[flags, mode, resolve]| {
            let mode = if flags & 0o100 != 0 { format!(", mode={}", octal(mode)) } else { String::new() };
            format!("{{flags={}{mode}, resolve={}}}", OPEN.show(flags), RESOLVE.show(resolve))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::{device, information, mode};
    use crate::signals::Signal;
    use crate::signals::info::SigInfo;
    use crate::uapi::SI_USER;

    #[test]
    fn structures_are_written_as_strace_writes_them() {
        assert_eq!((mode(0o100_644), mode(0o041_777), mode(0o644)), ("S_IFREG|0644".into(), "S_IFDIR|S_ISVTX|0777".into(), "0644".into()));
        assert_eq!(device(0x8801), "makedev(0x88, 0x1)");
        assert_eq!(information(&SigInfo::kernel(Signal::SIGALRM)), "{si_signo=SIGALRM, si_code=SI_KERNEL}");
        assert_eq!(information(&SigInfo::sent(Signal::SIGINT, SI_USER, 1, 0)), "{si_signo=SIGINT, si_code=SI_USER, si_pid=1, si_uid=0}");
        assert_eq!(information(&SigInfo::fault(Signal::SIGSEGV, 1, 0)), "{si_signo=SIGSEGV, si_code=SEGV_MAPERR, si_addr=NULL}");
    }
}
