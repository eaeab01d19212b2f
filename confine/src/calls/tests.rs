// SPDX-License-Identifier: MIT OR Apache-2.0
//! The filter's verdicts, found as Linux finds them: by interpreting its program.

use super::{SyscallGroups, filter};
use linux_raw_sys::general as nr;
use linux_raw_sys::ioctl;
use seccompiler::{BpfProgram, sock_filter};

/// The arguments of a filter: `struct seccomp_data`.
#[derive(Clone, Copy)]
struct Call {
    number: u32,
    arguments: [u64; 6],
}

impl Call {
    /// A word of it, by its offset.
    fn word(&self, offset: u32) -> u32 {
        const X86_64: u32 = 0xc000_003e;
        match offset {
            0 => self.number,
            4 => X86_64,
            // The instruction's address, which no rule uses.
            8 | 12 => 0,
            _ => {
                let argument = self.arguments[(offset as usize - 16) / 8];
                (argument >> (offset % 8 * 8)) as u32
            }
        }
    }
}

/// Runs a filter and returns its verdict.
fn verdict(program: &[sock_filter], call: &Call) -> u32 {
    const LOAD: u16 = 0x20;
    const AND: u16 = 0x54;
    const JUMP: u16 = 0x05;
    const EQUAL: u16 = 0x15;
    const GREATER: u16 = 0x25;
    const AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    let (mut next, mut accumulator) = (0, 0);
    loop {
        let step = &program[next];
        next += 1;
        let holds = match step.code {
            LOAD => {
                accumulator = call.word(step.k);
                continue;
            }
            AND => {
                accumulator &= step.k;
                continue;
            }
            JUMP => {
                next += step.k as usize;
                continue;
            }
            RETURN => return step.k,
            EQUAL => accumulator == step.k,
            GREATER => accumulator > step.k,
            AT_LEAST => accumulator >= step.k,
            other => panic!("instruction {other:#x}"),
        };
        next += usize::from(if holds { step.jt } else { step.jf });
    }
}

/// Whether a filter allows a call; it refuses all others with EPERM.
fn allows(program: &BpfProgram, number: u32, arguments: &[u64]) -> bool {
    const ALLOW: u32 = 0x7fff_0000;
    const REFUSE: u32 = 0x0005_0000 | linux_raw_sys::errno::EPERM;
    let mut call = Call { number, arguments: [0; 6] };
    call.arguments[..arguments.len()].copy_from_slice(arguments);
    match verdict(program, &call) {
        ALLOW => true,
        REFUSE => false,
        other => panic!("unexpected verdict {other:#x}"),
    }
}

/// A valid pointer.
const SOMEWHERE: u64 = 0x7fff_1234_5678;

#[test]
fn a_descriptor_sends_no_signals() {
    let program = filter(&SyscallGroups::default()).expect("a filter");
    for command in [nr::F_GETFD, nr::F_SETFD, nr::F_GETFL, nr::F_DUPFD_CLOEXEC] {
        assert!(allows(&program, nr::__NR_fcntl, &[3, command.into()]), "{command}");
    }
    // The last ones have no names in the crate: F_SETSIG, F_NOTIFY.
    for command in [nr::F_SETOWN, nr::F_SETOWN_EX, nr::F_SETFL, nr::F_SETLK, nr::F_SETLEASE, nr::F_SETPIPE_SZ, 10, 1026] {
        assert!(!allows(&program, nr::__NR_fcntl, &[3, command.into()]), "{command}");
    }
}

#[test]
fn only_named_device_requests_are_allowed() {
    /// KVM requests: run a vCPU; make a VM, make a vCPU, set its CPUID, make a device, run nested state.
    const RUN: u32 = 0xae80;
    const OTHERS: [u32; 5] = [0xae01, 0xae41, 0x4008_ae90, 0xc00c_aee0, 0x4080_aebf];
    let program = filter(&SyscallGroups { requests: vec![RUN], ..SyscallGroups::default() }).expect("a filter");
    assert!(allows(&program, nr::__NR_ioctl, &[5, RUN.into()]));
    assert!(allows(&program, nr::__NR_ioctl, &[0, ioctl::TIOCGWINSZ.into(), SOMEWHERE]));
    for request in OTHERS.into_iter().chain([ioctl::TIOCSTI, ioctl::TIOCSETD, ioctl::TIOCLINUX, ioctl::FIONBIO, ioctl::FIOASYNC]) {
        assert!(!allows(&program, nr::__NR_ioctl, &[5, request.into(), SOMEWHERE]), "{request:#x}");
    }
    assert!(!allows(&filter(&SyscallGroups::default()).expect("a filter"), nr::__NR_ioctl, &[5, RUN.into()]));
}

