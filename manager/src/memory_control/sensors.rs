// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files in which the host reports its memory: `/proc/meminfo`, the memory controller of cgroups (version 2 or 1), and pressure.
//!
//! They are opened before the process is confined, and read again from their start each time.

use super::policy::{MemoryPool, MemoryReading};
use pando_machine::{FRAME_SIZE, PageCount};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a file that are read: enough for each of them.
const FILE_MAX: usize = 8 << 10;
/// Cgroups around the process that are considered.
const CGROUPS_MAX: usize = 16;
/// A limit of version 1 from here on is none: it has no other word for that.
const NO_LIMIT: u64 = 1 << 60;

/// The open files.
#[derive(Debug)]
pub(crate) struct MemorySensors {
    host: Option<File>,
    cgroups: Vec<Cgroup>,
    pressure: Option<File>,
}

/// The files of a cgroup.
#[derive(Debug)]
struct Cgroup {
    limit: File,
    usage: File,
    statistics: Option<File>,
    /// The names of its file cache, which can be reclaimed, with that of its descendants.
    cache: [&'static str; 2],
}

/// The names of the files of a version.
struct Version {
    limit: &'static str,
    usage: &'static str,
    cache: [&'static str; 2],
}

const VERSION_2: Version = Version { limit: "memory.max", usage: "memory.current", cache: ["inactive_file", "active_file"] };
const VERSION_1: Version =
    Version { limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", cache: ["total_inactive_file", "total_active_file"] };

impl MemorySensors {
    /// Opens the files of this process. Missing ones are left out.
    pub(crate) fn open() -> MemorySensors {
        MemorySensors::open_in(Path::new("/proc"), Path::new("/sys/fs/cgroup"))
    }

    fn open_in(proc: &Path, cgroup: &Path) -> MemorySensors {
        let lines = std::fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
        let mut cgroups = Vec::new();
        let mut pressure = None;
        for line in lines.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let (root, version) = match controllers {
                "" => (cgroup.to_path_buf(), VERSION_2),
                _ if controllers.split(',').any(|controller| controller == "memory") => (cgroup.join("memory"), VERSION_1),
                _ => continue,
            };
            for directory in ancestors(&root, path) {
                if pressure.is_none() && controllers.is_empty() {
                    pressure = File::open(directory.join("memory.pressure")).ok();
                }
                cgroups.extend(Cgroup::open(&directory, &version).ok());
            }
        }
        let pressure = pressure.or_else(|| File::open(proc.join("pressure/memory")).ok());
        MemorySensors { host: File::open(proc.join("meminfo")).ok(), cgroups, pressure }
    }

    /// Reads the files.
    pub(super) fn read(&self) -> MemoryReading {
        let host = self.host.as_ref().and_then(|file| {
            let text = read(file).ok()?;
            let field = |name: &str| Some(pages(value(&text, name)?.checked_mul(1024)?));
            Some(MemoryPool { size: field("MemTotal:")?, available: field("MemAvailable:")? })
        });
        let pools = host.into_iter().chain(self.cgroups.iter().filter_map(Cgroup::read)).collect();
        let pressure = self.pressure.as_ref().and_then(|file| some_pressure(&read(file).ok()?)).unwrap_or(0.0);
        MemoryReading { pools, pressure }
    }
}

/// The directory of a cgroup, and those around it, from the inside.
fn ancestors(root: &Path, path: &str) -> Vec<PathBuf> {
    let own = root.join(path.trim_start_matches('/'));
    own.ancestors().take_while(|directory| directory.starts_with(root)).take(CGROUPS_MAX).map(Path::to_path_buf).collect()
}

impl Cgroup {
    fn open(directory: &Path, version: &Version) -> io::Result<Cgroup> {
        let Version { limit, usage, cache } = version;
        Ok(Cgroup {
            limit: File::open(directory.join(limit))?,
            usage: File::open(directory.join(usage))?,
            statistics: File::open(directory.join("memory.stat")).ok(),
            cache: *cache,
        })
    }

