// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of the names in `/proc` and `/sys`.

use crate::files::socket::Family;

/// A text that is written when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the rows of the table name the files")]
pub enum ProcText {
    CommandLine,
    Environment,
    Auxiliary,
    Maps,
    DetailedMaps,
    Status,
    Stat,
    MemoryStatus,
    Comm,
    Limits,
    Mounts,
    MountInfo,
    InputOutput,
    Children,
    OutOfMemoryScore,
    /// The login user.
    Login,
    Personality,
    TimerSlack,
    DescriptorInfo,
    CpuInfo,
    MemoryInfo,
    MemoryStatistics,
    Uptime,
    Version,
    LoadAverage,
    FileSystems,
    Statistics,
    Fixed(&'static str),
    HostName,
    Release,
    KernelVersion,
    Uuid,
    BootId,
    /// The arguments of this clone, each terminated by a zero byte.
    CloneArguments,
    CloneEnvironment,
    CloneIndex,
    Generation,
    Segments,
    Semaphores,
    Queues,
    /// The sockets of a family.
    Tcp(Family),
    Udp(Family),
    Unix,
    /// Counters of the Internet protocols.
    Protocols,
}

/// A link to an object of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcLink {
    Path(&'static str),
    /// The directory of the calling process.
    Own,
    /// The directory of the calling thread.
    OwnThread,
    Program,
    WorkingDirectory,
    Root,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcNode {
    Directory,
    /// The directory of descriptors.
    Descriptors,
    /// The directory of information about descriptors (`fdinfo`).
    DescriptorInfos,
    /// The directory of threads.
    Threads,
    Link(ProcLink),
    Text(ProcText),
}

impl ProcNode {
    pub(super) fn is_directory(self) -> bool {
        !matches!(self, ProcNode::Link(_) | ProcNode::Text(_))
    }
}

pub(super) struct ProcRow {
    pub(super) parent: u8,
    pub(super) name: &'static str,
    pub(super) node: ProcNode,
}

const fn row(parent: u8, name: &'static str, node: ProcNode) -> ProcRow {
    ProcRow { parent, name, node }
}

/// Numbers of rows that are directories. Processes' directories have no name in the table: their name is their number.
pub(super) const ROOT: u8 = 0;
pub(super) const PROCESS: u8 = 1;
pub(super) const DESCRIPTORS: u8 = 2;
pub(super) const DESCRIPTOR_INFOS: u8 = 3;
pub(super) const THREADS: u8 = 4;
pub(super) const SYSTEM: u8 = 5;
const NET: u8 = 6;
pub(super) const SYS: u8 = 7;
const KERNEL: u8 = 8;
const RANDOM: u8 = 9;
const VM: u8 = 10;
const FS: u8 = 11;
const TTY: u8 = 12;
const DEVICES: u8 = 13;
const DEVICES_SYSTEM: u8 = 14;
const CPUS: u8 = 15;
const CPU: u8 = 16;
const SYSTEM_V: u8 = 17;
const SYS_NET: u8 = 18;
const SYS_NET_CORE: u8 = 19;
const SYS_NET_IPV4: u8 = 20;
const PANDO: u8 = 21;
/// The parent of rows that lie in no directory of the table.
pub(super) const NOWHERE: u8 = u8::MAX;

const fn fixed(text: &'static str) -> ProcNode {
    ProcNode::Text(ProcText::Fixed(text))
}

/// The rows, in listing order.
pub(super) const ROWS: &[ProcRow] = &[
    row(NOWHERE, "", ProcNode::Directory),
    row(NOWHERE, "", ProcNode::Directory),
    row(PROCESS, "fd", ProcNode::Descriptors),
    row(PROCESS, "fdinfo", ProcNode::DescriptorInfos),
    row(PROCESS, "task", ProcNode::Threads),
    row(NOWHERE, "", ProcNode::Directory),
    row(PROCESS, "net", ProcNode::Directory),
    row(ROOT, "sys", ProcNode::Directory),
    row(SYS, "kernel", ProcNode::Directory),
    row(KERNEL, "random", ProcNode::Directory),
    row(SYS, "vm", ProcNode::Directory),
    row(SYS, "fs", ProcNode::Directory),
    row(ROOT, "tty", ProcNode::Directory),
    row(SYSTEM, "devices", ProcNode::Directory),
    row(DEVICES, "system", ProcNode::Directory),
    row(DEVICES_SYSTEM, "cpu", ProcNode::Directory),
    row(CPUS, "cpu0", ProcNode::Directory),
    row(ROOT, "sysvipc", ProcNode::Directory),
    row(SYS, "net", ProcNode::Directory),
    row(SYS_NET, "core", ProcNode::Directory),
    row(SYS_NET, "ipv4", ProcNode::Directory),
    row(ROOT, "pando", ProcNode::Directory),
    row(ROOT, "self", ProcNode::Link(ProcLink::Own)),
    row(ROOT, "thread-self", ProcNode::Link(ProcLink::OwnThread)),
    row(ROOT, "mounts", ProcNode::Link(ProcLink::Path("self/mounts"))),
    row(ROOT, "net", ProcNode::Link(ProcLink::Path("self/net"))),
    row(ROOT, "cmdline", fixed("\n")),
    row(ROOT, "cpuinfo", ProcNode::Text(ProcText::CpuInfo)),
    row(ROOT, "diskstats", fixed("")),
    row(ROOT, "filesystems", ProcNode::Text(ProcText::FileSystems)),
    row(ROOT, "loadavg", ProcNode::Text(ProcText::LoadAverage)),
    row(ROOT, "meminfo", ProcNode::Text(ProcText::MemoryInfo)),
    row(ROOT, "stat", ProcNode::Text(ProcText::Statistics)),
    row(ROOT, "swaps", fixed("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")),
    row(ROOT, "uptime", ProcNode::Text(ProcText::Uptime)),
    row(ROOT, "version", ProcNode::Text(ProcText::Version)),
    row(ROOT, "vmstat", ProcNode::Text(ProcText::MemoryStatistics)),
    row(PROCESS, "auxv", ProcNode::Text(ProcText::Auxiliary)),
    row(PROCESS, "cgroup", fixed("0::/\n")),
    row(PROCESS, "children", ProcNode::Text(ProcText::Children)),
    row(PROCESS, "cmdline", ProcNode::Text(ProcText::CommandLine)),
    row(PROCESS, "comm", ProcNode::Text(ProcText::Comm)),
    row(PROCESS, "cwd", ProcNode::Link(ProcLink::WorkingDirectory)),
    row(PROCESS, "environ", ProcNode::Text(ProcText::Environment)),
    row(PROCESS, "exe", ProcNode::Link(ProcLink::Program)),
    row(PROCESS, "gid_map", fixed(ALL_IDS)),
    row(PROCESS, "io", ProcNode::Text(ProcText::InputOutput)),
    row(PROCESS, "limits", ProcNode::Text(ProcText::Limits)),
    row(PROCESS, "loginuid", ProcNode::Text(ProcText::Login)),
    row(PROCESS, "maps", ProcNode::Text(ProcText::Maps)),
    row(PROCESS, "mountinfo", ProcNode::Text(ProcText::MountInfo)),
    row(PROCESS, "mounts", ProcNode::Text(ProcText::Mounts)),
    row(PROCESS, "oom_score", fixed("0\n")),
    row(PROCESS, "oom_score_adj", ProcNode::Text(ProcText::OutOfMemoryScore)),
    row(PROCESS, "personality", ProcNode::Text(ProcText::Personality)),
    row(PROCESS, "root", ProcNode::Link(ProcLink::Root)),
    row(PROCESS, "sessionid", fixed("4294967295")),
    row(PROCESS, "setgroups", fixed("allow\n")),
    row(PROCESS, "smaps", ProcNode::Text(ProcText::DetailedMaps)),
    row(PROCESS, "stat", ProcNode::Text(ProcText::Stat)),
    row(PROCESS, "statm", ProcNode::Text(ProcText::MemoryStatus)),
    row(PROCESS, "status", ProcNode::Text(ProcText::Status)),
    row(PROCESS, "timerslack_ns", ProcNode::Text(ProcText::TimerSlack)),
    row(PROCESS, "uid_map", fixed(ALL_IDS)),
    row(PROCESS, "wchan", fixed("0")),
    row(NET, "dev", fixed(NET_DEVICES)),
    row(NET, "netstat", fixed(NET_EXTENSIONS)),
    row(NET, "snmp", ProcNode::Text(ProcText::Protocols)),
    row(NET, "tcp", ProcNode::Text(ProcText::Tcp(Family::Inet))),
    row(NET, "tcp6", ProcNode::Text(ProcText::Tcp(Family::Inet6))),
    row(NET, "udp", ProcNode::Text(ProcText::Udp(Family::Inet))),
    row(NET, "udp6", ProcNode::Text(ProcText::Udp(Family::Inet6))),
    row(NET, "unix", ProcNode::Text(ProcText::Unix)),
    row(TTY, "drivers", fixed(TTY_DRIVERS)),
    row(KERNEL, "cap_last_cap", fixed("40\n")),
    row(KERNEL, "core_pattern", fixed("core\n")),
    row(KERNEL, "hostname", ProcNode::Text(ProcText::HostName)),
    row(KERNEL, "msgmax", fixed("8192\n")),
    row(KERNEL, "msgmnb", fixed("16384\n")),
    row(KERNEL, "msgmni", fixed("32000\n")),
    row(KERNEL, "ngroups_max", fixed("65536\n")),
    row(KERNEL, "osrelease", ProcNode::Text(ProcText::Release)),
    row(KERNEL, "ostype", fixed("Linux\n")),
    row(KERNEL, "pid_max", fixed("32768\n")),
    row(KERNEL, "sem", fixed("32000\t1024000000\t500\t32000\n")),
    row(KERNEL, "shmall", fixed("18446744073692774399\n")),
    row(KERNEL, "shmmax", fixed("18446744073692774399\n")),
    row(KERNEL, "shmmni", fixed("4096\n")),
    row(KERNEL, "threads-max", fixed("4096\n")),
    row(KERNEL, "version", ProcNode::Text(ProcText::KernelVersion)),
    row(RANDOM, "boot_id", ProcNode::Text(ProcText::BootId)),
    row(RANDOM, "entropy_avail", fixed("256\n")),
    row(RANDOM, "poolsize", fixed("256\n")),
    row(RANDOM, "uuid", ProcNode::Text(ProcText::Uuid)),
    row(VM, "max_map_count", fixed("65530\n")),
    row(VM, "overcommit_memory", fixed("0\n")),
    row(FS, "file-max", fixed("65536\n")),
    row(FS, "nr_open", fixed("65536\n")),
    row(FS, "pipe-max-size", fixed("1048576\n")),
    row(PANDO, "arguments", ProcNode::Text(ProcText::CloneArguments)),
    row(PANDO, "clone", ProcNode::Text(ProcText::CloneIndex)),
    row(PANDO, "environment", ProcNode::Text(ProcText::CloneEnvironment)),
    row(PANDO, "generation", ProcNode::Text(ProcText::Generation)),
    row(SYS_NET_CORE, "rmem_max", fixed("212992\n")),
    row(SYS_NET_CORE, "somaxconn", fixed("4096\n")),
    row(SYS_NET_CORE, "wmem_max", fixed("212992\n")),
    row(SYS_NET_IPV4, "ip_local_port_range", fixed("32768\t60999\n")),
    row(SYS_NET_IPV4, "ip_unprivileged_port_start", fixed("1024\n")),
    row(SYS_NET_IPV4, "ping_group_range", fixed("0\t2147483647\n")),
    row(SYSTEM_V, "msg", ProcNode::Text(ProcText::Queues)),
    row(SYSTEM_V, "sem", ProcNode::Text(ProcText::Semaphores)),
    row(SYSTEM_V, "shm", ProcNode::Text(ProcText::Segments)),
    row(CPUS, "kernel_max", fixed("0\n")),
    row(CPUS, "offline", fixed("\n")),
    row(CPUS, "online", fixed("0\n")),
    row(CPUS, "possible", fixed("0\n")),
    row(CPUS, "present", fixed("0\n")),
    row(CPU, "online", fixed("1\n")),
];

/// The identity mapping of users and groups.
const ALL_IDS: &str = "         0          0 4294967295\n";
const NET_DEVICES: &str = concat!(
    "Inter-|   Receive                                                |  Transmit\n",
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n",
    "    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n",
);
/// Counters beyond those of the standards. None are kept.
const NET_EXTENSIONS: &str = concat!(
    "TcpExt: SyncookiesSent SyncookiesRecv SyncookiesFailed TW ListenOverflows ListenDrops TCPTimeouts\n",
    "TcpExt: 0 0 0 0 0 0 0\n",
    "IpExt: InNoRoutes InMcastPkts OutMcastPkts InBcastPkts OutBcastPkts InOctets OutOctets\n",
    "IpExt: 0 0 0 0 0 0 0\n",
);
const TTY_DRIVERS: &str = concat!(
    "/dev/tty             /dev/tty        5       0 system:/dev/tty\n",
    "/dev/console         /dev/console    5       1 system:console\n",
    "/dev/ptmx            /dev/ptmx       5       2 system\n",
    "pty_slave            /dev/pts      136 0-1048575 pty:slave\n",
);
