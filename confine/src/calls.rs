// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls: seccomp leaves those of a list.

use crate::ConfineError;
use linux_raw_sys::general as nr;
use linux_raw_sys::ioctl;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch};
use std::collections::BTreeMap;

/// Calls that are allowed whatever their arguments: what they reach is limited by what is open, and by Landlock.
const FREELY: &[u32] = &[
    // Memory. Nothing becomes executable: see `conditions`.
    nr::__NR_munmap,
    nr::__NR_mremap,
    nr::__NR_madvise,
    nr::__NR_brk,
    // Threads that were started already: their own first steps, waiting for each other, ending, yielding, being interrupted.
    nr::__NR_rseq,
    nr::__NR_set_robust_list,
    nr::__NR_futex,
    nr::__NR_exit,
    nr::__NR_exit_group,
    nr::__NR_sched_yield,
    nr::__NR_sched_getaffinity,
    nr::__NR_gettid,
    nr::__NR_getpid,
    nr::__NR_getuid,
    nr::__NR_geteuid,
    nr::__NR_getgid,
    nr::__NR_getegid,
    nr::__NR_rt_sigprocmask,
    nr::__NR_rt_sigaction,
    nr::__NR_rt_sigreturn,
    nr::__NR_sigaltstack,
    nr::__NR_restart_syscall,
    // Time: where the vDSO cannot tell it, and the vCPUs' timers.
    nr::__NR_clock_gettime,
    nr::__NR_clock_nanosleep,
    nr::__NR_nanosleep,
    nr::__NR_timer_settime,
    nr::__NR_timer_delete,
    nr::__NR_getrandom,
    // Streams that are open.
    nr::__NR_read,
    nr::__NR_readv,
    nr::__NR_pread64,
    nr::__NR_write,
    nr::__NR_writev,
    nr::__NR_pwrite64,
    nr::__NR_recvfrom,
    nr::__NR_poll,
    nr::__NR_ppoll,
    nr::__NR_lseek,
    nr::__NR_close,
    // Files: which, Landlock says.
    nr::__NR_open,
    nr::__NR_openat,
    nr::__NR_openat2,
    nr::__NR_statx,
    nr::__NR_fstat,
    nr::__NR_stat,
    nr::__NR_lstat,
    nr::__NR_newfstatat,
    nr::__NR_statfs,
    nr::__NR_fstatfs,
    nr::__NR_access,
    nr::__NR_faccessat,
    nr::__NR_faccessat2,
    nr::__NR_readlink,
    nr::__NR_readlinkat,
    nr::__NR_getdents64,
    nr::__NR_getcwd,
    // Changing them: what is written back, and images that are kept.
    nr::__NR_mkdir,
    nr::__NR_mkdirat,
    nr::__NR_rename,
    nr::__NR_renameat,
    nr::__NR_renameat2,
    nr::__NR_unlink,
    nr::__NR_unlinkat,
    nr::__NR_rmdir,
    nr::__NR_ftruncate,
    nr::__NR_fsync,
    nr::__NR_fdatasync,
    nr::__NR_flock,
];

/// Requests of terminals: asking for and restoring their settings, and their size.
const TERMINALS: &[u32] =
    &[ioctl::TCGETS, ioctl::TCSETS, ioctl::TCSETSW, ioctl::TCGETS2, ioctl::TCSETS2, ioctl::TCSETSW2, ioctl::TIOCGWINSZ, ioctl::FIONREAD];

/// What may be asked of a descriptor. Neither who gets its signals (`F_SETOWN`, `F_SETOWN_EX`, `F_SETSIG`) nor what sends them (`O_ASYNC`, by `F_SETFL`) is among it:
/// these reach processes that `kill` does not.
const DESCRIPTORS: &[u32] = &[nr::F_DUPFD_CLOEXEC, nr::F_GETFD, nr::F_SETFD, nr::F_GETFL];

