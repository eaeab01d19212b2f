// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resource limits of `setrlimit` and `prlimit64`. Limits of CPU time, file sizes, memory, locked memory, open files, stacks and
//! processes are enforced; the cell has its own besides.

use pando_abi::limits::MAX_SPACES;

use crate::errno::Errno;
use crate::signals::Signal;
use crate::uapi::{
    RLIM_NLIMITS, RLIMIT_AS, RLIMIT_CORE, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_MEMLOCK, RLIMIT_MSGQUEUE, RLIMIT_NICE, RLIMIT_NOFILE,
    RLIMIT_NPROC, RLIMIT_RTPRIO, RLIMIT_STACK,
};
use crate::user::NANOSECONDS;

const UNLIMITED: u64 = u64::MAX;
/// Default limit of the stack in bytes.
pub const STACK_LIMIT: u64 = 8 << 20;
/// Default limit of open files, as Linux starts its first process.
pub const OPEN_LIMIT: u64 = 1024;
/// Highest limit of open files that a process may have.
pub const OPEN_MAX: u64 = 1 << 16;

/// Spaces that no process has: those that programs start in.
const SPARE_SPACES: u64 = 64;
/// Processes that a cell may have: each has a space.
pub const PROCESSES_MAX: u64 = MAX_SPACES as u64 - SPARE_SPACES;

/// A resource's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The soft limit, which is enforced.
    pub soft: u64,
    /// The hard limit, up to which the soft one may be raised.
    pub hard: u64,
}

/// The limits of all resources.
#[derive(Clone, Copy, Debug)]
pub struct Limits([Limit; RLIM_NLIMITS]);

impl Default for Limits {
    fn default() -> Limits {
        let mut limits = [Limit { soft: UNLIMITED, hard: UNLIMITED }; RLIM_NLIMITS];
        let lower = [
            (RLIMIT_CORE as usize, 0),
            (RLIMIT_NPROC as usize, PROCESSES_MAX),
            (RLIMIT_NOFILE as usize, OPEN_MAX),
            (RLIMIT_MSGQUEUE as usize, 819_200),
            (RLIMIT_NICE as usize, 0),
            (RLIMIT_RTPRIO as usize, 0),
        ];
        for (resource, limit) in lower {
            limits[resource] = Limit { soft: limit, hard: limit };
        }
        limits[RLIMIT_STACK as usize].soft = STACK_LIMIT;
        limits[RLIMIT_NOFILE as usize].soft = OPEN_LIMIT;
        Limits(limits)
    }
}

impl Limits {
    /// The limit of a resource, by Linux's number.
    ///
    /// # Errors
    /// `EINVAL`: there is no such resource.
    pub fn get(&self, resource: u64) -> Result<Limit, Errno> {
        usize::try_from(resource).ok().and_then(|resource| self.0.get(resource).copied()).ok_or(Errno::EINVAL)
    }

    /// Bytes that the stack may grow to.
    #[must_use]
    pub fn stack(&self) -> u64 {
        self.0[RLIMIT_STACK as usize].soft
    }

    /// The soft limit of a resource that is counted in bytes.
    fn bytes(&self, resource: u64) -> u64 {
        self.0[resource as usize].soft
    }

    /// Bytes of a core dump.
    #[must_use]
    pub fn core(&self) -> u64 {
        self.bytes(RLIMIT_CORE)
    }

    /// Bytes that it may have mapped; `None`: unlimited.
    #[must_use]
    pub fn address_space(&self) -> Option<u64> {
        Some(self.bytes(RLIMIT_AS)).filter(|bytes| *bytes != UNLIMITED)
    }

    /// Bytes of private writable memory; `None`: unlimited.
    #[must_use]
    pub fn data(&self) -> Option<u64> {
        Some(self.bytes(RLIMIT_DATA)).filter(|bytes| *bytes != UNLIMITED)
    }

    /// Bytes that may be locked; `None`: unlimited.
    #[must_use]
    pub fn locked(&self) -> Option<u64> {
        Some(self.bytes(RLIMIT_MEMLOCK)).filter(|bytes| *bytes != UNLIMITED)
    }

    /// CPU time in nanoseconds after which the process gets its next signal for it. `None`: never.
    #[must_use]
    pub fn cpu(&self) -> Option<u64> {
        let Limit { soft, .. } = self.0[RLIMIT_CPU as usize];
        (soft != UNLIMITED).then(|| soft.saturating_mul(NANOSECONDS))
    }

    /// The signal for a process that has used so many nanoseconds of the CPU: every second from the soft limit on (`SIGXCPU`), at
    /// the hard limit `SIGKILL`.
    pub fn spend(&mut self, used: u64) -> Option<Signal> {
        let due = self.cpu().filter(|due| *due <= used)?;
        let limit = &mut self.0[RLIMIT_CPU as usize];
        if limit.hard != UNLIMITED && limit.hard.saturating_mul(NANOSECONDS) <= used {
            return Some(Signal::SIGKILL);
        }
        limit.soft = (due / NANOSECONDS).saturating_add(1);
        Some(Signal::SIGXCPU)
    }

    /// Sets the limit of a resource.
    ///
    /// # Errors
    /// `EINVAL`: there is no such resource, or the soft limit is above the hard one. `EPERM`: only `root` raises a hard limit, and
    /// nobody raises that of open files above [`OPEN_MAX`].
    pub fn set(&mut self, resource: u64, limit: Limit, root: bool) -> Result<(), Errno> {
        let before = self.get(resource)?;
        if limit.soft > limit.hard {
            return Err(Errno::EINVAL);
        }
        if limit.hard > before.hard && !root || resource == RLIMIT_NOFILE && limit.hard > OPEN_MAX {
            return Err(Errno::EPERM);
        }
        self.0[resource as usize] = limit;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Limit, Limits};
    use crate::errno::Errno;
    use crate::signals::Signal;
    use crate::uapi::{RLIMIT_CPU, RLIMIT_NOFILE};

    #[test]
    fn a_process_gets_sigxcpu_every_second_and_sigkill_at_the_hard_limit() {
        const SECOND: u64 = 1_000_000_000;
        let mut limits = Limits::default();
        assert_eq!((limits.cpu(), limits.spend(u64::MAX)), (None, None));
        assert_eq!(limits.set(RLIMIT_CPU, Limit { soft: 1, hard: 3 }, false), Ok(()));
        assert_eq!((limits.spend(SECOND - 1), limits.spend(SECOND)), (None, Some(Signal::SIGXCPU)));
        assert_eq!((limits.cpu(), limits.spend(SECOND)), (Some(2 * SECOND), None));
        assert_eq!((limits.spend(2 * SECOND), limits.spend(3 * SECOND)), (Some(Signal::SIGXCPU), Some(Signal::SIGKILL)));
    }

    #[test]
    fn limits_go_down_and_for_root_up() {
        let mut limits = Limits::default();
        let limit = |soft, hard| Limit { soft, hard };
        assert_eq!(limits.set(1, limit(5, 10), false), Ok(()));
        assert_eq!((limits.get(1), limits.get(16)), (Ok(limit(5, 10)), Err(Errno::EINVAL)));
        assert_eq!(limits.set(1, limit(11, 10), true), Err(Errno::EINVAL));
        assert_eq!((limits.set(1, limit(0, 11), false), limits.set(1, limit(0, 11), true)), (Err(Errno::EPERM), Ok(())));
        assert_eq!(limits.set(RLIMIT_NOFILE, limit(5, u64::MAX), true), Err(Errno::EPERM));
    }
}
