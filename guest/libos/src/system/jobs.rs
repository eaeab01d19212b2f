// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that the operator starts beside the first one: processes without a parent.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;

use pando_abi::Registers;
use pando_abi::control::{FIRST_PROGRAM, Frame, Kind, LAYER, RUN, RUN_IN_TERMINAL, Start, WATCH, WRITE};
use pando_abi::layout::EMPTY_SPACE;
use pando_rt::console::control;
use pando_rt::{clock, hypercall};

use super::System;
use crate::errno::Errno;
use crate::files::layer::LayerArchive;
use crate::files::namei::LookupFlags;
use crate::jobs::file::{File, error_message};
use crate::jobs::file_task::{FileTask, layer_error_message};
use crate::jobs::requests::{JobRequest, parse};
use crate::jobs::watch_task::WatchTask;
use crate::jobs::{FAILED, Job, JobStreams};
use crate::limits::STACK_LIMIT;
use crate::loader::{ExecRequest, LoadError, prepare, search};
use crate::memory::AddressSpace;
use crate::process::{Pid, Process};
use crate::signals::Signal;
use crate::signals::info::SigInfo;
use crate::terminal::TerminalName;
use crate::thread::{Thread, ThreadState};
use crate::uapi::AT_FDCWD;

/// Exit statuses of programs that cannot be started, executed or found, by shell convention.
const NOT_STARTED: u8 = 125;
const NOT_EXECUTABLE: u64 = 126;
const NOT_FOUND: u64 = 127;

/// Why the program of a job cannot be loaded.
struct JobRefusal {
    /// The line for its standard error stream.
    message: String,
    /// The exit status.
    status: u64,
}

impl JobRefusal {
    fn new(kind: &str, path: &[u8], error: &LoadError) -> JobRefusal {
        let is_missing = matches!(error, LoadError::System(Errno::ENOENT | Errno::ENOTDIR));
        JobRefusal {
            message: format!("pando: {kind}{}: {error}\n", String::from_utf8_lossy(path)),
            status: if is_missing { NOT_FOUND } else { NOT_EXECUTABLE },
        }
    }

    /// The search path has no such program.
    fn of_search(name: &[u8], error: Errno) -> JobRefusal {
        match error {
            Errno::ENOENT => {
                JobRefusal { message: format!("pando: {}: not found in PATH\n", String::from_utf8_lossy(name)), status: NOT_FOUND }
            }
            error => JobRefusal::new("", name, &error.into()),
        }
    }
}

impl System {
    /// Executes the operator's requests.
    pub(super) fn execute_requests(&mut self) {
        let requests = &mut self.jobs.requests;
        control::take(&mut |bytes| requests.add(bytes));
        while let Some((frame, bytes)) = self.jobs.requests.take() {
            match frame.kind {
                Kind::Start => self.start_job(frame, &bytes),
                Kind::Signal => self.signal_job(frame),
                Kind::Resize => self.resize_terminal_of_job(frame),
                _ => self.jobs.execute(frame, &bytes, &mut self.files),
            }
        }
        self.jobs.requests.report_error(|malformed| control::report([malformed, &[]]));
        self.pump_jobs();
    }

    /// Transfers the bytes of jobs' streams.
    pub(super) fn pump_jobs(&mut self) {
        if self.jobs.is_empty() {
            return;
        }
        for terminal in self.jobs.type_input(&mut self.files) {
            self.type_waiting(terminal);
        }
        self.jobs.pump(&mut self.files);
    }

    fn start_job(&mut self, Frame { job: number, detail, .. }: Frame, bytes: &[u8]) {
        if self.jobs.get_mut(number).is_some() {
            // The operator knows which numbers it has used.
            return;
        }
        let room = if self.jobs.is_full() { Err(Errno::EAGAIN) } else { Ok(()) };
        let started = room.and_then(|()| parse(bytes)).and_then(|(start, wanted)| {
            if detail == RUN || detail == RUN_IN_TERMINAL {
                let (process, streams) = self.make_process_of_job(start, wanted, detail == RUN_IN_TERMINAL)?;
                return Ok(Job::new(number, process, streams));
            }
            let of_path = |error| error_message(&wanted.path, error);
            let opened = match detail {
                LAYER => LayerArchive::new(&self.files).map(FileTask::Layer).map_err(layer_error_message),
                WATCH => WatchTask::open(&mut self.files, start, &wanted).map(|watch| FileTask::Watch(Box::new(watch))).map_err(of_path),
                _ => {
                    File::open(&mut self.files, start, &wanted, detail == WRITE).map(|file| FileTask::File(Box::new(file))).map_err(of_path)
                }
            };
            Ok(opened.map_or_else(|message| Job::failed(number, message, FAILED), |task| Job::of_task(number, task)))
        });
        self.jobs.add(started.unwrap_or_else(|error| {
            let message = format!("pando: cannot start the job in the cell: {}\n", error.text());
            Job::failed(number, message.into_bytes(), NOT_STARTED)
        }));
    }

