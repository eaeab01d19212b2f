// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes from the kernel process what it will not need, so that whoever breaks into it finds little there.
//!
//! Four steps, in this order, none of which can be undone: [`forbid_dumps`], [`drop_privileges`] and [`limit_paths`] while the process has one thread (capabilities and
//! Landlock bind a thread and those that it starts), [`limit_calls`] once all threads run (they are bound together, and none can be started after that). What was opened
//! before stays open.
//!
//! What is not allowed *fails*, with `EACCES` for a path and `EPERM` for a call, and nobody is killed: an intruder gets as little from an error as from a signal, and where
//! something was forgotten here a user reads an error instead of finding a corpse.
#![forbid(unsafe_code)]

mod calls;
mod paths;
mod privileges;

pub use calls::{Needs, limit_calls};
pub use paths::{Paths, Ports, Reach, limit_paths, reach};
pub use privileges::{Authority, Owned, drop_privileges};

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// The host did not let the process confine itself.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Core dumps cannot be switched off.
    #[error("core dumps cannot be switched off: {0}")]
    Dumps(#[from] rustix::io::Errno),
    /// Capabilities or groups cannot be given up.
    #[error("the capabilities and groups of this process cannot be dropped: {0}")]
    Privileges(#[source] rustix::io::Errno),
    /// Landlock says no.
    #[error("the files that this process can reach cannot be limited (Landlock): {0}")]
    Paths(#[from] landlock::RulesetError),
    /// Seccomp says no.
    #[error("the system calls of this process cannot be limited (seccomp): {0}")]
    Calls(#[from] seccompiler::Error),
}

/// Switches core dumps off, and reading this process's memory by others of the same user: cells' data must not lie about.
///
/// # Errors
/// The host refuses.
pub fn forbid_dumps() -> Result<(), ConfineError> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
