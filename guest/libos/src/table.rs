// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of system calls: number, name, how far it is supported, handler. The coverage table is printed from it.

use core::fmt;

use pando_abi::PAGE_SIZE;
use pando_rt::registers::{count_call, count_unimplemented};
use syscalls::Sysno;

use crate::calls::{
    capabilities, chmod, control, directory, epoll, futex, identity, inotify, input_output, ipc, locks, memory, messages, mqueue, names,
    open, pidfd, poll, prctl, privileged, processes, random, resident, rseq, scheduling, signalfd, signals, sizes, sockets, splice, stat,
    time, timerfd, timers, users, xattr,
};
use crate::errno::Errno;
use crate::system::System;
use Support::{Accepted, Full, Partial, Refused};

/// The handler of a system call. It takes the six argument registers.
pub type Handler = fn(&mut System, [u64; 6]) -> Result<u64, Errno>;

/// How far a call is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// As on Linux, as far as a program in a cell can tell.
    Full,
    /// As on Linux, except for this.
    Partial(&'static str),
    /// Accepted; it changes nothing, for this reason.
    Accepted(&'static str),
    /// Always answered with an error, for this reason.
    Refused(&'static str),
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Linux's number on x86-64.
    pub number: u16,
    /// Linux's name and its arguments, as [`trace`](crate::trace) prints them: `read(fd, bytes=, size)`.
    pub declaration: &'static str,
    /// How far it is supported.
    pub support: Support,
    handler: Handler,
}

const fn call(number: u16, declaration: &'static str, support: Support, handler: Handler) -> Call {
    Call { number, declaration, support, handler }
}

/// The handler of a call that may take long: its system time is always measured. With the index of an argument, the call takes long
/// only if that number of bytes is a page or more.
macro_rules! long {
    ($handler:path) => {
        |system, arguments| {
            system.measure_upcall();
            $handler(system, arguments)
        }
    };
    ($handler:path, $size:literal) => {
        |system, arguments| {
            if arguments[$size] >= PAGE_SIZE {
                system.measure_upcall();
            }
            $handler(system, arguments)
        }
    };
}

impl Call {
    /// Linux's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.parts().0
    }

    /// The kinds of its arguments.
    #[must_use]
    pub fn signature(&self) -> &'static str {
        self.parts().1
    }

    /// The kind of its result.
    #[must_use]
    pub fn returns(&self) -> &'static str {
        self.parts().2
    }

    fn parts(&self) -> (&'static str, &'static str, &'static str) {
        let (name, rest) = self.declaration.split_once('(').unwrap_or((self.declaration, ""));
        let (signature, returns) = rest.split_once(')').unwrap_or((rest, ""));
        (name, signature, returns.trim_start())
    }
}

/// The call of this number.
#[must_use]
pub fn find(number: u64) -> Option<&'static Call> {
    let index = TABLE.binary_search_by_key(&number, |call| call.number.into()).ok()?;
    TABLE.get(index)
}

const SYNC: Support =
    Partial("writes the files of live mounts and of volumes that are written back to the host; other files are lost with the cell anyway");
const XATTR: Support = Partial("attributes of `user`, `trusted` and `security`; no access control lists");
const CPU_TIME: Support = Partial("system time is measured for long calls and estimated for short ones");
const CPU_TIMERS: Support = Partial("timers of CPU time count that of the whole process");
const USAGE: Support = Partial("only CPU time and the peak of memory are reported as usage");
const CAPABILITIES: Support = Full;
const SETTINGS: Support = Partial("most settings are stored and reported, without effect");
const LIMITS: Support = Partial(
    "all limits are stored and reported; those of CPU time, file sizes, memory, locked memory, open files, stacks and processes are enforced; core dumps are discarded",
);
const SCHEDULING: Support = Partial("stored and reported, without effect: processes take turns on one processor");
const RESIDENT: Support = Accepted("recorded and limited; the host may page the cell's memory out all the same");
const NOT_PERMITTED: Support = Refused("not permitted to programs in a cell: EPERM");
const NO_NAMESPACES: Support = Refused("no file is a namespace: EINVAL");
const SOCKETS: Support = Partial(
    "Unix sockets; TCP, UDP and ICMP over the cell's loopback and its network; raw sockets for ICMP only, without `IP_HDRINCL`; packet sockets of the card, which do not receive the cell's own frames",
);
const URGENT: Support = Partial(
    "urgent data only over TCP within the cell (elsewhere `EOPNOTSUPP`), without `SIGURG`; closed sockets that were passed into each other are freed only when the cell ends",
);
const OPTIONS: Support = Partial("most options are stored and reported, without effect");
const NOTES: Support = Partial("writes through mappings are not reported");

