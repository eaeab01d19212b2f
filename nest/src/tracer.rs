// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tracer: refuses system calls of a child by rules. The child's libOS prints the calls that it gets.

use crate::streams;
use crate::watched_cell::StateAccess;
use crate::watched_child::WatchedChild;
use pando_abi::holding::ChildState;
use pando_abi::watch::{HaltReason, mask, resume};
use pando_abi::{HoldingName, Registers};
use pando_machine::CellsDevice;
use std::fmt;
use std::io::Result;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use syscalls::Sysno;

/// Bytes of the longest path that Linux takes, and its zero byte.
const PATH_MAX: usize = 4096;
/// The result of a refused call: a negated `EPERM`.
const REFUSED: u64 = 1_u64.wrapping_neg();

/// Calls whose first argument is a path.
const PATH_FIRST: [Sysno; 19] = [
    Sysno::open,
    Sysno::creat,
    Sysno::execve,
    Sysno::unlink,
    Sysno::rename,
    Sysno::mkdir,
    Sysno::rmdir,
    Sysno::chmod,
    Sysno::chown,
    Sysno::lchown,
    Sysno::stat,
    Sysno::lstat,
    Sysno::access,
    Sysno::truncate,
    Sysno::readlink,
    Sysno::chdir,
    Sysno::link,
    Sysno::mknod,
    Sysno::utimes,
];
/// Calls whose second argument is a path.
const PATH_SECOND: [Sysno; 15] = [
    Sysno::openat,
    Sysno::openat2,
    Sysno::execveat,
    Sysno::unlinkat,
    Sysno::renameat,
    Sysno::renameat2,
    Sysno::mkdirat,
    Sysno::fchmodat,
    Sysno::fchownat,
    Sysno::newfstatat,
    Sysno::statx,
    Sysno::faccessat,
    Sysno::faccessat2,
    Sysno::readlinkat,
    Sysno::linkat,
];

/// A rule: a system call that is refused, for one path or for all arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenyRule {
    call: Sysno,
    /// The path, as the program gives it.
    path: Option<String>,
}

impl DenyRule {
    /// The name of the system call.
    #[must_use]
    pub fn call(&self) -> &'static str {
        self.call.name()
    }
}

impl FromStr for DenyRule {
    type Err = String;

    /// Reads `CALL[:PATH]`.
    fn from_str(text: &str) -> std::result::Result<DenyRule, String> {
        let (name, path) = text.split_once(':').map_or((text, None), |(name, path)| (name, Some(path)));
        let call = Sysno::from_str(name).map_err(|()| format!("`{name}` is not a system call: give a name as strace prints it"))?;
        if path.is_some() && !PATH_FIRST.contains(&call) && !PATH_SECOND.contains(&call) {
            return Err(format!("`{name}` takes no path that a rule can name: omit `:PATH`"));
        }
        Ok(DenyRule { call, path: path.map(str::to_owned) })
    }
}

impl fmt::Display for DenyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.call.name())?;
        self.path.as_ref().map_or(Ok(()), |path| write!(f, ":{path}"))
    }
}

/// Refuses system calls of a child.
#[derive(Clone, Debug)]
pub struct Tracer {
    rules: Vec<DenyRule>,
}

impl Tracer {
    /// A tracer with these rules.
    #[must_use]
    pub fn new(rules: Vec<DenyRule>) -> Tracer {
        Tracer { rules }
    }

    /// Runs a child that has not started with the streams of this process, until it has ended. `interrupted` is set by Ctrl-C; `report`
    /// gets the rules by which calls were refused. Returns the state in which the child has ended.
    ///
    /// # Errors
    /// The device does not allow it, or a stream failed.
    pub fn run(
        &self,
        device: &CellsDevice,
        child: HoldingName,
        interrupted: &AtomicBool,
        report: impl Fn(&DenyRule),
    ) -> Result<ChildState> {
        self.watch(device, child)?;
        streams::run(device, child, interrupted, || {
            let served = WatchedChild { device, name: child }.unless_ended(self.serve(device, child))?;
            if let Some(rule) = served.flatten() {
                report(rule);
            }
            Ok(())
        })
    }

    /// Watches a child that has not started.
    ///
    /// # Errors
    /// There is no such child.
    fn watch(&self, device: &CellsDevice, child: HoldingName) -> Result<()> {
        if self.rules.is_empty() { Ok(()) } else { device.watch(child, mask::SYSCALLS) }
    }

    /// Decides about the system call that has halted a child, if one has. Returns the rule by which it was refused.
    ///
    /// # Errors
    /// The device does not allow it.
    fn serve(&self, device: &CellsDevice, child: HoldingName) -> Result<Option<&DenyRule>> {
        if self.rules.is_empty() || device.state(child)? != ChildState::Halted {
            return Ok(None);
        }
        let watched = WatchedChild { device, name: child };
        if watched.reason()? != HaltReason::Syscall {
            device.resume(child, resume::CONTINUE)?;
            return Ok(None);
        }
        let registers = watched.registers()?;
        let mut refused = None;
        for rule in &self.rules {
            if refused.is_none() && applies(rule, &watched, &registers)? {
                refused = Some(rule);
            }
        }
        if refused.is_none() {
            device.resume(child, resume::DELIVER)?;
            return Ok(None);
        }
        // The call counts as made.
        watched.set_registers(&Registers { rax: REFUSED, ..registers })?;
        device.resume(child, resume::CONTINUE)?;
        Ok(refused)
    }
}

/// Whether a rule refuses the system call in these registers.
fn applies(rule: &DenyRule, child: &WatchedChild<'_>, registers: &Registers) -> Result<bool> {
    // Linux takes the lower half as the number.
    if u64::from(registers.rax as u32) != rule.call.id() as u64 {
        return Ok(false);
    }
    let Some(path) = &rule.path else { return Ok(true) };
    let address = if PATH_FIRST.contains(&rule.call) { registers.rdi } else { registers.rsi };
    let mut bytes = vec![0; PATH_MAX];
    let count = child.device.read(child.name.current_space(), address, &mut bytes)?;
    let given = bytes[..count].split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(given == path.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::DenyRule;

    #[test]
    fn rules_are_read_as_they_are_printed() {
        for text in ["connect", "openat:/etc/shadow", "execve:/bin/a:b"] {
            assert_eq!(text.parse::<DenyRule>().map(|rule| rule.to_string()), Ok(text.into()));
        }
        for wrong in ["", "connekt", "connect:/etc", "openat :/x"] {
            assert!(wrong.parse::<DenyRule>().is_err(), "{wrong}");
        }
    }
}