    /// `None`: it has no limit at present.
    fn read(&self) -> Option<MemoryPool> {
        let number = |file: &File| read(file).ok()?.trim().parse::<u64>().ok();
        let size = number(&self.limit).filter(|limit| *limit < NO_LIMIT)?;
        let statistics = self.statistics.as_ref().and_then(|file| read(file).ok()).unwrap_or_default();
        let cached: u64 = self.cache.iter().filter_map(|name| value(&statistics, name)).fold(0, u64::saturating_add);
        let used = number(&self.usage)?.saturating_sub(cached);
        Some(MemoryPool { size: pages(size), available: pages(size.saturating_sub(used)) })
    }
}

fn pages(bytes: u64) -> PageCount {
    PageCount(bytes / FRAME_SIZE as u64)
}

/// Reads the start of a file.
fn read(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; FILE_MAX];
    let mut length = 0;
    while let Some(room) = bytes.get_mut(length..).filter(|room| !room.is_empty()) {
        match file.read_at(room, length as u64)? {
            0 => break,
            count => length += count,
        }
    }
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The number after a name at the start of a line.
fn value(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix([' ', '\t']))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The average of the last ten seconds in which some process waited, in percent.
fn some_pressure(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split(' ').find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::MemorySensors;
    use crate::memory_control::policy::{MemoryPool, MemoryReading};
    use pando_machine::PageCount;
    use std::path::Path;

    fn write(directory: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = directory.join(name);
            std::fs::create_dir_all(path.parent().expect("it is inside")).expect("there is room");
            std::fs::write(path, text).expect("there is room");
        }
    }

    fn pool(size: u64, available: u64) -> MemoryPool {
        MemoryPool { size: PageCount(size), available: PageCount(available) }
    }

    const MEMINFO: &str = "MemTotal:       4000 kB\nMemFree:  1 kB\nMemAvailable:   2000 kB\n";
    const PRESSURE: &str = "some avg10=12.50 avg60=0.00 avg300=0.33 total=12\nfull avg10=99.00 avg60=0.00 avg300=0.13 total=5\n";

    #[test]
    fn both_versions_of_cgroups_are_read_with_those_around_the_process() {
        let place = tempfile::tempdir().expect("there is room");
        let (proc, cgroup) = (place.path().join("proc"), place.path().join("cgroup"));
        write(&proc, &[("meminfo", MEMINFO), ("self/cgroup", "4:cpu,memory:/a\n3:memoryless:/x\n0::/user/pando\n")]);
        write(
            &cgroup,
            &[
                ("memory/a/memory.limit_in_bytes", "819200\n"),
                ("memory/a/memory.usage_in_bytes", "409600\n"),
                ("memory/a/memory.stat", "inactive_file 0\ntotal_inactive_file 4096\ntotal_active_file 4096\n"),
                ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory/memory.usage_in_bytes", "409600\n"),
                ("user/pando/memory.max", "max\n"),
                ("user/pando/memory.current", "4096\n"),
                ("user/pando/memory.pressure", PRESSURE),
                ("user/memory.max", "409600\n"),
                ("user/memory.current", "819200\n"),
            ],
        );
        let sensors = MemorySensors::open_in(&proc, &cgroup);
        let expected = MemoryReading { pools: vec![pool(1000, 500), pool(200, 102), pool(100, 0)], pressure: 12.5 };
        assert_eq!(sensors.read(), expected);
        // They are read again.
        write(&cgroup, &[("user/pando/memory.max", "40960"), ("user/memory.max", "max")]);
        write(&proc, &[("meminfo", "MemTotal: 8000 kB\nMemAvailable: 400 kB\n")]);
        assert_eq!(sensors.read().pools, [pool(2000, 100), pool(200, 102), pool(10, 9)]);
    }

    #[test]
    fn missing_and_malformed_files_limit_nothing() {
        let place = tempfile::tempdir().expect("there is room");
        let (proc, cgroup) = (place.path().join("proc"), place.path().join("cgroup"));
        assert_eq!(MemorySensors::open_in(&proc, &cgroup).read(), MemoryReading::default());
        write(
            &proc,
            &[("meminfo", "MemTotal: x kB\n"), ("self/cgroup", "garbage\n0::\n::\n0::/../../etc\n"), ("pressure/memory", "some avg10=\n")],
        );
        write(&cgroup, &[("memory.max", "lots"), ("memory.current", "")]);
        assert_eq!(MemorySensors::open_in(&proc, &cgroup).read(), MemoryReading::default());
    }
}
