// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for children.

use pando_rt::hypercall::NO_DEADLINE;

use super::System;
use crate::errno::Errno;
use crate::process::{Change, Process, ProcessNumber, Usage};
use crate::signals::Signal;
use crate::wait::Channel;

/// Which children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Any.
    Any,
    /// This one.
    Process(ProcessNumber),
    /// Those of a group.
    Group(ProcessNumber),
}

/// What is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Of which children.
    pub which: Which,
    /// That one has ended.
    pub ended: bool,
    /// That one has stopped.
    pub stopped: bool,
    /// That one goes on.
    pub continued: bool,
    /// Leave it to be waited for again.
    pub keep: bool,
    /// Do not wait.
    pub at_once: bool,
    /// Children by `clone` that send no or another signal: those alone, or as well.
    pub clones: Clones,
}

/// Whether children are meant that end with another signal than `SIGCHLD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clones {
    /// They are not.
    Without,
    /// They alone are.
    Only,
    /// They are as well.
    With,
}

/// What became of a child.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Which.
    pub number: ProcessNumber,
    /// What.
    pub change: Change,
    /// Its user.
    pub user: u32,
    /// What it used of the CPU.
    pub usage: Usage,
}

impl Wanted {
    fn means(&self, child: &Process) -> bool {
        let which = match self.which {
            Which::Any => true,
            Which::Process(number) => child.number == number,
            Which::Group(group) => child.group == group,
        };
        let is_clone = child.end_signal != Signal::CHLD.0;
        which
            && match self.clones {
                Clones::Without => !is_clone,
                Clones::Only => is_clone,
                Clones::With => true,
            }
    }

    fn wants(&self, child: &Process) -> Option<Change> {
        child.change.filter(|change| match change {
            Change::Exited(_) | Change::Killed(_) | Change::Dumped(_) => self.ended && child.has_ended(),
            Change::Stopped(_) => self.stopped,
            Change::Continued => self.continued,
        })
    }
}

impl System {
    /// Waits for a child of the running process. `None`: nothing has happened yet, and the caller does not wait.
    ///
    /// # Errors
    /// `ECHILD`: there is no such child. `WAITS`, `ERESTART`.
    pub fn await_child(&mut self, wanted: &Wanted) -> Result<Option<Told>, Errno> {
        let parent = self.process.number;
        // A child that has ended can neither stop nor go on any more.
        let is_child = |child: &Process| child.parent == parent && child.number != parent && (wanted.ended || !child.has_ended());
        let children = |system: &System| system.processes_where(|child| is_child(child) && wanted.means(child));
        if children(self).is_empty() {
            return Err(Errno::ECHILD);
        }
        let found = |system: &mut System| {
            let candidates = children(system);
            let found = candidates.into_iter().find_map(|number| Some((number, wanted.wants(system.process_of(number)?)?)));
            found.map(|(number, change)| system.collect(number, change, wanted.keep))
        };
        if wanted.at_once {
            return Ok(found(self));
        }
        self.wait(&[Channel::Child(parent)], NO_DEADLINE, found)
    }

    /// Takes note of what became of a child; one that has ended is gone.
    fn collect(&mut self, number: ProcessNumber, change: Change, keep: bool) -> Told {
        let user = self.files.user_of(number);
        let mut usage = Usage::default();
        if let Some(child) = self.process_of_mut(number) {
            usage = child.usage;
            if !keep {
                child.change = None;
            }
        }
        if change.is_end() && !keep {
            self.others.processes.remove(&number);
            self.files.forget_process(number);
            let own = &mut self.process.usage;
            own.children += usage.own + usage.children;
            own.children_peak = own.children_peak.max(usage.peak).max(usage.children_peak);
        }
        Told { number, change, user, usage }
    }
}
