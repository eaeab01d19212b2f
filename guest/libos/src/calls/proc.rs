// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the texts of `/proc` say.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use pando_abi::PAGE_SIZE;
use pando_rt::{clock, cpuid, memory, registers};

use crate::calls::identity::{RELEASE, VERSION, host_name, limit};
use crate::files::proc::Text;
use crate::files::status::minor;
use crate::process::{self, Process};

const NANOSECONDS: u64 = 1_000_000_000;
/// Clock ticks of a second.
const TICKS: u64 = 100;

/// What a text says now.
pub fn text(process: &mut Process, which: Text) -> Vec<u8> {
    match which {
        Text::CommandLine => strings(Strings::Arguments),
        Text::Environment => strings(Strings::Environment),
        Text::Auxiliary => {
            process.auxiliary.iter().chain([&(0, 0)]).flat_map(|&(kind, value)| [kind, value]).flat_map(u64::to_le_bytes).collect()
        }
        Text::Comm => [name(process), b"\n"].concat(),
        Text::HostName => [&*host_name(), b"\n"].concat(),
        Text::Uuid | Text::BootId => uuid(process, which == Text::BootId).into_bytes(),
        Text::Fixed(text) => text.as_bytes().to_vec(),
        Text::Maps => maps(process).into_bytes(),
        Text::Status => status(process).into_bytes(),
        Text::Stat => stat(process).into_bytes(),
        Text::MemoryStatus => {
            let pages = process.memory.bytes() / PAGE_SIZE;
            format!("{pages} {pages} 0 0 0 {pages} 0\n").into_bytes()
        }
        Text::Limits => limits().into_bytes(),
        Text::Mounts => mounts(process, false),
        Text::MountInfo => mounts(process, true),
        Text::CpuInfo => cpu_info().into_bytes(),
        Text::MemoryInfo => memory_info().into_bytes(),
        Text::Uptime => {
            let hundredths = clock::now() / (NANOSECONDS / 100);
            format!("{}.{:02} 0.00\n", hundredths / 100, hundredths % 100).into_bytes()
        }
        Text::Version => format!("Linux version {RELEASE} {VERSION}\n").into_bytes(),
        Text::Release => format!("{RELEASE}\n").into_bytes(),
        Text::KernelVersion => format!("{VERSION}\n").into_bytes(),
        Text::LoadAverage => b"0.00 0.00 0.00 1/1 1\n".to_vec(),
        Text::FileSystems => b"nodev\tproc\nnodev\toverlay\n\terofs\n".to_vec(),
        Text::Statistics => statistics(process).into_bytes(),
    }
}

enum Strings {
    Arguments,
    Environment,
}

/// The strings that the operator gave, each with its zero byte.
fn strings(which: Strings) -> Vec<u8> {
    let given = memory::arguments();
    // The first two are the program's path and its directory.
    let (skip, take) = match which {
        Strings::Arguments => (2, given.header.arguments),
        Strings::Environment => (2 + given.header.arguments, given.header.environment),
    };
    let strings = given.strings.split_inclusive(|byte| *byte == 0);
    strings.skip(skip as usize).take(take as usize).flatten().copied().collect()
}

/// The process's name, without what pads it.
fn name(process: &Process) -> &[u8] {
    process.name.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A random number as such things are written; `fixed`: the same one every time.
fn uuid(process: &mut Process, fixed: bool) -> String {
    let mut bytes = [0; 16];
    process.random.fill(&mut bytes);
    if fixed {
        bytes = *process.boot_id.get_or_insert(bytes);
    }
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
        // A string takes everything.
        let _ = write!(text, "{dash}{byte:02x}");
    }
    text + "\n"
}

fn maps(process: &Process) -> String {
    let mut text = String::new();
    for (range, region) in process.memory.all() {
        let bit = |has, letter| if has { letter } else { '-' };
        let permissions = region.permissions;
        let (read, write, execute) =
            (bit(permissions.readable(), 'r'), bit(permissions.writable(), 'w'), bit(permissions.executable(), 'x'));
        let what = process.memory.name_of(range);
        let pad = if what.is_empty() { "" } else { "                          " };
        let _ = writeln!(text, "{:08x}-{:08x} {read}{write}{execute}p 00000000 00:00 0{pad}{what}", range.start(), range.end());
    }
    text
}

