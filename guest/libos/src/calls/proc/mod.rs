// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading and writing the files of `/proc`.

mod maps;
mod mounts;
mod net;
mod process;
mod processor;
mod shared;
mod strings;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use pando_abi::PAGE_SIZE;
use pando_rt::user::{self, UserRange};
use pando_rt::{clock, registers};

use crate::calls::file_operations::{CallOperations, IoRequest};
use crate::calls::identity::{RELEASE, VERSION, host_name};
use crate::calls::pando_device::clone_arguments;
use crate::errno::Errno;
use crate::files::OpenFile;
use crate::files::proc::entry::ProcEntry;
use crate::files::proc::file::ProcFile;
use crate::files::proc::table::ProcText;
use crate::process::{FIRST, NAME};
use crate::system::System;
use crate::thread::ThreadState;
use crate::uapi::{CAP_AUDIT_CONTROL, CAP_SYS_RESOURCE};
use crate::user::ticks;
use process::ProcSubject;

const NANOSECONDS: u64 = 1_000_000_000;

/// The present contents of a file.
///
/// # Errors
/// `ESRCH`: the process is gone. `EACCES`: it is another user's.
fn text(system: &mut System, entry: ProcEntry, which: ProcText) -> Result<Vec<u8>, Errno> {
    if let Some(subject) = entry.subject() {
        let proc_subject = ProcSubject::new(system, subject)?;
        return proc_subject.text(which, entry.descriptor());
    }
    Ok(match which {
        ProcText::HostName => [&*host_name(), b"\n"].concat(),
        ProcText::Uuid | ProcText::BootId => uuid(system, which == ProcText::BootId).into_bytes(),
        ProcText::CloneArguments => clone_arguments().0.to_vec(),
        ProcText::CloneEnvironment => clone_arguments().1.to_vec(),
        ProcText::CloneIndex => format!("{}\n", registers::identity().clone_index).into_bytes(),
        ProcText::Generation => format!("{}\n", registers::identity().generation).into_bytes(),
        ProcText::Fixed(text) => text.as_bytes().to_vec(),
        ProcText::CpuInfo => processor::cpu_info().into_bytes(),
        ProcText::MemoryInfo => memory_info().into_bytes(),
        ProcText::MemoryStatistics => memory_statistics().into_bytes(),
        ProcText::Uptime => uptime(system).into_bytes(),
        ProcText::Version => format!("Linux version {RELEASE} {VERSION}\n").into_bytes(),
        ProcText::Release => format!("{RELEASE}\n").into_bytes(),
        ProcText::KernelVersion => format!("{VERSION}\n").into_bytes(),
        ProcText::LoadAverage => load(system).into_bytes(),
        ProcText::FileSystems => b"nodev\tsysfs\nnodev\tproc\nnodev\toverlay\n\terofs\n".to_vec(),
        ProcText::Segments => shared::segments(system).into_bytes(),
        ProcText::Semaphores => shared::semaphores(system).into_bytes(),
        ProcText::Queues => shared::queues(system).into_bytes(),
        ProcText::Statistics => statistics(system).into_bytes(),
        _ => Vec::new(),
    })
}

impl CallOperations for ProcFile {
    fn write(&self, system: &mut System, request: IoRequest<'_>) -> Result<u64, Errno> {
        if !system.files.raw_file(request.fd)?.writable() {
            return Err(Errno::EBADF);
        }
        write(system, self.entry, self.text, request.ranges)
    }

    fn open(&self, system: &mut System, file: &mut OpenFile, _flags: u64) -> Result<(), Errno> {
        let content = text(system, self.entry, self.text)?;
        file.object = self.with_content(&mut system.files, content).into();
        Ok(())
    }
}