#[test]
fn nothing_of_other_processes_is_changed() {
    let all = SyscallGroups { writing_back: true, connecting: true, receiving: true, serving: true, ..SyscallGroups::default() };
    let program = filter(&all).expect("a filter");
    let own = u64::from(std::process::id());
    assert!(allows(&program, nr::__NR_tgkill, &[own, own, 10]));
    assert!(!allows(&program, nr::__NR_tgkill, &[own + 1, own + 1, 10]));
    assert!(allows(&program, nr::__NR_prlimit64, &[0, 7, 0, SOMEWHERE]));
    assert!(!allows(&program, nr::__NR_prlimit64, &[own + 1, 7, 0, SOMEWHERE]), "of others");
    assert!(!allows(&program, nr::__NR_prlimit64, &[0, 7, SOMEWHERE, 0]), "set");
    let never = [
        nr::__NR_setpriority,
        nr::__NR_sched_setscheduler,
        nr::__NR_sched_setaffinity,
        nr::__NR_ioprio_set,
        nr::__NR_kill,
        nr::__NR_tkill,
        nr::__NR_rt_sigqueueinfo,
        nr::__NR_rt_tgsigqueueinfo,
        nr::__NR_pidfd_open,
        nr::__NR_pidfd_send_signal,
        nr::__NR_pidfd_getfd,
        nr::__NR_ptrace,
        nr::__NR_process_vm_readv,
        nr::__NR_process_vm_writev,
        nr::__NR_process_madvise,
        nr::__NR_migrate_pages,
        nr::__NR_kcmp,
    ];
    never.iter().for_each(|call| assert!(!allows(&program, *call, &[0; 6]), "{call}"));
}

#[test]
fn nothing_is_started_and_nothing_of_the_kernel_is_opened() {
    let all = SyscallGroups { writing_back: true, connecting: true, receiving: true, serving: true, ..SyscallGroups::default() };
    let program = filter(&all).expect("a filter");
    let never = [
        nr::__NR_clone,
        nr::__NR_clone3,
        nr::__NR_fork,
        nr::__NR_vfork,
        nr::__NR_execve,
        nr::__NR_execveat,
        nr::__NR_unshare,
        nr::__NR_setns,
        nr::__NR_mount,
        nr::__NR_fsopen,
        nr::__NR_open_tree,
        nr::__NR_move_mount,
        nr::__NR_pivot_root,
        nr::__NR_chroot,
        nr::__NR_bpf,
        nr::__NR_perf_event_open,
        nr::__NR_userfaultfd,
        nr::__NR_io_uring_setup,
        nr::__NR_io_uring_enter,
        nr::__NR_keyctl,
        nr::__NR_add_key,
        nr::__NR_memfd_create,
        nr::__NR_shmget,
        nr::__NR_msgget,
        nr::__NR_mq_open,
        nr::__NR_open_by_handle_at,
        nr::__NR_capset,
        nr::__NR_setuid,
        nr::__NR_setgroups,
        nr::__NR_seccomp,
    ];
    never.iter().for_each(|call| assert!(!allows(&program, *call, &[0; 6]), "{call}"));
    for (call, index) in [(nr::__NR_mmap, 2), (nr::__NR_mprotect, 2)] {
        let mut arguments = [0; 6];
        assert!(allows(&program, call, &arguments));
        arguments[index] = nr::PROT_EXEC.into();
        assert!(!allows(&program, call, &arguments), "executable memory");
    }
}

#[test]
fn attributes_are_changed_of_open_files_only() {
    let [plain, writing] =
        [false, true].map(|writing_back| filter(&SyscallGroups { writing_back, ..SyscallGroups::default() }).expect("a filter"));
    let xattrs = [
        nr::__NR_getxattr,
        nr::__NR_lgetxattr,
        nr::__NR_fgetxattr,
        nr::__NR_listxattr,
        nr::__NR_llistxattr,
        nr::__NR_flistxattr,
        nr::__NR_setxattr,
        nr::__NR_lsetxattr,
        nr::__NR_fsetxattr,
        nr::__NR_removexattr,
    ];
    for program in [&plain, &writing] {
        xattrs.iter().for_each(|call| assert!(!allows(program, *call, &[SOMEWHERE; 6]), "{call}"));
        assert!(allows(program, nr::__NR_utimensat, &[3, 0, SOMEWHERE, 0]));
        assert!(!allows(program, nr::__NR_utimensat, &[3, SOMEWHERE, SOMEWHERE, 0]), "where a name leads");
        [nr::__NR_chmod, nr::__NR_fchmodat, nr::__NR_chown, nr::__NR_fchownat, nr::__NR_truncate, nr::__NR_mknodat, nr::__NR_linkat]
            .iter()
            .for_each(|call| assert!(!allows(program, *call, &[SOMEWHERE; 6]), "{call}"));
    }
    let link = [3, SOMEWHERE, SOMEWHERE, nr::AT_SYMLINK_NOFOLLOW.into()];
    assert!(allows(&writing, nr::__NR_utimensat, &link) && !allows(&plain, nr::__NR_utimensat, &link));
}