fn status(process: &Process) -> String {
    let name = String::from_utf8_lossy(name(process));
    let kilobytes = process.memory.bytes() / 1024;
    let who = &process.files.who;
    let groups: String = who.groups.iter().map(|group| format!("{group} ")).collect();
    let roles = |roles: crate::credentials::Roles| format!("{}\t{}\t{}\t{}", roles.real, roles.effective, roles.saved, roles.effective);
    let number = process::NUMBER;
    let umask = process.files.umask;
    format!(
        "Name:\t{name}\nUmask:\t{umask:04o}\nState:\tR (running)\nTgid:\t{number}\nNgid:\t0\nPid:\t{number}\nPPid:\t0\nTracerPid:\t0\n\
         Uid:\t{}\nGid:\t{}\nFDSize:\t64\nGroups:\t{groups}\nNStgid:\t{number}\nNSpid:\t{number}\n\
         VmPeak:\t{kilobytes:8} kB\nVmSize:\t{kilobytes:8} kB\nVmRSS:\t{kilobytes:8} kB\nThreads:\t1\nSeccomp:\t0\n\
         Cpus_allowed:\t1\nCpus_allowed_list:\t0\n",
        roles(who.user),
        roles(who.group)
    )
}

fn stat(process: &Process) -> String {
    let name = String::from_utf8_lossy(name(process));
    let (number, bytes) = (process::NUMBER, process.memory.bytes());
    let (time, started) = (process.moment().cpu / (NANOSECONDS / TICKS), process.started / (NANOSECONDS / TICKS));
    // From the state on: parent, group, session, terminal, its group, flags, four counts of faults, four times, priority, nice, threads, a zero, start, sizes.
    let head =
        format!("{number} ({name}) R 0 {number} {number} 0 -1 0 0 0 0 0 {time} 0 0 0 20 0 1 0 {started} {bytes} {}", bytes / PAGE_SIZE);
    head + " 18446744073709551615" + &" 0".repeat(27) + "\n"
}

fn limits() -> String {
    const NAMES: [(&str, &str); 16] = [
        ("Max cpu time", "seconds"),
        ("Max file size", "bytes"),
        ("Max data size", "bytes"),
        ("Max stack size", "bytes"),
        ("Max core file size", "bytes"),
        ("Max resident set", "bytes"),
        ("Max processes", "processes"),
        ("Max open files", "files"),
        ("Max locked memory", "bytes"),
        ("Max address space", "bytes"),
        ("Max file locks", "locks"),
        ("Max pending signals", "signals"),
        ("Max msgqueue size", "bytes"),
        ("Max nice priority", ""),
        ("Max realtime priority", ""),
        ("Max realtime timeout", "us"),
    ];
    let mut text = format!("{:<25} {:<20} {:<20} {:<10}\n", "Limit", "Soft Limit", "Hard Limit", "Units");
    for (resource, (name, unit)) in (0..).zip(NAMES) {
        let [soft, hard] =
            limit(resource).unwrap_or_default().map(|limit| if limit == u64::MAX { "unlimited".into() } else { format!("{limit}") });
        let _ = writeln!(text, "{name:<25} {soft:<20} {hard:<20} {unit:<10}");
    }
    text
}

/// The volumes and `/proc`, as `mounts` lists them or as `mountinfo` does.
fn mounts(process: &Process, info: bool) -> Vec<u8> {
    let given = memory::arguments();
    let skip = 2 + given.header.arguments + given.header.environment;
    let points = given.strings.split(|byte| *byte == 0).skip(skip as usize).take(process.files.tree.volumes().len());
    let volumes = (minor::VOLUMES..).zip(points).map(|(device, point)| (device, point, "overlay"));
    let mut text = Vec::new();
    for (number, (device, point, kind)) in (1..).zip(volumes.chain([(minor::PROC, &b"/proc"[..], "proc")])) {
        let above = if number == 1 { 0 } else { 1 };
        let point: Vec<u8> = point.iter().flat_map(|&byte| escaped(byte)).collect();
        let (before, after) = if info {
            (format!("{number} {above} 0:{device} / "), format!(" rw,relatime - {kind} {kind} rw\n"))
        } else {
            (format!("{kind} "), format!(" {kind} rw,relatime 0 0\n"))
        };
        text.extend([before.as_bytes(), &point, after.as_bytes()].concat());
    }
    text
}