/// The calls, in order of number. Calls that are missing here are answered with `ENOSYS` and counted.
pub const TABLE: &[Call] = &[
    call(0, "read(fd, bytes=, size)", Full, long!(input_output::read, 2)),
    call(1, "write(fd, bytes, size)", Full, long!(input_output::write, 2)),
    call(2, "open(path, open, created)", Full, open::open),
    call(3, "close(fd)", Full, open::close),
    call(4, "stat(path, stat=)", Full, stat::stat),
    call(5, "fstat(fd, stat=)", Full, stat::fstat),
    call(6, "lstat(path, stat=)", Full, stat::lstat),
    call(7, "poll(polls, uint, int) polls", Full, poll::poll),
    call(8, "lseek(fd, offset, whence)", Full, input_output::lseek),
    call(
        9,
        "mmap(pointer, size, protection, map, fd, hex) pointer",
        Partial(
            "two mappings of one part of a file see each other's changes late; a read-only shared mapping of a volume's file does not see later writes; shared memory without a file, at an address that the program chose, is not shared with its children; memory that other processes share cannot be mapped over",
        ),
        long!(memory::mmap),
    ),
    call(10, "mprotect(pointer, size, protection)", Full, memory::mprotect),
    call(11, "munmap(pointer, size)", Full, long!(memory::munmap)),
    call(12, "brk(pointer) pointer", Full, long!(memory::brk)),
    call(13, "rt_sigaction(signal, action, action=, size)", Full, signals::rt_sigaction),
    call(14, "rt_sigprocmask(mask-change, set, set=, size)", Full, signals::rt_sigprocmask),
    call(15, "rt_sigreturn()", Full, signals::rt_sigreturn),
    call(
        16,
        "ioctl(fd, request, request-argument=)",
        Partial("requests of descriptors, terminals, sockets, interfaces, and Pando's own devices"),
        control::ioctl,
    ),
    call(17, "pread64(fd, bytes=, size, offset)", Full, long!(input_output::pread64, 2)),
    call(18, "pwrite64(fd, bytes, size, offset)", Full, long!(input_output::pwrite64, 2)),
    call(19, "readv(fd, vectors=, size)", Full, long!(input_output::readv)),
    call(20, "writev(fd, vectors, size)", Full, long!(input_output::writev)),
    call(21, "access(path, access)", Full, open::access),
    call(22, "pipe(pair=)", Full, open::pipe),
    call(23, "select(int, descriptors, descriptors, descriptors, timeval) sets", Full, poll::select),
    call(24, "sched_yield()", Full, processes::sched_yield),
    call(
        25,
        "mremap(pointer, size, size, remap, moved) pointer",
        Partial("shared memory is mapped twice only where it lies"),
        long!(memory::mremap),
    ),
    call(26, "msync(pointer, size, sync)", Full, long!(memory::msync)),
    call(27, "mincore(pointer, size, pointer)", Partial("mapped memory counts as resident"), resident::mincore),
    call(
        28,
        "madvise(pointer, size, advice)",
        Partial("dropping memory, wiping it in children and not inheriting it; other advice has no effect"),
        long!(memory::madvise),
    ),
    call(29, "shmget(ipc-key, size, shared-flags)", Full, ipc::memory::shmget),
    call(30, "shmat(int, pointer, attaching) pointer", Partial("only at the segment's own address"), ipc::memory::shmat),
    call(31, "shmctl(int, memory-control, memory-control-argument=)", Full, ipc::memory::shmctl),
    call(32, "dup(fd)", Full, control::dup),
    call(33, "dup2(fd, fd)", Full, control::dup2),
    call(34, "pause()", Full, signals::pause),
    call(35, "nanosleep(timespec, left=)", Full, time::nanosleep),
    call(36, "getitimer(interval, itimerval=)", CPU_TIMERS, timers::getitimer),
    call(37, "alarm(uint)", Full, timers::alarm),
    call(38, "setitimer(interval, itimerval, itimerval=)", CPU_TIMERS, timers::setitimer),
    call(39, "getpid()", Full, processes::getpid),
    call(40, "sendfile(fd, fd, number64, size)", Full, long!(input_output::sendfile)),
    call(41, "socket(family, socket-type, protocol)", SOCKETS, sockets::socket),
    call(42, "connect(fd, sockaddr, int)", Full, sockets::connect),
    call(43, "accept(fd, sockaddr=, number32=)", Full, sockets::accept),
    call(44, "sendto(fd, bytes, size, message-flags, sockaddr, int)", URGENT, long!(messages::sendto, 2)),
    call(45, "recvfrom(fd, bytes=, size, message-flags, sockaddr=, number32=)", URGENT, long!(messages::recvfrom, 2)),
    call(46, "sendmsg(fd, pointer, message-flags)", URGENT, messages::sendmsg),
    call(47, "recvmsg(fd, pointer, message-flags)", URGENT, messages::recvmsg),
    call(48, "shutdown(fd, shut)", Full, sockets::shutdown),
    call(49, "bind(fd, sockaddr, int)", Full, sockets::bind),
    call(50, "listen(fd, int)", Full, sockets::listen),
    call(51, "getsockname(fd, sockaddr=, number32=)", Full, sockets::getsockname),
    call(52, "getpeername(fd, sockaddr=, number32=)", Full, sockets::getpeername),
    call(53, "socketpair(family, socket-type, protocol, pair=)", Full, sockets::socketpair),
    call(54, "setsockopt(fd, socket-level, socket-option, number32, int)", OPTIONS, sockets::setsockopt),
    call(55, "getsockopt(fd, socket-level, socket-option, number32=, number32=)", OPTIONS, sockets::getsockopt),
    call(56, "clone(hex, pointer, pointer, pointer, hex)", Partial("no namespaces"), long!(processes::clone)),
    call(57, "fork()", Full, long!(processes::fork)),
    call(58, "vfork()", Full, long!(processes::vfork)),
    call(59, "execve(path, pointer, pointer)", Partial("set-id bits are ignored"), long!(processes::execve)),
    call(60, "exit(status)", Full, long!(processes::exit)),
    call(61, "wait4(int, number32=, hex, pointer)", USAGE, long!(processes::wait4)),
    call(62, "kill(int, signal)", Full, signals::kill),
    call(63, "uname(utsname=)", Full, identity::uname),
    call(64, "semget(ipc-key, int, ipc-flags)", Full, ipc::semaphores::semget),
    call(65, "semop(int, semaphore-operations, uint)", Full, ipc::semaphores::semop),
    call(66, "semctl(int, int, semaphore-control, semaphore-control-argument=)", Full, ipc::semaphores::semctl),
    call(67, "shmdt(pointer)", Full, ipc::memory::shmdt),
    call(68, "msgget(ipc-key, ipc-flags)", Full, ipc::messages::msgget),
    call(69, "msgsnd(int, typed-message, size, message-operation)", Full, ipc::messages::msgsnd),
    call(70, "msgrcv(int, typed-message=, size, offset, message-operation)", Full, ipc::messages::msgrcv),
    call(71, "msgctl(int, queue-control, queue-control-argument=)", Full, ipc::messages::msgctl),
    call(72, "fcntl(fd, file-control, control-argument) control", Partial("no leases, no signals"), control::fcntl),
    call(73, "flock(fd, lock)", Full, locks::flock),
    call(74, "fsync(fd)", SYNC, long!(control::fsync)),
    call(75, "fdatasync(fd)", SYNC, long!(control::fsync)),
    call(76, "truncate(path, offset)", Full, long!(sizes::truncate)),
    call(77, "ftruncate(fd, offset)", Full, long!(sizes::ftruncate)),
    call(78, "getdents(fd, entries=, size)", Full, directory::getdents),
    call(79, "getcwd(text=, size)", Full, directory::getcwd),
    call(80, "chdir(path)", Full, directory::chdir),
    call(81, "fchdir(fd)", Full, directory::fchdir),
    call(82, "rename(path, path)", Full, names::rename),
    call(83, "mkdir(path, mode)", Full, names::mkdir),
    call(84, "rmdir(path)", Full, names::rmdir),
    call(85, "creat(path, mode)", Full, open::creat),
    call(86, "link(path, path)", Full, names::link),
    call(87, "unlink(path)", Full, names::unlink),
    call(88, "symlink(path, path)", Full, names::symlink),
    call(89, "readlink(path, bytes=, size)", Full, directory::readlink),
    call(90, "chmod(path, mode)", Full, chmod::chmod),
    call(91, "fchmod(fd, mode)", Full, chmod::fchmod),
    call(92, "chown(path, int, int)", Full, chmod::chown),
    call(93, "fchown(fd, int, int)", Full, chmod::fchown),
    call(94, "lchown(path, int, int)", Full, chmod::lchown),
    call(95, "umask(mode) mode", Full, directory::umask),
    call(96, "gettimeofday(timeval=, pointer)", Full, time::gettimeofday),
    call(97, "getrlimit(resource, limits=)", Full, identity::getrlimit),
    call(98, "getrusage(who, usage=)", CPU_TIME, time::getrusage),
    call(99, "sysinfo(sysinfo=)", Full, identity::sysinfo),
    call(100, "times(process-times=)", CPU_TIME, time::times),
    call(102, "getuid()", Full, users::getuid),
    call(103, "syslog(int, pointer, int)", NOT_PERMITTED, privileged::syslog),
    call(104, "getgid()", Full, users::getgid),
    call(105, "setuid(int)", Full, users::setuid),
    call(106, "setgid(int)", Full, users::setgid),
    call(107, "geteuid()", Full, users::geteuid),
    call(108, "getegid()", Full, users::getegid),
    call(109, "setpgid(int, int)", Full, processes::setpgid),
    call(110, "getppid()", Full, processes::getppid),
    call(111, "getpgrp()", Full, processes::getpgrp),
    call(112, "setsid()", Full, processes::setsid),
    call(113, "setreuid(int, int)", Full, users::setreuid),
    call(114, "setregid(int, int)", Full, users::setregid),
    call(115, "getgroups(int, groups=)", Full, users::getgroups),
    call(116, "setgroups(int, groups)", Full, users::setgroups),
    call(117, "setresuid(int, int, int)", Full, users::setresuid),
    call(118, "getresuid(number32=, number32=, number32=)", Full, users::getresuid),
    call(119, "setresgid(int, int, int)", Full, users::setresgid),
    call(120, "getresgid(number32=, number32=, number32=)", Full, users::getresgid),
    call(121, "getpgid(int)", Full, processes::getpgid),
    call(122, "setfsuid(int)", Full, users::setfsuid),
    call(123, "setfsgid(int)", Full, users::setfsgid),
    call(124, "getsid(int)", Full, processes::getsid),
    call(125, "capget(capability-header, pointer)", CAPABILITIES, capabilities::capget),
    call(126, "capset(capability-header, pointer)", CAPABILITIES, capabilities::capset),
    call(127, "rt_sigpending(set=, size)", Full, signals::rt_sigpending),
    call(128, "rt_sigtimedwait(set, siginfo=, timespec, size) signal", Full, signals::rt_sigtimedwait),
    call(129, "rt_sigqueueinfo(int, signal, siginfo)", Full, signals::rt_sigqueueinfo),
    call(130, "rt_sigsuspend(set, size)", Full, signals::rt_sigsuspend),
    call(131, "sigaltstack(stack, stack=)", Full, signals::sigaltstack),
    call(132, "utime(path, utimbuf)", Full, chmod::utime),
    call(133, "mknod(path, type, device)", Full, names::mknod),
    call(135, "personality(hex)", Partial("stored and reported, without effect"), identity::personality),
    call(137, "statfs(path, pointer)", Full, stat::statfs),
    call(138, "fstatfs(fd, pointer)", Full, stat::fstatfs),
    call(140, "getpriority(priority-of, int)", SCHEDULING, scheduling::getpriority),
    call(141, "setpriority(priority-of, int, int)", SCHEDULING, scheduling::setpriority),
    call(142, "sched_setparam(int, number32)", SCHEDULING, scheduling::sched_setparam),
    call(143, "sched_getparam(int, number32=)", SCHEDULING, scheduling::sched_getparam),
    call(144, "sched_setscheduler(int, policy, number32)", SCHEDULING, scheduling::sched_setscheduler),
    call(145, "sched_getscheduler(int) policy", SCHEDULING, scheduling::sched_getscheduler),
    call(146, "sched_get_priority_max(policy)", Full, scheduling::sched_get_priority_max),
    call(147, "sched_get_priority_min(policy)", Full, scheduling::sched_get_priority_min),
    call(148, "sched_rr_get_interval(int, timespec=)", SCHEDULING, scheduling::sched_rr_get_interval),
    call(149, "mlock(pointer, size)", RESIDENT, resident::mlock),
    call(150, "munlock(pointer, size)", RESIDENT, resident::munlock),
    call(151, "mlockall(locking)", RESIDENT, resident::mlockall),
    call(152, "munlockall()", RESIDENT, resident::munlockall),
    call(153, "vhangup()", Partial("a terminal is not hung up: EPERM"), privileged::vhangup),
    call(155, "pivot_root(path, path)", NOT_PERMITTED, privileged::pivot_root),
    call(157, "prctl(process-control, process-argument=)", SETTINGS, prctl::prctl),
    call(158, "arch_prctl(architecture, hex)", Full, identity::arch_prctl),
    call(160, "setrlimit(resource, limits)", LIMITS, identity::setrlimit),
    call(161, "chroot(path)", Full, directory::chroot),
    call(162, "sync()", SYNC, control::sync),
    call(163, "acct(path)", NOT_PERMITTED, privileged::acct),
    call(164, "settimeofday(timeval, pointer)", NOT_PERMITTED, privileged::settimeofday),
    call(165, "mount(path, path, path, hex, pointer)", NOT_PERMITTED, privileged::mount),
    call(166, "umount2(path, hex)", NOT_PERMITTED, privileged::umount2),
    call(167, "swapon(path, hex)", NOT_PERMITTED, privileged::swapon),
    call(168, "swapoff(path)", NOT_PERMITTED, privileged::swapoff),
    call(169, "reboot(hex, hex, hex, pointer)", NOT_PERMITTED, privileged::reboot),
    call(170, "sethostname(bytes, size)", NOT_PERMITTED, privileged::set_name),
    call(171, "setdomainname(bytes, size)", NOT_PERMITTED, privileged::set_name),
    call(172, "iopl(int)", NOT_PERMITTED, privileged::iopl),
    call(173, "ioperm(hex, hex, int)", NOT_PERMITTED, privileged::ioperm),
    call(186, "gettid()", Full, processes::gettid),
    call(187, "readahead(fd, offset, size)", Accepted("only checks its arguments"), control::readahead),
    call(188, "setxattr(path, path, bytes, size, attribute-flags)", XATTR, xattr::setxattr),
    call(189, "lsetxattr(path, path, bytes, size, attribute-flags)", XATTR, xattr::lsetxattr),
    call(190, "fsetxattr(fd, path, bytes, size, attribute-flags)", XATTR, xattr::fsetxattr),
    call(191, "getxattr(path, path, bytes=, size)", XATTR, xattr::getxattr),
    call(192, "lgetxattr(path, path, bytes=, size)", XATTR, xattr::lgetxattr),
    call(193, "fgetxattr(fd, path, bytes=, size)", XATTR, xattr::fgetxattr),
    call(194, "listxattr(path, bytes=, size)", XATTR, xattr::listxattr),
    call(195, "llistxattr(path, bytes=, size)", XATTR, xattr::llistxattr),
    call(196, "flistxattr(fd, bytes=, size)", XATTR, xattr::flistxattr),
    call(197, "removexattr(path, path)", XATTR, xattr::removexattr),
    call(198, "lremovexattr(path, path)", XATTR, xattr::lremovexattr),
    call(199, "fremovexattr(fd, path)", XATTR, xattr::fremovexattr),
    call(200, "tkill(int, signal)", Full, signals::tkill),
    call(201, "time(number64=)", Full, time::time),
    call(202, "futex(pointer, futex, uint, futex-timeout)", Full, futex::futex),
    call(203, "sched_setaffinity(int, size, processors-given)", Partial("there is one processor"), scheduling::sched_setaffinity),
    call(204, "sched_getaffinity(int, size, processors=)", Full, processes::sched_getaffinity),
    call(206, "io_setup(uint, pointer)", Refused("there is no asynchronous I/O: ENOSYS"), unsupported),
    call(207, "io_destroy(hex)", Refused("there is no asynchronous I/O: ENOSYS"), unsupported),
    call(213, "epoll_create(int)", Full, epoll::epoll_create),
    call(217, "getdents64(fd, entries=, size)", Full, long!(directory::getdents64)),
    call(218, "set_tid_address(pointer)", Full, processes::set_tid_address),
    call(220, "semtimedop(int, semaphore-operations, uint, timespec)", Full, ipc::semaphores::semtimedop),
    call(221, "fadvise64(fd, offset, size, file-advice)", Accepted("files lie in memory, or are read on access"), control::fadvise64),
    call(222, "timer_create(clock, sigevent, number32=)", CPU_TIMERS, timers::timer_create),
    call(223, "timer_settime(int, timer-flags, itimerspec, itimerspec=)", Full, timers::timer_settime),
    call(224, "timer_gettime(int, itimerspec=)", Full, timers::timer_gettime),
    call(225, "timer_getoverrun(int)", Full, timers::timer_getoverrun),
    call(226, "timer_delete(int)", Full, timers::timer_delete),
    call(227, "clock_settime(clock, timespec)", NOT_PERMITTED, privileged::clock_settime),
    call(228, "clock_gettime(clock, timespec=)", CPU_TIME, time::clock_gettime),
    call(229, "clock_getres(clock, timespec=)", Full, time::clock_getres),
    call(230, "clock_nanosleep(clock, timer-flags, timespec, left=)", Full, time::clock_nanosleep),
    call(231, "exit_group(status)", Full, long!(processes::exit_group)),
    call(232, "epoll_wait(fd, events=, int, int)", Full, epoll::epoll_wait),
    call(233, "epoll_ctl(fd, epoll, fd, event)", Full, epoll::epoll_ctl),
    call(234, "tgkill(int, int, signal)", Full, signals::tgkill),
    call(235, "utimes(path, timevals)", Full, chmod::utimes),
    call(240, "mq_open(path, open, created, queue-limits)", Full, mqueue::mq_open),
    call(241, "mq_unlink(path)", Full, mqueue::mq_unlink),
    call(242, "mq_timedsend(fd, bytes, size, uint, timespec)", Full, mqueue::mq_timedsend),
    call(243, "mq_timedreceive(fd, bytes=, size, number32=, timespec)", Full, mqueue::mq_timedreceive),
    call(244, "mq_notify(fd, sigevent)", Full, mqueue::mq_notify),
    call(245, "mq_getsetattr(fd, queue-limits, queue-limits=)", Full, mqueue::mq_getsetattr),
    call(247, "waitid(int, int, pointer, hex, pointer)", USAGE, processes::waitid),
    call(248, "add_key(path, path, pointer, size, int)", Refused("there is no key management: ENOSYS"), unsupported),
    call(249, "request_key(path, path, path, int)", Refused("there is no key management: ENOSYS"), unsupported),
    call(250, "keyctl(int, hex, hex, hex, hex)", Refused("there is no key management: ENOSYS"), unsupported),
    call(251, "ioprio_set(int, int, hex)", SCHEDULING, scheduling::ioprio_set),
    call(252, "ioprio_get(int, int)", SCHEDULING, scheduling::ioprio_get),
    call(253, "inotify_init()", Full, inotify::inotify_init),
    call(254, "inotify_add_watch(fd, path, notes)", NOTES, inotify::inotify_add_watch),
    call(255, "inotify_rm_watch(fd, int)", Full, inotify::inotify_rm_watch),
    call(257, "openat(at, path, open, created)", Full, open::openat),
    call(258, "mkdirat(at, path, mode)", Full, names::mkdirat),
    call(259, "mknodat(at, path, type, device)", Full, names::mknodat),
    call(260, "fchownat(at, path, int, int, at-flags)", Full, chmod::fchownat),
    call(261, "futimesat(at, path, timevals)", Full, chmod::futimesat),
    call(262, "newfstatat(at, path, stat=, at-flags)", Full, stat::newfstatat),
    call(263, "unlinkat(at, path, removal)", Full, names::unlinkat),
    call(264, "renameat(at, path, at, path)", Full, names::renameat),
    call(265, "linkat(at, path, at, path, at-flags)", Full, names::linkat),
    call(266, "symlinkat(path, at, path)", Full, names::symlinkat),
    call(267, "readlinkat(at, path, bytes=, size)", Full, directory::readlinkat),
    call(268, "fchmodat(at, path, mode)", Full, chmod::fchmodat),
    call(269, "faccessat(at, path, access)", Full, open::faccessat),
    call(270, "pselect6(int, descriptors, descriptors, descriptors, timespec, pointed-set) timed-sets", Full, poll::pselect6),
    call(271, "ppoll(polls, uint, timespec, set, size) timed-polls", Full, poll::ppoll),
    call(272, "unshare(hex)", Partial("no namespaces"), privileged::unshare),
    call(273, "set_robust_list(pointer, size)", Full, futex::set_robust_list),
    call(274, "get_robust_list(int, pointer, pointer)", Full, futex::get_robust_list),
    call(275, "splice(fd, offset-at, fd, offset-at, size, splicing)", Full, long!(splice::splice)),
    call(276, "tee(fd, fd, size, splicing)", Full, splice::tee),
    call(277, "sync_file_range(fd, offset, offset, hex)", Accepted("only checks its arguments"), control::sync_file_range),
    call(278, "vmsplice(fd, vectors, size, splicing)", Partial("bytes are copied into the pipe"), splice::vmsplice),
    call(280, "utimensat(at, path, times, at-flags)", Full, chmod::utimensat),
    call(281, "epoll_pwait(fd, events=, int, int, set, size)", Full, epoll::epoll_pwait),
    call(282, "signalfd(fd, set, size)", Full, signalfd::signalfd),
    call(283, "timerfd_create(clock, timer-file)", Full, timerfd::timerfd_create),
    call(284, "eventfd(uint)", Full, open::eventfd),
    call(
        285,
        "fallocate(fd, allocation, offset, offset)",
        Partial("allocation, holes and zeroing; ranges cannot be inserted or collapsed"),
        long!(sizes::fallocate),
    ),
    call(286, "timerfd_settime(fd, timer-file-flags, itimerspec, itimerspec=)", Full, timerfd::timerfd_settime),
    call(287, "timerfd_gettime(fd, itimerspec=)", Full, timerfd::timerfd_gettime),
    call(288, "accept4(fd, sockaddr=, number32=, socket-flags)", Full, sockets::accept4),
    call(289, "signalfd4(fd, set, size, signal-file)", Full, signalfd::signalfd4),
    call(290, "eventfd2(uint, event-flags)", Full, open::eventfd2),
    call(291, "epoll_create1(epoll-flags)", Full, epoll::epoll_create1),
    call(292, "dup3(fd, fd, descriptor)", Full, control::dup3),
    call(293, "pipe2(pair=, descriptor)", Full, open::pipe2),
    call(294, "inotify_init1(notes-file)", Full, inotify::inotify_init1),
    call(295, "preadv(fd, vectors=, size, offset)", Full, input_output::preadv),
    call(296, "pwritev(fd, vectors, size, offset)", Full, input_output::pwritev),
    call(297, "rt_tgsigqueueinfo(int, int, signal, siginfo)", Full, signals::rt_tgsigqueueinfo),
    call(298, "perf_event_open(pointer, int, int, int, hex)", NOT_PERMITTED, privileged::perf_event_open),
    call(299, "recvmmsg(fd, pointer, uint, message-flags, timespec)", URGENT, messages::recvmmsg),
    call(302, "prlimit64(int, resource, limits, limits=)", LIMITS, identity::prlimit64),
    call(306, "syncfs(fd)", SYNC, control::syncfs),
    call(307, "sendmmsg(fd, pointer, uint, message-flags)", URGENT, messages::sendmmsg),
    call(308, "setns(fd, hex)", NO_NAMESPACES, privileged::setns),
    call(309, "getcpu(number32=, number32=, pointer)", Full, processes::getcpu),
    call(316, "renameat2(at, path, at, path, renaming)", Partial("no whiteouts"), names::renameat2),
    call(318, "getrandom(random-bytes=, size, random)", Full, long!(random::getrandom, 1)),
    call(319, "memfd_create(path, memory-flags)", Partial("no huge pages"), open::memfd_create),
    call(321, "bpf(int, pointer, size)", NOT_PERMITTED, privileged::bpf),
    call(322, "execveat(fd, path, pointer, pointer, hex)", Partial("set-id bits are ignored"), long!(processes::execveat)),
    call(323, "userfaultfd(hex)", NOT_PERMITTED, privileged::userfaultfd),
    call(324, "membarrier(hex, hex)", Full, processes::membarrier),
    call(325, "mlock2(pointer, size, hex)", RESIDENT, resident::mlock2),
    call(326, "copy_file_range(fd, number64, fd, number64, size, hex)", Full, long!(input_output::copy_file_range)),
    call(327, "preadv2(fd, vectors=, size, offset, hex, hex)", Full, input_output::preadv2),
    call(328, "pwritev2(fd, vectors, size, offset, hex, hex)", Full, input_output::pwritev2),
    call(332, "statx(at, path, statx-flags, statx-mask, statx=)", Full, stat::statx),
    call(334, "rseq(pointer, hex, hex, hex)", Full, rseq::rseq),
    call(424, "pidfd_send_signal(fd, signal, siginfo, hex)", Full, pidfd::pidfd_send_signal),
    call(425, "io_uring_setup(uint, pointer)", Refused("there is no asynchronous I/O: ENOSYS"), unsupported),
    call(434, "pidfd_open(int, process-file)", Full, pidfd::pidfd_open),
    call(435, "clone3(pointer, size)", Partial("no namespaces, no control groups"), long!(processes::clone3)),
    call(436, "close_range(uint, uint, closing)", Full, open::close_range),
    call(437, "openat2(at, path, how, size)", Full, open::openat2),
    call(438, "pidfd_getfd(fd, fd, hex)", Full, pidfd::pidfd_getfd),
    call(439, "faccessat2(at, path, access, access-flags)", Full, open::faccessat2),
    call(441, "epoll_pwait2(fd, events=, int, timespec, set, size)", Full, epoll::epoll_pwait2),
    call(452, "fchmodat2(at, path, mode, at-flags)", Full, chmod::fchmodat2),
];