#[test]
fn processes_without_connections_name_no_addresses() {
    let [plain, connecting] =
        [false, true].map(|connecting| filter(&SyscallGroups { connecting, ..SyscallGroups::default() }).expect("a filter"));
    let named = [3, SOMEWHERE, 1, 0, SOMEWHERE, 16];
    assert!(allows(&plain, nr::__NR_sendto, &[3, SOMEWHERE, 1]) && allows(&connecting, nr::__NR_sendto, &named));
    assert!(!allows(&plain, nr::__NR_sendto, &named));
    assert!(!allows(&plain, nr::__NR_connect, &[3, SOMEWHERE, 16]));
}

#[test]
fn the_process_of_cells_makes_no_socket_although_a_gateway_leads_them() {
    let program =
        filter(&SyscallGroups { writing_back: true, receiving: true, serving: true, ..SyscallGroups::default() }).expect("a filter");
    let never = [
        nr::__NR_socket,
        nr::__NR_socketpair,
        nr::__NR_connect,
        nr::__NR_bind,
        nr::__NR_listen,
        nr::__NR_setsockopt,
        nr::__NR_sendmsg,
        nr::__NR_epoll_create1,
        nr::__NR_eventfd2,
        nr::__NR_memfd_create,
        nr::__NR_pidfd_send_signal,
    ];
    for family in [linux_raw_sys::net::AF_INET, linux_raw_sys::net::AF_INET6, linux_raw_sys::net::AF_UNIX] {
        never.iter().for_each(|call| assert!(!allows(&program, *call, &[family.into(), 1, 0, 0, 0, 0]), "{call}"));
    }
    assert!(allows(&program, nr::__NR_recvmsg, &[3, SOMEWHERE]) && allows(&program, nr::__NR_sendto, &[3, SOMEWHERE, 1]));
    assert!(
        allows(&program, nr::__NR_fcntl, &[3, nr::F_GET_SEALS.into()]) && !allows(&program, nr::__NR_fcntl, &[3, nr::F_ADD_SEALS.into()])
    );
}

#[test]
fn gateway_starters_may_only_fork() {
    const FORK: u64 = 0x0120_0011;
    let program = filter(&SyscallGroups { starting: true, ..SyscallGroups::default() }).expect("a filter");
    let local = u64::from(linux_raw_sys::net::AF_UNIX);
    assert!(allows(&program, nr::__NR_clone, &[FORK]) && allows(&program, nr::__NR_socketpair, &[local, 5, 0, SOMEWHERE]));
    for flags in [nr::CLONE_NEWUSER, nr::CLONE_NEWNET, nr::CLONE_NEWNS, nr::CLONE_THREAD, nr::CLONE_VM] {
        assert!(!allows(&program, nr::__NR_clone, &[FORK | u64::from(flags)]), "{flags:#x}");
    }
    assert!(!allows(&program, nr::__NR_socket, &[local, 1, 0]) && !allows(&program, nr::__NR_prctl, &[4]));
    [nr::__NR_clone3, nr::__NR_execve, nr::__NR_kill, nr::__NR_ptrace, nr::__NR_setns, nr::__NR_unshare]
        .iter()
        .for_each(|call| assert!(!allows(&program, *call, &[0; 6]), "{call}"));
    assert!(!allows(&program, nr::__NR_listen, &[3, 16]));
    let publishing = filter(&SyscallGroups { starting: true, publishing: true, ..SyscallGroups::default() }).expect("a filter");
    assert!(allows(&publishing, nr::__NR_listen, &[3, 16]) && allows(&publishing, nr::__NR_getsockname, &[3]));
    // A gateway's own filter forbids these calls.
    let gateway = filter(&SyscallGroups { connecting: true, ..SyscallGroups::default() }).expect("a filter");
    [
        nr::__NR_clone,
        nr::__NR_pidfd_send_signal,
        nr::__NR_recvmsg,
        nr::__NR_sendmsg,
        nr::__NR_memfd_create,
        nr::__NR_eventfd2,
        nr::__NR_listen,
    ]
    .iter()
    .for_each(|call| assert!(!allows(&gateway, *call, &[FORK, 9, 0, 0, 0, 0]), "{call}"));
}
