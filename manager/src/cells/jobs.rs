// SPDX-License-Identifier: MIT OR Apache-2.0
//! The additional programs in a cell of the manager.

use super::ManagerError;
use super::cell::ManagedCell;
use super::tasks::lock;
use pando_launch::{Command, Job, Jobs};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// The additional programs in a cell, once there was one.
#[derive(Default)]
pub(super) struct CellJobs {
    jobs: Option<Jobs>,
    /// Those that have not ended when the last one was started, by number.
    started: BTreeMap<u32, StartedJob>,
}

/// A program in a cell, and the channel that notifies of changes of its streams.
#[derive(Clone)]
pub struct StartedJob {
    /// The program.
    pub job: Arc<Job>,
    /// Notified when its streams change, and at its end.
    pub notified: watch::Receiver<()>,
}

impl ManagedCell {
    /// Starts an additional program in it.
    ///
    /// # Errors
    /// It has ended, the command is too long, or it has the maximal number of programs.
    pub fn start_job(&self, command: &Command) -> Result<StartedJob, ManagerError> {
        let job = self.with_jobs("start a program in", |jobs| jobs.start(command))??;
        let (notifier, notified) = watch::channel(());
        job.port().listen(move || notifier.send_replace(()));
        let started = StartedJob { job, notified };
        let running = &mut lock(&self.jobs).started;
        running.retain(|_, started| started.job.end().is_none());
        running.insert(started.job.number(), started.clone());
        Ok(started)
    }

    /// The additional program of this number.
    ///
    /// # Errors
    /// There is none, or it has ended.
    pub fn job(&self, number: u32) -> Result<StartedJob, ManagerError> {
        let found = lock(&self.jobs).started.get(&number).filter(|started| started.job.end().is_none()).cloned();
        found.ok_or(ManagerError::NoSuchProgram { cell: self.id, number })
    }

    /// Uses its control channel, which is opened at the first use. `action` is the verb of errors.
    pub(super) fn with_jobs<T>(&self, action: &'static str, use_jobs: impl FnOnce(&Jobs) -> T) -> Result<T, ManagerError> {
        let mut jobs = lock(&self.jobs);
        let ended = || ManagerError::Ended { cell: self.id, action };
        if self.has_ended() {
            return Err(ended());
        }
        let jobs = match &mut jobs.jobs {
            Some(jobs) => jobs,
            none => {
                let (bell, mut notified) = watch::channel(());
                let (jobs, mut multiplexer) =
                    Jobs::with_multiplexer(&*self.operator, self.cell, move || bell.send_replace(())).map_err(|_| ended())?;
                tokio::spawn(async move {
                    while multiplexer.turn() && notified.changed().await.is_ok() {
                        tokio::task::yield_now().await;
                    }
                });
                none.insert(jobs)
            }
        };
        Ok(use_jobs(jobs))
    }
}
