// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of system calls: number, name, how far it is supported, handler. The coverage table is printed from it.

use core::fmt;

use pando_abi::limits::REPORTED_CALLS;
use pando_rt::registers::{count_call, count_missing};

use crate::calls::{
    attributes, control, directory, identity, input_output, memory, names, open, poll, random, signals, sizes, stat, threads, time, timers,
    users, xattr,
};
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

const KEPT: Support = Accepted("what is written lies in memory, as safe as it will be");
const XATTR: Support = Partial("names of user, trusted and security; no access control lists");
const NO_OTHERS_TO_SIGNAL: Support = Partial("to the process itself: there is no other");
const CPU_TIME: Support = Partial("CPU time is the time since the start without what was spent waiting");
const ONE_PROCESS: Support = Partial("there is one process, number 1");
const NO_OTHERS: Support = Accepted("there is nobody to tell apart from");
const ONE_THREAD: Support = Accepted("there is one thread");

/// The calls, in order of number. What is missing here is answered with `ENOSYS` and counted.
pub const TABLE: &[Call] = &[
    call(0, "read", Full, input_output::read),
    call(1, "write", Full, input_output::write),
    call(2, "open", Full, open::open),
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
    call(18, "pwrite64", Full, input_output::pwrite64),
    call(19, "readv", Full, input_output::readv),
    call(20, "writev", Full, input_output::writev),
    call(21, "access", Full, open::access),
    call(22, "pipe", Full, open::pipe),
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
    call(40, "sendfile", Full, input_output::sendfile),
    call(60, "exit", Full, identity::exit),
    call(62, "kill", NO_OTHERS_TO_SIGNAL, signals::kill),
    call(63, "uname", Full, identity::uname),
    call(72, "fcntl", Partial("locks that nobody contends; no leases, no signals"), control::fcntl),
    call(73, "flock", NO_OTHERS, control::flock),
    call(74, "fsync", KEPT, control::fsync),
    call(75, "fdatasync", KEPT, control::fsync),
    call(76, "truncate", Full, sizes::truncate),
    call(77, "ftruncate", Full, sizes::ftruncate),
    call(78, "getdents", Full, directory::getdents),
    call(79, "getcwd", Full, directory::getcwd),
    call(80, "chdir", Full, directory::chdir),
    call(81, "fchdir", Full, directory::fchdir),
    call(82, "rename", Full, names::rename),
    call(83, "mkdir", Full, names::mkdir),
    call(84, "rmdir", Full, names::rmdir),
    call(85, "creat", Full, open::creat),
    call(86, "link", Full, names::link),
    call(87, "unlink", Full, names::unlink),
    call(88, "symlink", Full, names::symlink),
    call(89, "readlink", Full, directory::readlink),
    call(90, "chmod", Full, attributes::chmod),
    call(91, "fchmod", Full, attributes::fchmod),
    call(92, "chown", Full, attributes::chown),
    call(93, "fchown", Full, attributes::fchown),
    call(94, "lchown", Full, attributes::lchown),
    call(95, "umask", Full, directory::umask),
    call(96, "gettimeofday", Full, time::gettimeofday),
    call(97, "getrlimit", Full, identity::getrlimit),
    call(98, "getrusage", CPU_TIME, time::getrusage),
    call(99, "sysinfo", Full, identity::sysinfo),
    call(100, "times", CPU_TIME, time::times),
    call(102, "getuid", Full, users::getuid),
    call(104, "getgid", Full, users::getgid),
    call(105, "setuid", Full, users::setuid),
    call(106, "setgid", Full, users::setgid),
    call(107, "geteuid", Full, users::geteuid),
    call(108, "getegid", Full, users::getegid),
    call(110, "getppid", ONE_PROCESS, identity::zero),
    call(111, "getpgrp", ONE_PROCESS, identity::getpgrp),
    call(113, "setreuid", Full, users::setreuid),
    call(114, "setregid", Full, users::setregid),
    call(115, "getgroups", Full, users::getgroups),
    call(116, "setgroups", Full, users::setgroups),
    call(117, "setresuid", Full, users::setresuid),
    call(118, "getresuid", Full, users::getresuid),
    call(119, "setresgid", Full, users::setresgid),
    call(120, "getresgid", Full, users::getresgid),
    call(121, "getpgid", ONE_PROCESS, identity::group),
    call(122, "setfsuid", Partial("files are asked as the effective user"), users::setfsuid),
    call(123, "setfsgid", Partial("files are asked as the effective group"), users::setfsgid),
    call(124, "getsid", ONE_PROCESS, identity::group),
    call(127, "rt_sigpending", Full, signals::rt_sigpending),
    call(128, "rt_sigtimedwait", Full, signals::rt_sigtimedwait),
    call(129, "rt_sigqueueinfo", NO_OTHERS_TO_SIGNAL, signals::rt_sigqueueinfo),
    call(130, "rt_sigsuspend", Full, signals::rt_sigsuspend),
    call(131, "sigaltstack", Full, signals::sigaltstack),
    call(132, "utime", Full, attributes::utime),
    call(133, "mknod", Full, names::mknod),
    call(137, "statfs", Full, stat::statfs),
    call(138, "fstatfs", Full, stat::fstatfs),
    call(157, "prctl", Partial("names; other settings change nothing"), identity::prctl),
    call(158, "arch_prctl", Full, identity::arch_prctl),
    call(160, "setrlimit", Accepted("the cell has its own limits"), identity::zero),
    call(161, "chroot", Full, directory::chroot),
    call(162, "sync", KEPT, control::sync),
    call(186, "gettid", ONE_PROCESS, identity::process_number),
    call(187, "readahead", KEPT, control::readahead),
    call(188, "setxattr", XATTR, xattr::setxattr),
    call(189, "lsetxattr", XATTR, xattr::lsetxattr),
    call(190, "fsetxattr", XATTR, xattr::fsetxattr),
    call(191, "getxattr", XATTR, xattr::getxattr),
    call(192, "lgetxattr", XATTR, xattr::lgetxattr),
    call(193, "fgetxattr", XATTR, xattr::fgetxattr),
    call(194, "listxattr", XATTR, xattr::listxattr),
    call(195, "llistxattr", XATTR, xattr::llistxattr),
    call(196, "flistxattr", XATTR, xattr::flistxattr),
    call(197, "removexattr", XATTR, xattr::removexattr),
    call(198, "lremovexattr", XATTR, xattr::lremovexattr),
    call(199, "fremovexattr", XATTR, xattr::fremovexattr),
    call(200, "tkill", NO_OTHERS_TO_SIGNAL, signals::tkill),
    call(201, "time", Full, time::time),
    call(202, "futex", Partial("waiting and waking"), threads::futex),
    call(204, "sched_getaffinity", Full, threads::sched_getaffinity),
    call(217, "getdents64", Full, directory::getdents64),
    call(218, "set_tid_address", ONE_THREAD, identity::process_number),
    call(221, "fadvise64", Accepted("files lie in memory, or are read when they are touched"), control::fadvise64),
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
    call(235, "utimes", Full, attributes::utimes),
    call(257, "openat", Full, open::openat),
    call(258, "mkdirat", Full, names::mkdirat),
    call(259, "mknodat", Full, names::mknodat),
    call(260, "fchownat", Full, attributes::fchownat),
    call(261, "futimesat", Full, attributes::futimesat),
    call(262, "newfstatat", Full, stat::newfstatat),
    call(263, "unlinkat", Full, names::unlinkat),
    call(264, "renameat", Full, names::renameat),
    call(265, "linkat", Full, names::linkat),
    call(266, "symlinkat", Full, names::symlinkat),
    call(267, "readlinkat", Full, directory::readlinkat),
    call(268, "fchmodat", Full, attributes::fchmodat),
    call(269, "faccessat", Full, open::faccessat),
    call(270, "pselect6", Full, poll::pselect6),
    call(271, "ppoll", Full, poll::ppoll),
    call(273, "set_robust_list", ONE_THREAD, identity::zero),
    call(277, "sync_file_range", KEPT, control::sync_file_range),
    call(280, "utimensat", Full, attributes::utimensat),
    call(284, "eventfd", Full, open::eventfd),
    call(285, "fallocate", Partial("making room, holes and zeros; nothing is inserted or collapsed"), sizes::fallocate),
    call(290, "eventfd2", Full, open::eventfd2),
    call(292, "dup3", Full, control::dup3),
    call(293, "pipe2", Partial("no packets"), open::pipe2),
    call(295, "preadv", Full, input_output::preadv),
    call(296, "pwritev", Full, input_output::pwritev),
    call(297, "rt_tgsigqueueinfo", NO_OTHERS_TO_SIGNAL, signals::rt_tgsigqueueinfo),
    call(302, "prlimit64", Partial("limits can be read; setting them changes nothing"), identity::prlimit64),
    call(306, "syncfs", KEPT, control::syncfs),
    call(309, "getcpu", Full, threads::getcpu),
    call(316, "renameat2", Partial("no whiteouts"), names::renameat2),
    call(318, "getrandom", Full, random::getrandom),
    call(319, "memfd_create", Partial("no sealing, no huge pages"), open::memfd_create),
    call(324, "membarrier", ONE_THREAD, threads::membarrier),
    call(326, "copy_file_range", Full, input_output::copy_file_range),
    call(327, "preadv2", Full, input_output::preadv2),
    call(328, "pwritev2", Full, input_output::pwritev2),
    call(332, "statx", Full, stat::statx),
    call(334, "rseq", Refused("nothing here preempts a program inside its own code: ENOSYS"), unsupported),
    call(436, "close_range", Full, open::close_range),
    call(437, "openat2", Full, open::openat2),
    call(439, "faccessat2", Full, open::faccessat2),
    call(452, "fchmodat2", Full, attributes::fchmodat2),
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
