// SPDX-License-Identifier: MIT OR Apache-2.0
//! Versions of host files: what `stat` says, so far as it distinguishes contents.

use std::{
    thread,
    time::{Duration, SystemTime},
};

use rustix::fs::Stat;

/// Read permission for owner, group and others.
const READABLE: u16 = 0o444;
/// Twice the longest tick that Linux is built with.
const TICK: Duration = Duration::from_millis(20);

/// The version of a host file: distinguishes contents without reading them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) modified: (i64, u32),
    /// The lower twelve bits of its mode.
    pub(crate) permissions: u16,
    pub(crate) changed: ChangeTime,
}

impl Version {
    pub(crate) fn of(stat: &Stat) -> Self {
        Version {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size.cast_unsigned(),
            modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
            permissions: (stat.st_mode & 0o7777) as u16,
            changed: ChangeTime { seconds: stat.st_ctime, nanoseconds: stat.st_ctime_nsec as u32 },
        }
    }

    /// Whether it has the same content as an earlier version, judged by inode, size and modification time, and may be read by all who could
    /// read that. Additional names change none of these.
    pub(crate) fn has_content_of(&self, earlier: &Version) -> bool {
        let is_closed = earlier.permissions & !self.permissions & READABLE != 0;
        Version { changed: earlier.changed, permissions: earlier.permissions, ..*self } == *earlier && !is_closed
    }

    /// Waits until another change would show in the times, for [`TICK`] at most. Linux takes the times of files from a clock that advances
    /// once per tick of its timer, and reports neither the tick nor later changes within it: there is no event to wait for.
    pub(crate) fn await_clock_tick(&self) {
        let Ok(seconds) = u64::try_from(self.changed.seconds) else { return };
        // Times in the future, after the clock was set back, cannot be waited for.
        if let Some(Ok(age)) = time(seconds, self.changed.nanoseconds).map(|changed| changed.elapsed()) {
            thread::sleep(TICK.saturating_sub(age));
        }
    }
}

/// The change time of a file: of its content, mode or names. It is in a table of its own, because the content may be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangeTime {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
}

impl ChangeTime {
    /// Whether any change from now on will show: file systems count in steps of up to two seconds.
    pub(crate) fn is_settled(self) -> bool {
        let Ok(seconds) = u64::try_from(self.seconds) else { return true };
        time(seconds, self.nanoseconds).is_some_and(|changed| changed.elapsed().is_ok_and(|age| age > Duration::from_secs(2)))
    }
}

/// A time since 1970; `None`: the clock has no such time. Times may come from a file.
fn time(seconds: u64, nanoseconds: u32) -> Option<SystemTime> {
    let since = Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanoseconds.into()))?;
    SystemTime::UNIX_EPOCH.checked_add(since)
}
