// SPDX-License-Identifier: MIT OR Apache-2.0
//! The seccomp filter: an allow list of system calls.

use crate::ConfineError;
use linux_raw_sys::general as nr;
use linux_raw_sys::ioctl;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch};
use std::collections::BTreeMap;

/// Calls that are allowed with any arguments: open descriptors and Landlock limit their effect.
const ALLOWED: &[u32] = &[
    // Memory. No memory becomes executable: see `conditions`.
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
    // Time: where the vDSO lacks it, and the vCPUs' timers.
    nr::__NR_clock_gettime,
    nr::__NR_clock_nanosleep,
    nr::__NR_nanosleep,
    nr::__NR_timer_settime,
    nr::__NR_timer_delete,
    nr::__NR_getrandom,
    // Open streams.
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
    // Files: Landlock limits which.
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
    // Changes of files: for write-back, and for cached images.
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

/// Terminal requests: reading and restoring their settings, and their size.
const TERMINALS: &[u32] =
    &[ioctl::TCGETS, ioctl::TCSETS, ioctl::TCSETSW, ioctl::TCGETS2, ioctl::TCSETS2, ioctl::TCSETSW2, ioctl::TIOCGWINSZ, ioctl::FIONREAD];

/// Allowed `fcntl` commands. Those that redirect signals (`F_SETOWN`, `F_SETOWN_EX`, `F_SETSIG`) or enable them
/// (`O_ASYNC`, by `F_SETFL`) are excluded: they reach processes that `kill` does not.
const DESCRIPTORS: &[u32] = &[nr::F_DUPFD_CLOEXEC, nr::F_GETFD, nr::F_SETFD, nr::F_GETFL];

/// Allowed `fcntl` commands for the seals of shared memory.
const SEALS: &[u32] = &[nr::F_GET_SEALS, nr::F_ADD_SEALS];

/// Allowed `prctl` commands: a thread's name; for the launcher, also that its children end with it and gain no privileges.
const OWN_PROCESS: &[u32] =
    &[linux_raw_sys::prctl::PR_SET_NAME, linux_raw_sys::prctl::PR_SET_PDEATHSIG, linux_raw_sys::prctl::PR_SET_NO_NEW_PRIVS];

/// Calls that only write-back needs: Landlock does not cover owners and modes.
const WRITING_BACK: &[u32] = &[nr::__NR_symlinkat, nr::__NR_fchown];

/// Calls that only a file server needs, besides those of write-back: names, times and attributes of all kinds of files, by descriptors.
const SERVING_FILES: &[u32] = &[
    nr::__NR_linkat,
    nr::__NR_mknodat,
    nr::__NR_utimensat,
    nr::__NR_preadv,
    nr::__NR_pwritev,
    nr::__NR_preadv2,
    nr::__NR_pwritev2,
    nr::__NR_getxattr,
    nr::__NR_setxattr,
    nr::__NR_listxattr,
    nr::__NR_removexattr,
    nr::__NR_fgetxattr,
    nr::__NR_fsetxattr,
    nr::__NR_flistxattr,
    nr::__NR_fremovexattr,
    nr::__NR_inotify_add_watch,
    nr::__NR_fchdir,
];

/// Calls for existing sockets, and for connections to them.
const LISTENING: &[u32] = &[
    nr::__NR_accept4,
    nr::__NR_shutdown,
    nr::__NR_getsockopt,
    nr::__NR_epoll_ctl,
    nr::__NR_epoll_wait,
    nr::__NR_epoll_pwait,
    nr::__NR_epoll_pwait2,
];

/// Additional calls of a gateway's process: the gateway limits the destinations, and Landlock the ports.
const CONNECTING: &[u32] = &[
    // To wait for events.
    nr::__NR_epoll_create1,
    nr::__NR_connect,
    // To learn whether an address is the host's own; listening is forbidden.
    nr::__NR_bind,
];

/// Additional calls of a launcher that listens at ports of the host for its gateways, which may not do so themselves.
const PUBLISHING: &[u32] = &[nr::__NR_listen, nr::__NR_getsockname];

/// Calls that receive descriptors from another process.
const RECEIVING: &[u32] = &[nr::__NR_recvmsg];

/// Additional calls of the launcher, which starts and ends gateway processes and makes the objects that they share with the process of
/// cells. Its children confine themselves further.
const STARTING: &[u32] = &[
    nr::__NR_getppid,
    nr::__NR_waitid,
    nr::__NR_pidfd_open,
    nr::__NR_pidfd_send_signal,
    nr::__NR_close_range,
    nr::__NR_memfd_create,
    nr::__NR_eventfd2,
    nr::__NR_sendmsg,
    nr::__NR_seccomp,
];

/// Optional needs of a confined process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyscallGroups {
    /// The requests (`ioctl`) on open devices: for KVM, those of a running machine.
    pub requests: Vec<u32>,
    /// Write-back of a cell's changes: links, owners and modes may be changed, but set-user-ID programs may not be made.
    pub writing_back: bool,
    /// Connections from a cell to other hosts: TCP and UDP sockets.
    pub connecting: bool,
    /// Receive descriptors from the launcher of its gateways.
    pub receiving: bool,
    /// Start and end the processes of gateways, for another process.
    pub starting: bool,
    /// Listen at ports of the host, for the gateways that are started.
    pub publishing: bool,
    /// Connections to an existing listening socket.
    pub serving: bool,
    /// Serve files to a cell: as write-back, and also all other names, times and attributes.
    pub serving_files: bool,
}

