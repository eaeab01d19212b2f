// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the constants that `linux-raw-sys` lacks, and that the libOS therefore declares itself, with the C headers of this machine.

use pando_libos::uapi;
use pando_packages::host_program;
use std::process::Command;

const HEADERS: [&str; 21] = [
    "time.h",
    "asm/hwcap2.h",
    "asm/prctl.h",
    "linux/close_range.h",
    "linux/errqueue.h",
    "linux/filter.h",
    "linux/icmp.h",
    "linux/ioprio.h",
    "linux/securebits.h",
    "linux/udp.h",
    "fcntl.h",
    "netinet/tcp.h",
    "signal.h",
    "sys/ipc.h",
    "sys/msg.h",
    "sys/personality.h",
    "sys/sem.h",
    "sys/shm.h",
    "sys/socket.h",
    "sys/types.h",
    "unistd.h",
];

macro_rules! values {
    ($($name:ident)*) => { [$((stringify!($name), i128::from(uapi::$name) as u64)),*] };
}

#[test]
fn constants_have_the_values_of_the_headers() {
    // Headers that programs do not see define the other constants: SOCK_TYPE_MASK, UDPLITE_SEND_CSCOV, UDPLITE_RECV_CSCOV, RWF_NOAPPEND.
    let values = values! {
        AT_FDCWD SKF_LL_OFF
        UDP_CORK UDP_SEGMENT UDP_GRO SO_EE_ORIGIN_ICMP SO_EE_ORIGIN_ICMP6 MSG_WAITFORONE ICMP_FILTER SOCK_PACKET
        TCP_ESTABLISHED TCP_SYN_SENT TCP_FIN_WAIT2 TCP_CLOSE TCP_CLOSE_WAIT TCP_LISTEN
        IOPRIO_CLASS_SHIFT IOPRIO_NR_LEVELS IOPRIO_CLASS_NONE IOPRIO_CLASS_RT IOPRIO_CLASS_IDLE
        ARCH_SET_GS ARCH_GET_FS ARCH_GET_GS ARCH_GET_CPUID ARCH_SET_CPUID ADDR_NO_RANDOMIZE HWCAP2_FSGSBASE
        CLOSE_RANGE_UNSHARE CLOSE_RANGE_CLOEXEC
        IPC_PRIVATE IPC_CREAT IPC_EXCL IPC_NOWAIT IPC_RMID IPC_SET IPC_STAT IPC_INFO
        MSG_NOERROR MSG_EXCEPT MSG_COPY MSG_STAT MSG_INFO MSG_STAT_ANY
        SHM_HUGETLB SHM_RDONLY SHM_RND SHM_REMAP SHM_EXEC SHM_DEST SHM_LOCKED SHM_LOCK SHM_UNLOCK SHM_STAT SHM_INFO SHM_STAT_ANY
        SEM_UNDO GETPID GETVAL GETALL GETNCNT GETZCNT SETVAL SETALL SEM_STAT SEM_INFO SEM_STAT_ANY
        SIG_DFL SIG_IGN
        SECBIT_NOROOT SECBIT_NO_SETUID_FIXUP SECBIT_KEEP_CAPS SECBIT_NO_CAP_AMBIENT_RAISE SECURE_ALL_BITS SECURE_ALL_LOCKS
    };
    let mut source = String::from("#define _GNU_SOURCE\n");
    source.extend(HEADERS.iter().map(|header| format!("#include <{header}>\n")));
    for (name, value) in values {
        // Negative numbers of 32 bits have another type here.
        let value = value as u32;
        source.push_str(&format!("_Static_assert((unsigned)(unsigned long)({name}) == {value}u, \"{name}\");\n"));
    }
    let directory = tempfile::tempdir().expect("a directory for the program");
    let file = directory.path().join("constants.c");
    std::fs::write(&file, source).expect("the program is written");
    let Ok(output) = Command::new(host_program("gcc")).arg("-fsyntax-only").arg(&file).output() else {
        println!("left out: this test needs gcc");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