/// Writes to a file. Returns the number of written bytes, which is all.
///
/// # Errors
/// `EINVAL`: it is no such value. `ESRCH`: the process is gone. `EPERM`: it is of another process. `EACCES`: the value is too low.
/// `EFAULT`.
fn write(system: &mut System, entry: ProcEntry, which: ProcText, ranges: &[UserRange]) -> Result<u64, Errno> {
    /// More bytes than any value has.
    const LONGEST: usize = 64;
    const SCORES: core::ops::RangeInclusive<i64> = -1000..=1000;
    let wanted: u64 = ranges.iter().map(|range| range.length()).sum();
    let mut bytes = Vec::new();
    for range in ranges {
        let mut piece = [0; LONGEST];
        let piece = &mut piece[..range.length().min((LONGEST - bytes.len()) as u64) as usize];
        user::read(range.start(), piece)?;
        bytes.extend_from_slice(piece);
    }
    let subject = entry.subject().ok_or(Errno::EINVAL)?;
    let value = || core::str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse::<i64>().ok()).ok_or(Errno::EINVAL);
    match which {
        ProcText::Comm => {
            if subject.process != system.process.number {
                return Err(Errno::EINVAL);
            }
            // A newline at the end is part of the name, as on Linux.
            let name = &bytes[..bytes.len().min(NAME - 1)];
            system.thread_of_mut(subject.thread.unwrap_or(subject.process)).ok_or(Errno::ESRCH)?.set_name(name);
        }
        ProcText::OutOfMemoryScore => {
            let score = value().ok().filter(|score| SCORES.contains(score)).ok_or(Errno::EINVAL)?;
            let may_lower = system.files.current.credentials.is_capable(CAP_SYS_RESOURCE);
            let process = system.process_of_mut(subject.process).ok_or(Errno::ESRCH)?;
            if !may_lower && score < process.oom_score_adj_min.into() {
                return Err(Errno::EACCES);
            }
            process.oom_score_adj = score as i16;
            if may_lower {
                process.oom_score_adj_min = score as i16;
            }
        }
        ProcText::Login => {
            let user = u32::try_from(value()?).map_err(|_| Errno::EINVAL)?;
            let (is_own, may_again) =
                (subject.process == system.process.number, system.files.current.credentials.is_capable(CAP_AUDIT_CONTROL));
            let process = system.process_of_mut(subject.process).filter(|_| is_own).ok_or(Errno::EPERM)?;
            if process.loginuid.is_some() && !may_again {
                return Err(Errno::EPERM);
            }
            process.loginuid = Some(user).filter(|user| *user != u32::MAX);
        }
        ProcText::TimerSlack => {
            let slack = u64::try_from(value()?).map_err(|_| Errno::EINVAL)?;
            system.thread_of_mut(subject.thread.unwrap_or(subject.process)).ok_or(Errno::ESRCH)?.slack.set(slack);
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(wanted)
}

/// A random UUID; `fixed`: the same one every time (`boot_id`).
fn uuid(system: &mut System, fixed: bool) -> String {
    let mut bytes = [0; 16];
    system.random.fill(&mut bytes);
    if fixed {
        bytes = *system.boot_id.get_or_insert(bytes);
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

/// Number of threads, and of those that are runnable.
fn counts(system: &System) -> (usize, usize) {
    let (all, runs) = system.all_threads().fold((0, 0), |(all, runs), thread| {
        (all + 1, runs + usize::from(matches!(thread.state, ThreadState::Runs | ThreadState::Calls | ThreadState::Starts(_))))
    });
    (all, runs)
}

fn load(system: &System) -> String {
    let (all, runs) = counts(system);
    format!("0.00 0.00 0.00 {runs}/{all} {}\n", system.last_number())
}

fn uptime(system: &System) -> String {
    let hundredths = |nanoseconds: u64| nanoseconds / (NANOSECONDS / 100);
    let (up, idle) = (hundredths(clock::now()), hundredths(clock::now().saturating_sub(system.total_cpu_time().total)));
    format!("{}.{:02} {}.{:02}\n", up / 100, up % 100, idle / 100, idle % 100)
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

/// `vmstat`. The counts of paging are zero: paging happens below the cell.
fn memory_statistics() -> String {
    let memory = registers::memory();
    format!("nr_free_pages {}\npgpgin 0\npgpgout 0\npswpin 0\npswpout 0\n", memory.quota.saturating_sub(memory.used))
}

fn statistics(system: &System) -> String {
    let used = system.total_cpu_time();
    let [user, busy] = [used.user(), used.total].map(ticks);
    let idle = ticks(clock::now()).saturating_sub(busy);
    let booted = clock::wall().saturating_sub(clock::now()) / NANOSECONDS;
    let rest = format!("{user} 0 {} {idle} 0 0 0 0 0 0", busy - user);
    let (_, runs) = counts(system);
    let (turns, forks) = (system.others.turns, system.last_number() - FIRST + 1);
    format!(
        "cpu  {rest}\ncpu0 {rest}\nintr 0\nctxt {turns}\nbtime {booted}\nprocesses {forks}\nprocs_running {runs}\nprocs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n"
    )
}
