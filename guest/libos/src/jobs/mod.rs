// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs: programs that the operator starts in the running cell, beside its first one. Each has three pipes for its streams, whose other ends the libOS has: it carries bytes between them and
//! the control channel, within each job's window ([`pando_abi::control`]). A job that reads or writes a file does so without a process.

pub mod file;
mod job;
pub mod orders;

use alloc::vec::Vec;

use pando_abi::control::{Frame, JOBS, Kind};
use pando_abi::ring;
use pando_rt::console::control;

use crate::files::Files;
use crate::process::{Change, ProcessNumber};
pub use job::{FAILED, Job, Pipes};
use orders::Orders;

/// All jobs.
#[derive(Debug, Default)]
pub struct Jobs {
    jobs: Vec<Job>,
    /// What has come of orders that are not complete.
    pub orders: Orders,
}

impl Jobs {
    /// Whether there are any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether there are as many as there may be.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.jobs.len() >= JOBS
    }

    /// Adds one.
    pub fn add(&mut self, job: Job) {
        self.jobs.push(job);
    }

    /// The job of a number.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|job| job.number == number)
    }

    /// The job whose first process this is.
    pub fn of_process(&mut self, process: ProcessNumber) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|job| job.process == Some(process))
    }

    /// Takes note of a process's end, which is a job's if that was its first one.
    pub fn ended(&mut self, process: ProcessNumber, change: Change) {
        if let Some(job) = self.of_process(process) {
            (job.process, job.end) = (None, Some(change));
        }
    }

    /// Ends a job that has to do with a file by a signal.
    pub fn break_off(&mut self, number: u32, signal: u8, files: &mut Files) {
        if let Some(job) = self.get_mut(number) {
            job.break_off(Change::Killed(signal), files);
        }
    }

    /// Does what an order for a job says of its streams.
    pub fn obey(&mut self, frame: Frame, bytes: &[u8], files: &mut Files) {
        let Some(job) = self.get_mut(frame.job) else { return };
        match frame.kind {
            Kind::Input => job.give(bytes),
            Kind::InputEnd => job.end_input(),
            Kind::Taken => job.was_taken(frame.detail),
            Kind::Unread if frame.detail == ring::OUTPUT => job.close_output(0, files),
            Kind::Unread if frame.detail == ring::ERRORS => job.close_output(1, files),
            _ => {}
        }
    }

    /// Carries what can be carried, and tells of those that have ended.
    pub fn pump(&mut self, files: &mut Files) {
        self.jobs.retain_mut(|job| {
            job.pump(files, &mut |frame, bytes| {
                let frame = Frame { length: bytes.len() as u32, ..frame };
                control::report([&frame.to_bytes(), bytes])
            })
        });
    }

    /// Lets go of all jobs, whose operator is another's, or was never there: their processes read an end and write for nobody.
    pub fn abandon(&mut self, files: &mut Files) {
        self.jobs.drain(..).for_each(|mut job| job.close(files));
        self.orders = Orders::default();
    }
}