/// Calls that only writing back needs: Landlock knows nothing of owners and modes.
const WRITING_BACK: &[u32] = &[nr::__NR_symlinkat, nr::__NR_fchown];

/// Calls for sockets that are there already, and for those who knock at them.
const LISTENING: &[u32] = &[
    nr::__NR_accept4,
    nr::__NR_shutdown,
    nr::__NR_getsockopt,
    nr::__NR_epoll_ctl,
    nr::__NR_epoll_wait,
    nr::__NR_epoll_pwait,
    nr::__NR_epoll_pwait2,
];

/// Calls that only a gateway needs besides: which destinations, the gateway says, and Landlock which ports.
const CONNECTING: &[u32] = &[
    // What it waits with, and what wakes it: one may be made long after the process was confined.
    nr::__NR_epoll_create1,
    nr::__NR_eventfd2,
    nr::__NR_connect,
    // By which it learns whether an address is the host's own; where to listen is Landlock's to forbid.
    nr::__NR_bind,
];

/// What a process goes on doing that not every one does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The requests (`ioctl`) that it makes of devices that it has opened: of KVM, those of a machine that runs.
    pub requests: Vec<u32>,
    /// It writes back what a cell has changed: it may make links and change owners and modes, but nobody may lend a program to whoever runs it (set-user-ID).
    pub writing_back: bool,
    /// It connects a cell with other hosts: by sockets of TCP and UDP.
    pub connecting: bool,
    /// It answers those who knock at a socket that it has.
    pub serving: bool,
}

/// Allows the process, from now on, only the calls that it needs once its threads run and its machine is made: no other process, no thread, no executable memory,
/// and no more of the host than it says that it needs.
///
/// # Errors
/// The host refuses; or a thread was confined otherwise before.
pub fn limit_calls(needs: &Needs) -> Result<(), ConfineError> {
    Ok(seccompiler::apply_filter_all_threads(&filter(needs)?)?)
}

/// The filter that the kernel asks about each call.
fn filter(needs: &Needs) -> Result<BpfProgram, ConfineError> {
    let some = [(WRITING_BACK, needs.writing_back), (CONNECTING, needs.connecting), (LISTENING, needs.connecting || needs.serving)];
    let freely = FREELY.iter().chain(some.iter().filter(|(_, needed)| *needed).flat_map(|(calls, _)| *calls));
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = freely.map(|call| (i64::from(*call), Vec::new())).collect();
    rules.extend(conditions(needs)?);
    let refuse = SeccompAction::Errno(linux_raw_sys::errno::EPERM);
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, TargetArch::x86_64).map_err(seccompiler::Error::from)?;
    Ok(filter.try_into().map_err(seccompiler::Error::from)?)
}

