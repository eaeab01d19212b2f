// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of names of `/proc`, and of what `/sys` has: what lies where.

/// A text that is written when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the rows of the table name the files")]
pub enum Text {
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
    /// The user as whom somebody logged in.
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
    /// What this clone was given: each of them ended by a zero byte.
    CloneArguments,
    CloneEnvironment,
    CloneIndex,
    Generation,
    Segments,
    Semaphores,
    Queues,
}

/// A link to what a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Path(&'static str),
    /// The directory of the process that looks.
    Own,
    /// The directory of the thread that looks.
    OwnThread,
    Program,
    WorkingDirectory,
    Root,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Directory,
    /// The directory of descriptors.
    Descriptors,
    /// The directory of what is known of descriptors.
    DescriptorInfos,
    /// The directory of threads.
    Threads,
    Link(Link),
    Text(Text),
}

impl What {
    pub(super) fn is_directory(self) -> bool {
        !matches!(self, What::Link(_) | What::Text(_))
    }
}

pub(super) struct Row {
    pub(super) parent: u8,
    pub(super) name: &'static str,
    pub(super) what: What,
}

const fn row(parent: u8, name: &'static str, what: What) -> Row {
    Row { parent, name, what }
}

/// Numbers of rows that others lie in. The processes' directories have no name of their own: it is their number.
pub(super) const ROOT: u8 = 0;
pub(super) const PROCESS: u8 = 1;
pub(super) const DESCRIPTORS: u8 = 2;
pub(super) const DESCRIPTOR_INFOS: u8 = 3;
pub(super) const THREADS: u8 = 4;
pub(super) const SYSTEM: u8 = 5;
const NET: u8 = 6;
const SYS: u8 = 7;
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
/// What lies in no directory of the table.
pub(super) const NOWHERE: u8 = u8::MAX;

const fn fixed(text: &'static str) -> What {
    What::Text(Text::Fixed(text))
}

