// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `/proc` says about a process, or one of its threads.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use pando_abi::PAGE_SIZE;

use super::{mapped, mounted, strings};
use crate::credentials::Roles;
use crate::errno::Errno;
use crate::files::proc::entry::Subject;
use crate::files::proc::table::Text;
use crate::files::watched::{Fate, Watched};
use crate::files::{Kind, Own, flag};
use crate::limits::{Limit, Limits};
use crate::memory::AddressSpace;
use crate::process::{FIRST, Process};
use crate::signals::action::Disposition;
use crate::signals::{PENDING_MAX, SIGNALS, Set, Signal};
use crate::system::System;
use crate::thread::{Stage, Thread};
use crate::user::ticks;
use crate::wait::ThreadNumber;

/// A process, or a thread, of which something is shown.
pub(super) struct Shown<'a> {
    system: &'a System,
    process: &'a Process,
    /// The thread; `None`: it has ended.
    thread: Option<&'a Thread>,
    /// Whether the thread alone is meant.
    is_thread: bool,
    number: ThreadNumber,
    own: &'a Own,
    /// Its memory; `None`: it is gone.
    memory: Option<&'a AddressSpace>,
}

impl<'a> Shown<'a> {
    /// What is known of a subject.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub(super) fn new(system: &'a System, subject: Subject) -> Result<Shown<'a>, Errno> {
        let process = system.process_of(subject.process).ok_or(Errno::ESRCH)?;
        let own = system.files.of(subject.process).ok_or(Errno::ESRCH)?;
        let number = subject.thread.unwrap_or(subject.process);
        // The first thread may have ended before the others.
        let thread = system.thread_of(number).or_else(|| process.threads.first().and_then(|first| system.thread_of(*first)));
        let memory = if process.has_ended() { None } else { system.memory_of(process.space) };
        Ok(Shown { system, process, thread, is_thread: subject.thread.is_some(), number, own, memory })
    }

    /// What a text says.
    ///
    /// # Errors
    /// `EACCES`, `ESRCH`.
    pub(super) fn text(&self, which: Text, descriptor: Option<u32>) -> Result<Vec<u8>, Errno> {
        let process = self.process;
        Ok(match which {
            Text::CommandLine => self.memory.map(|memory| strings::command_line(self.system, memory)).unwrap_or_default(),
            Text::Environment => self.memory.map(|memory| strings::environment(self.system, memory)).unwrap_or_default(),
            Text::Auxiliary if self.memory.is_some() => {
                process.auxiliary.iter().chain([&(0, 0)]).flat_map(|&(kind, value)| [kind, value]).flat_map(u64::to_le_bytes).collect()
            }
            Text::Comm => [self.name(), b"\n"].concat(),
            Text::Fixed(text) => text.as_bytes().to_vec(),
            Text::Maps | Text::DetailedMaps => {
                self.memory.map(|memory| mapped::maps(&self.system.files, memory, which == Text::DetailedMaps)).unwrap_or_default()
            }
            Text::Status => self.status().into_bytes(),
            Text::Stat => self.stat().into_bytes(),
            Text::MemoryStatus => {
                let [pages, resident] = [self.bytes(), self.resident()].map(|bytes| bytes / PAGE_SIZE);
                format!("{pages} {resident} 0 0 0 {pages} 0\n").into_bytes()
            }
            Text::Limits => limits(&process.limits).into_bytes(),
            Text::Mounts => mounted::mounts(self.system, false),
            Text::MountInfo => mounted::mounts(self.system, true),
            Text::InputOutput => {
                b"rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n".to_vec()
            }
            Text::Children => {
                let children = self.system.processes_where(|child| child.parent == process.number && child.number != process.number);
                children.iter().map(|child| format!("{child} ")).collect::<String>().into_bytes()
            }
            Text::Personality => format!("{:08x}\n", process.personality).into_bytes(),
            Text::OutOfMemoryScore => format!("{}\n", process.memory_score).into_bytes(),
            Text::Login => format!("{}", process.login.unwrap_or(u32::MAX)).into_bytes(),
            Text::TimerSlack => format!("{}\n", self.thread.map_or(0, |thread| thread.slack.nanoseconds())).into_bytes(),
            Text::DescriptorInfo => self.descriptor(descriptor.ok_or(Errno::ENOENT)?)?.into_bytes(),
            _ => Vec::new(),
        })
    }

    /// The name, without what pads it.
    fn name(&self) -> &[u8] {
        let name = self.thread.map_or(&self.process.last_name, |thread| &thread.name);
        name.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    fn bytes(&self) -> u64 {
        self.memory.map_or(0, AddressSpace::bytes)
    }

    /// Bytes of it that are in memory.
    fn resident(&self) -> u64 {
        self.memory.map_or(0, AddressSpace::resident_bytes)
    }

    /// What it does, as a letter and a word.
    fn state(&self) -> (char, &'static str) {
        match self.thread.map(|thread| &thread.stage) {
            _ if self.process.has_ended() => ('Z', "zombie"),
            _ if self.process.stopped => ('T', "stopped"),
            Some(Stage::Runs | Stage::Calls | Stage::Starts(_)) => ('R', "running"),
            Some(Stage::Waits(_)) if self.thread.is_some_and(|thread| thread.call.is_uninterruptible) => ('D', "disk sleep"),
            Some(Stage::Waits(_)) => ('S', "sleeping"),
            Some(Stage::Ended) | None => ('Z', "zombie"),
        }
    }

    /// The signals that wait for the thread and for the process, those it blocks, ignores and handles.
    fn signals(&self) -> [Set; 5] {
        let with = |wanted: Disposition| {
            let signals = (1..=SIGNALS as u8).map(Signal);
            signals
                .filter(|signal| {
                    let action = self.process.signals.action(*signal);
                    !action.is_default() && action.disposition(*signal) == wanted
                })
                .fold(Set::default(), Set::with)
        };
        let own = self.thread.map_or(Set::default(), |thread| thread.signals.pending.set());
        let blocked = self.thread.map_or(Set::default(), |thread| thread.signals.mask());
        [own, self.process.signals.pending.set(), blocked, with(Disposition::Ignore), with(Disposition::Handle)]
    }

    fn status(&self) -> String {
        let process = self.process;
        let name = String::from_utf8_lossy(self.name());
        let (letter, word) = self.state();
        let (number, group, session) = (self.number, process.group, process.session);
        let who = &self.own.who;
        let groups: String = who.groups.iter().map(|group| format!("{group} ")).collect();
        let roles = |roles: Roles| format!("{}\t{}\t{}\t{}", roles.real, roles.effective, roles.saved, roles.file);
        let mut text = format!(
            "Name:\t{name}\nUmask:\t{:04o}\nState:\t{letter} ({word})\nTgid:\t{}\nNgid:\t0\nPid:\t{number}\nPPid:\t{}\nTracerPid:\t0\n\
             Uid:\t{}\nGid:\t{}\nFDSize:\t{}\nGroups:\t{groups}\nNStgid:\t{}\nNSpid:\t{number}\nNSpgid:\t{group}\nNSsid:\t{session}\n",
            self.own.umask,
            process.number,
            process.parent,
            roles(who.user),
            roles(who.group),
            self.own.table_size(),
            process.number,
        );
        if self.memory.is_some() {
            let [kilobytes, resident] = [self.bytes(), self.resident()].map(|bytes| bytes / 1024);
            for name in ["VmPeak", "VmSize"] {
                let _ = writeln!(text, "{name}:\t{kilobytes:8} kB");
            }
            for (name, kilobytes) in
                [("VmLck", 0), ("VmPin", 0), ("VmHWM", resident), ("VmRSS", resident), ("VmData", kilobytes), ("VmSwap", 0)]
            {
                // A string takes everything.
                let _ = writeln!(text, "{name}:\t{kilobytes:8} kB");
            }
        }
        let [own, shared, blocked, ignored, handled] = self.signals().map(|set| set.0);
        let (threads, has) = (process.threads.len().max(1), who.capabilities);
        let _ = writeln!(
            text,
            "Threads:\t{threads}\nSigQ:\t0/{}\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\n\
             SigCgt:\t{handled:016x}\nCapInh:\t{:016x}\nCapPrm:\t{:016x}\nCapEff:\t{:016x}\nCapBnd:\t{:016x}\nCapAmb:\t{:016x}\nNoNewPrivs:\t{}\nSeccomp:\t0\nCpus_allowed:\t1\nCpus_allowed_list:\t0\nMems_allowed:\t1\nMems_allowed_list:\t0\n\
             voluntary_ctxt_switches:\t0\nnonvoluntary_ctxt_switches:\t0",
            PENDING_MAX,
            has.inheritable,
            has.permitted,
            has.effective,
            has.bounding,
            has.ambient,
            u8::from(process.settings.no_new_privileges),
        );
        text
    }

    fn stat(&self) -> String {
        let process = self.process;
        let name = String::from_utf8_lossy(self.name());
        let (letter, _) = self.state();
        let (terminal, foreground) =
            self.system.terminal_of(process.session).map_or((0, -1), |(number, group)| (136 << 8 | number, group.cast_signed()));
        let is_running = process.number == self.system.process.number;
        let own = match self.thread {
            Some(thread) if self.is_thread && thread.number == self.system.thread.number => self.system.thread_time(),
            Some(thread) if self.is_thread => thread.used,
            _ if is_running => self.system.moment().cpu,
            _ => process.usage.own,
        };
        let [time, children, started] = [own, process.usage.children, process.started].map(ticks);
        let (nice, threads) = (process.scheduling.nice, process.threads.len().max(1));
        let (bytes, [own, _, blocked, ignored, handled]) = (self.bytes(), self.signals().map(|set| set.0));
        let end_signal = if process.number == FIRST { Signal::CHLD.0 } else { process.end_signal };
        // From the state on: parent, group, session, terminal, its group, flags, four counts of faults, four times, priority, nice, threads, a zero, start, sizes.
        let head = format!(
            "{} ({name}) {letter} {} {} {} {terminal} {foreground} 0 0 0 0 0 {time} 0 {children} 0 {} {nice} {threads} 0 {started} {bytes} {}",
            self.number,
            process.parent,
            process.group,
            process.session,
            20 + nice,
            self.resident() / PAGE_SIZE
        );
        // A limit, five addresses, four sets of signals, three that are zero, the signal at the end, the processor, and what is zero.
        format!("{head} 18446744073709551615 0 0 0 0 0 {own} {blocked} {ignored} {handled} 0 0 0 {end_signal}{}\n", " 0".repeat(14))
    }

    fn descriptor(&self, fd: u32) -> Result<String, Errno> {
        let files = &self.system.files;
        let file = files.file_of(self.process.number, fd).ok_or(Errno::ENOENT)?;
        let flags = file.flags | if self.own.closes_on_exec(fd) { flag::CLOSE_ON_EXEC } else { 0 };
        let number = files.status_of(file)?.number;
        let position = if matches!(file.kind, Kind::Pipe(_) | Kind::Socket(_)) { 0 } else { file.offset };
        let mut text = format!("pos:\t{position}\nflags:\t0{flags:o}\nmnt_id:\t1\nino:\t{number}\n");
        if let Kind::Event(event) = &file.kind {
            // A string takes everything.
            let _ = writeln!(text, "eventfd-count: {:16x}", event.count);
        }
        if let Kind::Process(id) = file.kind
            && let Ok(Watched { process, fate, .. }) = files.watched.get(id)
        {
            let process = if *fate == Fate::Gone { -1 } else { process.cast_signed() };
            let _ = write!(text, "Pid:\t{process}\nNSpid:\t{process}\n");
        }
        Ok(text)
    }
}

fn limits(limits: &Limits) -> String {
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
        let Ok(Limit { current, most }) = limits.get(resource) else { continue };
        let [soft, hard] = [current, most].map(|limit| if limit == u64::MAX { "unlimited".into() } else { format!("{limit}") });
        let _ = writeln!(text, "{name:<25} {soft:<20} {hard:<20} {unit:<10}");
    }
    text
}