/// Calls that are allowed with some arguments.
fn conditions(needs: &Needs) -> Result<Vec<(i64, Vec<SeccompRule>)>, ConfineError> {
    /// Bit of a mode.
    const SET_USER_ID: u64 = 0o4000;
    /// A pointer that is none, or this process.
    const NONE: u64 = 0;
    let rule = |index, length, operator, value| {
        let condition = SeccompCondition::new(index, length, operator, value)?;
        SeccompRule::new(vec![condition])
    };
    let each = |call: u32, rules: Result<Vec<SeccompRule>, seccompiler::BackendError>| {
        rules.map(|rules| (i64::from(call), rules)).map_err(|error| ConfineError::Calls(error.into()))
    };
    let only = |call: u32, rule: Result<SeccompRule, seccompiler::BackendError>| each(call, rule.map(|rule| vec![rule]));
    let is_one_of = |index, values: &[u32]| values.iter().map(|value| rule(index, Dword, Eq, u64::from(*value))).collect();
    let executable = u64::from(nr::PROT_EXEC);
    let own = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    let requests = [TERMINALS, &needs.requests].concat();
    let limits = [SeccompCondition::new(0, Dword, Eq, NONE), SeccompCondition::new(2, Qword, Eq, NONE)];
    let mut conditions = vec![
        only(nr::__NR_mmap, rule(2, Qword, MaskedEq(executable), 0))?,
        only(nr::__NR_mprotect, rule(2, Qword, MaskedEq(executable), 0))?,
        // By which a vCPU's thread clears the selector of its thread-local storage.
        only(nr::__NR_arch_prctl, rule(0, Dword, Eq, nr::ARCH_SET_FS.into()))?,
        only(nr::__NR_prctl, rule(0, Dword, Eq, linux_raw_sys::prctl::PR_SET_NAME.into()))?,
        // Its own limits are asked for, not set.
        only(nr::__NR_prlimit64, limits.into_iter().collect::<Result<_, _>>().and_then(SeccompRule::new))?,
        only(nr::__NR_tgkill, rule(0, Dword, Eq, own.into()))?,
        each(nr::__NR_ioctl, is_one_of(1, &requests))?,
        each(nr::__NR_fcntl, is_one_of(1, DESCRIPTORS))?,
    ];
    if needs.connecting {
        conditions.extend(sockets()?);
        conditions.push((i64::from(nr::__NR_sendto), Vec::new()));
    } else {
        // To whoever is at the other end already: what was inherited as a standard stream may be a socket that could name others.
        conditions.push(only(nr::__NR_sendto, rule(4, Qword, Eq, NONE))?);
    }
    // Times, of what is open; of a link, which cannot be opened, by its name.
    let mut times = vec![rule(1, Qword, Eq, NONE)];
    if needs.writing_back {
        times.push(rule(3, Dword, Eq, nr::AT_SYMLINK_NOFOLLOW.into()));
        conditions.push(only(nr::__NR_fchmod, rule(1, Dword, MaskedEq(SET_USER_ID), 0))?);
    }
    conditions.push(each(nr::__NR_utimensat, times.into_iter().collect())?);
    Ok(conditions)
}

/// Sockets of the internet's two families, for connections, datagrams and echoes; and their options that a gateway sets.
fn sockets() -> Result<[(i64, Vec<SeccompRule>); 2], ConfineError> {
    use linux_raw_sys::net;
    /// The bits of a socket's type that are no flags.
    const TYPE: u64 = 0xf;
    let equal = |index, value: u32| SeccompCondition::new(index, Dword, Eq, value.into());
    let rules = |rules: Result<Vec<SeccompRule>, seccompiler::BackendError>| rules.map_err(|error| ConfineError::Calls(error.into()));
    let kinds = [net::AF_INET, net::AF_INET6].into_iter().flat_map(|family| [net::SOCK_STREAM, net::SOCK_DGRAM].map(|kind| (family, kind)));
    let of_echoes = [(net::AF_INET, net::IPPROTO_ICMP as u32), (net::AF_INET6, net::IPPROTO_ICMPV6)];
    let kinds =
        kinds.map(|(family, kind)| (family, kind, 0)).chain(of_echoes.map(|(family, protocol)| (family, net::SOCK_DGRAM, protocol)));
    let made = kinds.map(|(family, kind, protocol)| {
        SeccompRule::new(vec![equal(0, family)?, SeccompCondition::new(1, Dword, MaskedEq(TYPE), kind.into())?, equal(2, protocol)?])
    });
    let of_sockets = [net::SO_LINGER, net::SO_KEEPALIVE].map(|name| (net::SOL_SOCKET, name));
    let of_tcp = [net::TCP_NODELAY, net::TCP_KEEPIDLE, net::TCP_KEEPINTVL, net::TCP_KEEPCNT].map(|name| (net::IPPROTO_TCP as u32, name));
    let set = of_sockets.into_iter().chain(of_tcp).map(|(level, name)| SeccompRule::new(vec![equal(1, level)?, equal(2, name)?]));
    Ok([(i64::from(nr::__NR_socket), rules(made.collect())?), (i64::from(nr::__NR_setsockopt), rules(set.collect())?)])
}

#[cfg(test)]
mod tests;