/// Answers a call that is deliberately not served with `ENOSYS`, without counting it as missing.
fn unsupported(_: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    Err(Errno::ENOSYS)
}

/// Handlers have numbers below this.
const NUMBERS: usize = 512;

/// The handlers by number.
static HANDLER: [Option<Handler>; NUMBERS] = {
    let mut handlers = [None; NUMBERS];
    let mut index = 0;
    while index < TABLE.len() {
        handlers[TABLE[index].number as usize] = Some(TABLE[index].handler);
        index += 1;
    }
    handlers
};

/// Performs a system call. Returns the value of its result register.
pub fn perform(system: &mut System, number: u64, arguments: [u64; 6]) -> u64 {
    count_call();
    let handler = usize::try_from(number).ok().and_then(|number| HANDLER.get(number).copied().flatten());
    let Some(handler) = handler else {
        count_unimplemented(number);
        return Errno::ENOSYS.to_result();
    };
    let outcome =
        if system.files.mounts.is_empty() { handler(system, arguments) } else { system.with_mounts(|system| handler(system, arguments)) };
    outcome.unwrap_or_else(Errno::to_result)
}

/// Names of calls in a line of the list of calls that are not served.
const NAMES_IN_A_LINE: usize = 5;

/// Writes the coverage table as Markdown.
///
/// # Errors
/// Those of `out`.
pub fn coverage(out: &mut dyn fmt::Write) -> fmt::Result {
    writeln!(out, "| number | call | support |\n|---|---|---|")?;
    for call in TABLE {
        let Call { number, support, .. } = call;
        let name = call.name();
        match support {
            Full => writeln!(out, "| {number} | `{name}` | full |")?,
            Partial(except) => writeln!(out, "| {number} | `{name}` | partial: {except} |")?,
            Accepted(why) => writeln!(out, "| {number} | `{name}` | accepted: {why} |")?,
            Refused(why) => writeln!(out, "| {number} | `{name}` | refused: {why} |")?,
        }
    }
    writeln!(out, "\n## Not served\n")?;
    let missing = Sysno::iter().filter(|call| find(call.id() as u64).is_none());
    for (index, call) in missing.enumerate() {
        let separator = match index {
            0 => "",
            _ if index % NAMES_IN_A_LINE == 0 => ",\n",
            _ => ", ",
        };
        write!(out, "{separator}`{}`", call.name())?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::TABLE;

    #[test]
    fn each_call_stands_once_and_in_order() {
        assert!(TABLE.windows(2).all(|pair| pair[0].number < pair[1].number));
    }
}
