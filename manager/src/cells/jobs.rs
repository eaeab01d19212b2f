// SPDX-License-Identifier: MIT OR Apache-2.0
//! The additional programs in a cell of the manager.

use pando_kernel::CellId;
use pando_launch::{Command, Job, Jobs, LaunchError, Operator};
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

impl CellJobs {
    /// Starts an additional program in a cell.
    ///
    /// # Errors
    /// The cell has ended, the command is too long, or the cell has the maximal number of programs.
    pub(super) fn start(&mut self, operator: &dyn Operator, cell: CellId, command: &Command) -> Result<StartedJob, LaunchError> {
        let job = self.channel(operator, cell)?.start(command)?;
        let (notifier, notified) = watch::channel(());
        job.port().listen(move || notifier.send_replace(()));
        let started = StartedJob { job, notified };
        self.started.retain(|_, started| started.job.end().is_none());
        self.started.insert(started.job.number(), started.clone());
        Ok(started)
    }

    /// The additional program of this number, if it has not ended.
    pub(super) fn find(&self, number: u32) -> Option<StartedJob> {
        self.started.get(&number).filter(|started| started.job.end().is_none()).cloned()
    }

    /// The number of additional programs that have not ended.
    pub(super) fn running(&self) -> usize {
        self.started.values().filter(|started| started.job.end().is_none()).count()
    }

    /// Sends the processes of a cell's first program a signal, by Linux's number.
    ///
    /// # Errors
    /// The cell has ended.
    pub(super) fn signal_first(&mut self, operator: &dyn Operator, cell: CellId, number: u8) -> Result<(), LaunchError> {
        self.channel(operator, cell)?.signal_first(number);
        Ok(())
    }

    /// The control channel of the cell, which is opened at the first use.
    fn channel(&mut self, operator: &dyn Operator, cell: CellId) -> Result<&Jobs, LaunchError> {
        if self.jobs.is_none() {
            let (bell, mut notified) = watch::channel(());
            let opened = Jobs::with_multiplexer(operator, cell, move || bell.send_replace(()));
            let (jobs, mut multiplexer) = opened.map_err(|_| LaunchError::CellEnded)?;
            tokio::spawn(async move {
                while multiplexer.turn() && notified.changed().await.is_ok() {
                    tokio::task::yield_now().await;
                }
            });
            self.jobs = Some(jobs);
        }
        self.jobs.as_ref().ok_or(LaunchError::CellEnded)
    }
}
