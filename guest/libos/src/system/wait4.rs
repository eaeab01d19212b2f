// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits for children (`wait4`, `waitid`).

use pando_rt::hypercall::NO_DEADLINE;

use super::System;
use crate::errno::Errno;
use crate::process::{Pid, Process, ProcessStateChange, Usage};
use crate::signals::Signal;
use crate::wait::Channel;

/// The children to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitTarget {
    /// Any child.
    Any,
    /// This child.
    Process(Pid),
    /// The children in a group.
    Group(Pid),
}

/// The target and options of a wait.
#[derive(Clone, Copy, Debug)]
pub struct WaitOptions {
    /// The children to wait for.
    pub which: WaitTarget,
    /// Report children that have ended (`WEXITED`).
    pub ended: bool,
    /// Report stopped children (`WSTOPPED`).
    pub stopped: bool,
    /// Report continued children (`WCONTINUED`).
    pub continued: bool,
    /// Leave the child waitable (`WNOWAIT`).
    pub no_wait: bool,
    /// Return at once (`WNOHANG`).
    pub no_hang: bool,
    /// How to treat "clone" children, whose end signal is not `SIGCHLD` (`__WALL`, `__WCLONE`).
    pub clones: CloneSelection,
}

/// Whether to wait for children whose end signal is not `SIGCHLD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloneSelection {
    /// Only for the others.
    Without,
    /// Only for them (`__WCLONE`).
    Only,
    /// For both (`__WALL`).
    With,
}

/// The state change of a child.
#[derive(Clone, Copy, Debug)]
pub struct WaitStatus {
    /// The child's number.
    pub number: Pid,
    /// The change.
    pub change: ProcessStateChange,
    /// The child's user.
    pub user: u32,
    /// CPU time that the child has used.
    pub usage: Usage,
}

impl WaitOptions {
    fn means(&self, child: &Process) -> bool {
        let which = match self.which {
            WaitTarget::Any => true,
            WaitTarget::Process(number) => child.number == number,
            WaitTarget::Group(group) => child.group == group,
        };
        let is_clone = child.end_signal != Signal::SIGCHLD.0;
        which
            && match self.clones {
                CloneSelection::Without => !is_clone,
                CloneSelection::Only => is_clone,
                CloneSelection::With => true,
            }
    }

    fn wants(&self, child: &Process) -> Option<ProcessStateChange> {
        child.change.filter(|change| match change {
            ProcessStateChange::Exited(_) | ProcessStateChange::Killed(_) | ProcessStateChange::Dumped(_) => {
                self.ended && child.has_ended()
            }
            ProcessStateChange::Stopped(_) => self.stopped,
            ProcessStateChange::Continued => self.continued,
        })
    }
}

impl System {
    /// Waits for a child of the running process. `None`: no child has changed, and the caller does not wait.
    ///
    /// # Errors
    /// `ECHILD`: there is no such child. `WAITS`, `ERESTART`.
    pub fn await_child(&mut self, wanted: &WaitOptions) -> Result<Option<WaitStatus>, Errno> {
        let parent = self.process.number;
        // A child that has ended can neither stop nor continue any more.
        let is_child = |child: &Process| child.parent == parent && child.number != parent && (wanted.ended || !child.has_ended());
        let children = |system: &System| system.processes_where(|child| is_child(child) && wanted.means(child));
        if children(self).is_empty() {
            return Err(Errno::ECHILD);
        }
        let found = |system: &mut System| {
            let candidates = children(system);
            let found = candidates.into_iter().find_map(|number| Some((number, wanted.wants(system.process_of(number)?)?)));
            found.map(|(number, change)| system.collect(number, change, wanted.no_wait))
        };
        if wanted.no_hang {
            return Ok(found(self));
        }
        self.wait(&[Channel::Child(parent)], NO_DEADLINE, found)
    }

    /// Consumes a child's state change; a child that has ended is removed.
    fn collect(&mut self, number: Pid, change: ProcessStateChange, no_wait: bool) -> WaitStatus {
        let user = self.files.user_of(number);
        let mut usage = Usage::default();
        if let Some(child) = self.process_of_mut(number) {
            usage = child.usage;
            if !no_wait {
                child.change = None;
            }
        }
        if change.is_end() && !no_wait {
            self.others.processes.remove(&number);
            self.files.forget_process(number);
            let parent_usage = &mut self.process.usage;
            parent_usage.children += usage.own + usage.children;
            parent_usage.children_peak = parent_usage.children_peak.max(usage.peak).max(usage.children_peak);
        }
        WaitStatus { number, change, user, usage }
    }
}
