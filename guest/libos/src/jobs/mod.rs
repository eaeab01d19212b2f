// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs: programs that the operator starts in the running cell, beside its first one. Each has three pipes for its streams, or a pseudo
//! terminal. The libOS holds their other ends and moves bytes between them and the control channel, within each job's window
//! ([`pando_abi::control`]). A job that transfers a file, or the changes of the root volume, has no process.

pub mod file;
pub mod file_task;
mod job;
pub mod requests;
pub mod watch_task;

use alloc::vec::Vec;

use pando_abi::control::{Frame, JOBS, Kind};
use pando_abi::ring;
use pando_rt::console::control;

use crate::credentials::Credentials;
use crate::files::Files;
use crate::process::{Pid, ProcessStateChange};
use crate::terminal::PtyId;
pub use job::{FAILED, Job, JobStreams};
use requests::JobRequests;

/// All jobs.
#[derive(Debug, Default)]
pub struct Jobs {
    jobs: Vec<Job>,
    /// The received bytes of incomplete requests.
    pub requests: JobRequests,
    /// The credentials with which the cell's first program was started.
    pub first_credentials: Option<Credentials>,
}

impl Jobs {
    /// The credentials of a job: as the first program's user and group it also has that program's supplementary groups.
    #[must_use]
    pub fn credentials(&self, user: u32, group: u32) -> Credentials {
        let credentials = Credentials::new(user, group);
        match &self.first_credentials {
            Some(first) if (first.user, first.group) == (credentials.user, credentials.group) => first.clone(),
            _ => credentials,
        }
    }

    /// Whether there are any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether the limit of jobs is reached.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.jobs.len() >= JOBS
    }

    /// Adds a job.
    pub fn add(&mut self, job: Job) {
        self.jobs.push(job);
    }

    /// The job with a number.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|job| job.number == number)
    }

    /// The job with this first process.
    pub fn of_process(&mut self, process: Pid) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|job| job.process == Some(process))
    }

    /// Records the end of a process, which may be the first one of a job.
    pub fn ended(&mut self, process: Pid, change: ProcessStateChange) {
        if let Some(job) = self.of_process(process) {
            (job.process, job.end) = (None, Some(change));
        }
    }

    /// Whether a job requires that the cell's programs do not run.
    #[must_use]
    pub fn suspend_programs(&self) -> bool {
        self.jobs.iter().any(Job::suspends_programs)
    }

    /// Ends a job without a process, as if by a signal.
    pub fn abort_task(&mut self, number: u32, signal: u8, files: &mut Files) {
        if let Some(job) = self.get_mut(number) {
            job.abort_task(ProcessStateChange::Killed(signal), files);
        }
    }

    /// Executes a stream request of the operator for a job.
    pub fn execute(&mut self, frame: Frame, bytes: &[u8], files: &mut Files) {
        let Some(job) = self.get_mut(frame.job) else { return };
        match frame.kind {
            Kind::Input => job.add_input(bytes),
            Kind::InputEnd => job.end_input(),
            Kind::Taken => job.widen_window(frame.detail),
            Kind::CloseOutput if frame.detail == ring::OUTPUT => job.close_output(0, files),
            Kind::CloseOutput if frame.detail == ring::ERRORS => job.close_output(1, files),
            _ => {}
        }
    }

    /// Moves input to the terminals of jobs. Returns these terminals, whose waiting input the system is to type.
    pub fn type_input(&mut self, files: &mut Files) -> Vec<PtyId> {
        self.jobs.iter_mut().for_each(|job| job.type_input(files));
        self.jobs.iter().filter_map(|job| job.terminal).collect()
    }

    /// The terminal of a job.
    pub fn terminal(&mut self, number: u32) -> Option<PtyId> {
        self.get_mut(number)?.terminal
    }

    /// Transfers as many bytes as possible, and reports the jobs that have ended.
    pub fn pump(&mut self, files: &mut Files) {
        loop {
            let are_files_writable = !self.suspend_programs();
            self.jobs.retain_mut(|job| {
                job.pump(files, are_files_writable, &mut |frame, bytes| {
                    let frame = Frame { length: bytes.len() as u32, ..frame };
                    control::report([&frame.to_bytes(), bytes])
                })
            });
            if are_files_writable || self.suspend_programs() {
                return;
            }
            // The changes have been read: the jobs that write files go on.
        }
    }

    /// Drops all jobs, because their operator has changed or never existed. Their processes read end of file, and their output is
    /// discarded.
    pub fn abandon(&mut self, files: &mut Files) {
        self.jobs.drain(..).for_each(|mut job| job.close(files));
        self.requests = JobRequests::default();
    }
}
