// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of system calls: number, name, how far it is supported, handler. The coverage table is printed from it.

use core::fmt;

use pando_abi::limits::REPORTED_CALLS;
use pando_rt::registers::{count_call, count_missing};

use crate::calls::{changes, control, directory, identity, input_output, memory, open, poll, random, signals, stat, threads, time, timers};
use crate::errno::Errno;
use crate::process::Process;
use Support::{Accepted, Full, Partial, Refused};

/// What serves a system call: it takes the six argument registers.
pub type Handler = fn(&mut Process, [u64; 6]) -> Result<u64, Errno>;

/// How far a call is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// As on Linux, as far as one process in a cell can tell.
    Full,
    /// As on Linux, except for this.
    Partial(&'static str),
    /// Accepted; it changes nothing, for this reason.
    Accepted(&'static str),
    /// Always answered with an error, for this reason.
    Refused(&'static str),
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Linux's number on x86-64.
    pub number: u16,
    /// Linux's name.
    pub name: &'static str,
    /// How far it is supported.
    pub support: Support,
    handler: Handler,
}

const fn call(number: u16, name: &'static str, support: Support, handler: Handler) -> Call {
    Call { number, name, support, handler }
}

const READ_ONLY: Support = Refused("the root image is read-only: EROFS, or what Linux says before it");
const NO_OTHERS_TO_SIGNAL: Support = Partial("to the process itself: there is no other");
const CPU_TIME: Support = Partial("CPU time is the time since the start without what was spent waiting");
const ONE_PROCESS: Support = Partial("there is one process, number 1, of user 0");
const NO_OTHERS: Support = Accepted("there is nobody to tell apart from");
const ONE_THREAD: Support = Accepted("there is one thread");

/// The calls, in order of number. What is missing here is answered with `ENOSYS` and counted.
pub const TABLE: &[Call] = &[
    call(0, "read", Full, input_output::read),
    call(1, "write", Full, input_output::write),
    call(2, "open", Partial("for reading"), open::open),
    call(3, "close", Full, open::close),
    call(4, "stat", Full, stat::stat),
    call(5, "fstat", Full, stat::fstat),
    call(6, "lstat", Full, stat::lstat),
    call(7, "poll", Full, poll::poll),
    call(8, "lseek", Full, input_output::lseek),
    call(9, "mmap", Partial("files are copied; shared mappings belong to the one process"), memory::mmap),
    call(10, "mprotect", Full, memory::mprotect),
    call(11, "munmap", Full, memory::munmap),
    call(12, "brk", Full, memory::brk),
    call(13, "rt_sigaction", Full, signals::rt_sigaction),
    call(14, "rt_sigprocmask", Full, signals::rt_sigprocmask),
    call(15, "rt_sigreturn", Full, signals::rt_sigreturn),
    call(16, "ioctl", Partial("of terminals and descriptors; settings change nothing"), control::ioctl),
    call(17, "pread64", Full, input_output::pread64),
    call(18, "pwrite64", Full, input_output::pwrite),
    call(19, "readv", Full, input_output::readv),
    call(20, "writev", Full, input_output::writev),
    call(21, "access", Full, open::access),
    call(23, "select", Full, poll::select),
    call(24, "sched_yield", Full, threads::sched_yield),
    call(25, "mremap", Full, memory::mremap),
    call(28, "madvise", Partial("dropping memory; other advice changes nothing"), memory::madvise),
    call(32, "dup", Full, control::dup),
    call(33, "dup2", Full, control::dup2),
    call(34, "pause", Full, signals::pause),
    call(35, "nanosleep", Full, time::nanosleep),
    call(36, "getitimer", CPU_TIME, timers::getitimer),
    call(37, "alarm", Full, timers::alarm),
    call(38, "setitimer", CPU_TIME, timers::setitimer),
    call(39, "getpid", ONE_PROCESS, identity::process_number),
    call(40, "sendfile", Partial("from files to the standard streams"), input_output::sendfile),
    call(60, "exit", Full, identity::exit),
    call(62, "kill", NO_OTHERS_TO_SIGNAL, signals::kill),
    call(63, "uname", Full, identity::uname),
    call(72, "fcntl", Partial("descriptors, flags, locks that nobody contends"), control::fcntl),
    call(73, "flock", NO_OTHERS, control::flock),
    call(74, "fsync", Accepted("nothing changes that could be lost"), control::fsync),
    call(75, "fdatasync", Accepted("nothing changes that could be lost"), control::fsync),
    call(76, "truncate", READ_ONLY, changes::change),
    call(77, "ftruncate", READ_ONLY, changes::resize_open),
    call(79, "getcwd", Full, directory::getcwd),
    call(80, "chdir", Full, directory::chdir),
    call(81, "fchdir", Full, directory::fchdir),
    call(82, "rename", READ_ONLY, changes::change),
    call(83, "mkdir", READ_ONLY, changes::make),
    call(84, "rmdir", READ_ONLY, changes::change),
    call(85, "creat", READ_ONLY, open::creat),
    call(86, "link", READ_ONLY, changes::link),
    call(87, "unlink", READ_ONLY, changes::change),
    call(88, "symlink", READ_ONLY, changes::link),
    call(89, "readlink", Full, directory::readlink),
    call(90, "chmod", READ_ONLY, changes::change),
    call(91, "fchmod", READ_ONLY, changes::change_open),
    call(92, "chown", READ_ONLY, changes::change),
    call(93, "fchown", READ_ONLY, changes::change_open),
    call(94, "lchown", READ_ONLY, changes::change),
    call(95, "umask", Full, directory::umask),
    call(96, "gettimeofday", Full, time::gettimeofday),
    call(97, "getrlimit", Full, identity::getrlimit),
    call(98, "getrusage", CPU_TIME, time::getrusage),
    call(99, "sysinfo", Full, identity::sysinfo),
    call(100, "times", CPU_TIME, time::times),
    call(102, "getuid", ONE_PROCESS, identity::zero),
    call(104, "getgid", ONE_PROCESS, identity::zero),
    call(107, "geteuid", ONE_PROCESS, identity::zero),
    call(108, "getegid", ONE_PROCESS, identity::zero),
    call(110, "getppid", ONE_PROCESS, identity::zero),
    call(111, "getpgrp", ONE_PROCESS, identity::getpgrp),
    call(115, "getgroups", ONE_PROCESS, identity::getgroups),
    call(118, "getresuid", ONE_PROCESS, identity::three_zeros),
    call(120, "getresgid", ONE_PROCESS, identity::three_zeros),
    call(121, "getpgid", ONE_PROCESS, identity::group),
    call(124, "getsid", ONE_PROCESS, identity::group),
    call(127, "rt_sigpending", Full, signals::rt_sigpending),
    call(128, "rt_sigtimedwait", Full, signals::rt_sigtimedwait),
    call(129, "rt_sigqueueinfo", NO_OTHERS_TO_SIGNAL, signals::rt_sigqueueinfo),
    call(130, "rt_sigsuspend", Full, signals::rt_sigsuspend),
    call(131, "sigaltstack", Full, signals::sigaltstack),
    call(132, "utime", READ_ONLY, changes::change),
    call(133, "mknod", READ_ONLY, changes::make),
    call(137, "statfs", Full, stat::statfs),
    call(138, "fstatfs", Full, stat::fstatfs),
    call(157, "prctl", Partial("names; other settings change nothing"), identity::prctl),
    call(158, "arch_prctl", Full, identity::arch_prctl),
    call(160, "setrlimit", Accepted("the cell has its own limits"), identity::zero),
    call(186, "gettid", ONE_PROCESS, identity::process_number),
    call(191, "getxattr", Refused("the image has no attributes"), changes::attributes),
    call(192, "lgetxattr", Refused("the image has no attributes"), changes::attributes),
    call(193, "fgetxattr", Refused("the image has no attributes"), changes::attributes),
    call(194, "listxattr", Refused("the image has no attributes"), changes::attributes),
    call(195, "llistxattr", Refused("the image has no attributes"), changes::attributes),
    call(196, "flistxattr", Refused("the image has no attributes"), changes::attributes),
    call(200, "tkill", NO_OTHERS_TO_SIGNAL, signals::tkill),
    call(201, "time", Full, time::time),
    call(202, "futex", Partial("waiting and waking"), threads::futex),
    call(204, "sched_getaffinity", Full, threads::sched_getaffinity),
    call(217, "getdents64", Full, directory::getdents64),
    call(218, "set_tid_address", ONE_THREAD, identity::process_number),
    call(221, "fadvise64", Accepted("the image lies in memory"), control::fadvise64),
    call(222, "timer_create", CPU_TIME, timers::timer_create),
    call(223, "timer_settime", Full, timers::timer_settime),
    call(224, "timer_gettime", Full, timers::timer_gettime),
    call(225, "timer_getoverrun", Full, timers::timer_getoverrun),
    call(226, "timer_delete", Full, timers::timer_delete),
    call(228, "clock_gettime", CPU_TIME, time::clock_gettime),
    call(229, "clock_getres", Full, time::clock_getres),
    call(230, "clock_nanosleep", Full, time::clock_nanosleep),
    call(231, "exit_group", Full, identity::exit),
    call(234, "tgkill", NO_OTHERS_TO_SIGNAL, signals::tgkill),
    call(257, "openat", Partial("for reading"), open::openat),
    call(258, "mkdirat", READ_ONLY, changes::make_at),
    call(259, "mknodat", READ_ONLY, changes::make_at),
    call(260, "fchownat", READ_ONLY, changes::change_at),
    call(262, "newfstatat", Full, stat::newfstatat),
    call(263, "unlinkat", READ_ONLY, changes::change_at),
    call(264, "renameat", READ_ONLY, changes::change_at),
    call(265, "linkat", READ_ONLY, changes::linkat),
    call(266, "symlinkat", READ_ONLY, changes::symlinkat),
    call(267, "readlinkat", Full, directory::readlinkat),
    call(268, "fchmodat", READ_ONLY, changes::change_at),
    call(269, "faccessat", Full, open::faccessat),
    call(270, "pselect6", Full, poll::pselect6),
    call(271, "ppoll", Full, poll::ppoll),
    call(273, "set_robust_list", ONE_THREAD, identity::zero),
    call(280, "utimensat", READ_ONLY, changes::change_at),
    call(285, "fallocate", READ_ONLY, changes::resize_open),
    call(292, "dup3", Full, control::dup3),
    call(295, "preadv", Full, input_output::preadv),
    call(297, "rt_tgsigqueueinfo", NO_OTHERS_TO_SIGNAL, signals::rt_tgsigqueueinfo),
    call(302, "prlimit64", Partial("limits can be read; setting them changes nothing"), identity::prlimit64),
    call(309, "getcpu", Full, threads::getcpu),
    call(316, "renameat2", READ_ONLY, changes::change_at),
    call(318, "getrandom", Full, random::getrandom),
    call(324, "membarrier", ONE_THREAD, threads::membarrier),
    call(332, "statx", Full, stat::statx),
    call(334, "rseq", Refused("nothing here preempts a program inside its own code: ENOSYS"), unsupported),
    call(436, "close_range", Full, open::close_range),
    call(439, "faccessat2", Full, open::faccessat),
];

/// A call that is knowingly answered with `ENOSYS`, and so is not counted as missing.
fn unsupported(_: &mut Process, _: [u64; 6]) -> Result<u64, Errno> {
    Err(Errno::ENOSYS)
}

/// The handlers by number.
static HANDLER: [Option<Handler>; REPORTED_CALLS] = {
    let mut handlers = [None; REPORTED_CALLS];
    let mut index = 0;
    while index < TABLE.len() {
        handlers[TABLE[index].number as usize] = Some(TABLE[index].handler);
        index += 1;
    }
    handlers
};

/// Performs a system call. Returns the value of its result register.
pub fn perform(process: &mut Process, number: u64, arguments: [u64; 6]) -> u64 {
    count_call();
    let handler = usize::try_from(number).ok().and_then(|number| HANDLER.get(number).copied().flatten());
    let Some(handler) = handler else {
        count_missing(number);
        return Errno::ENOSYS.to_result();
    };
    handler(process, arguments).unwrap_or_else(Errno::to_result)
}

/// Writes the coverage table as Markdown.
///
/// # Errors
/// Those of `out`.
pub fn coverage(out: &mut dyn fmt::Write) -> fmt::Result {
    writeln!(out, "| number | call | support |\n|---|---|---|")?;
    for Call { number, name, support, .. } in TABLE {
        match support {
            Full => writeln!(out, "| {number} | `{name}` | full |")?,
            Partial(except) => writeln!(out, "| {number} | `{name}` | partial: {except} |")?,
            Accepted(why) => writeln!(out, "| {number} | `{name}` | accepted: {why} |")?,
            Refused(why) => writeln!(out, "| {number} | `{name}` | refused: {why} |")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::TABLE;

    #[test]
    fn each_call_stands_once_and_in_order() {
        assert!(TABLE.windows(2).all(|pair| pair[0].number < pair[1].number));
    }
}
