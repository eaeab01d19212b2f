// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's memory: in this process, in others, or in the host's kernel.

use pando_machine::PageCount;
use std::io;
use std::time::Duration;

/// Bytes of anonymous memory of this process: the arena, and its heap.
pub(crate) fn own() -> io::Result<f64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    field(&text, "RssAnon:").ok_or_else(|| io::Error::other("/proc/self/status has no RssAnon"))
}

/// The CPU time of all threads of this process that live.
pub(crate) fn cpu_time() -> io::Result<Duration> {
    let mut nanos = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let first = text.split_ascii_whitespace().next().and_then(|number| number.parse::<u64>().ok());
        nanos += first.ok_or_else(|| io::Error::other("/proc/self/task has no times"))?;
    }
    Ok(Duration::from_nanos(nanos))
}

/// The memory of a group of processes, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupMemory {
    /// Resident pages that no other process maps.
    pub(crate) private: f64,
    /// Resident anonymous pages.
    pub(crate) anonymous: f64,
    /// The proportional set size: a page that several processes map counts with its share.
    pub(crate) proportional: f64,
}

/// The memory of all processes in a process group.
pub(crate) fn of_group(group: u32) -> io::Result<GroupMemory> {
    let mut sum = GroupMemory::default();
    for process in std::fs::read_dir("/proc")? {
        let process = process?.path();
        // A process may have ended, and other entries are not processes.
        let Ok(stat) = std::fs::read_to_string(process.join("stat")) else { continue };
        if process_group(&stat) != Some(group) {
            continue;
        }
        let text = match std::fs::read_to_string(process.join("smaps_rollup")) {
            // It has ended meanwhile, and has no memory any more.
            Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) => continue,
            text => text?,
        };
        let figure = |name| field(&text, name).ok_or_else(|| io::Error::other(format!("{}/smaps_rollup has no {name}", process.display())));
        sum.private += figure("Private_Clean:")? + figure("Private_Dirty:")?;
        sum.anonymous += figure("Anonymous:")?;
        sum.proportional += figure("Pss:")?;
    }
    Ok(sum)
}

/// The process group in a line of `/proc/PID/stat`: the third field after the name, which may contain anything.
fn process_group(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
}

/// Bytes of host memory for programs: available memory (`MemAvailable`, and the free pages in per-core lists) plus the
/// memory of all programs. It falls by what the host's kernel takes, also on behalf of programs.
pub(crate) fn for_programs() -> io::Result<f64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let of_host = |name| field(&text, name).ok_or_else(|| io::Error::other(format!("/proc/meminfo has no {name}")));
    Ok(of_host("MemAvailable:")? + of_host("AnonPages:")? + of_host("Shmem:")? + at_hand())
}

/// Bytes of free pages in the per-core lists, which no other figure counts; 0 where the host does not report them.
fn at_hand() -> f64 {
    let zones = std::fs::read_to_string("/proc/zoneinfo").unwrap_or_default();
    let pages: u64 = zones.lines().filter_map(|line| line.trim().strip_prefix("count:")?.trim().parse::<u64>().ok()).sum();
    PageCount(pages).bytes() as f64
}

/// The value of a line of such a file, in bytes; the file gives kB.
fn field(text: &str, name: &str) -> Option<f64> {
    let kibibytes: f64 = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse().ok())?;
    Some(kibibytes * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::{of_group, own, process_group};
    use crate::native::memory::{MappedMemory, Pages};

    #[test]
    fn a_group_has_the_memory_of_its_processes() {
        let stat = std::fs::read_to_string("/proc/self/stat").expect("the host says");
        let group = process_group(&stat).expect("a group");
        let memory = of_group(group).expect("this process is in it");
        assert!(memory.private >= 4096.0 && memory.proportional >= memory.private, "{memory:?}");
        assert_eq!(process_group("1 (a name) with) S 2 3 4"), Some(3));
    }

    #[test]
    fn memory_of_this_process_counts_as_its_own() {
        const BYTES: usize = 64 << 20;
        let before = own().expect("the host says");
        let mut memory = MappedMemory::map(BYTES, Pages::Default).expect("there is room");
        memory.touch();
        let taken = (own().expect("the host says") - before) / BYTES as f64;
        // Other tests of this process allocate and free a little.
        assert!((0.5..2.0).contains(&taken), "{taken}");
    }
}
