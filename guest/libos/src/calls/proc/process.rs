// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of `/proc` about a process or one of its threads.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use pando_abi::PAGE_SIZE;

use super::{maps, mounts, net, strings};
use crate::credentials::IdSet;
use crate::errno::Errno;
use crate::files::ProcessFiles;
use crate::files::proc::entry::Subject;
use crate::files::proc::table::ProcText;
use crate::limits::{Limit, Limits};
use crate::memory::AddressSpace;
use crate::process::{FIRST, Process};
use crate::signals::action::Disposition;
use crate::signals::{PENDING_MAX, SIGNALS, Signal, SignalSet};
use crate::system::System;
use crate::thread::{Thread, ThreadState};
use crate::uapi::O_CLOEXEC;
use crate::user::ticks;
use crate::wait::Tid;

/// The process or thread that a file describes.
pub(super) struct ProcSubject<'a> {
    system: &'a System,
    process: &'a Process,
    /// The thread; `None`: it has ended.
    thread: Option<&'a Thread>,
    /// Whether only the thread is described.
    is_thread: bool,
    number: Tid,
    files: &'a ProcessFiles,
    /// Its memory; `None`: it is gone.
    memory: Option<&'a AddressSpace>,
}

impl<'a> ProcSubject<'a> {
    /// Looks up a subject.
    ///
    /// # Errors
    /// `ESRCH`: it is gone.
    pub(super) fn new(system: &'a System, subject: Subject) -> Result<ProcSubject<'a>, Errno> {
        let process = system.process_of(subject.process).ok_or(Errno::ESRCH)?;
        let files = system.files.of(subject.process).ok_or(Errno::ESRCH)?;
        let number = subject.thread.unwrap_or(subject.process);
        // The first thread may have ended before the others.
        let thread = system.thread_of(number).or_else(|| process.threads.first().and_then(|first| system.thread_of(*first)));
        let memory = if process.has_ended() { None } else { system.memory_of(process.space) };
        Ok(ProcSubject { system, process, thread, is_thread: subject.thread.is_some(), number, files, memory })
    }

    /// The contents of a file.
    ///
    /// # Errors
    /// `EACCES`, `ESRCH`.
    pub(super) fn text(&self, which: ProcText, descriptor: Option<u32>) -> Result<Vec<u8>, Errno> {
        let process = self.process;
        self.check_secrets(which)?;
        Ok(match which {
            ProcText::CommandLine => self.memory.map(|memory| strings::command_line(self.system, memory)).unwrap_or_default(),
            ProcText::Environment => self.memory.map(|memory| strings::environment(self.system, memory)).unwrap_or_default(),
            ProcText::Auxiliary if self.memory.is_some() => {
                process.auxiliary.iter().chain([&(0, 0)]).flat_map(|&(kind, value)| [kind, value]).flat_map(u64::to_le_bytes).collect()
            }
            ProcText::Comm => [self.name(), b"\n"].concat(),
            ProcText::Fixed(text) => text.as_bytes().to_vec(),
            ProcText::Maps | ProcText::DetailedMaps => {
                self.memory.map(|memory| maps::maps(&self.system.files, memory, which == ProcText::DetailedMaps)).unwrap_or_default()
            }
            ProcText::Status => self.status().into_bytes(),
            ProcText::Stat => self.stat().into_bytes(),
            ProcText::MemoryStatus => {
                let [pages, resident] = [self.bytes(), self.resident()].map(|bytes| bytes / PAGE_SIZE);
                format!("{pages} {resident} 0 0 0 {pages} 0\n").into_bytes()
            }
            ProcText::Limits => limits(&process.limits).into_bytes(),
            ProcText::Mounts => mounts::mounts(self.system, false),
            ProcText::MountInfo => mounts::mounts(self.system, true),
            ProcText::InputOutput => {
                b"rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n".to_vec()
            }
            ProcText::Children => {
                let children = self.system.processes_where(|child| child.parent == process.number && child.number != process.number);
                children.iter().map(|child| format!("{child} ")).collect::<String>().into_bytes()
            }
            ProcText::Personality => format!("{:08x}\n", process.personality).into_bytes(),
            ProcText::OutOfMemoryScore => format!("{}\n", process.oom_score_adj).into_bytes(),
            ProcText::Login => format!("{}", process.loginuid.unwrap_or(u32::MAX)).into_bytes(),
            ProcText::TimerSlack => format!("{}\n", self.thread.map_or(0, |thread| thread.slack.nanoseconds())).into_bytes(),
            ProcText::Tcp(family) => net::tcp(&self.system.files.sockets, family).into_bytes(),
            ProcText::Udp(family) => net::udp(&self.system.files.sockets, family).into_bytes(),
            ProcText::Protocols => net::protocols(&self.system.files.sockets).into_bytes(),
            ProcText::Unix => net::unix(&self.system.files.sockets).into_bytes(),
            ProcText::DescriptorInfo => self.descriptor(descriptor.ok_or(Errno::ENOENT)?)?.into_bytes(),
            _ => Vec::new(),
        })
    }

    /// Checks that the running process may see a text that not everybody may. Linux refuses some of them when they are opened, others when
    /// they are read.
    fn check_secrets(&self, which: ProcText) -> Result<(), Errno> {
        let refused = match which {
            ProcText::Environment | ProcText::Auxiliary | ProcText::Maps | ProcText::DetailedMaps | ProcText::InputOutput => Errno::EACCES,
            ProcText::Personality => Errno::EPERM,
            _ => return Ok(()),
        };
        let reader = &self.system.files.current;
        if reader.process == self.files.process || reader.credentials.may_inspect(&self.files.credentials) { Ok(()) } else { Err(refused) }
    }

    /// The name, without what pads it.
    fn name(&self) -> &[u8] {
        let name = self.thread.map_or(&self.process.last_name, |thread| &thread.name);
        name.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    fn bytes(&self) -> u64 {
        self.memory.map_or(0, AddressSpace::bytes)
    }

    /// Bytes of it that are in memory (RSS).
    fn resident(&self) -> u64 {
        self.memory.map_or(0, AddressSpace::resident_bytes)
    }

    /// Its state, as a letter and a word.
    fn state(&self) -> (char, &'static str) {
        match self.thread.map(|thread| &thread.state) {
            _ if self.process.has_ended() => ('Z', "zombie"),
            _ if self.process.stopped => ('T', "stopped"),
            Some(ThreadState::Runs | ThreadState::Calls | ThreadState::Starts(_)) => ('R', "running"),
            Some(ThreadState::Waits(_)) if self.thread.is_some_and(|thread| thread.call.is_uninterruptible) => ('D', "disk sleep"),
            Some(ThreadState::Waits(_)) => ('S', "sleeping"),
            Some(ThreadState::Ended) | None => ('Z', "zombie"),
        }
    }

    /// Pending signals of the thread and of the process; blocked, ignored and handled signals.
    fn signals(&self) -> [SignalSet; 5] {
        let with = |wanted: Disposition| {
            let signals = (1..=SIGNALS as u8).map(Signal);
            signals
                .filter(|signal| {
                    let action = self.process.signals.action(*signal);
                    !action.is_default() && action.disposition(*signal) == wanted
                })
                .fold(SignalSet::default(), SignalSet::with)
        };
        let thread_pending = self.thread.map_or(SignalSet::default(), |thread| thread.signals.pending.set());
        let blocked = self.thread.map_or(SignalSet::default(), |thread| thread.signals.mask());
        [thread_pending, self.process.signals.pending.set(), blocked, with(Disposition::Ignore), with(Disposition::Handle)]
    }

    fn status(&self) -> String {
        let process = self.process;
        let name = String::from_utf8_lossy(self.name());
        let (letter, word) = self.state();
        let (number, group, session) = (self.number, process.group, process.session);
        let credentials = &self.files.credentials;
        let groups: String = credentials.groups.iter().map(|group| format!("{group} ")).collect();
        let roles = |roles: IdSet| format!("{}\t{}\t{}\t{}", roles.real, roles.effective, roles.saved, roles.file);
        let mut text = format!(
            "Name:\t{name}\nUmask:\t{:04o}\nState:\t{letter} ({word})\nTgid:\t{}\nNgid:\t0\nPid:\t{number}\nPPid:\t{}\nTracerPid:\t0\n\
             Uid:\t{}\nGid:\t{}\nFDSize:\t{}\nGroups:\t{groups}\nNStgid:\t{}\nNSpid:\t{number}\nNSpgid:\t{group}\nNSsid:\t{session}\n",
            self.files.umask,
            process.number,
            process.parent,
            roles(credentials.user),
            roles(credentials.group),
            self.files.table_size(),
            process.number,
        );
        if self.memory.is_some() {
            let [kilobytes, resident] = [self.bytes(), self.resident()].map(|bytes| bytes / 1024);
            for name in ["VmPeak", "VmSize"] {
                let _ = writeln!(text, "{name}:\t{kilobytes:8} kB");
            }
            for (name, kilobytes) in [
                ("VmLck", 0),
                ("VmPin", 0),
                ("VmHWM", resident.max(process.usage.peak / 1024)),
                ("VmRSS", resident),
                ("VmData", kilobytes),
                ("VmSwap", 0),
            ] {
                // A string takes everything.
                let _ = writeln!(text, "{name}:\t{kilobytes:8} kB");
            }
        }
        let [pending, shared_pending, blocked, ignored, handled] = self.signals().map(|set| set.0);
        let (threads, has) = (process.threads.len().max(1), credentials.capabilities);
        let _ = writeln!(
            text,
            "Threads:\t{threads}\nSigQ:\t0/{}\nSigPnd:\t{pending:016x}\nShdPnd:\t{shared_pending:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\n\
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
        let time = match self.thread {
            Some(thread) if self.is_thread && thread.number == self.system.thread.number => self.system.thread_time(),
            Some(thread) if self.is_thread => thread.used,
            _ if is_running => self.system.process_time(),
            _ => process.usage.own,
        };
        let children = process.usage.children;
        let [user, system, children_user, children_system, started] =
            [time.user(), time.system, children.user(), children.system, process.started].map(ticks);
        let (nice, threads) = (process.scheduling.nice, process.threads.len().max(1));
        let (bytes, [pending, _, blocked, ignored, handled]) = (self.bytes(), self.signals().map(|set| set.0));
        let end_signal = if process.number == FIRST { Signal::SIGCHLD.0 } else { process.end_signal };
        // Fields from the state on: parent, group, session, terminal, its foreground group, flags, four counts of faults, four
        // times, priority, nice, threads, a zero, start, sizes.
        let head = format!(
            "{} ({name}) {letter} {} {} {} {terminal} {foreground} 0 0 0 0 0 {user} {system} {children_user} {children_system} {} {nice} {threads} 0 {started} {bytes} {}",
            self.number,
            process.parent,
            process.group,
            process.session,
            20 + nice,
            self.resident() / PAGE_SIZE
        );
        // A limit, five addresses, four sets of signals, three zeros, the end signal, the processor, and zeros.
        format!("{head} 18446744073709551615 0 0 0 0 0 {pending} {blocked} {ignored} {handled} 0 0 0 {end_signal}{}\n", " 0".repeat(14))
    }

    fn descriptor(&self, fd: u32) -> Result<String, Errno> {
        let files = &self.system.files;
        let file = files.file_of(self.process.number, fd).ok_or(Errno::ENOENT)?;
        let flags = file.flags | if self.files.closes_on_exec(fd) { O_CLOEXEC } else { 0 };
        let number = files.status_of(file)?.number;
        let mut text = format!("pos:\t{}\nflags:\t0{flags:o}\nmnt_id:\t1\nino:\t{number}\n", file.offset);
        file.operations().show_fdinfo(files, &mut text);
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
        let Ok(Limit { soft, hard }) = limits.get(resource) else { continue };
        let [soft, hard] = [soft, hard].map(|limit| if limit == u64::MAX { "unlimited".into() } else { format!("{limit}") });
        let _ = writeln!(text, "{name:<25} {soft:<20} {hard:<20} {unit:<10}");
    }
    text
}