/// The names, in the order in which they are listed.
pub(super) const ROWS: &[Row] = &[
    row(NOWHERE, "", What::Directory),
    row(NOWHERE, "", What::Directory),
    row(PROCESS, "fd", What::Descriptors),
    row(PROCESS, "fdinfo", What::DescriptorInfos),
    row(PROCESS, "task", What::Threads),
    row(NOWHERE, "", What::Directory),
    row(PROCESS, "net", What::Directory),
    row(ROOT, "sys", What::Directory),
    row(SYS, "kernel", What::Directory),
    row(KERNEL, "random", What::Directory),
    row(SYS, "vm", What::Directory),
    row(SYS, "fs", What::Directory),
    row(ROOT, "tty", What::Directory),
    row(SYSTEM, "devices", What::Directory),
    row(DEVICES, "system", What::Directory),
    row(DEVICES_SYSTEM, "cpu", What::Directory),
    row(CPUS, "cpu0", What::Directory),
    row(ROOT, "sysvipc", What::Directory),
    row(SYS, "net", What::Directory),
    row(SYS_NET, "core", What::Directory),
    row(SYS_NET, "ipv4", What::Directory),
    row(ROOT, "pando", What::Directory),
    row(ROOT, "self", What::Link(Link::Own)),
    row(ROOT, "thread-self", What::Link(Link::OwnThread)),
    row(ROOT, "mounts", What::Link(Link::Path("self/mounts"))),
    row(ROOT, "net", What::Link(Link::Path("self/net"))),
    row(ROOT, "cmdline", fixed("\n")),
    row(ROOT, "cpuinfo", What::Text(Text::CpuInfo)),
    row(ROOT, "diskstats", fixed("")),
    row(ROOT, "filesystems", What::Text(Text::FileSystems)),
    row(ROOT, "loadavg", What::Text(Text::LoadAverage)),
    row(ROOT, "meminfo", What::Text(Text::MemoryInfo)),
    row(ROOT, "stat", What::Text(Text::Statistics)),
    row(ROOT, "swaps", fixed("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")),
    row(ROOT, "uptime", What::Text(Text::Uptime)),
    row(ROOT, "version", What::Text(Text::Version)),
    row(ROOT, "vmstat", What::Text(Text::MemoryStatistics)),
    row(PROCESS, "auxv", What::Text(Text::Auxiliary)),
    row(PROCESS, "cgroup", fixed("0::/\n")),
    row(PROCESS, "children", What::Text(Text::Children)),
    row(PROCESS, "cmdline", What::Text(Text::CommandLine)),
    row(PROCESS, "comm", What::Text(Text::Comm)),
    row(PROCESS, "cwd", What::Link(Link::WorkingDirectory)),
    row(PROCESS, "environ", What::Text(Text::Environment)),
    row(PROCESS, "exe", What::Link(Link::Program)),
    row(PROCESS, "gid_map", fixed(ALL_IDS)),
    row(PROCESS, "io", What::Text(Text::InputOutput)),
    row(PROCESS, "limits", What::Text(Text::Limits)),
    row(PROCESS, "loginuid", What::Text(Text::Login)),
    row(PROCESS, "maps", What::Text(Text::Maps)),
    row(PROCESS, "mountinfo", What::Text(Text::MountInfo)),
    row(PROCESS, "mounts", What::Text(Text::Mounts)),
    row(PROCESS, "oom_score", fixed("0\n")),
    row(PROCESS, "oom_score_adj", What::Text(Text::OutOfMemoryScore)),
    row(PROCESS, "personality", What::Text(Text::Personality)),
    row(PROCESS, "root", What::Link(Link::Root)),
    row(PROCESS, "sessionid", fixed("4294967295")),
    row(PROCESS, "setgroups", fixed("allow\n")),
    row(PROCESS, "smaps", What::Text(Text::DetailedMaps)),
    row(PROCESS, "stat", What::Text(Text::Stat)),
    row(PROCESS, "statm", What::Text(Text::MemoryStatus)),
    row(PROCESS, "status", What::Text(Text::Status)),
    row(PROCESS, "timerslack_ns", What::Text(Text::TimerSlack)),
    row(PROCESS, "uid_map", fixed(ALL_IDS)),
    row(PROCESS, "wchan", fixed("0")),
    row(NET, "dev", fixed(NET_DEVICES)),
    row(NET, "tcp", fixed(TCP)),
    row(NET, "tcp6", fixed(TCP6)),
    row(NET, "udp", fixed(TCP)),
    row(NET, "udp6", fixed(TCP6)),
    row(NET, "unix", fixed("Num       RefCount Protocol Flags    Type St Inode Path\n")),
    row(TTY, "drivers", fixed(TTY_DRIVERS)),
    row(KERNEL, "cap_last_cap", fixed("40\n")),
    row(KERNEL, "core_pattern", fixed("core\n")),
    row(KERNEL, "hostname", What::Text(Text::HostName)),
    row(KERNEL, "msgmax", fixed("8192\n")),
    row(KERNEL, "msgmnb", fixed("16384\n")),
    row(KERNEL, "msgmni", fixed("32000\n")),
    row(KERNEL, "ngroups_max", fixed("65536\n")),
    row(KERNEL, "osrelease", What::Text(Text::Release)),
    row(KERNEL, "ostype", fixed("Linux\n")),
    row(KERNEL, "pid_max", fixed("32768\n")),
    row(KERNEL, "sem", fixed("32000\t1024000000\t500\t32000\n")),
    row(KERNEL, "shmall", fixed("18446744073692774399\n")),
    row(KERNEL, "shmmax", fixed("18446744073692774399\n")),
    row(KERNEL, "shmmni", fixed("4096\n")),
    row(KERNEL, "threads-max", fixed("4096\n")),
    row(KERNEL, "version", What::Text(Text::KernelVersion)),
    row(RANDOM, "boot_id", What::Text(Text::BootId)),
    row(RANDOM, "entropy_avail", fixed("256\n")),
    row(RANDOM, "poolsize", fixed("256\n")),
    row(RANDOM, "uuid", What::Text(Text::Uuid)),
    row(VM, "max_map_count", fixed("65530\n")),
    row(VM, "overcommit_memory", fixed("0\n")),
    row(FS, "file-max", fixed("65536\n")),
    row(FS, "nr_open", fixed("65536\n")),
    row(FS, "pipe-max-size", fixed("1048576\n")),
    row(PANDO, "arguments", What::Text(Text::CloneArguments)),
    row(PANDO, "clone", What::Text(Text::CloneIndex)),
    row(PANDO, "environment", What::Text(Text::CloneEnvironment)),
    row(PANDO, "generation", What::Text(Text::Generation)),
    row(SYS_NET_CORE, "rmem_max", fixed("212992\n")),
    row(SYS_NET_CORE, "somaxconn", fixed("4096\n")),
    row(SYS_NET_CORE, "wmem_max", fixed("212992\n")),
    row(SYS_NET_IPV4, "ip_local_port_range", fixed("32768\t60999\n")),
    row(SYS_NET_IPV4, "ip_unprivileged_port_start", fixed("1024\n")),
    row(SYS_NET_IPV4, "ping_group_range", fixed("0\t2147483647\n")),
    row(SYSTEM_V, "msg", What::Text(Text::Queues)),
    row(SYSTEM_V, "sem", What::Text(Text::Semaphores)),
    row(SYSTEM_V, "shm", What::Text(Text::Segments)),
    row(CPUS, "kernel_max", fixed("0\n")),
    row(CPUS, "offline", fixed("\n")),
    row(CPUS, "online", fixed("0\n")),
    row(CPUS, "possible", fixed("0\n")),
    row(CPUS, "present", fixed("0\n")),
    row(CPU, "online", fixed("1\n")),
];

/// Each user and group is itself.
const ALL_IDS: &str = "         0          0 4294967295\n";
const NET_DEVICES: &str = concat!(
    "Inter-|   Receive                                                |  Transmit\n",
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n",
    "    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n",
);
const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode                                                     \n";
const TCP6: &str = concat!(
    "  sl  local_address                         remote_address                        ",
    "st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
);
const TTY_DRIVERS: &str = concat!(
    "/dev/tty             /dev/tty        5       0 system:/dev/tty\n",
    "/dev/console         /dev/console    5       1 system:console\n",
    "/dev/ptmx            /dev/ptmx       5       2 system\n",
    "pty_slave            /dev/pts      136 0-1048575 pty:slave\n",
);