/// A byte of a path as tables of mounts write it.
fn escaped(byte: u8) -> Vec<u8> {
    if matches!(byte, b' ' | b'\t' | b'\n' | b'\\') { format!("\\{byte:03o}").into_bytes() } else { alloc::vec![byte] }
}

fn cpu_info() -> String {
    let word = |leaf| cpuid::answer(leaf, 0);
    let [highest, b, c, d] = word(0);
    let vendor: Vec<u8> = [b, d, c].into_iter().flat_map(u32::to_le_bytes).collect();
    let brand: Vec<u8> = (0x8000_0002..=0x8000_0004).flat_map(word).flat_map(u32::to_le_bytes).take_while(|byte| *byte != 0).collect();
    let [signature, ..] = word(1);
    let family = (signature >> 8 & 15) + if signature >> 8 & 15 == 15 { signature >> 20 & 0xff } else { 0 };
    let model = signature >> 4 & 15 | signature >> 12 & 0xf0;
    format!(
        "processor\t: 0\nvendor_id\t: {}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {}\nstepping\t: {}\n\
         physical id\t: 0\nsiblings\t: 1\ncore id\t\t: 0\ncpu cores\t: 1\nfpu\t\t: yes\ncpuid level\t: {highest}\nflags\t\t: {}\n\
         clflush size\t: 64\ncache_alignment\t: 64\n\n",
        String::from_utf8_lossy(&vendor),
        String::from_utf8_lossy(&brand),
        signature & 15,
        cpu_flags()
    )
}

/// The features that programs look for by name.
fn cpu_flags() -> String {
    /// Leaf, register, bit, name.
    const FLAGS: [(u32, usize, u32, &str); 24] = [
        (1, 3, 0, "fpu"),
        (1, 3, 4, "tsc"),
        (1, 3, 8, "cx8"),
        (1, 3, 15, "cmov"),
        (1, 3, 23, "mmx"),
        (1, 3, 24, "fxsr"),
        (1, 3, 25, "sse"),
        (1, 3, 26, "sse2"),
        (1, 2, 0, "pni"),
        (1, 2, 1, "pclmulqdq"),
        (1, 2, 9, "ssse3"),
        (1, 2, 12, "fma"),
        (1, 2, 13, "cx16"),
        (1, 2, 19, "sse4_1"),
        (1, 2, 20, "sse4_2"),
        (1, 2, 22, "movbe"),
        (1, 2, 23, "popcnt"),
        (1, 2, 25, "aes"),
        (1, 2, 28, "avx"),
        (7, 1, 3, "bmi1"),
        (7, 1, 5, "avx2"),
        (7, 1, 8, "bmi2"),
        (7, 1, 16, "avx512f"),
        (7, 1, 29, "sha_ni"),
    ];
    let has = |(leaf, register, bit): (u32, usize, u32)| cpuid::answer(leaf, 0)[register] >> bit & 1 != 0;
    let names = FLAGS.into_iter().filter(|&(leaf, register, bit, _)| has((leaf, register, bit))).map(|(.., name)| name);
    names.collect::<Vec<_>>().join(" ")
}

fn memory_info() -> String {
    let memory = registers::memory();
    let kilobytes = |pages: u64| pages * (PAGE_SIZE / 1024);
    let (total, free) = (kilobytes(memory.quota), kilobytes(memory.quota.saturating_sub(memory.used)));
    format!(
        "MemTotal:       {total:8} kB\nMemFree:        {free:8} kB\nMemAvailable:   {free:8} kB\nBuffers:        {0:8} kB\nCached:         {0:8} kB\n\
         SwapTotal:      {0:8} kB\nSwapFree:       {0:8} kB\n",
        0
    )
}

fn statistics(process: &Process) -> String {
    let ticks = process.moment().cpu / (NANOSECONDS / TICKS);
    let booted = clock::wall().saturating_sub(clock::now()) / NANOSECONDS;
    let rest = format!("{ticks} 0 0 0 0 0 0 0 0 0");
    format!("cpu  {rest}\ncpu0 {rest}\nintr 0\nctxt 0\nbtime {booted}\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n")
}