/// Limits the process, from now on, to the calls that it needs once its threads run and its machine is made: no other
/// process, no thread, no executable memory, and no more of the host than in `needs`.
///
/// # Errors
/// The host refuses; or a thread was confined differently before.
pub fn install_seccomp_filter(needs: &SyscallGroups) -> Result<(), ConfineError> {
    Ok(seccompiler::apply_filter_all_threads(&filter(needs)?)?)
}

/// The filter that the kernel applies to each call.
fn filter(needs: &SyscallGroups) -> Result<BpfProgram, ConfineError> {
    let some = [
        (WRITING_BACK, needs.writing_back || needs.serving_files),
        (SERVING_FILES, needs.serving_files),
        (CONNECTING, needs.connecting || needs.starting),
        (LISTENING, needs.connecting || needs.starting || needs.serving),
        (RECEIVING, needs.receiving || needs.starting),
        (STARTING, needs.starting),
        (PUBLISHING, needs.publishing),
    ];
    let freely = ALLOWED.iter().chain(some.iter().filter(|(_, needed)| *needed).flat_map(|(calls, _)| *calls));
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = freely.map(|call| (i64::from(*call), Vec::new())).collect();
    rules.extend(conditions(needs)?);
    let refuse = SeccompAction::Errno(linux_raw_sys::errno::EPERM);
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, TargetArch::x86_64).map_err(seccompiler::Error::from)?;
    Ok(filter.try_into().map_err(seccompiler::Error::from)?)
}