    /// Creates a process that loads its program when it first runs.
    fn make_process_of_job(&mut self, start: Start, wanted: JobRequest, in_terminal: bool) -> Result<(Pid, JobStreams), Errno> {
        self.check_room(false)?;
        let number = self.free_number()?;
        let space = hypercall::space_clone(EMPTY_SPACE.0.into()).map_err(|_| Errno::EAGAIN)?;
        let credentials = self.jobs.credentials(start.user, start.group);
        let files = &mut self.files;
        let streams = match in_terminal {
            true => files.begin_process_in_terminal(number, credentials, clock::wall()).map(JobStreams::Terminal),
            false => files.begin_process(number, credentials, clock::wall()).map(JobStreams::Pipes),
        };
        let streams = match streams {
            Ok(streams) => streams,
            Err(error) => {
                // If the space cannot be destroyed, the cell loses it.
                let _ = hypercall::space_destroy(space);
                return Err(error);
            }
        };
        let patches = self.memory.patches.fresh();
        self.others.memories.insert(space, Box::new(AddressSpace::new(space, patches)));
        self.others.processes.insert(number, Box::new(Process { space, ..Process::new(number, clock::now()) }));
        let thread = Thread { state: ThreadState::Starts(Box::new(wanted)), ..Thread::new(number) };
        self.others.threads.insert(number, Box::new(thread));
        self.others.queue.push_back(number);
        self.arm();
        Ok((number, streams))
    }

    /// Loads the initial program of the running process. `None`: the process has ended instead.
    pub(crate) fn begin(&mut self, wanted: JobRequest) -> Option<Registers> {
        match self.load_job(wanted) {
            Ok(registers) => {
                self.process.executed = true;
                Some(registers)
            }
            Err(refusal) => {
                self.refuse_job(&refusal);
                None
            }
        }
    }

    /// Loads a program.
    fn load_job(&mut self, wanted: JobRequest) -> Result<Registers, JobRefusal> {
        let JobRequest { path, directory, arguments, environment } = wanted;
        let standing = self.await_mounts(|system| {
            let inode = system.files.find(AT_FDCWD, &directory, LookupFlags::FOLLOW)?;
            system.files.change_directory(inode)
        });
        standing.map_err(|error| JobRefusal::new("working directory ", &directory, &error.into()))?;
        let path = if path.contains(&b'/') {
            path
        } else {
            let search_path = environment.iter().find_map(|line| line.strip_prefix(b"PATH=")).unwrap_or_default();
            self.await_mounts(|system| search(&system.files, &path, search_path)).map_err(|error| JobRefusal::of_search(&path, error))?
        };
        let named = path.clone();
        let request = ExecRequest { directory: AT_FDCWD, path, flags: 0, arguments, environment, stack_limit: STACK_LIMIT };
        let prepared = self.await_mounts(|system| match prepare(&system.files, request.clone()) {
            Err(error) if error.errno() == Errno::QUEUED => Err(Errno::QUEUED),
            prepared => Ok(prepared),
        });
        let loaded = prepared.map_err(LoadError::from).and_then(|prepared| self.load(prepared?));
        loaded.map_err(|error| JobRefusal::new("", &named, &error))
    }

    /// Ends the running process, which is a job's first, because its program cannot be loaded.
    fn refuse_job(&mut self, JobRefusal { message, status }: &JobRefusal) {
        if let Some(job) = self.jobs.of_process(self.process.number) {
            job.add_error_message(message.as_bytes());
        }
        self.exit_process(*status);
    }

    /// Sets the size of a job's terminal, and tells the programs in its foreground.
    fn resize_terminal_of_job(&mut self, frame: Frame) {
        let Some(id) = self.jobs.terminal(frame.job) else { return };
        let size = [(frame.detail >> 16) as u16, frame.detail as u16];
        if self.files.ptys.get_mut(id).is_ok_and(|pty| pty.terminal.resize(size)) {
            self.raise_at(TerminalName::Pseudo(id), Signal::SIGWINCH);
        }
    }

    /// Sends a signal to the group of a job's first process, or to the first program. A job without a process, which reads or writes a
    /// file, is aborted.
    fn signal_job(&mut self, frame: Frame) {
        let Ok(signal) = Signal::from_number(frame.detail.into()) else { return };
        if frame.job == FIRST_PROGRAM {
            return self.raise_in_foreground(signal);
        }
        match self.jobs.get_mut(frame.job).map(|job| job.process) {
            Some(Some(process)) => _ = self.send_to_group(process, SigInfo::kernel(signal)),
            Some(None) => self.jobs.abort_task(frame.job, signal.0, &mut self.files),
            None => {}
        }
    }
}
