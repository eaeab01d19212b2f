// SPDX-License-Identifier: MIT OR Apache-2.0
//! Confinement of the kernel process: it gives up everything that it will not need, so that an attacker who takes it over gains little.
//!
//! There are four steps, in this order, and none can be undone. [`forbid_dumps`], [`drop_privileges`] and [`limit_paths`] run
//! while the process has one thread, because capabilities and Landlock bind a thread and those that it starts. [`install_seccomp_filter`]
//! runs once all threads run: it binds them all, and no thread can be started after that. Open descriptors stay open.
//!
//! Forbidden actions *fail*, with `EACCES` for a path and `EPERM` for a call, and no process is killed. An attacker gains as little
//! from an error as from a signal, and if a need was forgotten here, a user reads an error instead of finding a dead process.
#![forbid(unsafe_code)]

mod authority;
mod calls;
mod paths;
mod privileges;

pub use authority::{Authority, FileOwner};
pub use calls::{SyscallGroups, install_seccomp_filter};
pub use paths::{Enforcement, Paths, Ports, limit_paths, supported_enforcement};
pub use privileges::drop_privileges;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// The host did not let the process confine itself.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Core dumps cannot be disabled.
    #[error("cannot disable core dumps: {0}")]
    Dumps(#[from] rustix::io::Errno),
    /// Capabilities or groups cannot be dropped.
    #[error("cannot drop the capabilities and groups of this process: {0}")]
    Privileges(#[source] rustix::io::Errno),
    /// Landlock refuses.
    #[error("cannot limit the files of this process (Landlock): {0}")]
    Paths(#[from] landlock::RulesetError),
    /// Seccomp refuses.
    #[error("cannot limit the system calls of this process (seccomp): {0}")]
    Calls(#[from] seccompiler::Error),
}

/// Disables core dumps, and access to this process's memory by other processes of the same user: cells' data must not leak.
///
/// # Errors
/// The host refuses.
pub fn forbid_dumps() -> Result<(), ConfineError> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