/// Calls that are allowed with certain arguments.
fn conditions(needs: &SyscallGroups) -> Result<Vec<(i64, Vec<SeccompRule>)>, ConfineError> {
    /// Bit of a mode.
    const SET_USER_ID: u64 = 0o4000;
    /// A null pointer, or this process.
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
    let seals = match needs {
        SyscallGroups { starting: true, .. } => SEALS,
        SyscallGroups { receiving: true, .. } => &SEALS[..1],
        _ => &[],
    };
    let limits = [SeccompCondition::new(0, Dword, Eq, NONE), SeccompCondition::new(2, Qword, Eq, NONE)];
    let mut conditions = vec![
        only(nr::__NR_mmap, rule(2, Qword, MaskedEq(executable), 0))?,
        only(nr::__NR_mprotect, rule(2, Qword, MaskedEq(executable), 0))?,
        // A vCPU's thread uses it to clear the selector of its thread-local storage.
        only(nr::__NR_arch_prctl, rule(0, Dword, Eq, nr::ARCH_SET_FS.into()))?,
        each(nr::__NR_prctl, is_one_of(0, if needs.starting { OWN_PROCESS } else { &OWN_PROCESS[..1] }))?,
        // Its own limits may be read, not set.
        only(nr::__NR_prlimit64, limits.into_iter().collect::<Result<_, _>>().and_then(SeccompRule::new))?,
        only(nr::__NR_tgkill, rule(0, Dword, Eq, own.into()))?,
        each(nr::__NR_ioctl, is_one_of(1, &requests))?,
    ];
    conditions.push((i64::from(nr::__NR_fcntl), of_descriptors(needs, seals)?));
    if needs.starting {
        // As `fork` calls it: no thread, and no namespace.
        let fork = nr::CLONE_CHILD_CLEARTID | nr::CLONE_CHILD_SETTID | nr::SIGCHLD;
        conditions.push(only(nr::__NR_clone, rule(0, Qword, Eq, fork.into()))?);
        conditions.push(only(nr::__NR_socketpair, rule(0, Dword, Eq, linux_raw_sys::net::AF_UNIX.into()))?);
    }
    if needs.connecting || needs.starting {
        conditions.extend(sockets(needs.publishing)?);
        conditions.push((i64::from(nr::__NR_sendto), Vec::new()));
    } else {
        // Only to the connected peer: an inherited standard stream may be a socket, and could name other destinations.
        conditions.push(only(nr::__NR_sendto, rule(4, Qword, Eq, NONE))?);
    }
    // Times of open files; of a link, which cannot be opened, by its name.
    let mut times = vec![rule(1, Qword, Eq, NONE)];
    if needs.serving_files {
        conditions.push(only(nr::__NR_fchmod, rule(1, Dword, MaskedEq(SET_USER_ID), 0))?);
        conditions.push(only(nr::__NR_fchmodat, rule(2, Dword, MaskedEq(SET_USER_ID), 0))?);
        return Ok(conditions);
    }
    if needs.writing_back {
        times.push(rule(3, Dword, Eq, nr::AT_SYMLINK_NOFOLLOW.into()));
        conditions.push(only(nr::__NR_fchmod, rule(1, Dword, MaskedEq(SET_USER_ID), 0))?);
    }
    conditions.push(each(nr::__NR_utimensat, times.into_iter().collect())?);
    Ok(conditions)
}

/// The requests on descriptors (`fcntl`).
fn of_descriptors(needs: &SyscallGroups, seals: &[u32]) -> Result<Vec<SeccompRule>, ConfineError> {
    let rule = |command: u32| SeccompRule::new(vec![SeccompCondition::new(1, Dword, Eq, command.into())?]);
    let setting = || {
        let command = SeccompCondition::new(1, Dword, Eq, nr::F_SETFL.into())?;
        SeccompRule::new(vec![command, SeccompCondition::new(2, Dword, MaskedEq(nr::FASYNC.into()), 0)?])
    };
    // A file server sets the flags of its open files to the client's. None of them redirects signals.
    let settings = needs.serving_files.then(setting);
    let rules = DESCRIPTORS.iter().chain(seals).map(|command| rule(*command)).chain(settings);
    rules.collect::<Result<_, _>>().map_err(|error| ConfineError::Calls(error.into()))
}

/// Sockets of IPv4 and IPv6, for connections, datagrams and echoes; and the socket options that a gateway sets, or also those of listening
/// sockets.
fn sockets(publishing: bool) -> Result<[(i64, Vec<SeccompRule>); 2], ConfineError> {
    use linux_raw_sys::net;
    /// The bits of a socket's type without flags.
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
    let of_listeners = [(net::SOL_SOCKET, net::SO_REUSEADDR), (net::IPPROTO_IPV6 as u32, net::IPV6_V6ONLY)];
    let of_listeners = of_listeners.into_iter().filter(|_| publishing);
    let set = of_sockets
        .into_iter()
        .chain(of_tcp)
        .chain(of_listeners)
        .map(|(level, name)| SeccompRule::new(vec![equal(1, level)?, equal(2, name)?]));
    Ok([(i64::from(nr::__NR_socket), rules(made.collect())?), (i64::from(nr::__NR_setsockopt), rules(set.collect())?)])
}

#[cfg(test)]
mod tests;
